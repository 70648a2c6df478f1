package election

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// expired: the kernel removed the address because nobody renewed it in time.
func (s *step) expired() bool {
	a := s.in.Address
	return a.Gen >= s.m.Gen && a.Expired && !a.Bound
}

// giveUp leaves the VIP to a node whose kernel does what it is told.
func (s *step) giveUp() {
	s.m.Deferred = s.in.Now.Add(DriverPause)
	s.detail = cmp.Or(s.detail, s.in.Address.Err)
	s.m.LostDetail = s.detail
	s.letGo(model.ReasonDriverError)
}

// letGo drops the claim and removes the address at once.
func (s *step) letGo(why model.Reason) {
	s.m.Lost = why
	s.m.To, s.m.Tried = "", nil
	s.enter(model.PhaseUnbinding)
}

// release drops the claim, falls silent and keeps the address for connections
// that still arrive.
func (s *step) release(why model.Reason) {
	s.m.Lost = why
	s.m.To, s.m.Tried = "", nil
	s.m.Silent, s.m.Kept = true, false
	s.enter(model.PhaseReleasing)
	s.m.Until = s.in.Now.Add(s.in.Drain)
}

// owner: bound and announced.
func (s *step) owner() {
	if s.doubts() || s.mustDrop() || s.failing() || s.disputed() {
		return
	}
	if s.m.Interface != s.in.Interface && s.in.Interface != "" {
		s.m.Interface = s.in.Interface
		s.m.Gen = s.in.Gen
		s.m.Burst++
	}
	if s.m.Consented && s.announced() {
		s.m.Consented = false // from now on the claim stands by itself
	}
	if !s.m.Consented {
		s.m.Held = max(s.m.Held, s.m.Epoch)
	}
	if s.outlived() {
		s.m.Epoch, s.m.Weak = s.in.Seen+1, false
		s.m.Burst++
	}
	if s.claimed() != 0 {
		s.m.Contested = true
	} else if s.m.Contested {
		s.m.Contested = false
		s.m.Burst++
	}
	if s.leaving() || s.preempted() {
		s.name()
	}
}

// outlived: the address was adopted from a former life of this node, which the
// others tell of now, and which claimed a higher epoch. An owner that has merely
// met the other side of a cut must not raise its epoch: what the others have seen
// is then the claim of the rightful owner, who may be heard only later.
func (s *step) outlived() bool {
	adopted := s.m.From == s.in.Self && s.in.Now.Sub(s.m.LostAt) < OutlivedWithin
	return adopted && s.in.Settled && s.best.Epoch == 0 && s.in.Seen > max(s.m.Epoch, s.claimed())
}

// mustDrop ends ownership that cannot go on, whoever takes over.
func (s *step) mustDrop() bool {
	switch {
	case s.in.Gone:
		s.letGo(model.ReasonNotSelected)
	case s.beaten():
		s.release(model.ReasonLostElection)
	case s.expired():
		s.letGo(model.ReasonLeaseExpired)
	case s.impossible():
		s.letGo(s.in.Standing)
	default:
		return false
	}
	return true
}

// failing gives up a VIP that a driver cannot keep up.
func (s *step) failing() bool {
	l2 := s.in.Layer2
	if s.bound() && (l2.Gen < s.m.Gen || l2.Announcing || l2.Err == "") {
		s.m.Until = time.Time{}
		return false
	}
	if s.m.Until.IsZero() {
		s.m.Until = s.in.Now.Add(DriverPatience)
	}
	if s.in.Now.Before(s.m.Until) {
		s.at(s.m.Until)
		return false
	}
	if s.in.Address.Err == "" {
		s.detail = l2.Err
	}
	s.giveUp()
	return true
}

// impossible tells whether this node cannot serve the VIP any longer at all.
func (s *step) impossible() bool { return s.in.Standing.Class() == model.ClassImpossible }

// dead tells whether nothing here would answer the clients.
func (s *step) dead() bool { return s.in.Standing.Class() == model.ClassDead }

// leaving: this node serves the VIP but should not.
func (s *step) leaving() bool { return s.in.Standing.Leaves() }

// outranked: the VIP asks for the best node, or for one that is preferred to this, or
// this node is degraded and another one is up.
func (s *step) outranked() bool {
	if !s.in.Standing.Eligible() || !s.in.VIP.Preempt && s.in.VIP.Preference == nil && !s.degraded() {
		return false
	}
	return slices.ContainsFunc(s.in.Eligible, func(e model.NodeName) bool {
		return e != s.in.Self && !s.gone(e) && !s.late(e) && s.outranks(e)
	})
}

// outranks tells whether this node would hand the VIP to another one that may have
// it although it may have it itself.
func (s *step) outranks(e model.NodeName) bool {
	switch other := s.candidate(e); {
	case s.degraded():
		return !other.Degraded
	case other.Degraded:
		return false
	case s.in.VIP.Preempt:
		return Better(s.in.VIP.Name, other, s.candidate(s.in.Self))
	}
	p := s.in.VIP.Preference
	return p.Of(e) > p.Of(s.in.Self)
}

