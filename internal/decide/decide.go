// Package decide turns the View into the whole wanted state of this node. It is
// pure: same View, same Desired.
package decide

import (
	"time"

	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/learned"
	"lbd.dev/lbd/internal/membership"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/ring"
	"lbd.dev/lbd/internal/unconfigured"
)

// Grace is how long drivers may go on by themselves without a new decision. It
// is shorter than what remains of a lifetime that was renewed in time, so that a
// process that was frozen has no say over a VIP that its kernel has dropped.
const Grace = 1500 * time.Millisecond

// Decide is the only place where it is decided what this node does.
func Decide(v *model.View) model.Desired {
	d := model.Desired{
		Gen:        v.Memory.Gen + 1,
		ValidUntil: v.Now.Add(Grace),
		Memory:     v.Memory,
		Rules:      election.Rules(v.Gossip.Members),
	}
	d.Memory.Left, d.Memory.Rings = nil, nil
	d.Memory.Gen = d.Gen
	known := membership.Step(v)
	d.Memory.Membership, d.Hearing = known.Memory, known.Hearing
	d.WakeBy(known.Wake)
	if !known.Ready {
		membership.Tell(v, &d)
		d.Group.Unready = true
		s := ring.Services(v)
		s.Known = false // nobody has looked at what is in the way of each
		services(v, &d, s)
		return d
	}
	d.Synced = known.Complete
	v = forwarding(unconfigured.WithRemoved(v), &d)
	facts := gather(v, &d, known)
	remembered := 0
	var t turn // begun anew for each VIP: one of its own would be an allocation
	for i := range v.VIPs {
		t.begin(facts, &v.VIPs[i])
		if t.both(&v.VIPs[i]) {
			remembered++
		}
	}
	services(v, &d, facts.rings.Services())
	facts.letGo(unconfigured.ByLayer2(v, remembered))
	facts.finish()
	membership.Tell(v, &d)
	d.Machines = membership.Management(v, &d.Group)
	return d
}

// services adds what is decided for all Services, and whether the connections that the kernel
// translates are to be listed.
func services(v *model.View, d *model.Desired, s ring.Serving) {
	d.Services, d.Memory.Proxy = s.Services, s.Memory
	d.WakeBy(s.Wake)
	d.Track = s.Kept || !v.NoRelay && (len(v.LoadBalancers) > 0 || len(v.Memory.Balance) > 0)
}

// forwarding decides what goes on to other machines, and is the View in which VIPs are barred
// that cannot.
func forwarding(v *model.View, d *model.Desired) *model.View {
	f := balance.Forward(v)
	d.Forward, d.Memory.Balance = f.State, f.Memory
	d.WakeBy(f.Wake)
	v = v.WithVIPs(f.VIPs)
	r := learned.Route(v)
	d.Routes, d.Refused, d.Memory.Learned = r.State, r.Refusals, r.Memory
	d.WakeBy(r.Wake)
	return v.WithVIPs(r.VIPs)
}

// finish adds what follows from all VIPs together.
func (f *facts) finish() {
	v, d := f.v, f.d
	d.BGP.Ready = d.BGP.Ready && !f.onLo.holdSessions
	rings := f.rings.Output()
	d.Memory.Left, d.Memory.Rings = rings.Left, rings.Probes
	d.WakeBy(rings.Wake)
	for _, n := range rings.Heartbeats {
		d.Group.Heartbeat(n)
	}
	for _, q := range rings.Questions {
		if !d.OnLAN(v, q.Addr) { // the driver knows an address once
			d.L2 = append(d.L2, q)
		}
	}
	d.WakeBy(f.networks.Settle(d, func(a addr) bool { return d.OnLAN(v, a) }))
	if d.Memory.Fresh > 0 {
		d.Memory.Fresh = max(d.Memory.Fresh, v.Memory.Fresh)
	}
	f.audiences.End(v, d, f.lists.Path)
	f.lists.End(d)
	d.Memory.Stalls = v.Stalls
	d.Lapses, d.Memory.Lapses = f.layer2.Lapses, f.layer2.Lapses
}
