package loopback

import (
	"slices"
	"time"

	"lbd.dev/lbd/internal/audience"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
)

// stand finds out whether this node may advertise the VIP.
func (s *step) stand() {
	in := s.in
	if in.Gone {
		s.standing = model.ReasonNotSelected
		return
	}
	s.standing, s.detail = in.Standing.Reason, in.Standing.Detail
	s.degraded = in.Leveled && in.Health.State == model.HealthDegraded
	if s.degraded && s.mayAdvertise() && !in.OnlyBalanced() {
		if s.detail = in.Health.Detail; s.outclassed() {
			s.standing = model.ReasonDegraded
		}
	}
}

// mayAdvertise tells whether this node is to have a path.
func (s *step) mayAdvertise() bool {
	return s.standing == model.ReasonStandby && (s.in.OwnsOnLAN || !s.in.VIP.FollowsOwner())
}

// outclassed tells whether a node that is degraded is to leave the VIP to others that are up and
// advertise it. One that does not advertise it yet does not begin to.
func (s *step) outclassed() bool {
	better, has := slices.ContainsFunc(s.in.Eligible, s.better), s.carries()
	s.m.Outclassed = election.Outclass(s.m.Outclassed, s.in.Now, has && better)
	if !has || !better {
		return better
	}
	due := s.m.Outclassed.Add(election.DegradedGrace)
	if s.in.Now.Before(due) {
		s.at(due)
		return false
	}
	return true
}

// better tells whether another node is up and advertises the VIP, or has it on the LAN as well
// and may.
func (s *step) better(n model.NodeName) bool {
	m := s.in.Members[n]
	stand := m.Standing[s.in.VIP.Addr]
	return n != s.in.Self && m.State == model.MemberAlive && m.Late.IsZero() && !m.Draining &&
		(stand == model.ReasonOwner || s.in.VIP.L2 && stand == model.ReasonStandby)
}

// adopt goes on with what an earlier process of this node advertised: its address is still there,
// so routers that keep the path over a graceful restart are right to send packets here.
func (s *step) adopt() {
	if c := s.standing.Class(); c == model.ClassMayServe || c == model.ClassWaiting {
		s.adopted(model.BGPAdvertised, s.in.Now.Add(AdoptPending))
		return
	}
	s.m.Lost = s.standing
	s.keepConnections()
	switch {
	case s.in.OnlyBalanced():
		s.adopted(model.BGPLingering, s.m.DrainEnd)
		s.m.Gen = s.in.Gen // its connections are counted from now on
	case s.in.Routers.mayKeepPath():
		s.adopted(model.BGPKept, s.in.Now.Add(audience.RestartTime))
	default:
		s.unbind()
	}
}

// adopted begins with a phase in which the address is bound: every report of it counts.
func (s *step) adopted(p model.BGPPhase, until time.Time) {
	s.enter(p)
	s.m.Gen, s.m.Epoch, s.m.Until = 0, 1, until
}

// unbind ends in Idle. While layer 2 may have the address elsewhere this host is silent about it
// until the kernel has it no more: drivers work at the same time, so a silence that ended with
// the binding could end before it.
func (s *step) unbind() {
	if s.l2 {
		s.enter(model.BGPUnbinding)
	} else {
		s.enter(model.BGPIdle)
	}
}

// enter changes the phase. What is bound, withdrawn or unbound waits for reports of this
// generation; in the other phases what was bound stays confirmed.
func (s *step) enter(p model.BGPPhase) {
	s.m.Phase, s.m.Until = p, time.Time{}
	switch p {
	case model.BGPBinding:
		s.m.Gen, s.m.Epoch = s.in.Gen, s.in.Gen
	case model.BGPWithdrawing, model.BGPUnbinding:
		s.m.Gen = s.in.Gen
	}
}

// phases goes through those that end at once in the next one; their number bounds it.
func (s *step) phases() {
	for range model.BGPUnbinding + 1 {
		before := s.m.Phase
		if s.in.VIP.Unbound {
			// It is there while it is wanted, and there is nothing to keep for connections.
			s.in.AddressGen, s.in.OnLoopback = s.in.Gen, model.AppliedVIP{Bound: before != model.BGPIdle}
		}
		s.run()
		if s.m.Phase == before {
			return
		}
	}
}

// run takes one step of the phase.
func (s *step) run() {
	switch s.m.Phase {
	case model.BGPIdle:
		if s.mayAdvertise() {
			s.enter(model.BGPBinding)
		}
	case model.BGPBinding:
		s.binding()
	case model.BGPAdvertised:
		s.advertising()
	case model.BGPShutdown:
		s.shuttingDown()
	case model.BGPWithdrawing:
		s.withdrawing()
	case model.BGPKept, model.BGPLingering, model.BGPUnbinding:
		s.leaving()
	}
}