// preempted: it has been outranked for long enough.
func (s *step) preempted() bool {
	if s.m.Owner != s.in.Self || !s.outranked() {
		return false
	}
	due := s.m.Since.Add(PreemptDelay)
	for _, t := range [...]time.Time{s.m.Deferred, s.m.Outclassed.Add(DegradedGrace)} {
		if t.After(due) {
			due = t
		}
	}
	if s.in.Now.Before(due) {
		s.at(due)
		return false
	}
	return true
}

// name tells the best successor that has not been tried to take the VIP.
func (s *step) name() {
	var to model.NodeName
	leaving := s.leaving()
	for _, e := range s.in.Eligible {
		if e == s.in.Self || s.gone(e) || s.late(e) || slices.Contains(s.m.Tried, e) || !leaving && !s.outranks(e) {
			continue
		}
		if to == "" || Better(s.in.VIP.Name, s.candidate(e), s.candidate(to)) {
			to = e
		}
	}
	if to == "" || s.removed() && len(s.m.Tried) >= removedAsks {
		s.noSuccessor()
		return
	}
	if s.m.To != "" && s.m.To != to {
		// The one named before may still take the VIP late; a new epoch makes the
		// claim of the new one the higher.
		s.m.Epoch, s.m.Weak = s.nextEpoch(), false
	}
	s.m.To = to
	s.m.Conflicts = s.in.Layer2.Conflicts
	s.turn(model.PhaseHandover)
	s.m.Until = s.in.Now.Add(HandoverTimeout)
	s.at(s.m.Until)
}

// removedAsks is how many nodes are asked to take what is configured here no more. What is
// removed everywhere may not have reached the others yet.
const removedAsks = 2

func (s *step) removed() bool { return s.in.Standing == model.ReasonRemoved }

// noSuccessor: a drained VIP stays, a dead service is not announced.
func (s *step) noSuccessor() {
	if s.in.Standing.LetsGo() {
		s.letGo(s.in.Standing)
		return
	}
	s.m.To = ""
	if s.m.Phase == model.PhaseHandover {
		s.turn(model.PhaseOwner)
	}
	if len(s.m.Tried) == 0 {
		return // a new member's standing wakes the decision by itself
	}
	if !s.m.Deferred.After(s.in.Now) {
		if !s.m.Deferred.IsZero() {
			s.m.Tried, s.m.Deferred = nil, time.Time{}
			s.at(s.in.Now)
			return
		}
		s.m.Deferred = s.in.Now.Add(RetrySuccessor)
	}
	s.at(s.m.Deferred)
}

// handover: a successor has been told; it claims when it has announced.
func (s *step) handover() {
	if s.best.Epoch > s.m.Epoch && !s.in.Gone {
		why := s.in.Standing
		if why.Eligible() && !s.degraded() {
			why = model.ReasonLostElection
		}
		s.release(why)
		return
	}
	if s.mustDrop() {
		return
	}
	if s.listen() {
		return
	}
	if !s.leaving() && !s.outranked() {
		s.m.To, s.m.Tried = "", nil
		s.turn(model.PhaseOwner)
		return
	}
	// One that stood still meanwhile first hears whether the successor has taken it:
	// another one, named with a higher epoch, would take it away from that.
	if heard := s.in.Resumed.Add(HandoverTimeout); s.in.Now.Before(heard) && s.m.Until.Before(heard) {
		s.at(heard)
		return
	}
	if !s.willing() {
		s.name()
		return
	}
	if s.in.Now.Before(s.m.Until) {
		s.at(s.m.Until)
		return
	}
	s.m.Tried = append(slices.Clip(s.m.Tried), s.m.To)
	s.name()
}

// willing tells whether the successor may still be expected to take the VIP.
func (s *step) willing() bool {
	to := s.m.To
	return !s.gone(to) && !s.late(to) && slices.Contains(s.in.Eligible, to) && (s.leaving() || s.outranks(to))
}

// listen notes that the successor uses the VIP by what the wire says. If no claim comes soon,
// or before anything else is done about the VIP, the owner asks the wire for it: gossip may be
// slow, and the frame may be anybody's. It does so once for each that it names.
func (s *step) listen() (asks bool) {
	if l2 := &s.in.Layer2; l2.Gen >= s.m.Gen && l2.Conflicts > s.m.Conflicts {
		s.m.Conflicts = l2.Conflicts
		if n, ok := s.member(l2.Foreign); ok && n == s.m.To && s.m.Dispute == nil {
			s.m.Dispute = &model.Dispute{By: l2.Foreign, Since: s.in.Now, Last: s.in.Now}
		}
	}
	d := s.m.Dispute
	if d == nil {
		return false
	}
	due := d.Since.Add(ClaimFollows)
	if s.in.Now.Before(due) && s.in.Now.Before(s.m.Until) && s.willing() {
		s.at(due)
		return false
	}
	s.beginDoubt()
	return true
}

// connections is how many are to be kept; negative if that is not known.
func (s *step) connections() int {
	if s.in.Keep {
		return s.in.Address.Sockets
	}
	return s.in.Address.Connections
}

