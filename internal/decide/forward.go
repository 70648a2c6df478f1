package decide

import (
	"cmp"
	"maps"
	"slices"

	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// withForwarding decides what is forwarded to other machines, and is the View in which VIPs are
// barred that cannot be.
func withForwarding(v *model.View, d *model.Desired, w *waker) *model.View {
	if len(v.LoadBalancers) == 0 {
		d.Memory.Balance = nil
		return v
	}
	vips := v.VIPs
	next := make(map[string]model.BalanceMemory, len(v.LoadBalancers))
	for i := range v.LoadBalancers {
		lb := &v.LoadBalancers[i]
		o := balance.Step(&balance.Input{Now: v.Now, Wanted: lb, Health: v.Health, Memory: v.Memory.Balance[lb.Name]})
		next[lb.Name] = o.Memory
		w.by(o.Wake)
		d.Forward.Services = append(d.Forward.Services, o.Services...)
		d.Forward.Cut = append(d.Forward.Cut, o.Cut...)
		for _, a := range lb.VIPs {
			at, is := slices.BinarySearchFunc(vips, a, func(x model.VIP, a addr) int { return x.Addr.Compare(a) })
			if !is || vips[at].Barred != model.ReasonOwner {
				continue
			}
			if why := barred(v, a, &o); why.Reason != model.ReasonOwner {
				if &vips[0] == &v.VIPs[0] { // there may be thousands, and mostly none is barred
					vips = slices.Clone(vips)
				}
				vips[at].Barred, vips[at].BarredDetail = why.Reason, why.Detail
			}
		}
	}
	slices.SortFunc(d.Forward.Services, compareServices)
	slices.SortFunc(d.Forward.Cut, compareCut)
	if !maps.EqualFunc(next, v.Memory.Balance, func(a, b model.BalanceMemory) bool { return a.Same(&b) }) {
		d.Memory.Balance = next
	}
	with := *v
	with.VIPs = vips
	return &with
}

// barred is why this node is kept from a VIP that it cannot forward; ReasonOwner if it is not.
func barred(v *model.View, vip addr, o *balance.Output) place.Verdict {
	family := balance.Family(vip)
	driver, reported := v.Applied[model.SinkForward]
	is := driver.VIPs[vip]
	switch {
	case o.Standing[family] != model.ReasonOwner:
		return place.Verdict{Reason: o.Standing[family], Detail: o.Detail[family]}
	case is.Forwarding:
		return place.Verdict{Reason: model.ReasonOwner}
	case !reported || is.Err == "":
		return place.Verdict{Reason: model.ReasonHealthPending, Detail: "the rules that forward it are not in the kernel yet"}
	}
	return place.Verdict{Reason: model.ReasonNotForwarding, Detail: is.Err}
}

func compareServices(a, b model.ForwardService) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

func compareCut(a, b model.CutServer) int {
	return cmp.Or(a.VIP.Compare(b.VIP), a.Server.Compare(b.Server), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(one(a.Unanswered), one(b.Unanswered)))
}
