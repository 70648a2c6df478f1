package decide

import (
	"cmp"
	"maps"
	"slices"

	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/model"
)

// withForwarding decides what is forwarded to other machines, and is the View in which VIPs are
// barred that cannot be.
func withForwarding(v *model.View, d *model.Desired, w *waker) *model.View {
	if len(v.LoadBalancers) == 0 {
		d.Memory.Balance = nil
		return v
	}
	with := *v
	with.VIPs = slices.Clone(v.VIPs)
	next := make(map[string]model.BalanceMemory, len(v.LoadBalancers))
	for i := range v.LoadBalancers {
		lb := &v.LoadBalancers[i]
		o := balance.Step(&balance.Input{Now: v.Now, Wanted: lb, Health: v.Health, Memory: v.Memory.Balance[lb.Name]})
		next[lb.Name] = o.Memory
		w.by(o.Wake)
		d.Forward.Services = append(d.Forward.Services, o.Services...)
		d.Forward.Cut = append(d.Forward.Cut, o.Cut...)
		for _, a := range lb.VIPs {
			if at, is := slices.BinarySearchFunc(with.VIPs, a, func(x model.VIP, a addr) int { return x.Addr.Compare(a) }); is {
				bar(v, &with.VIPs[at], &o)
			}
		}
	}
	slices.SortFunc(d.Forward.Services, compareServices)
	slices.SortFunc(d.Forward.Cut, compareCut)
	if !maps.EqualFunc(next, v.Memory.Balance, func(a, b model.BalanceMemory) bool { return a.Same(&b) }) {
		d.Memory.Balance = next
	}
	return &with
}

// bar keeps this node from a VIP that it cannot forward.
func bar(v *model.View, vip *model.VIP, o *balance.Output) {
	if vip.Barred != model.ReasonOwner {
		return
	}
	family := balance.Family(vip.Addr)
	driver, reported := v.Applied[model.SinkForward]
	is := driver.VIPs[vip.Addr]
	switch {
	case o.Standing[family] != model.ReasonOwner:
		vip.Barred, vip.BarredDetail = o.Standing[family], o.Detail[family]
	case !reported || !is.Forwarding && is.Err == "":
		vip.Barred, vip.BarredDetail = model.ReasonHealthPending, "the rules that forward it are not in the kernel yet"
	case !is.Forwarding:
		vip.Barred, vip.BarredDetail = model.ReasonNotForwarding, is.Err
	}
}

func compareServices(a, b model.ForwardService) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

func compareCut(a, b model.CutServer) int {
	return cmp.Or(a.VIP.Compare(b.VIP), a.Server.Compare(b.Server), cmp.Compare(a.Protocol, b.Protocol))
}
