package election

import (
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
	if s.detail == "" {
		s.detail = s.in.Address.Err
	}
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
	case hard(s.in.Standing):
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

// hard standings mean that this node cannot serve the VIP any longer at all.
func hard(r model.Reason) bool {
	switch r {
	case model.ReasonLinkDown, model.ReasonNoSubnet, model.ReasonNoInterface, model.ReasonNoQuorum,
		model.ReasonLocalAddress, model.ReasonFamilyDisabled, model.ReasonNotAnnounced:
		return true
	}
	return false
}

// leaving: this node serves the VIP but should not.
func (s *step) leaving() bool {
	switch s.in.Standing {
	case model.ReasonDraining, model.ReasonUnhealthy, model.ReasonNotSelected,
		model.ReasonNoEndpoint, model.ReasonNodeExcluded, model.ReasonMachineDraining:
		return true
	}
	return false
}

// dead standings mean that nothing here would answer the clients.
func dead(r model.Reason) bool { return r == model.ReasonUnhealthy || r == model.ReasonNoEndpoint }

// outranked: the VIP asks for the best node, or for one that is preferred to this.
func (s *step) outranked() bool {
	if !s.in.Standing.Eligible() || !s.in.VIP.Preempt && s.in.VIP.Preference == nil {
		return false
	}
	return slices.ContainsFunc(s.in.Eligible, func(e model.NodeName) bool {
		return e != s.in.Self && !s.gone(e) && !s.late(e) && s.outranks(e)
	})
}

// outranks tells whether this node would hand the VIP to another one that may have
// it although it may have it itself.
func (s *step) outranks(e model.NodeName) bool {
	if s.in.VIP.Preempt {
		return Better(s.in.VIP.Name, s.candidate(e), s.candidate(s.in.Self))
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
	if s.m.Deferred.After(due) {
		due = s.m.Deferred
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
	if to == "" {
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

// noSuccessor: a drained VIP stays, a dead service is not announced.
func (s *step) noSuccessor() {
	if dead(s.in.Standing) {
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
	if (s.best.Epoch > s.m.Epoch || s.taken()) && !s.in.Gone {
		why := s.in.Standing
		if why.Eligible() {
			why = model.ReasonLostElection
		}
		s.release(why)
		return
	}
	if s.mustDrop() {
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
	if s.gone(s.m.To) || s.late(s.m.To) || !slices.Contains(s.in.Eligible, s.m.To) {
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

// taken tells whether the successor has been heard on the wire: its announcement
// reaches this host together with the clients, however slow gossip is.
func (s *step) taken() bool {
	l2 := s.in.Layer2
	if l2.Gen < s.m.Gen || l2.Conflicts <= s.m.Conflicts {
		return false
	}
	for _, mac := range s.in.Members[s.m.To].MACs {
		if mac == l2.Foreign {
			return true
		}
	}
	return false
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
	well := s.in.Keep && s.in.Standing.Eligible()
	if s.m.Kept && !well {
		s.m.Kept, s.m.Until = false, s.in.Now.Add(s.in.Drain)
	}
	over := !s.in.Now.Before(s.m.Until)
	s.m.Kept = s.m.Kept || over && well && s.connections() > 0
	return over && !s.m.Kept
}

// releasing: silent; bound until connections ended or the drain timeout.
func (s *step) releasing() {
	l2, a := s.in.Layer2, s.in.Address
	known := l2.Gen >= s.m.Gen
	lingered := s.lingered()
	earliest := s.m.Until.Add(min(LingerMin, s.in.Drain) - s.in.Drain)
	quiet := a.Gen >= s.m.Gen && s.connections() == 0 && !s.in.Now.Before(earliest)
	wanted := !s.in.Gone && s.mayOwn() && (s.best.Epoch == 0 || s.late(s.best.Owner) || s.consents())
	if a.Gen >= s.m.Gen && a.Bound {
		s.m.Resume = false
	}
	s.m.Resume = s.m.Resume || wanted && s.in.Keep && s.connections() > 0
	switch {
	case s.in.Gone, wanted, s.expired(),
		hard(s.in.Standing),
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

// resume keeps connections on after all: the VIP was let go since its owner seemed to
// be missing, but it is well. What was silent is bound again once it is silent.
func (s *step) resume() bool {
	owned := s.best.Epoch != 0 && !s.late(s.best.Owner) && !s.consents()
	if !s.m.Resume || !owned {
		return false
	}
	if s.in.Gone || hard(s.in.Standing) || s.in.Interface == "" {
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
	s.m.Epoch = 0
	s.m.Consented, s.m.Contested, s.m.Silent, s.m.Weak, s.m.Kept = false, false, false, false, false
	s.enter(model.PhaseIdle)
}

// describe puts the end of the owner's lease and the answering host in words.
func (s *step) describe(holder model.MAC) (model.Reason, string) {
	if n, ok := s.isMember(holder); ok {
		return model.ReasonWaitingForRelease, fmt.Sprintf("%s still answers for it at %s", n, holder)
	}
	return model.ReasonConflict, fmt.Sprintf("%s answers for it and is not a member", holder)
}