// bound tells whether the address is in the kernel for good: on lo, or, where layer 2 announces
// it too, on the LAN: while this node owns it there, and while it lets it go, so that the path
// stays until the address is on lo.
func (s *step) bound() bool { return s.reported() && (s.onLoopback() || s.boundOnLAN) }

// reported tells whether the address driver has answered since the phase began.
func (s *step) reported() bool { return s.in.AddressGen >= s.m.Gen }

// onLoopback tells whether the address is on lo. The end of its lifetime counts, so a process
// that was frozen for longer does not trust what it knew.
func (s *step) onLoopback() bool { return s.in.OnLoopback.Bound && s.lasts(s.in.OnLoopback.Expires) }

// onLAN tells whether this node owns the VIP on the LAN and has it bound there.
func (s *step) onLAN() bool { return s.boundOnLAN && s.in.OwnsOnLAN }

// withdraw takes the path from routers because of the standing.
func (s *step) withdraw() {
	s.m.Lost = s.standing
	s.keepConnections()
	s.enter(model.BGPWithdrawing)
}

// keepConnections lets those to a Balanced VIP go on, whatever the reason for which this node
// gets no new ones, unless nobody asks for the VIP any more.
func (s *step) keepConnections() {
	if s.m.Balanced && s.in.VIP.Kind != "" {
		s.m.DrainEnd = s.in.Now.Add(s.in.DrainTimeout)
	}
}

// binding: routers are told once the address is there, and the ring.
func (s *step) binding() {
	switch {
	case !s.mayAdvertise() && s.pathGone():
		s.m.Lost = s.standing
		s.unbind() // it may be bound at this moment
	case !s.mayAdvertise():
		s.withdraw() // it was advertised, then somebody removed the address
	case s.bound():
		if !s.ringWaits() {
			s.enter(model.BGPAdvertised)
		}
	case s.reported() && s.in.OnLoopback.Expired:
		s.enter(model.BGPBinding) // with an epoch under which it has not expired
	}
}

// ringWaits tells whether routers are not to be told of a VIP that is there yet: with the path
// come packets of connections that others have, at once. So this node waits until its kernel
// relays. Its first sessions wait as well: their routers may have kept the path.
func (s *step) ringWaits() bool {
	in, keeps := s.in, s.in.Ring.Keeps
	if in.Memory.Balanced || s.m.Balanced {
		keeps = in.Ring.KeepsOnLAN
	}
	if in.Gone || in.OnlyBalanced() || !in.Ring.Driver || !keeps {
		return false
	}
	until, hold := in.SettledBy, true
	switch {
	case in.VIP.Unbound && in.Now.Before(until): // nothing has to be bound meanwhile
		// Routers keep the paths of other VIPs for a while, not for as long as that.
		sessions := in.Started.Add(SessionsWait)
		if hold = in.Now.Before(sessions); hold {
			s.at(sessions)
		}
	case !in.Ring.Others || in.Ring.Gen >= s.m.Gen:
		return false
	default:
		if s.m.Until.IsZero() {
			s.m.Until = in.Now.Add(in.Ring.Patience)
		}
		until = s.m.Until
	}
	if !in.Now.Before(until) {
		return false
	}
	s.at(until)
	s.holdSessions = s.holdSessions || hold
	return true
}

func (s *step) advertising() {
	now := s.in.Now
	switch {
	case s.standing == model.ReasonHealthPending && now.Before(s.m.Until) && s.bound():
		s.at(s.m.Until)
	case !s.bound() && s.reported():
		// Somebody removed it or its lifetime ended; the driver puts it back or is told to begin
		// anew. No path without the address.
		if s.mayAdvertise() {
			s.enter(model.BGPBinding)
		} else {
			s.withdraw()
		}
	case s.mayAdvertise():
	case s.succeeded():
		s.m.DrainEnd = now.Add(election.Drain(s.standing, s.in.DrainTimeout))
		s.enter(model.BGPShutdown)
		s.m.Until = now.Add(s.followDelay())
	case !s.standing.Planned():
		s.withdraw()
	case s.successor(): // without one reason says so
		s.m.DrainEnd = now.Add(election.Drain(s.standing, s.in.DrainTimeout))
		s.enter(model.BGPShutdown)
		s.m.Until = now.Add(s.in.Audience.Delay)
	}
}

// succeeded tells whether the VIP has been handed over to another node, whose path is on its way
// to routers. Until it is there they need that of this one, whatever the reason for which it left.
func (s *step) succeeded() bool {
	return s.in.VIP.FollowsOwner() && s.in.Owner != "" && s.in.Owner != s.in.Self && !s.in.OwnsOnLAN && !s.in.Gone
}