// lingered tells whether a released VIP has been kept for as long as it may. A node
// that is well keeps it for as long as it has connections: nothing is gained by their
// end. Their time begins anew when the node is to go.
func (s *step) lingered() bool {
	well := s.in.Keep && s.in.Standing.Eligible() && !s.degraded()
	if s.m.Kept && !well {
		s.m.Kept, s.m.Until = false, s.in.Now.Add(s.in.Drain)
	}
	over := !s.in.Now.Before(s.m.Until)
	s.m.Kept = s.m.Kept || over && well && s.connections() > 0
	return over && !s.m.Kept
}

// strands tells whether clients on this node can reach no server that works because the
// address is still here. The connections of others, to a server that fails its check, are
// then not worth keeping.
func (s *step) strands() bool { return s.dead() && s.in.Address.Own > 0 }

// releasing: silent; bound until connections ended or the drain timeout.
func (s *step) releasing() {
	l2, a := s.in.Layer2, s.in.Address
	known := l2.Gen >= s.m.Gen
	lingered := s.lingered()
	earliest := s.m.Until.Add(min(LingerMin, s.in.Drain) - s.in.Drain)
	quiet := a.Gen >= s.m.Gen && (s.connections() == 0 || s.strands()) && !s.in.Now.Before(earliest)
	wanted := s.wanted()
	if a.Gen >= s.m.Gen && a.Bound {
		s.m.Resume = false
	}
	s.m.Resume = s.m.Resume || wanted && s.in.Keep && s.connections() > 0
	switch {
	case s.in.Gone, wanted, s.expired(),
		s.removed() && s.best.Epoch == 0 && !s.in.Now.Before(earliest), // nobody has it now
		s.impossible(),
		known && !l2.Silent && l2.Err != "",
		known && l2.Silent && quiet,
		a.Gen >= s.m.Gen && !a.Bound && !s.m.Resume,
		lingered:
		s.enter(model.PhaseUnbinding)
	case s.m.Kept:
	default:
		s.at(s.m.Until)
		if s.in.Now.Before(earliest) {
			s.at(earliest)
		}
	}
}

// wanted tells whether what was released may be taken anew.
func (s *step) wanted() bool {
	return !s.in.Gone && s.mayOwn() && (s.best.Epoch == 0 || s.late(s.best.Owner) || s.consents())
}

// spared tells whether the connections of what was released are to outlive that it is
// unbound: it may be back at once, and while the link is down no client could be told.
func (s *step) spared() bool {
	return s.m.Resume || s.wanted() || s.in.Standing == model.ReasonLinkDown
}

// resume keeps connections on after all: the VIP was let go since its owner seemed to
// be missing, but it is well. What was silent is bound again once it is silent.
func (s *step) resume() bool {
	owned := s.best.Epoch != 0 && !s.late(s.best.Owner) && !s.consents()
	if !s.m.Resume || !owned {
		return false
	}
	if s.in.Gone || s.impossible() || s.in.Interface == "" {
		s.m.Resume = false
		return false
	}
	s.m.Interface, s.m.AddBefore = s.in.Interface, time.Time{}
	s.m.Epoch = max(s.in.Seen, 1)
	s.release(model.ReasonLostElection) // Resume stays until it is bound
	return true
}

// unbinding: the address must be gone before anything else happens.
func (s *step) unbinding() {
	if s.in.Address.Gen < s.m.Gen || s.in.Address.Bound {
		s.detail = s.in.Address.Err
		return
	}
	s.m.OwnClaim = model.OwnClaim{Held: s.m.Held}
	s.m.Silent, s.m.Kept = false, false
	s.enter(model.PhaseIdle)
}

// describe puts the host that answers in words. A member still has what it owned, or has the
// address in another way: then there is nothing to wait for.
func (s *step) describe(holder model.MAC) (model.Reason, string) {
	n, member := s.isMember(holder)
	switch {
	case !member:
		return model.ReasonConflict, fmt.Sprintf("%s answers for it and is not a member", holder)
	case s.in.Members[n].Standing[s.in.VIP.Addr] == model.ReasonLocalAddress:
		return model.ReasonConflict, fmt.Sprintf("%s answers for it at %s, where an interface has it outside lbd", n, holder)
	case !s.fresh() || s.m.Held > 0:
		return model.ReasonWaitingForRelease, fmt.Sprintf("%s still answers for it at %s", n, holder)
	case s.m.Asks < FirstAsks:
		return model.ReasonWaitingTurn, fmt.Sprintf("%s answers for it at %s and may just have taken it", n, holder)
	}
	return model.ReasonConflict, fmt.Sprintf("%s answers for it at %s, and nobody ever owned it: its kernel has the address outside lbd", n, holder)
}

// isMember tells whose hardware address it is.
func (s *step) isMember(mac model.MAC) (model.NodeName, bool) {
	// The former owner first: it is the usual case and needs no search.
	for _, n := range [...]model.NodeName{s.m.From, s.best.Owner} {
		if slices.Contains(s.in.Members[n].MACs, mac) {
			return n, true
		}
	}
	for n, m := range s.in.Members {
		if slices.Contains(m.MACs, mac) {
			return n, true
		}
	}
	return "", false
}
