package decide

import (
	"lbd.dev/lbd/internal/audience"
	"lbd.dev/lbd/internal/loopback"
	"lbd.dev/lbd/internal/membership"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
	"lbd.dev/lbd/internal/ring"
	"lbd.dev/lbd/internal/steady"
)

// onLo is what the steps of all VIPs share on lo.
type onLo struct {
	node     loopback.Node
	relaying loopback.Ring  // what of it is the same for all VIPs
	in       loopback.Input // of the step that is being made
	// How many VIPs so far had a memory of BGP and a report of lo.
	remembered, reported int
	// holdSessions: a VIP waits for its ring before BGP advertises it.
	holdSessions bool
}

// beginOnLoopback gathers what is the same for all VIPs.
func (f *facts) beginOnLoopback() {
	v, d := f.v, f.d
	relay, works := v.Applied[model.SinkRelay]
	lo, known := v.Links[model.LoopbackInterface]
	bgp := v.Applied[model.SinkBGP]
	d.Memory.Losses = loopback.Losses(v.Memory.Losses, &bgp, v.Now)
	f.onLo = onLo{relaying: loopback.Ring{Driver: works, Gen: relay.Gen, Patience: ring.RelayWait}, node: loopback.Node{
		Now: v.Now, Started: v.Started, Gen: d.Gen, Self: v.Self, Leveled: f.leveled(), Members: v.Gossip.Members, Layer2Gen: f.layer2.Gen,
		Draining: v.Draining || f.group.Memory.Machine.Drain != nil, Stopping: membership.Stopping(v), DrainTimeout: v.DrainTimeout,
		SettledBy: f.group.SettledBy(v), NoIPv6: known && !lo.IPv6,
		Routers: loopback.Routers{Peers: d.BGP.Peers, Report: bgp, Aggregates: v.Memory.Aggregates, Conflicts: v.Memory.Conflicts, Losses: d.Memory.Losses},
	}}
}

// stepLoopback decides what is held on lo of one VIP.
func (t *turn) stepLoopback(vip *model.VIP, gone bool) {
	old := &t.lo.Memory
	if t.lo.Remembered {
		t.onLo.remembered++
	}
	if t.lo.Reported {
		t.onLo.reported++
	}
	changed := old.Phase != model.BGPIdle && old.Unbound != vip.Unbound
	if changed {
		vip, gone = vip.Former(old.Unbound), true
	}
	if gone && !vip.L2 && !vip.Unbound { // it may have been on the LAN too, perhaps still is elsewhere
		was := *vip
		was.L2, vip = true, &was
	}
	in := t.loopbackInput(vip, gone)
	o := loopback.Step(in)
	t.d.WakeBy(o.Wake)
	t.onLo.holdSessions = t.onLo.holdSessions || o.HoldSessions
	o.Memory.HeldUntil = t.rings.HeldUntil(vip, old.Phase >= model.BGPAdvertised, o.Memory.Phase >= model.BGPAdvertised, o.Memory.HeldUntil)
	idle := o.Memory.Phase == model.BGPIdle
	if changed && idle {
		t.d.WakeBy(t.v.Now) // begins anew
	}
	t.lists.OnLoopback.Update(vip.Addr, o.Memory, o.Memory != *old, gone && idle)
	switch { // this host does not answer on the LAN for what another node owns there
	case !o.Silent:
	case t.advert.Addr.IsValid():
		t.advert.Quiet = t.advert.Mode == model.L2Probe
	default:
		t.advert = model.L2Advert{Addr: vip.Addr, Interface: t.here.Interface, Mode: model.L2Silent}
	}
	if o.Bind.Addr.IsValid() {
		t.bind(&o.Bind, o.Status.Standing)
	}
	if o.Advertise {
		t.audiences.Advertise(vip.Addr, in.Audience, o.Shutdown, t.lists.Path)
	}
	if gone || in.OnlyBalanced() {
		return
	}
	if !vip.L2 {
		steady.Put(&t.lists.Group, model.GroupVIP{Addr: vip.Addr, Name: vip.Told(), Standing: o.Status.Standing, Holds: t.rings.HoldsByBGP(vip, &t.here)})
	}
	o.Status.Ring = t.rings.Obstacle(vip, "")
	t.lists.Tell(&o.Status)
	t.here.ToRouters = !idle
	t.here.Serves = t.here.Serves || t.here.ToRouters && t.rings.KeepsService(vip, "")
}

// loopbackInput is what the decision about lo may look at.
func (t *turn) loopbackInput(vip *model.VIP, gone bool) *loopback.Input {
	v, a := t.v, vip.Addr
	in := &t.onLo.in // one for all VIPs, as that of the election
	*in = loopback.Input{}
	in.Node, in.VIP, in.Gone, in.Known = &t.onLo.node, vip, gone, t.lo
	in.BalancedHere = t.rings.Balanced(vip, t.here.Interface)
	in.Health, in.OwnInterface, in.Eligible = t.health, t.links.Own(a), v.Gossip.Eligible[a]
	in.AddressGen = t.address.Gen
	in.Interface, in.OwnsOnLAN, in.WantsOnLAN, in.Owner = t.here.Interface, t.here.OwnsOnLAN, t.wanted, t.owner
	in.Ring = t.onLo.relaying
	if vip.L2 {
		in.OnLAN, in.Silent = t.address.VIPs[a], t.layer2.VIPs[a].Silent
	}
	in.Ring.Others = len(v.Gossip.Holders[a]) > 0
	if in.Ring.KeepsOnLAN, in.Ring.Keeps = t.rings.Keeps(vip, t.here.Interface), t.rings.Keeps(vip, ""); t.rings.KeepsService(vip, "") {
		in.Ring.KeepsOnLAN, in.Ring.Keeps = true, true
	}
	in.Audience = audience.Nobody
	if gone {
		return in
	}
	if !in.OnlyBalanced() {
		in.Audience = t.audiences.Of(vip)
	}
	in.Standing = t.standing(in)
	return in
}

// standing says whether this node may tell routers of the VIP. The owner at layer 2 tells them of
// what follows it, whatever else is the case: it goes on until it has handed the VIP over.
func (t *turn) standing(in *loopback.Input) place.Verdict {
	where := in.Where()
	switch {
	case !in.VIP.FollowsOwner():
		return place.Standing(t.v, in.VIP, &t.health, where, t.group.Leaves(in.VIP.Addr, in.StaysWithRouters()))
	case !where.Reason.Eligible():
		return where
	case in.OwnsOnLAN:
		return place.Verdict{Reason: model.ReasonStandby}
	}
	return place.Verdict{Reason: t.here.Standing, Detail: "its owner at layer 2 alone advertises it"}
}
