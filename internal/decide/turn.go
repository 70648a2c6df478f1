package decide

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/audience"
	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/loopback"
	"lbd.dev/lbd/internal/membership"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
	"lbd.dev/lbd/internal/ring"
	"lbd.dev/lbd/internal/steady"
	"lbd.dev/lbd/internal/unconfigured"
	"lbd.dev/lbd/internal/wire"
)

type addr = netip.Addr

// facts are what the steps of all VIPs share.
type facts struct {
	v               *model.View
	d               *model.Desired
	group           membership.Output
	address, layer2 model.Applied
	rings           ring.All
	networks        *wire.Networks
	audiences       audience.All
	lists           steady.Lists
	links           place.Links
	verdicts        map[addr]model.Verdict // of the servers of VIPs that are forwarded
	onLAN           onLAN
	onLo            onLo
}

func gather(v *model.View, d *model.Desired, group membership.Output) *facts {
	f := &facts{
		v: v, d: d, group: group,
		address:   v.Applied[model.SinkAddress],
		layer2:    v.Applied[model.SinkLayer2],
		rings:     ring.New(v, d.Gen, d.Rules),
		networks:  wire.NewNetworks(v, d.Gen),
		lists:     steady.BeginLists(v),
		links:     place.LinksOf(v.Links),
		verdicts:  balance.Verdicts(d.Memory.Balance),
		audiences: audience.Begin(v, d, group.Objects),
	}
	f.onLAN.node = election.NodeOf(v, d, group.Memory.Settled)
	f.beginOnLoopback()
	d.Memory.Fresh, d.Memory.Suspected = 0, 0
	return f
}

// turn is the decision about one VIP: what the steps of layer 2, BGP and the ring, which come
// in this order, tell each other.
type turn struct {
	*facts

	health model.HealthState // of the VIP on this node
	lo     loopback.Known
	// here is what is decided so far for the VIP.
	here ring.Here
	// wanted: layer 2 has the VIP bound now, or wants that.
	wanted bool
	// owner owns the VIP at layer 2; empty: nobody is known to.
	owner model.NodeName
	// advert is what the driver of layer 2 is to do; without an address: nothing.
	advert model.L2Advert
}

func (t *turn) begin(f *facts, vip *model.VIP) {
	*t = turn{facts: f, health: place.Health(f.v, vip)}
	t.lo.Memory, t.lo.Remembered = f.lists.OnLoopback.Old[vip.Addr]
	t.lo.OnLoopback, t.lo.Reported = f.address.Loopback[vip.Addr]
	t.here.Unwell = t.health.State == model.HealthDown
	t.here.Before = ring.Before{
		Known: t.lo.Remembered, Balanced: t.lo.Memory.Balanced, Phase: t.lo.Memory.Phase, HeldUntil: t.lo.Memory.HeldUntil, OnLoopback: t.lo.OnLoopback.Bound,
	}
}

// both decides for one VIP that is wanted, for layer 2 and for BGP. It tells whether
// layer 2 had a memory of it.
func (t *turn) both(vip *model.VIP) (known bool) {
	noBGP := len(vip.BGP) == 0
	// What only BGP announces has no owner, but layer 2 may have to let it go.
	if l2 := vip.L2 || noBGP; l2 || t.lists.OnLAN.Had(vip.Addr) {
		known = t.step(vip, !l2)
	}
	t.d.Rings = t.d.Rings || t.rings.BalancedIfFit(vip)
	onLo := !noBGP || t.rings.Balanced(vip, t.here.Interface)
	if onLo || t.lo.Remembered || t.lo.OnLoopback.Bound {
		t.stepLoopback(vip, !onLo)
	}
	t.relay(vip)
	t.tell()
	return known
}

// relay adds the ring of a VIP that this node has, or is about to have.
func (t *turn) relay(vip *model.VIP) {
	var was model.Relay
	if o := t.lists.Relay.Next(); o != nil {
		was = *o
	}
	if on, made := t.rings.Relay(vip, &t.here, was.Ring); made != nil {
		repliers := balance.Repliers(t.d.Forward.Services, vip.Addr, was.Repliers)
		steady.Put(&t.lists.Relay, model.Relay{Addr: vip.Addr, Interface: on, Ring: made, Tracked: vip.Unbound, Repliers: repliers})
	}
}

// bind adds what is bound, and for a VIP that is kept for its connections where else they may be.
func (f *facts) bind(b *model.Binding, standing model.Reason) {
	steady.Put(&f.lists.Bind, *b)
	if !b.Linger {
		return
	}
	if addrs := f.rings.Elsewhere(b.Addr, standing); len(addrs) > 0 {
		if f.d.Elsewhere == nil {
			f.d.Elsewhere = make(map[addr][]addr)
		}
		f.d.Elsewhere[b.Addr] = addrs
	}
}

// letGo decides for the VIPs that are not wanted any more: those that layer 2 still knows, and
// those that BGP does.
func (f *facts) letGo(known []model.VIP) {
	turns := make(map[addr]turn)
	for i := range known {
		var t turn
		t.begin(f, &known[i])
		t.step(&known[i], true)
		turns[known[i].Addr] = t
	}
	for _, vip := range unconfigured.OnLoopback(f.v, f.onLo.remembered, f.onLo.reported) {
		t, begun := turns[vip.Addr]
		if !begun {
			t.begin(f, &vip)
		}
		t.stepLoopback(&vip, true)
		turns[vip.Addr] = t
	}
	for _, a := range slices.SortedFunc(maps.Keys(turns), netip.Addr.Compare) {
		t := turns[a]
		t.tell()
	}
}

// tell adds what layer 2 is to do, in which more than one step had a say.
func (t *turn) tell() {
	if t.advert.Addr.IsValid() {
		t.d.L2 = append(t.d.L2, t.advert)
	}
}
