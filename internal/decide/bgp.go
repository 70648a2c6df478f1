package decide

import (
	"slices"
	"time"

	"lbd.dev/lbd/internal/audience"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

const (
	// BGPLifetime is the kernel lifetime of an address that only BGP announces. No
	// election waits for its end, so it may outlast a restart of the daemon. It is
	// renewed at a third, so at least 20 s are left when the daemon dies or freezes:
	// the default hold time, after which routers notice that it is frozen, and
	// audience.RestartTime, for which they may keep the path after that.
	BGPLifetime = 30 * time.Second
	// StopShutdown bounds ShutdownDelay when the process ends, which has to withdraw
	// and unbind in the time that it is given.
	StopShutdown = 2 * time.Second
	// WithdrawLinger is how long an address stays after the BGP driver has reported
	// that no peer has the path any more. The report says that the withdrawal is on
	// its way; a busy router has taken over a second to change its tables.
	WithdrawLinger = 2 * time.Second
	// WithdrawLate is after which time people are told that a withdrawal lasts.
	WithdrawLate = 3 * time.Second
	// AdoptPending is how long an address that an earlier process left is advertised
	// before the first result of its health check.
	AdoptPending = 5 * time.Second
)

// stand finds the peers, and whether this node may advertise the VIP.
func (s *bgpVIP) stand() {
	v := s.turn.v
	s.standing = model.ReasonStandby
	if s.gone {
		s.standing = model.ReasonNotSelected
		return
	}
	if !s.only() {
		s.to = s.turn.audiences.Of(s.vip)
		s.keep = s.to.Keep && v.Stopping && !v.Draining && s.turn.group.Memory.Machine.Drain == nil && len(s.to.Peers) > 0 && !s.l2
	}
	why := place.Standing(v, s.vip, s.where(), s.turn.group.Leaves(s.vip.Addr, s.keep))
	s.standing, s.detail = why.Reason, why.Detail
	h := place.Health(v, s.vip)
	if s.degraded = s.turn.leveled && h.State == model.HealthDegraded; s.degraded && s.mayAdvertise() && !s.only() {
		if s.detail = h.Detail; s.outclassed() {
			s.standing = model.ReasonDegraded
		}
	}
}

// where says whether the address can be on lo, and who would hear of it.
func (s *bgpVIP) where() place.Verdict {
	own, is := s.turn.local[s.vip.Addr]
	switch {
	case is:
		return place.Verdict{Reason: model.ReasonLocalAddress, Detail: "it is an address of " + own}
	case s.turn.no6 && s.vip.Addr.Is6():
		return place.Verdict{Reason: model.ReasonFamilyDisabled, Detail: "IPv6 is disabled on lo; set net.ipv6.conf.lo.disable_ipv6=0"}
	case s.only() && s.turn.iface == "":
		return place.Verdict{Reason: model.ReasonNoInterface} // to be silent on
	case len(s.to.Peers) == 0 && !s.only():
		return place.Verdict{Reason: model.ReasonNoPeer}
	}
	return place.Verdict{}
}

// outclassed tells whether a node that is degraded is to leave the VIP to others that are
// up and advertise it. One that does not advertise it yet does not begin to.
func (s *bgpVIP) outclassed() bool {
	now, has := s.turn.v.Now, s.m.Phase == model.BGPAdvertised || s.m.Phase == model.BGPShutdown
	better := slices.ContainsFunc(s.turn.v.Gossip.Eligible[s.vip.Addr], s.better)
	s.m.Outclassed = election.Outclass(s.m.Outclassed, now, has && better)
	if !has {
		return better
	}
	due := s.m.Outclassed.Add(election.DegradedGrace)
	if better && now.Before(due) {
		s.turn.w.by(due)
	}
	return better && !now.Before(due)
}

// better tells whether another node is up and advertises the VIP, or has it on the LAN
// as well and may.
func (s *bgpVIP) better(n model.NodeName) bool {
	m := s.turn.v.Gossip.Members[n]
	stand := m.Standing[s.vip.Addr]
	return n != s.turn.v.Self && m.State == model.MemberAlive && m.Late.IsZero() && !m.Draining &&
		(stand == model.ReasonOwner || s.vip.L2 && stand == model.ReasonStandby)
}

// mayAdvertise tells whether this node is to have a path.
func (s *bgpVIP) mayAdvertise() bool { return s.standing == model.ReasonStandby }

// adopt goes on with what an earlier process of this node advertised: its address
// is still there, so routers that keep the path over a graceful restart are right
// to send packets here.
func (s *bgpVIP) adopt() {
	switch s.standing.Class() {
	case model.ClassMayServe, model.ClassWaiting:
		s.enter(model.BGPAdvertised)
		s.m.Gen, s.m.Epoch = 0, 1 // what is bound is bound
		s.m.Until = s.turn.v.Now.Add(AdoptPending)
	default:
		s.m.Lost = s.standing
		if s.keepsFor(s.turn.v.DrainTimeout); s.only() {
			s.enter(model.BGPLingering)
			s.m.Gen, s.m.Epoch, s.m.Until = s.turn.gen, 1, s.m.DrainEnd
			return
		}
		if !s.kept() {
			s.unbind()
			return
		}
		s.enter(model.BGPLingering)
		s.m.Gen, s.m.Epoch = 0, 1
		s.m.Until = s.turn.v.Now.Add(audience.RestartTime)
	}
}

// kept tells whether a router may still keep a path of an earlier process: one
// with graceful restart with which there is no session yet, whose End-of-RIB ends
// that (RFC 4724 section 4.2).
func (s *bgpVIP) kept() bool {
	return slices.ContainsFunc(s.turn.peers, func(p model.BGPPeer) bool {
		return p.GracefulRestart && !slices.ContainsFunc(s.turn.bgp.Peers, func(r model.PeerReport) bool {
			return r.Name == p.Name && r.State == "Established"
		})
	})
}

// unbind ends in Idle. While layer 2 may have the address elsewhere this host is
// silent about it until the kernel has it no more: drivers work at the same time,
// so a silence that ended with the binding could end before it.
func (s *bgpVIP) unbind() {
	if !s.l2 {
		s.enter(model.BGPIdle)
		return
	}
	s.enter(model.BGPLingering) // without end, see unbinding
	s.m.Gen = s.turn.gen
}

// unbinding tells whether the address is not wanted any more, but may be there.
func (s *bgpVIP) unbinding() bool {
	return s.m.Phase == model.BGPLingering && s.m.Until.IsZero()
}

// enter changes the phase. A binding and a withdrawal wait for reports of this
// generation; in the other phases what was bound stays confirmed.
func (s *bgpVIP) enter(p model.BGPPhase) {
	s.m.Phase, s.m.Until = p, time.Time{}
	switch p {
	case model.BGPBinding:
		s.m.Gen, s.m.Epoch = s.turn.gen, s.turn.gen
	case model.BGPWithdrawing:
		s.m.Gen = s.turn.gen
	}
}

// run takes one step of the phase.
func (s *bgpVIP) run() {
	switch s.m.Phase {
	case model.BGPIdle:
		if s.mayAdvertise() {
			s.enter(model.BGPBinding)
		}
	case model.BGPBinding:
		switch {
		case !s.mayAdvertise():
			s.m.Lost = s.standing
			if s.pathGone() {
				s.unbind() // it may be bound at this moment
			} else {
				s.withdraw(s.standing) // it was advertised, then somebody removed the address
			}
		case s.bound():
			if !s.ringWaits() {
				s.enter(model.BGPAdvertised)
			}
		case s.addrGen >= s.m.Gen && s.local.Expired:
			s.enter(model.BGPBinding) // with an epoch under which it has not expired
		}
	case model.BGPAdvertised:
		s.whileAdvertised()
	case model.BGPShutdown:
		s.shuttingDown()
	case model.BGPWithdrawing:
		s.withdrawing()
	case model.BGPLingering:
		s.lingering()
	}
}

// bound tells whether the address is in the kernel for good: on lo, or, where
// layer 2 announces it too, on the LAN: while this node owns it there, and while
// it lets it go, so that the path stays until the address is on lo.
func (s *bgpVIP) bound() bool {
	return s.addrGen >= s.m.Gen && (s.onLoopback() || s.wired)
}

// onLoopback tells whether the address is on lo. The end of its lifetime counts,
// so a process that was frozen for longer does not trust what it knew.
func (s *bgpVIP) onLoopback() bool {
	return s.local.Bound && s.turn.lasts(s.local.Expires)
}

// onLAN tells whether this node owns the VIP on the LAN and has it bound there.
func (s *bgpVIP) onLAN() bool {
	return s.wired && s.turn.ownsOnLAN
}

func (s *bgpVIP) withdraw(why model.Reason) {
	s.m.Lost = why
	s.keepsFor(s.turn.v.DrainTimeout)
	s.enter(model.BGPWithdrawing)
}

// pathGone tells whether the BGP driver has reported, after the phase began, that
// no peer has a path because of this VIP, and no router keeps one over the loss of a
// session with graceful restart (RFC 4724 section 4.2).
func (s *bgpVIP) pathGone() bool {
	if s.only() && len(s.left()) == 0 {
		return true
	}
	if s.bgpGen < s.m.Gen || len(s.left()) > 0 {
		return false
	}
	for i := range s.turn.peers {
		p := &s.turn.peers[i]
		if !p.GracefulRestart {
			continue
		}
		for _, r := range s.turn.bgp.Peers {
			if until := r.Since.Add(p.RestartTime); r.Name == p.Name && r.State != "Established" && s.turn.v.Now.Before(until) {
				s.turn.w.by(until)
				return false
			}
		}
	}
	return true
}

func (s *bgpVIP) whileAdvertised() {
	now := s.turn.v.Now
	pending := s.standing == model.ReasonHealthPending && now.Before(s.m.Until)
	switch {
	case pending && s.bound():
		s.turn.w.by(s.m.Until)
	case !s.bound() && s.addrGen >= s.m.Gen:
		// Somebody removed it or its lifetime ended; the driver puts it back or is
		// told to begin anew. No path without the address.
		if s.mayAdvertise() {
			s.enter(model.BGPBinding)
		} else {
			s.withdraw(s.standing)
		}
	case s.mayAdvertise():
	case s.standing.Planned():
		if !s.successor() {
			return // reason says so
		}
		s.m.DrainEnd = now.Add(s.turn.drain(s.standing))
		s.enter(model.BGPShutdown)
		s.m.Until = now.Add(s.to.Delay)
	default:
		s.withdraw(s.standing)
	}
}

// successor tells whether another node serves the VIP: the last one stays. Not on
// lo without a process that keeps it silent.
func (s *bgpVIP) successor() bool {
	if s.turn.v.Stopping && s.l2 && !s.onLAN() {
		return true
	}
	for _, n := range s.turn.v.Gossip.Eligible[s.vip.Addr] {
		m, known := s.turn.v.Gossip.Members[n]
		if n != s.turn.v.Self && known && m.State == model.MemberAlive && !m.Draining {
			return true
		}
	}
	return false
}

// shuttingDown: routers are asked to leave before the path is withdrawn.
func (s *bgpVIP) shuttingDown() {
	if end := s.turn.v.Now.Add(StopShutdown); s.turn.v.Stopping && s.m.Until.After(end) {
		s.m.Until = end
	}
	switch {
	case s.mayAdvertise():
		s.enter(model.BGPAdvertised)
	case !s.standing.Planned():
		s.withdraw(s.standing)
	case !s.bound(), !s.turn.v.Now.Before(s.m.Until):
		s.withdraw(s.standing)
	default:
		s.turn.w.by(s.m.Until)
	}
}

// withdrawing: the address stays until no peer has the path, and for as long as
// routers need to follow. No timer ends it without the word of the driver: one
// that is stuck may have left the path with routers, which then send here. Such an
// address harms nobody; it goes when the driver answers or the process ends.
func (s *bgpVIP) withdrawing() {
	now := s.turn.v.Now
	switch {
	case s.mayAdvertise() && s.bound():
		s.enter(model.BGPAdvertised)
		return
	case !s.pathGone():
		s.m.Until = time.Time{}
		return
	case s.m.Unbound:
		s.unbind()
		return
	case s.m.Until.IsZero():
		s.m.Until = now.Add(WithdrawLinger)
	}
	switch {
	case now.Before(s.m.Until):
		s.turn.w.by(s.m.Until)
	case (s.m.Lost.Planned() || s.m.Shared) && now.Before(s.m.DrainEnd):
		s.enter(model.BGPLingering)
		s.m.Until = s.m.DrainEnd
	default:
		s.unbind()
	}
}

// lingering: connections of a drained node are served until they end.
func (s *bgpVIP) lingering() {
	now := s.turn.v.Now
	if s.mayAdvertise() {
		if s.bound() {
			s.enter(model.BGPAdvertised)
		} else {
			s.enter(model.BGPBinding)
		}
		return
	}
	if s.unbinding() {
		if s.addrGen >= s.m.Gen && !s.local.Bound {
			s.enter(model.BGPIdle)
		}
		return
	}
	if s.m.Gen == 0 { // of an earlier process, see adopt
		if !s.kept() || !now.Before(s.m.Until) {
			s.unbind()
			return
		}
		s.turn.w.by(s.m.Until)
		return
	}
	open, on := s.local.Connections, ""
	if s.m.Shared {
		on = s.turn.iface
	}
	if s.turn.keeps(s.vip, on) { // the others relay what is not theirs
		open = s.local.Sockets
	}
	if s.standing == model.ReasonUnhealthy && s.local.Own > 0 {
		open = 0 // clients on this node reach no server that works until the address is gone
	}
	quiet := s.addrGen >= s.m.Gen && open == 0 && !(s.m.Shared && s.onLAN())
	if quiet || !now.Before(s.m.Until) {
		s.unbind()
		return
	}
	s.turn.w.by(s.m.Until)
}

// output adds the wanted address, path and silence.
func (s *bgpVIP) output(d *model.Desired) {
	if s.m.Phase == model.BGPIdle {
		return
	}
	if s.l2 {
		s.silence()
	}
	if !s.m.Unbound && !s.onLAN() && !s.unbinding() && s.mayBind() {
		b := model.Binding{Addr: s.vip.Addr, Interface: model.LoopbackInterface, Epoch: s.m.Epoch, Lifetime: BGPLifetime, Linger: s.m.Phase == model.BGPLingering}
		if s.l2 {
			b.Lifetime = 0
		}
		put(&s.turn.lists.bind, b)
		s.turn.elsewhere(&b, s.standing, d)
	}
	if !s.carries() || !s.bound() {
		return
	}
	shutdown := s.m.Phase == model.BGPShutdown
	for i := range s.to.Routes {
		r := &s.to.Routes[i]
		if p := model.PrefixOf(s.vip.Addr, r.Length); r.Length == 0 {
			s.turn.lists.path(model.BGPPath{Prefix: p, To: r.To(shutdown)})
		} else {
			s.turn.audiences.Contribute(p, r, shutdown)
		}
	}
}

// mayBind: an address that layer 2 announces elsewhere is only bound here once
// this host is silent about it. A silence of before the phase may have ended.
func (s *bgpVIP) mayBind() bool {
	return !s.l2 || s.onLoopback() || s.turn.layer2.Gen >= s.m.Gen && s.turn.layer2.VIPs[s.vip.Addr].Silent
}

// silence keeps this host from answering on the LAN for what another node owns
// there.
func (s *bgpVIP) silence() {
	if s.onLAN() {
		return // it is the one that answers
	}
	t := s.turn
	if t.advert.Addr.IsValid() {
		t.advert.Quiet = t.advert.Mode == model.L2Probe
		return
	}
	t.advert = model.L2Advert{Addr: s.vip.Addr, Interface: t.iface, Mode: model.L2Silent}
}
