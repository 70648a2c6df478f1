package decide

import (
	"time"

	"lbd.dev/lbd/internal/audience"
	"lbd.dev/lbd/internal/membership"
	"lbd.dev/lbd/internal/model"
)

// bgpVIP is the working state of the decision about one VIP and BGP.
type bgpVIP struct {
	turn     *turn
	vip      *model.VIP
	gone     bool // not to be advertised by BGP any more
	l2       bool // layer 2 may have the address too, bound on the LAN
	m        model.BGPMemory
	standing model.Reason // ReasonStandby: may be advertised
	degraded bool         // the required check passes, the preferred one does not
	detail   string
	to       *audience.Audience // who is to be told of it
	keep     bool               // the process ends, and every peer keeps the path meanwhile

	addr, local model.AppliedVIP // of the LAN and the loopback interface
	wired       bool             // layer 2 wants it on the LAN and it is bound there, silently or not
	addrGen     uint64
	bgpGen      uint64
}

// nobody is the audience of what is not advertised.
var nobody audience.Audience

// stepBGP decides for one VIP and BGP.
func (t *turn) stepBGP(vip *model.VIP, gone bool, d *model.Desired, mem *bgpMemory) {
	old, known := mem.old[vip.Addr]
	if known {
		t.remembered++
	}
	if _, there := t.address.Loopback[vip.Addr]; there {
		t.onLo++
	}
	changed := old.Phase != model.BGPIdle && old.Unbound != vip.Unbound
	if changed {
		vip, gone = former(vip, old.Unbound), true
	}
	s := t.beginBGP(vip, gone, &old)
	vip = s.vip
	s.stand()
	if !known && !vip.Unbound && (s.local.Bound || vip.L2 && s.addr.Bound) {
		s.adopt()
	}
	s.phases()
	s.servedBGP(&old)
	if changed && s.m.Phase == model.BGPIdle {
		t.w.by(t.v.Now) // begins anew
	}
	if gone && s.m.Phase == model.BGPIdle {
		mem.drop(vip.Addr)
		return
	}
	s.output(d)
	if s.only() {
		if s.m != old {
			mem.set(vip.Addr, s.m) // people are told by layer 2
		}
		return
	}
	advertised := s.advertised()
	reason, detail := s.reason(advertised)
	if s.m.Reason != reason || s.m.Since.IsZero() {
		s.m.Reason, s.m.Since = reason, t.v.Now
	}
	if s.m != old {
		mem.set(vip.Addr, s.m)
	}
	if !gone {
		s.report(advertised, reason, detail)
		t.toRouters = s.m.Phase >= model.BGPBinding
		t.serves = t.serves || t.toRouters && t.keepsService(vip, "")
	}
}

// beginBGP gathers what the decision needs.
func (t *turn) beginBGP(vip *model.VIP, gone bool, old *model.BGPMemory) bgpVIP {
	if gone && !vip.L2 && !vip.Unbound {
		// It may have been announced on the LAN too, perhaps still is by others.
		was := *vip
		was.L2 = true
		vip = &was
	}
	s := bgpVIP{
		turn: t, vip: vip, gone: gone, to: &nobody, m: *old, l2: vip.L2 && !vip.Unbound,
		addr: t.address.VIPs[vip.Addr], local: t.address.Loopback[vip.Addr], addrGen: t.address.Gen,
		bgpGen: t.bgp.Gen,
	}
	s.wired = s.l2 && t.wanted && s.addr.Bound && t.lasts(s.addr.Expires)
	if s.m.Phase == model.BGPIdle {
		s.m.Unbound = vip.Unbound
	}
	if s.m.Shared = s.m.Shared && len(vip.BGP) == 0; t.shares(vip) {
		s.m.Shared = true // what BGP goes on to announce is kept by its own rules
	}
	return s
}

// phases goes through those that end at once in the next one.
func (s *bgpVIP) phases() {
	for range 6 {
		before := s.m.Phase
		if s.vip.Unbound {
			s.byItself()
		}
		s.run()
		if s.m.Phase == before {
			return
		}
	}
}

// SessionsWait is how long after its start a node begins no session because of Services
// whose rings it does not know. It is shorter than routers keep paths of a node that
// starts again, see audience.RestartTimeL2.
const SessionsWait = time.Second

// ringWaits tells whether routers are not to be told of a VIP that is there yet: with the
// path come packets of connections that others have, at once. So this node waits until
// its kernel relays. Its first sessions wait as well: their routers may have kept the path.
func (s *bgpVIP) ringWaits() bool {
	t := s.turn
	relay, works := t.v.Applied[model.SinkRelay]
	if s.gone || s.only() || !works {
		return false
	}
	until, joins := t.v.Started.Add(membership.SettleAlone), true
	switch {
	case s.vip.Unbound && !t.keepsService(s.vip, ""), !s.vip.Unbound && !t.keeps(s.vip, t.ringOn(s.vip)):
		return false
	case s.vip.Unbound && !t.group.Memory.Settled && t.v.Now.Before(until): // nothing has to be bound meanwhile
		// Routers keep the paths of other VIPs for a while, not for as long as that.
		sessions := t.v.Started.Add(SessionsWait)
		if joins = t.v.Now.Before(sessions); joins {
			t.w.by(sessions)
		}
	case len(t.v.Gossip.Holders[s.vip.Addr]) == 0 || relay.Gen >= s.m.Gen:
		return false
	default:
		if s.m.Until.IsZero() {
			s.m.Until = t.v.Now.Add(RelayWait)
		}
		until = s.m.Until
	}
	if !t.v.Now.Before(until) {
		return false
	}
	t.w.by(until)
	t.joins = t.joins || joins
	return true
}

// byItself is the report of an address that is not bound on this node: it is there
// while it is wanted, and there is nothing to keep for connections.
func (s *bgpVIP) byItself() {
	s.addrGen = s.turn.gen
	s.local = model.AppliedVIP{Bound: s.m.Phase != model.BGPIdle && !s.unbinding()}
}
