package decide

import (
	"cmp"
	"strings"

	"lbd.dev/lbd/internal/audience"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/loopback"
	"lbd.dev/lbd/internal/membership"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
	"lbd.dev/lbd/internal/ring"
	"lbd.dev/lbd/internal/steady"
	"lbd.dev/lbd/internal/wire"
)

// facts are what the steps of all VIPs share.
type facts struct {
	v               *model.View
	gen             uint64
	quorum          func() (ok bool, detail string) // found out once, for a VIP that needs it
	distrust        bool
	lapsed          bool // see election.Input
	unweighted      bool
	leveled         bool // the group tells what is degraded from what is up
	address, layer2 model.Applied
	routers         loopback.Routers
	relaying        loopback.Ring // what of it is the same for all VIPs
	rings           ring.All
	networks        *wire.Networks
	local           map[addr]string // by its interface; see place.OwnAddresses
	no6             bool            // IPv6 is disabled on lo
	audiences       audience.All
	lists           lists

	// How many VIPs so far had a memory of BGP and a report of lo.
	remembered, onLo int
	fresh            int // see model.Memory
	w                *waker
	in               election.Input
	onLoopback       loopback.Input
	group            membership.Output

	// holdSessions: a VIP waits for its ring before BGP advertises it.
	holdSessions bool
}

func gather(v *model.View, d *model.Desired, group membership.Output) *facts {
	relay, works := v.Applied[model.SinkRelay]
	f := &facts{
		v: v, gen: d.Gen, group: group, leveled: d.Rules >= election.RulesDegraded,
		distrust: v.Stalls != v.Memory.Stalls,
		address:  v.Applied[model.SinkAddress],
		layer2:   v.Applied[model.SinkLayer2],
		rings:    ring.New(v, d.Gen, d.Rules),
		networks: wire.NewNetworks(v, d.Gen),
		relaying: loopback.Ring{Driver: works, Gen: relay.Gen, Patience: ring.RelayWait},
		local:    place.OwnAddresses(v.Links),
		lists:    begin(v),
		quorum:   onceQuorum(v),
	}
	f.lapsed = f.distrust || f.layer2.Lapses != v.Memory.Lapses
	if lo, ok := v.Links[model.LoopbackInterface]; ok {
		f.no6 = !lo.IPv6
	}
	f.unweighted = defaultWeight(v.Weight)
	for _, m := range v.Gossip.Members {
		f.unweighted = f.unweighted && defaultWeight(m.Weight)
	}
	return f
}

// onceQuorum is membership.Quorum, found out when it is first asked for.
func onceQuorum(v *model.View) func() (bool, string) {
	var asked, ok bool
	var detail string
	return func() (bool, string) {
		if !asked {
			asked = true
			ok, detail = membership.Quorum(v)
		}
		return ok, detail
	}
}

func defaultWeight(w int) bool { return w <= 0 || w == model.DefaultWeight }

// step decides for one VIP and appends to the Desired. It tells whether the VIP
// had a memory.
func (t *turn) step(vip *model.VIP, gone bool, d *model.Desired) bool {
	v, w := t.v, t.w
	old, known := t.lists.onLAN.Old[vip.Addr]
	link, where := place.Find(v.Links, *vip, present(&old))
	why := t.standing(vip, link.Name, where, &old)
	stand := why.Reason
	in := t.input(vip, gone, stand, &link, &old, d)
	changed := old.Unbound != vip.Unbound && old.Phase != model.PhaseIdle
	if changed {
		in.VIP, in.Gone = former(vip, old.Unbound), true
	}
	if in.Interface == "" {
		in.Interface = old.Interface // let go where it is
	}
	in.Keep = t.rings.Keeps(vip, in.Interface)
	if t.connectionsOnLoopback(vip.Addr) {
		in.Address.Connections, in.Address.Sockets = 0, 0 // they are kept on lo
	}
	o := election.Step(in)
	w.by(o.Wake)
	if o.Urgent {
		t.networks.Urge(in.Interface)
	}
	if o.Fresh {
		t.fresh++
	}
	d.Memory.Waiting += one(o.Memory.Phase == model.PhaseWaiting) - one(old.Phase == model.PhaseWaiting)
	d.Memory.Probing += one(o.Memory.Phase == model.PhaseProbing) - one(old.Phase == model.PhaseProbing)
	if changed && o.Memory.Phase == model.PhaseIdle {
		w.by(v.Now)
	}
	t.here = ring.Here{
		Interface: in.Interface, BoundOn: placed(&o.Memory), Keeps: in.Keep, Standing: stand, Epoch: max(in.Seen, o.Claim.Epoch),
		OwnsOnLAN: present(&o.Memory) != "" && o.Memory.Phase != model.PhaseTaking,
	}
	o.Memory.HeldUntil = t.rings.HeldUntil(vip, old.Phase.Serves(), o.Memory.Phase.Serves(), o.Memory.HeldUntil)
	if (t.here.BoundOn != "" || t.rings.KeepsService(vip, in.Interface)) && present(&o.Memory) != "" && v.Now.Before(o.Memory.RelayUntil) {
		t.here.From = o.Memory.From
		w.by(o.Memory.RelayUntil)
	}
	t.remember(vip.Addr, &o.Memory, gone)
	if o.Bind != nil {
		t.wanted = true
		steady.Put(&t.lists.bind, *o.Bind)
		t.elsewhere(o.Bind, stand, d)
	}
	if o.Spared {
		d.Spared = append(d.Spared, vip.Addr)
	}
	if o.L2 != nil {
		t.advert = *o.L2
	}
	if gone {
		return known
	}
	explain(&o, why.Detail)
	t.report(stand, in, &o, d)
	return known
}

