package decide

import (
	"slices"
	"time"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/loopback"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
	"lbd.dev/lbd/internal/ring"
	"lbd.dev/lbd/internal/steady"
)

// relay asks for the ring of a VIP that this node has, or is about to have.
func (t *turn) relay(vip *model.VIP) {
	r := ring.Request{VIP: vip, Terms: ring.Terms{Is4: vip.Addr.Is4()}, From: t.takenFrom, Epoch: t.epoch, Standing: t.stand}
	if !t.ringOf(&r) {
		return
	}
	if o := t.lists.relay.Next(); o != nil {
		r.Was = o.Ring
	}
	if on, made := t.rings.Of(&r); made != nil {
		steady.Put(&t.lists.relay, model.Relay{Addr: vip.Addr, Interface: on, Ring: made, Tracked: vip.Unbound})
	}
}

// ringOf completes what the ring of a VIP depends on, and tells whether the VIP is to have one.
func (t *turn) ringOf(r *ring.Request) bool {
	vip := r.VIP
	if vip.Unbound {
		// Who has connections to it, or just had new ones, sends on those that it does not know.
		r.Kept = loopback.BGPLifetime
		if len(vip.BGP) == 0 {
			r.Interface = t.iface
		}
		return t.serves || t.takenFrom != "" || t.rings.Retries(vip)
	}
	if r.Interface = t.boundOn; r.Interface == "" {
		r.Interface = t.ringOn(vip)
	}
	onLo := t.mayBeOnLoopback(vip) && (t.toRouters || t.phaseBGP(vip) >= model.BGPBinding) || t.balancedIfFit(vip) && !t.balancedHere(vip)
	if t.boundOn == "" && !onLo || !t.rings.Retries(vip) && !t.rings.Keeps(vip, r.Interface) {
		return false
	}
	if !vip.L2 {
		r.Kept = loopback.BGPLifetime
	}
	r.Unwell = place.Health(t.v, vip).State == model.HealthDown
	r.Shared, r.Spreads = t.balancedHereOrBefore(vip), t.ownsOnLAN && t.balancedHere(vip)
	return true
}

// watchRings adds what the rings of all VIPs need.
func (f *facts) watchRings(d *model.Desired) {
	o := f.rings.Output()
	d.Memory.Left, d.Memory.Rings = o.Left, o.Probes
	f.w.by(o.Wake)
	for _, n := range o.Heartbeats {
		receiver(&d.Group, n)
	}
	for _, q := range o.Questions {
		if !f.isVIP(d, q.Addr) { // the driver knows an address once
			d.L2 = append(d.L2, q)
		}
	}
}

// isVIP tells whether layer 2 may have something else to do for an address: a node that has a VIP
// for its own is not asked for.
func (f *facts) isVIP(d *model.Desired, at addr) bool {
	_, is := slices.BinarySearchFunc(f.v.VIPs, at, func(v model.VIP, a addr) int { return v.Addr.Compare(a) })
	return is || slices.ContainsFunc(d.L2, func(a model.L2Advert) bool { return a.Addr == at })
}

// placed is where a VIP of layer 2 is bound on this node, or is to be, else "".
func (f *facts) placed(m *model.VIPMemory) string {
	if m.Unbound || m.Phase != model.PhaseReleasing && present(m) == "" {
		return ""
	}
	return m.Interface
}

// holds tells whether the connections to a VIP that this node has are to be found by a ring.
func (t *turn) holds(in *election.Input, m *model.VIPMemory) bool {
	if in.VIP.Unbound {
		return t.holdsService(in.VIP, in.Interface, m)
	}
	bgp := t.holdsBGP(in.VIP)
	if bgp || !in.Keep {
		return bgp
	}
	// With Resume the address is away for a moment, the connections are not.
	return m.Resume || m.Phase.OnLAN() && in.Address.Bound
}

// holdsBGP is holds for what is bound for BGP, or is Balanced, by the decision before.
func (t *turn) holdsBGP(vip *model.VIP) bool {
	return t.mayBeOnLoopback(vip) && t.rings.Keeps(vip, t.ringOn(vip)) && t.phaseBGP(vip) >= model.BGPAdvertised && t.boundBGP(vip)
}

// phaseBGP is how far BGP was with a VIP. What an earlier process of this node left bound was
// advertised: a node that is back is in the ring from its first decision on.
func (f *facts) phaseBGP(vip *model.VIP) model.BGPPhase {
	m, known := f.v.Memory.BGP[vip.Addr]
	if !known && f.boundBGP(vip) {
		return model.BGPAdvertised
	}
	return m.Phase
}

func (f *facts) boundBGP(vip *model.VIP) bool {
	return f.address.Loopback[vip.Addr].Bound || f.address.VIPs[vip.Addr].Bound
}

// holdsService is holds for the VIP of a Service.
func (t *turn) holdsService(vip *model.VIP, iface string, m *model.VIPMemory) bool {
	bgp := t.v.Memory.BGP[vip.Addr]
	until := slices.MaxFunc([]time.Time{m.HeldUntil, bgp.HeldUntil}, time.Time.Compare)
	serves := m.Phase.Serves() || len(vip.BGP) > 0 && bgp.Phase >= model.BGPAdvertised
	t.serves = t.rings.HoldsService(vip, iface, serves, until)
	return t.serves
}
