// Package decide turns the View into the whole wanted state of this node. It is
// pure: same View, same Desired.
package decide

import (
	"slices"
	"time"

	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/membership"
	"lbd.dev/lbd/internal/model"
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
		Track:      (v.KeepServices || len(v.LoadBalancers) > 0) && !v.NoRelay,
		Rules:      election.Rules(v.Gossip.Members),
	}
	d.Memory.Left, d.Memory.Rings = nil, nil
	d.Memory.Gen = d.Gen
	w := waker{now: v.Now}
	known := membership.Step(v)
	d.Memory.Membership, d.Hearing = known.Memory, known.Hearing
	w.by(known.Wake)
	speaks := ready(v)
	if until, awaits := membership.AwaitsServices(v); speaks && awaits {
		speaks = false
		w.by(until)
	}
	if !speaks {
		d.Wake = w.at
		membership.Tell(v, &d)
		d.Group.Unready = true
		return d
	}
	v = forwarding(unconfigured.WithRemoved(v), &d, &w)
	d.Synced = synced(v) && !awaited(v, &w) && !missing(v, &w, model.SourceMachines)
	facts := gather(v, &d, known)
	facts.w = &w
	facts.speaker(&d)
	remembered := 0
	var t turn // begun anew for each VIP: one of its own would be an allocation
	for i := range v.VIPs {
		t = turn{facts: facts}
		if t.both(&v.VIPs[i], &d) {
			remembered++
		}
	}
	facts.letGo(unconfigured.ByLayer2(v, remembered), &d)
	d.BGP.Ready = d.BGP.Ready && !facts.holdSessions
	facts.watchRings(&d)
	w.by(facts.networks.Settle(&d, func(a addr) bool { return facts.isVIP(&d, a) }))
	if d.Memory.Fresh = facts.fresh; facts.fresh > 0 {
		d.Memory.Fresh = max(facts.fresh, v.Memory.Fresh)
	}
	facts.aggregate(&d)
	facts.lists.end(&d)
	d.Memory.Stalls = v.Stalls
	d.Lapses, d.Memory.Lapses = facts.layer2.Lapses, facts.layer2.Lapses
	membership.Tell(v, &d)
	d.Machines = membership.Management(v, &d.Group)
	d.Wake = w.at
	return d
}

// forwarding decides what is forwarded to other machines, and is the View in which VIPs are barred
// that cannot be.
func forwarding(v *model.View, d *model.Desired, w *waker) *model.View {
	f := balance.Forward(v)
	d.Forward, d.Memory.Balance = f.State, f.Memory
	w.by(f.Wake)
	if len(v.LoadBalancers) == 0 {
		return v
	}
	barred := *v
	barred.VIPs = f.VIPs
	return &barred
}

// ready tells whether enough is known to decide anything: what is wanted, where
// it could be, and what the kernel holds and keeps silent from before. Until then nothing is
// pruned and nothing taken.
func ready(v *model.View) bool {
	_, bound := v.Applied[model.SinkAddress]
	_, silent := v.Applied[model.SinkLayer2]
	return v.Synced[model.SourceConfig] && v.Synced[model.SourceLink] && bound && silent
}

// synced tells whether leftovers of an earlier process may be pruned.
func synced(v *model.View) bool {
	return v.Synced[model.SourceGossip] && v.Synced[model.SourceHealth]
}

// awaited tells whether objects of a cluster are still to come. What is known by
// files is served meanwhile.
func awaited(v *model.View, w *waker) bool { return missing(v, w, model.SourceKube) }

// missing tells whether a source has not delivered yet and is waited for.
func missing(v *model.View, w *waker, from model.SourceName) bool {
	until, is := membership.Missing(v, from)
	if is {
		w.by(until)
	}
	return is
}

// waker collects the earliest time at which something changes by itself.
type waker struct{ now, at time.Time }

func (w *waker) by(t time.Time) {
	if t.IsZero() {
		return
	}
	if w.at.IsZero() || t.Before(w.at) {
		w.at = t
	}
}

// sortBindings sorts by address; of two of one address that on lo comes last.
// A list that was taken over is sorted, so that one of an earlier decision is never
// touched.
func sortBindings(all []model.Binding) {
	for i := 1; i < len(all); i++ {
		if all[i-1].Compare(&all[i]) > 0 {
			slices.SortFunc(all, func(a, b model.Binding) int { return a.Compare(&b) })
			return
		}
	}
}
