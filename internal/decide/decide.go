// Package decide turns the View into the whole wanted state of this node. It is
// pure: same View, same Desired.
package decide

import (
	"cmp"
	"lbd.dev/lbd/internal/balance"
	"slices"
	"time"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/loopback"
	"lbd.dev/lbd/internal/membership"
	"lbd.dev/lbd/internal/model"
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
		d.Group = group(v, &d)
		d.Group.Unready = true
		return d
	}
	v = withRemoved(v)
	forwarding := balance.Forward(v)
	d.Forward, d.Memory.Balance = forwarding.State, forwarding.Memory
	w.by(forwarding.Wake)
	if len(v.LoadBalancers) > 0 {
		barred := *v
		barred.VIPs, v = forwarding.VIPs, &barred
	}
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
	facts.letGo(gone(v, remembered), &d)
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
	d.Group = group(v, &d)
	d.Machines = membership.Management(v, &d.Group)
	d.Wake = w.at
	return d
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

// withRemoved is the View with the VIPs too that this node has, on the LAN or since they are
// Balanced, and that are not configured any more: another node may still have them in its
// configuration. What is bound on no node is of a Service, which goes on all nodes at once.
func withRemoved(v *model.View) *model.View {
	var out []model.VIP
	next := 0
	for i := range v.Memory.Lists.Status {
		s := &v.Memory.Lists.Status[i]
		for next < len(v.VIPs) && v.VIPs[next].Addr.Less(s.VIP.Addr) {
			next++
		}
		if s.BGP || s.VIP.Unbound || next < len(v.VIPs) && v.VIPs[next].Addr == s.VIP.Addr {
			continue
		}
		if v.Memory.VIPs[s.VIP.Addr].Phase.OnLAN() || sharedStill(v, s.VIP.Addr) {
			vip := s.VIP
			vip.Barred, vip.BarredDetail = model.ReasonRemoved, ""
			vip.BGP, vip.Balanced = nil, false
			out = append(out, vip)
		}
	}
	if out == nil {
		return v
	}
	with := *v
	with.VIPs = append(out, v.VIPs...)
	slices.SortFunc(with.VIPs, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) })
	return &with
}

// sharedStill tells whether this node has connections of a Balanced VIP to keep that others
// still have in their configuration.
func sharedStill(v *model.View, a addr) bool {
	return loopback.KeepsConnections(v.Memory.BGP[a]) && slices.ContainsFunc(v.Gossip.Eligible[a], func(n model.NodeName) bool { return n != v.Self })
}

// gone lists the VIPs that are not configured any more but not yet let go, given
// how many of those that are configured have a memory.
func gone(v *model.View, remembered int) []model.VIP {
	if remembered == len(v.Memory.VIPs) {
		return nil
	}
	var out []model.VIP
	for a, m := range v.Memory.VIPs {
		_, configured := slices.BinarySearchFunc(v.VIPs, a, func(x model.VIP, a addr) int { return x.Addr.Compare(a) })
		if !configured {
			out = append(out, model.VIP{Addr: a, Interfaces: []string{m.Interface}, Unbound: m.Unbound})
		}
	}
	slices.SortFunc(out, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) })
	return out
}

// goneFromLoopback lists the VIPs that are not configured any more but still advertised
// or bound for BGP, by this process or one before it. If all that is known belongs
// to those that were seen there are none.
func (f *facts) goneFromLoopback() []model.VIP {
	v, loopback := f.v, f.address.Loopback
	if f.remembered == len(v.Memory.BGP) && f.onLo == len(loopback) {
		return nil
	}
	var out []model.VIP
	look := func(a addr, unbound bool) {
		_, configured := slices.BinarySearchFunc(v.VIPs, a, func(x model.VIP, a addr) int { return x.Addr.Compare(a) })
		if !configured {
			out = append(out, model.VIP{Addr: a, Unbound: unbound})
		}
	}
	for a, m := range v.Memory.BGP {
		look(a, m.Unbound)
	}
	for a, x := range loopback {
		if _, known := v.Memory.BGP[a]; !known && x.Bound {
			look(a, false)
		}
	}
	slices.SortFunc(out, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) })
	return out
}

// sortBindings sorts by address; of two of one address that on lo comes last.
// A list that was taken over is sorted, so that one of an earlier decision is never
// touched.
func sortBindings(all []model.Binding) {
	for i := 1; i < len(all); i++ {
		if compareBindings(&all[i-1], &all[i]) > 0 {
			slices.SortFunc(all, func(a, b model.Binding) int { return compareBindings(&a, &b) })
			return
		}
	}
}

func compareBindings(a, b *model.Binding) int {
	if c := a.Addr.Compare(b.Addr); c != 0 {
		return c
	}
	return cmp.Compare(onLoopback(a), onLoopback(b))
}

func onLoopback(b *model.Binding) int {
	if b.Interface == model.LoopbackInterface {
		return 1
	}
	return 0
}
