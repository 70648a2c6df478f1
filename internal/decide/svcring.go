package decide

import (
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// ServiceHolds is how long a node that has let go of the VIP of a Service is in its ring
// whatever is known of its connections: longer than the relay driver rests between two
// looks for them, and than routers go on to send to a node after a withdrawal.
const ServiceHolds = time.Minute

// keepsService tells whether connections to the VIP of a Service that kube-proxy has
// translated here are found by a ring.
func (f *facts) keepsService(vip *model.VIP, iface string) bool {
	return vip.Unbound && f.v.KeepServices && !f.v.NoRelay && f.unfitService() == "" && f.unfit(vip.Addr, iface) == ""
}

// ServiceRingUnfit says why this node can have no ring for Services besides what is in the
// way of all rings, by what its relay driver has seen; empty if it can.
func ServiceRingUnfit(seen *model.RingHost, links map[string]model.Link) string {
	if _, is := links[model.IPVSInterface]; is {
		return "kube-proxy is in IPVS mode: only the modes nftables and iptables track connections where lbd looks for them"
	}
	if seen != nil && seen.Untold != "" {
		return "tracked connections cannot be listed: " + seen.Untold
	}
	return ""
}

func (f *facts) unfitService() string { return ServiceRingUnfit(f.rings.seen, f.v.Links) }

// serving tells whether new connections to a VIP come in here by layer 2.
func serving(m *model.VIPMemory) bool {
	return m.Phase == model.PhaseOwner || m.Phase == model.PhaseHandover
}

// served remembers when this node lets go of the VIP of a Service on the LAN.
func (f *facts) served(vip *model.VIP, old, now *model.VIPMemory) {
	if f.v.KeepServices && vip.Unbound && serving(old) && !serving(now) {
		now.HeldUntil = f.v.Now.Add(ServiceHolds)
	}
}

// servedBGP is served for routers.
func (s *bgpVIP) servedBGP(old *model.BGPMemory) {
	if s.turn.v.KeepServices && s.vip.Unbound && old.Phase >= model.BGPAdvertised && s.m.Phase < model.BGPAdvertised {
		s.m.HeldUntil = s.turn.v.Now.Add(ServiceHolds)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// holdsService tells whether this node has connections to the VIP of a Service, or is
// about to get some. Its rules and those of kube-proxy are there without lbd, so it
// needs nothing to keep them.
func (t *turn) holdsService(vip *model.VIP, iface string, m *model.VIPMemory) bool {
	if !t.keepsService(vip, iface) {
		return false
	}
	bgp := t.v.Memory.BGP[vip.Addr]
	until := later(m.HeldUntil, bgp.HeldUntil)
	switch {
	case serving(m), len(vip.BGP) > 0 && bgp.Phase >= model.BGPAdvertised:
		t.serves = true
	case t.v.Now.Before(until):
		t.w.by(until)
		t.serves = true
	default: // until the driver has looked an earlier process may have left some
		t.serves = t.rings.seen == nil || t.rings.seen.Tracks(vip.Addr)
	}
	return t.serves
}

// relayService is relay for the VIP of a Service: who has connections to it, or just had
// new ones, sends on those that it does not know.
func (t *turn) relayService(vip *model.VIP) {
	if !t.serves && t.takenFrom == "" && !t.again(vip) {
		return
	}
	// Also one that fell silent: a kernel translates without its daemon, and a host that is
	// gone is left out, see answering.
	others := t.v.Gossip.Holders[vip.Addr]
	if len(others) == 0 && t.takenFrom == "" {
		return
	}
	want := ringOf{made: true, names: t.lit(vip, t.members(others)), is4: vip.Addr.Is4(), lifetime: BGPLifetime}
	if len(vip.BGP) == 0 {
		want.iface = t.iface
	}
	t.ask(vip, want)
}

// serviceWaits is relayWaits in the decision that takes the VIP of a Service over: nothing
// has to be bound, so it would be announced at once.
func (f *facts) serviceWaits(vip *model.VIP, iface string, old *model.VIPMemory) bool {
	_, works := f.v.Applied[model.SinkRelay]
	if !works || present(old) != "" || !f.keepsService(vip, iface) {
		return false
	}
	named := slices.ContainsFunc(f.v.Gossip.Claims[vip.Addr], func(c model.Claim) bool { return c.To == f.v.Self })
	if named {
		f.w.by(f.v.Now.Add(RelayWait))
	}
	return named
}

// ServiceWord is how long after its start a node says nothing at all while it does not know
// the Services of its cluster: what an earlier process said of their connections stands
// meanwhile. It is not settled for longer.
const ServiceWord = 2 * time.Second

// awaitsServices tells whether this node had better say nothing yet. What is bound here,
// such as the way to the API server, waits for no Service.
func awaitsServices(v *model.View, w *waker) bool {
	until := v.Started.Add(ServiceWord)
	if !v.KeepServices || v.NoRelay || !v.Now.Before(until) || !awaited(v, w) {
		return false
	}
	address := v.Applied[model.SinkAddress]
	for _, all := range []map[addr]model.AppliedVIP{address.VIPs, address.Loopback} {
		for _, a := range all {
			if a.Bound {
				return false
			}
		}
	}
	w.by(until)
	return true
}
