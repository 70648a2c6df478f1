package decide

import (
	"cmp"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
	"lbd.dev/lbd/internal/ring"
	"lbd.dev/lbd/internal/steady"
)

// onLAN is what the steps of all VIPs share at layer 2.
type onLAN struct {
	node election.Node
	in   election.Input // of the step that is being made
}

// step decides for one VIP at layer 2. It tells whether the VIP had a memory.
func (t *turn) step(vip *model.VIP, gone bool) bool {
	v, d := t.v, t.d
	in := &t.onLAN.in // one for all VIPs: it is large
	*in = election.Input{}
	known, old := false, &in.Memory
	*old, known = t.lists.OnLAN.Old[vip.Addr]
	link, where := t.links.Find(vip, old.HeldOn())
	lan := t.lan(vip, &link, where, old)
	why, retry := place.StandingOnLAN(v, vip, &t.health, &lan, func() bool { return t.networks.Dark(link.Name) })
	d.WakeBy(retry)
	t.complete(in, vip, gone, why.Reason, &link)
	changed := old.Unbound != vip.Unbound && old.Phase != model.PhaseIdle
	if changed {
		in.VIP, in.Gone = vip.Former(old.Unbound), true
	}
	if in.Interface == "" {
		in.Interface = old.Interface // let go where it is
	}
	in.Keep = t.rings.Keeps(vip, in.Interface)
	if t.here.ConnectionsOnLoopback() {
		in.Address.Connections, in.Address.Sockets = 0, 0 // they are kept on lo
	}
	o := election.Step(in)
	d.WakeBy(o.Wake)
	if o.Urgent {
		t.networks.Urge(in.Interface)
	}
	o.Count(in, &d.Memory.Counts)
	if changed && o.Memory.Phase == model.PhaseIdle {
		d.WakeBy(v.Now) // begins anew
	}
	t.owner = o.Owner
	t.here = ring.Here{
		Interface: in.Interface, BoundOn: o.Memory.BoundOn(), Keeps: in.Keep, Standing: why.Reason, Epoch: max(in.Seen, o.Claim.Epoch),
		OwnsOnLAN: o.Memory.HeldOn() != "" && o.Memory.Phase != model.PhaseTaking, Unwell: t.here.Unwell, Before: t.here.Before,
	}
	o.Memory.HeldUntil = t.rings.HeldUntil(vip, old.Phase.Serves(), o.Memory.Phase.Serves(), o.Memory.HeldUntil)
	t.moves(vip, &o.Memory)
	t.lists.OnLAN.Update(vip.Addr, o.Memory, !known || !o.Memory.Same(old), gone && o.Memory.Phase == model.PhaseIdle)
	if o.Bind != nil {
		t.wanted = true
		t.bind(o.Bind, why.Reason)
	}
	if o.Spared {
		d.Spared = append(d.Spared, vip.Addr)
	}
	if o.L2 != nil {
		t.advert = *o.L2
	}
	if !gone {
		o.AddDetail(why.Detail)
		t.report(why.Reason, in, &o)
	}
	return known
}

// moves tells the ring whom the VIP comes from or goes to in a planned move. Of one that is forwarded
// a client may hear of the new owner before a server does, which may see another address as the
// client: what that server answers comes to the former owner. A successor without a ring drops it,
// as the former owner would.
func (t *turn) moves(vip *model.VIP, m *model.VIPMemory) {
	if (t.here.BoundOn != "" || t.rings.KeepsService(vip, t.here.Interface)) && m.HeldOn() != "" && t.v.Now.Before(m.RelayUntil) {
		t.here.From = m.From
		t.d.WakeBy(m.RelayUntil)
	}
	if vip.Forwarded() {
		t.here.To = m.To
	}
}

