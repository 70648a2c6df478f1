package decide

import (
	"lbd.dev/lbd/internal/audience"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/loopback"
	"lbd.dev/lbd/internal/membership"
	"lbd.dev/lbd/internal/model"
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
	v := f.v
	relay, works := v.Applied[model.SinkRelay]
	node := loopback.NodeOf(v, f.d)
	node.Leveled, node.SettledBy = f.d.Rules >= election.RulesDegraded, f.group.SettledBy(v)
	node.Draining, node.Stopping = v.Draining || f.group.Memory.Machine.Drain != nil, membership.Stopping(v)
	f.onLo = onLo{node: node, relaying: loopback.Ring{Driver: works, Gen: relay.Gen, Patience: ring.RelayWait}}
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
	t.obstacle(&o.Status, vip, "")
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
	in.Stand(v, t.here.Standing, t.group.Leaves(a, in.StaysWithRouters()))
	return in
}