// followDelay is for how long a former owner advertises the VIP beside the new one.
func (s *step) followDelay() time.Duration {
	if s.standing.Eligible() || s.standing.Planned() { // connections are well here meanwhile
		return max(FollowDelay, s.in.Audience.Delay)
	}
	return FollowDelay
}

// unheard tells whether routers had better lead here still, since they do not hear the node that has
// taken the VIP over. Connections have to be well here, a node that is drained waits no longer than for
// connections, and a process that ends does not wait.
func (s *step) unheard() bool {
	if !s.succeeded() || s.in.Stopping != "" || s.in.Members[s.in.Owner].Standing[s.in.VIP.Addr] != model.ReasonDegraded {
		return false
	}
	if s.standing.Eligible() {
		return true
	}
	waits := s.standing.Planned() && s.in.Now.Before(s.m.DrainEnd)
	if waits {
		s.at(s.m.DrainEnd)
	}
	return waits
}

// successor tells whether another node serves the VIP: the last one stays. Not on lo without a
// process that keeps it silent.
func (s *step) successor() bool {
	return s.in.Stopping != "" && s.l2 && !s.onLAN() || slices.ContainsFunc(s.in.Eligible, func(n model.NodeName) bool {
		m, known := s.in.Members[n]
		return n != s.in.Self && known && m.State == model.MemberAlive && !m.Draining
	})
}

// shuttingDown: routers are asked to leave before the path is withdrawn.
func (s *step) shuttingDown() {
	if end := s.in.Now.Add(StopShutdown); s.in.Stopping != "" && s.m.Until.After(end) {
		s.m.Until = end
	}
	switch {
	case s.mayAdvertise():
		s.enter(model.BGPAdvertised)
	case !s.standing.Planned() && !s.succeeded(), !s.bound():
		s.withdraw()
	case s.unheard(): // and for a while more once the owner is heard
		s.m.Until = time.Time{}
	case s.m.Until.IsZero():
		s.m.Until = s.in.Now.Add(s.followDelay())
		s.at(s.m.Until)
	case !s.in.Now.Before(s.m.Until):
		s.withdraw()
	default:
		s.at(s.m.Until)
	}
}

// withdrawing: the address stays until no peer has the path, and for as long as routers need to
// follow. No timer ends it without the word of the driver: one that is stuck may have left the
// path with routers, which then send here. Such an address harms nobody; it goes when the driver
// answers or the process ends.
func (s *step) withdrawing() {
	switch now := s.in.Now; {
	case s.mayAdvertise() && s.bound():
		s.enter(model.BGPAdvertised)
	case !s.pathGone():
		s.m.Until = time.Time{}
	case s.m.Unbound:
		s.unbind()
	case s.m.Until.IsZero():
		s.m.Until = now.Add(WithdrawLinger)
		s.at(s.m.Until)
	case now.Before(s.m.Until):
		s.at(s.m.Until)
	case (s.m.Lost.Planned() || s.m.Balanced) && now.Before(s.m.DrainEnd):
		s.enter(model.BGPLingering)
		s.m.Until = s.m.DrainEnd
	default:
		s.unbind()
	}
}

// leaving: no router has the path, and the address goes: Kept for routers that may still have one
// of an earlier process, Lingering for connections, Unbinding until the kernel has it no more.
func (s *step) leaving() {
	switch phase := s.m.Phase; {
	case s.mayAdvertise() && s.bound():
		s.enter(model.BGPAdvertised)
	case s.mayAdvertise():
		s.enter(model.BGPBinding)
	case phase == model.BGPUnbinding:
		if s.reported() && !s.in.OnLoopback.Bound {
			s.enter(model.BGPIdle)
		}
	case !s.in.Now.Before(s.m.Until), phase == model.BGPKept && !s.in.Routers.mayKeepPath(), phase == model.BGPLingering && s.quiet():
		s.unbind()
	default:
		s.at(s.m.Until)
	}
}

// quiet tells whether the last connection has ended for which the address lingers.
func (s *step) quiet() bool {
	open, keeps := s.in.OnLoopback.Connections, s.in.Ring.Keeps
	if s.m.Balanced {
		keeps = s.in.Ring.KeepsOnLAN
	}
	if keeps { // the others relay what is not theirs
		open = s.in.OnLoopback.Sockets
	}
	if s.standing == model.ReasonUnhealthy && s.in.OnLoopback.Own > 0 {
		open = 0 // clients on this node reach no server that works until the address is gone
	}
	return s.reported() && open == 0 && !(s.m.Balanced && s.onLAN())
}
