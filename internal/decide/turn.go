package decide

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// turn is the decision about one VIP: what the steps of layer 2, BGP and the ring, which come
// in this order, tell each other.
type turn struct {
	*facts

	// Of layer 2: the interface on which it has the VIP, or would have it, and whether this node
	// owns the VIP there.
	iface     string
	ownsOnLAN bool
	// Whether this node may own it there, and if not why.
	stand model.Reason
	// The interface on which layer 2 has bound the VIP or is to bind it, and whether it wants
	// that now; who had it before, while the group may not have said so yet.
	boundOn   string
	wanted    bool
	takenFrom model.NodeName
	// What the driver of layer 2 is to do; without an address: nothing.
	advert model.L2Advert
	// The highest epoch that was heard of or given.
	epoch uint64

	// Of layer 2 and BGP: it is the VIP of a Service, and this node holds connections to it.
	serves bool
	// Of BGP: it advertises the VIP, or is about to.
	toRouters bool
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
	d.Rings = d.Rings || t.balancedIfFit(vip)
	onLo := !noBGP || t.balancedHere(vip)
	if _, was := t.lists.onLoopback.Old[vip.Addr]; onLo || was || t.address.Loopback[vip.Addr].Bound {
		t.stepLoopback(vip, !onLo, d)
	}
	t.relay(vip)
	t.finish(d)
	return known
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
	for _, vip := range f.goneFromLoopback() {
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
