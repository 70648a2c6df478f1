package decide

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/ring"
	"lbd.dev/lbd/internal/steady"
	"lbd.dev/lbd/internal/unconfigured"
)

// turn is the decision about one VIP: what the steps of layer 2, BGP and the ring, which come
// in this order, tell each other.
type turn struct {
	*facts

	// here is what is decided so far for the VIP.
	here ring.Here
	// wanted: layer 2 has the VIP bound now, or wants that.
	wanted bool
	// advert is what the driver of layer 2 is to do; without an address: nothing.
	advert model.L2Advert
}

// both decides for one VIP that is wanted, for layer 2 and for BGP. It tells whether
// layer 2 had a memory of it.
func (t *turn) both(vip *model.VIP, d *model.Desired) (known bool) {
	noBGP := len(vip.BGP) == 0
	_, held := t.lists.onLAN.Old[vip.Addr]
	// What only BGP announces has no owner, but layer 2 may have to let it go.
	if l2 := vip.L2 || noBGP; l2 || held {
		known = t.step(vip, !l2, d)
	}
	d.Rings = d.Rings || t.rings.BalancedIfFit(vip)
	onLo := !noBGP || t.rings.Balanced(vip, t.here.Interface)
	if _, was := t.lists.onLoopback.Old[vip.Addr]; onLo || was || t.address.Loopback[vip.Addr].Bound {
		t.stepLoopback(vip, !onLo, d)
	}
	t.relay(vip)
	t.finish(d)
	return known
}

// relay adds the ring of a VIP that this node has, or is about to have.
func (t *turn) relay(vip *model.VIP) {
	var was *model.Ring
	if o := t.lists.relay.Next(); o != nil {
		was = o.Ring
	}
	if on, made := t.rings.Relay(vip, &t.here, was); made != nil {
		steady.Put(&t.lists.relay, model.Relay{Addr: vip.Addr, Interface: on, Ring: made, Tracked: vip.Unbound})
	}
}

// elsewhere adds, for a VIP that is kept for its connections, where else they may be.
func (f *facts) elsewhere(b *model.Binding, standing model.Reason, d *model.Desired) {
	if !b.Linger {
		return
	}
	if addrs := f.rings.Elsewhere(b.Addr, standing); len(addrs) > 0 {
		if d.Elsewhere == nil {
			d.Elsewhere = make(map[addr][]addr)
		}
		d.Elsewhere[b.Addr] = addrs
	}
}

// letGo decides for the VIPs that are not wanted any more: those that layer 2 still knows, and
// those that BGP does.
func (f *facts) letGo(known []model.VIP, d *model.Desired) {
	turns := make(map[addr]turn)
	for i := range known {
		t := turn{facts: f}
		t.step(&known[i], true, d)
		turns[known[i].Addr] = t
	}
	for _, vip := range unconfigured.OnLoopback(f.v, f.remembered, f.onLo) {
		t, known := turns[vip.Addr]
		if !known {
			t.facts = f
		}
		t.stepLoopback(&vip, true, d)
		turns[vip.Addr] = t
	}
	for _, a := range slices.SortedFunc(maps.Keys(turns), netip.Addr.Compare) {
		t := turns[a]
		t.finish(d)
	}
}

// finish adds what more than one step had a say in.
func (t *turn) finish(d *model.Desired) {
	if t.advert.Addr.IsValid() {
		d.L2 = append(d.L2, t.advert)
	}
}
