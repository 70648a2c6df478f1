package balance

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// Forwarding is what follows from all LoadBalancers of a View.
type Forwarding struct {
	State  model.ForwardState
	Memory map[string]model.BalanceMemory // that of the View if nothing has changed
	// VIPs are those of the View, barred where this node cannot forward.
	VIPs []model.VIP
	Wake time.Time // zero: nothing changes by itself
}

// Forward decides what is forwarded to other machines.
func Forward(v *model.View) Forwarding {
	f := Forwarding{VIPs: v.VIPs}
	if len(v.LoadBalancers) == 0 {
		return f
	}
	f.Memory = make(map[string]model.BalanceMemory, len(v.LoadBalancers))
	for i := range v.LoadBalancers {
		lb := &v.LoadBalancers[i]
		o := Step(&Input{Now: v.Now, Wanted: lb, Health: v.Health, Memory: v.Memory.Balance[lb.Name]})
		f.Memory[lb.Name] = o.Memory
		if !o.Wake.IsZero() && (f.Wake.IsZero() || o.Wake.Before(f.Wake)) {
			f.Wake = o.Wake
		}
		f.State.Services = append(f.State.Services, o.Services...)
		f.State.Cut = append(f.State.Cut, o.Cut...)
		for _, vip := range lb.VIPs {
			if why, detail := barred(v, vip, &o); why != model.ReasonOwner {
				f.bar(v, vip, why, detail)
			}
		}
	}
	slices.SortFunc(f.State.Services, compareServices)
	slices.SortFunc(f.State.Cut, compareCut)
	if maps.EqualFunc(f.Memory, v.Memory.Balance, func(a, b model.BalanceMemory) bool { return a.Same(&b) }) {
		f.Memory = v.Memory.Balance
	}
	return f
}

// bar keeps this node from a VIP, unless its source does so already.
func (f *Forwarding) bar(v *model.View, vip netip.Addr, why model.Reason, detail string) {
	at, is := slices.BinarySearchFunc(f.VIPs, vip, func(x model.VIP, a netip.Addr) int { return x.Addr.Compare(a) })
	if !is || f.VIPs[at].Barred != model.ReasonOwner {
		return
	}
	if &f.VIPs[0] == &v.VIPs[0] { // there may be thousands, and mostly none is barred
		f.VIPs = slices.Clone(f.VIPs)
	}
	f.VIPs[at].Barred, f.VIPs[at].BarredDetail = why, detail
}

// barred is why this node is kept from a VIP that it cannot forward; ReasonOwner if it is not.
func barred(v *model.View, vip netip.Addr, o *Output) (model.Reason, string) {
	family := Family(vip)
	driver, reported := v.Applied[model.SinkForward]
	is := driver.VIPs[vip]
	switch {
	case o.Standing[family] != model.ReasonOwner:
		return o.Standing[family], o.Detail[family]
	case is.Forwarding:
		return model.ReasonOwner, ""
	case !reported || is.Err == "":
		return model.ReasonHealthPending, "the rules that forward it are not in the kernel yet"
	}
	return model.ReasonNotForwarding, is.Err
}

func compareServices(a, b model.ForwardService) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

func compareCut(a, b model.CutServer) int {
	if c := cmp.Or(a.VIP.Compare(b.VIP), a.Server.Compare(b.Server), cmp.Compare(a.Protocol, b.Protocol)); c != 0 || a.Unanswered == b.Unanswered {
		return c
	}
	if b.Unanswered {
		return -1
	}
	return 1
}
