package balance

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
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
	all := withRemoved(v)
	if len(all) == 0 {
		return f
	}
	f.Memory = make(map[string]model.BalanceMemory, len(all))
	links := place.LinksOf(v.Links)
	for _, w := range all {
		lb, interfaces := here(v, &links, w.LoadBalancer)
		if len(lb.VIPs) == 0 {
			continue
		}
		o := Step(&Input{Now: v.Now, Wanted: lb, VIPs: v.VIPs, Health: v.Health, Told: told(v, w.LoadBalancer), Memory: v.Memory.Balance[lb.Name]})
		for n := range o.Services {
			x := &o.Services[n]
			x.Interface, x.Claimed, x.Sources = interfaces[x.Addr], claimed(v, x.Addr), sources(v, &w, lb.VIPs, x.Addr)
			if x.ClientSource {
				x.Near = near(v.Links, lb, x.Addr)
			}
		}
		o.Memory.Wanted, o.Memory.Removed = w.configured, w.removed
		f.Memory[lb.Name] = o.Memory
		f.Wake = model.Earliest(f.Wake, o.Wake)
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
	f.State.Replies = replies(f.State.Services)
	if maps.EqualFunc(f.Memory, v.Memory.Balance, func(a, b model.BalanceMemory) bool { return a.Same(&b) }) {
		f.Memory = v.Memory.Balance
	}
	return f
}

// wanted is a LoadBalancer that is to be forwarded here.
type wanted struct {
	*model.LoadBalancer
	configured *model.LoadBalancer // as it is, or was
	removed    []netip.Addr        // VIPs that are configured no more
}

// withRemoved are the LoadBalancers that are configured, with the VIPs too that are so no more and
// that this node has yet to hand over.
func withRemoved(v *model.View) (all []wanted) {
	known := make(map[string]bool, len(v.LoadBalancers))
	add := func(lb *model.LoadBalancer, vips []netip.Addr) {
		known[lb.Name] = true
		w := wanted{lb, lb, nil}
		if m := v.Memory.Balance[lb.Name]; m.Wanted != nil {
			for _, a := range slices.Concat(m.Wanted.VIPs, m.Removed) {
				if at, is := model.FindVIP(v.VIPs, a); is && v.VIPs[at].Barred == model.ReasonRemoved && !slices.Contains(vips, a) {
					w.removed = append(w.removed, a)
				}
			}
		}
		if len(w.removed) > 0 || len(vips) != len(lb.VIPs) {
			slices.SortFunc(w.removed, netip.Addr.Compare)
			w.removed = slices.Compact(w.removed)
			with := *lb
			with.VIPs = slices.SortedFunc(slices.Values(slices.Concat(vips, w.removed)), netip.Addr.Compare)
			w.LoadBalancer = &with
		}
		all = append(all, w)
	}
	for i := range v.LoadBalancers {
		add(&v.LoadBalancers[i], v.LoadBalancers[i].VIPs)
	}
	for _, name := range slices.Sorted(maps.Keys(v.Memory.Balance)) {
		if was := v.Memory.Balance[name].Wanted; !known[name] && was != nil {
			add(was, nil)
			if w := &all[len(all)-1]; len(was.VIPs) > 0 { // another object may have some of them now
				none := *was
				none.VIPs, w.configured = nil, &none
			}
		}
	}
	return all
}

// here is a LoadBalancer with those of its VIPs that this node could have, and the interfaces
// where they belong: what has no place here is not forwarded here either. So an address of this
// node, or one of a network that it is not on, is left alone.
func here(v *model.View, links *place.Links, lb *model.LoadBalancer) (*model.LoadBalancer, map[netip.Addr]string) {
	interfaces := make(map[netip.Addr]string, len(lb.VIPs))
	for _, a := range lb.VIPs {
		at, is := model.FindVIP(v.VIPs, a)
		had := v.Memory.VIPs[a]
		holds := had.Phase.Holds() || had.Phase.OnLAN() // a node that is selected no more hands it over first
		if !is || !holds && !model.Matches(v.VIPs[at].NodeSelector, v.Labels) {
			continue
		}
		was := had.Interface
		switch link, where := links.Find(&v.VIPs[at], was); where.Reason {
		case model.ReasonLocalAddress, model.ReasonNoSubnet, model.ReasonNoInterface:
		case model.ReasonStandby:
			interfaces[a] = link.Name
		default: // the link may be back in a moment
			interfaces[a] = was
		}
	}
	if len(interfaces) == len(lb.VIPs) {
		return lb, interfaces
	}
	some := *lb
	some.VIPs = slices.DeleteFunc(slices.Clone(lb.VIPs), func(a netip.Addr) bool { _, is := interfaces[a]; return !is })
	return &some, interfaces
}

// claimed tells whether a node of the group has a VIP, or this one is about to.
func claimed(v *model.View, vip netip.Addr) bool {
	return v.Memory.VIPs[vip].Phase.Holds() || slices.ContainsFunc(v.Gossip.Claims[vip], func(c model.Claim) bool { return c.Epoch != 0 })
}

// bar keeps this node from a VIP, unless its source does so already.
func (f *Forwarding) bar(v *model.View, vip netip.Addr, why model.Reason, detail string) {
	at, is := model.FindVIP(v.VIPs, vip)
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
