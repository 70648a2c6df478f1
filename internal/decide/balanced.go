package decide

import (
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// SharedLifetime is how long the kernel relays for a Balanced VIP after the last
// refresh. It is as long as silence lasts: while an owner whose daemon was killed still
// has the address, the connections of the other nodes depend on it.
const SharedLifetime = 9 * time.Second

// BackHolds is for how long a node that was late or away gets no new connections: what
// it said before, that it has the address, may not be true any more, and its new words
// take a moment.
const BackHolds = time.Second

// shares tells whether this node takes part in a Balanced VIP: one on which a ring would
// work, since it would reset, or lose, what others send to it. It then has the address
// on lo, silently, by the rules for what BGP announces, with nobody to announce it to;
// the one on the LAN, which the owner has, comes and goes beside it. So a node that
// becomes the owner, or is it no more, has the address all the time, and its
// connections do not notice.
func (t *turn) shares(vip *model.VIP) bool {
	return t.mayShare(vip) && t.keeps(vip, t.iface)
}

// mayShare is shares if a ring would work here.
func (f *facts) mayShare(vip *model.VIP) bool {
	return vip.Balanced && vip.L2 && !vip.Unbound && !f.v.NoRelay
}

// shared tells whether the address is bound here since the VIP is Balanced, or was, or
// is about to be.
func (t *turn) shared(vip *model.VIP) bool {
	return t.v.Memory.BGP[vip.Addr].Shared || t.shares(vip)
}

// viaLo tells whether a VIP may be bound on lo, for BGP or since it is Balanced.
func (t *turn) viaLo(vip *model.VIP) bool { return len(vip.BGP) > 0 || t.shared(vip) }

// ringOn is the interface on which the ring has to be of a VIP that is bound on lo, or
// would be; "": any.
func (t *turn) ringOn(vip *model.VIP) string {
	if t.shared(vip) || len(vip.BGP) == 0 {
		return t.iface
	}
	return ""
}

// sharing tells whether the address is on lo for connections, as last reported, and is
// to stay there.
func (f *facts) sharing(a addr) bool {
	return keptOnLo(f.v.Memory.BGP[a]) && f.address.Loopback[a].Bound
}

// keptOnLo tells whether an address is to stay on lo for connections.
func keptOnLo(m model.BGPMemory) bool {
	leaving := m.Phase == model.BGPLingering && m.Until.IsZero()
	return m.Shared && m.Phase >= model.BGPAdvertised && !leaving
}

// silently tells whether the address is on lo for no other reason than that it is, or
// was, Balanced. What BGP has there is told apart.
func (f *facts) silently(vip *model.VIP) bool {
	return len(vip.BGP) == 0 && f.v.Memory.BGP[vip.Addr].Shared && f.address.Loopback[vip.Addr].Bound
}

// takers are those nodes of a ring that get new connections, in order; nil if this
// node is not the owner, which spreads them, or takes them all itself.
func (t *turn) takers(vip *model.VIP, names []model.NodeName) []model.NodeName {
	if !t.ownsOnLAN || !t.shares(vip) {
		return nil
	}
	t.over = t.over[:0]
	for _, n := range names {
		if n == t.v.Self && t.eligible || t.takes(vip, n) {
			t.over = append(t.over, n)
		}
	}
	if slices.ContainsFunc(t.over, func(n model.NodeName) bool { return !t.degradedAt(vip, n) }) {
		t.over = slices.DeleteFunc(t.over, func(n model.NodeName) bool { return t.degradedAt(vip, n) })
	}
	return t.over
}

// degradedAt tells whether a node that may have a VIP is worse than one that is up.
func (t *turn) degradedAt(vip *model.VIP, n model.NodeName) bool {
	if n == t.v.Self {
		return t.degraded
	}
	return t.leveled && t.v.Gossip.Members[n].Standing[vip.Addr] == model.ReasonDegraded
}

// takes tells whether another node of the ring is well. It sends heartbeats to the
// owner, so that its death is noticed as soon as that of an owner is.
func (f *facts) takes(vip *model.VIP, n model.NodeName) bool {
	m := f.v.Gossip.Members[n]
	_, eligible := slices.BinarySearch(f.v.Gossip.Eligible[vip.Addr], n)
	if !eligible || m.State != model.MemberAlive || !m.Late.IsZero() || m.Draining {
		return false
	}
	if since := m.Back.Add(BackHolds); f.v.Now.Before(since) {
		f.w.by(since)
		return false
	}
	return true
}

// backends are the takers that are on the link of the ring; nil if that is nobody but
// this node.
func (f *facts) backends(r *ringOf, l *model.Link, reached []model.NodeName) (out []model.Backend) {
	others := false
	for _, n := range reached {
		switch {
		case !slices.Contains(r.over, n):
		case n == f.v.Self:
			out = append(out, model.Backend{Node: n, Weight: f.v.Weight})
		default:
			m := f.v.Gossip.Members[n]
			to, _ := near(l, m.Addrs, r.is4)
			out = append(out, model.Backend{Node: n, Weight: m.Weight, Addr: to})
			others = true
		}
	}
	if !others {
		return nil
	}
	return out
}

// even is why this node, as the owner, takes all new connections to a Balanced VIP itself,
// by what its relay driver says; empty if it does not, or for want of other nodes.
func (t *turn) even(vip *model.VIP) string {
	if !t.ownsOnLAN || !t.shares(vip) {
		return ""
	}
	if err := t.v.Applied[model.SinkRelay].VIPs[vip.Addr].Err; err != "" {
		return "it takes all new connections itself: " + err
	}
	return ""
}

// only tells whether the address is on lo for no other reason than that it is, or was,
// Balanced.
func (s *bgpVIP) only() bool { return s.m.Shared && len(s.vip.BGP) == 0 }

// keepsFor lets the connections to a Balanced VIP go on, whatever the reason for which
// this node gets no new ones, unless nobody asks for the VIP any more.
func (s *bgpVIP) keepsFor(d time.Duration) {
	if s.m.Shared && s.vip.Kind != "" {
		s.m.DrainEnd = s.turn.v.Now.Add(d)
	}
}