// lan is what the standing at layer 2 depends on. An address that its owner alone advertises goes first to
// nodes that a router listens to.
func (t *turn) lan(vip *model.VIP, link *model.Link, where place.Verdict, old *model.VIPMemory) place.LAN {
	lan := place.LAN{
		Interface: link.Name, Where: t.group.Where(t.v, vip, where), Leaves: t.group.Leaves(vip.Addr, false),
		Settled: t.group.Memory.Settled, TellsDegraded: t.onLo.node.Leveled, Memory: old,
	}
	if vip.FollowsOwner() {
		why, until := t.onLo.node.Routers.Unheard(t.audiences.Of(vip).Peers, t.v.Now)
		lan.Unheard = why
		t.d.WakeBy(until)
	}
	return lan
}

// complete adds to the memory what else the election may look at.
func (f *facts) complete(in *election.Input, vip *model.VIP, gone bool, stand model.Reason, link *model.Link) {
	v, old := f.v, &in.Memory
	in.Node, in.VIP, in.Standing, in.Gone, in.Drain = &f.onLAN.node, vip, stand, gone, election.Drain(stand, v.DrainTimeout)
	in.Enough = f.d.Memory.Suspected >= election.MostSuspected
	in.Busy = vip.Unbound && f.d.Memory.Probing >= election.MostProbing
	in.Interface, in.MAC = link.Name, link.MAC
	in.Claims, in.Eligible, in.Seen = v.Gossip.Claims[vip.Addr], v.Gossip.Eligible[vip.Addr], v.Gossip.Seen[vip.Addr]
	in.Address.Gen, in.Address.AppliedVIP = f.address.Gen, f.address.VIPs[vip.Addr]
	in.Layer2.Gen, in.Layer2.AppliedVIP = f.layer2.Gen, f.layer2.VIPs[vip.Addr]
	if stand.Eligible() {
		w := f.networks.On(link.Name)
		in.Unasked, in.Hushed = w.Pending, w.Hushed
	}
	in.Hold = f.rings.Waits(old) || old.HeldOn() == "" && f.rings.WaitsService(vip, in.Interface)
}

// report adds what the group and the people are told.
func (t *turn) report(stand model.Reason, in *election.Input, o *election.Output) {
	vip, g := in.VIP, &t.d.Group
	if stand == model.ReasonStandby && o.Owner == t.v.Self {
		stand = model.ReasonOwner
	}
	o.Tell(in, g)
	claim := o.Claim
	if claim.Epoch != 0 && vip.Forwarded() {
		claim.Verdict = t.verdicts[vip.Addr]
	}
	seen := max(in.Seen, o.Claim.Epoch, in.Memory.Epoch)
	steady.Put(&t.lists.Group, model.GroupVIP{Addr: vip.Addr, Name: vip.Told(), Standing: stand, Claim: claim, Seen: seen, Holds: t.rings.Holds(vip, &t.here, &o.Memory)})
	if t.rings.Balanced(vip, t.here.Interface) && o.Owner != "" && o.Owner != t.v.Self {
		g.HeartbeatFor(o.Owner, vip.Addr)
	}
	s := model.VIPStatus{
		VIP: *vip, Owner: o.Owner, Reason: o.Reason, Detail: cmp.Or(o.Detail, t.rings.Uneven(vip, &t.here)), Standing: stand,
		Epoch: o.OwnerEpoch(in), Interface: o.Memory.Interface,
		Healthy: t.health.State.Passes(),
		Bound:   (in.Address.Bound || t.here.OnLoopbackForBalancing(vip)) && !vip.Unbound, Announced: in.Layer2.Announcing && in.Address.Bound,
		Since: o.Memory.Since, Successors: o.Successors, Duplicate: place.HostOf(t.v, o.Duplicate(in)),
	}
	t.obstacle(&s, vip, in.Interface)
	t.lists.Tell(&s)
}

// obstacle adds why open connections may be reset.
func (t *turn) obstacle(s *model.VIPStatus, vip *model.VIP, iface string) {
	if why := t.rings.Obstacle(vip, iface); t.rings.Quiet(vip) {
		s.Resets = why
	} else {
		s.Ring = why
	}
}