// remember keeps what has changed, and drops what is let go.
func (f *facts) remember(a addr, now *model.VIPMemory, gone bool) {
	mem := &f.lists.onLAN
	if gone && now.Phase == model.PhaseIdle {
		mem.Drop(a)
	} else if old, known := mem.Old[a]; !known || !now.Same(&old) {
		mem.Set(a, *now)
	}
}

// input is what the election may look at.
func (f *facts) input(vip *model.VIP, gone bool, stand model.Reason, link *model.Link, old *model.VIPMemory, d *model.Desired) *election.Input {
	v := f.v
	in := &f.in // one for all VIPs: it is large
	*in = election.Input{
		Now: v.Now, Gen: f.gen, Self: v.Self, VIP: vip, Rules: d.Rules,
		Standing: stand, Weight: v.Weight, Settled: f.group.Memory.Settled, Gone: gone,
		Interface: link.Name, MAC: link.MAC, Drain: election.Drain(stand, v.DrainTimeout),
		Members: v.Gossip.Members, Claims: v.Gossip.Claims[vip.Addr],
		Eligible: v.Gossip.Eligible[vip.Addr], Seen: v.Gossip.Seen[vip.Addr],
		Unweighted: f.unweighted, Fresh: v.Memory.Fresh,
		Address:  election.Report{Gen: f.address.Gen, AppliedVIP: f.address.VIPs[vip.Addr]},
		Layer2:   election.Report{Gen: f.layer2.Gen, AppliedVIP: f.layer2.VIPs[vip.Addr]},
		Memory:   *old,
		Distrust: f.distrust, Lapsed: f.lapsed, Resumed: v.Resumed,
	}
	if vip.Unbound {
		in.Busy, in.Crowd = d.Memory.Probing >= mostProbing, v.Memory.Waiting/mostProbing
	}
	if stand.Eligible() {
		w := f.networks.On(link.Name)
		in.Unasked, in.Hushed = w.Pending, w.Hushed
	}
	in.Hold = f.rings.Waits(old) || present(old) == "" && f.rings.WaitsService(vip, in.Interface)
	return in
}

// explain adds what is known of the standing of this node to the words of the election.
func explain(o *election.Output, detail string) {
	if detail != "" && !strings.Contains(o.Detail, detail) {
		o.Detail = strings.TrimPrefix(o.Detail+": "+detail, ": ")
	}
}

// mostProbing is for how many VIPs that are not bound the wire is asked at once. Each
// of them makes decisions longer, and the answer must not be old when it is used. It
// is a little more than the driver asks for at once. What is bound, which may be the way
// to the API server, waits for none.
const mostProbing = 96

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// former is the VIP as it was before it changed between bound and not bound. What
// began in one way is let go in the same way, then it begins anew.
func former(vip *model.VIP, unbound bool) *model.VIP {
	was := *vip
	was.Unbound = unbound
	return &was
}

// present is the interface of a VIP that this node holds, else "".
func present(m *model.VIPMemory) string {
	if m.Phase.Holds() {
		return m.Interface
	}
	return ""
}

// report adds what the group and the people are told.
func (t *turn) report(stand model.Reason, in *election.Input, o *election.Output, d *model.Desired) {
	vip := in.VIP
	if stand == model.ReasonStandby && o.Owner == t.v.Self {
		stand = model.ReasonOwner
	}
	o.Tell(in, &d.Group)
	seen := max(in.Seen, o.Claim.Epoch, in.Memory.Epoch)
	steady.Put(&t.lists.group, model.GroupVIP{Addr: vip.Addr, Name: vip.Told(), Standing: stand, Claim: o.Claim, Seen: seen, Holds: t.rings.Holds(vip, &t.here, &o.Memory)})
	if t.rings.Balanced(vip, t.here.Interface) && o.Owner != "" && o.Owner != t.v.Self {
		d.Group.HeartbeatFor(o.Owner, vip.Addr)
	}
	t.lists.tell(model.VIPStatus{
		VIP: *vip, Owner: o.Owner, Reason: o.Reason, Detail: cmp.Or(o.Detail, t.rings.Uneven(vip, &t.here)), Standing: stand,
		Epoch: o.OwnerEpoch(in), Interface: o.Memory.Interface,
		Healthy: place.Health(t.v, vip).State.Passes(),
		Bound:   (in.Address.Bound || t.rings.OnLoopbackForBalancing(vip)) && !vip.Unbound, Announced: in.Layer2.Announcing && in.Address.Bound,
		Since: o.Memory.Since, Successors: o.Successors, Ring: t.rings.Obstacle(vip, in.Interface), Duplicate: place.HostOf(t.v, o.Duplicate(in)),
	})
}
