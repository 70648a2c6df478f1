package decide

import (
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/internal/model"
)

type addr = netip.Addr

// Place finds the interface on which this node would bind the VIP, or why there
// is none, with more words. A named interface needs no subnet: it is the
// operator's word.
func Place(links map[string]model.Link, vip model.VIP) (model.Link, model.Reason, string) {
	if l, ok := localAddress(links, vip.Addr); ok {
		return model.Link{}, model.ReasonLocalAddress, "it is an address of " + l
	}
	if len(vip.Interfaces) > 0 {
		return named(links, vip)
	}
	var found []model.Link
	best := -1
	for _, l := range links {
		for _, p := range l.Prefixes {
			if p.Addr().Is4() != vip.Addr.Is4() || !p.Masked().Contains(vip.Addr) || p.Addr().IsLoopback() || p.IsSingleIP() {
				continue
			}
			if p.Bits() > best {
				found, best = nil, p.Bits()
			}
			if p.Bits() == best && !slices.ContainsFunc(found, func(o model.Link) bool { return o.Name == l.Name }) {
				found = append(found, l)
			}
		}
	}
	if len(found) == 0 {
		return model.Link{}, model.ReasonNoSubnet, "no interface has a subnet that holds " + vip.Addr.String() + "; name one in advertise.l2.interfaces"
	}
	slices.SortFunc(found, func(a, b model.Link) int { return a.Index - b.Index })
	return firstUsable(vip, found)
}

func named(links map[string]model.Link, vip model.VIP) (model.Link, model.Reason, string) {
	var found []model.Link
	for _, n := range vip.Interfaces {
		if l, ok := links[n]; ok {
			found = append(found, l)
		}
	}
	if len(found) == 0 {
		return model.Link{}, model.ReasonNoInterface, "none of " + strings.Join(vip.Interfaces, ", ") + " exists"
	}
	return firstUsable(vip, found)
}

// firstUsable prefers the first interface that works; the reason is that of the
// last one that does not.
func firstUsable(vip model.VIP, links []model.Link) (model.Link, model.Reason, string) {
	why, detail := model.ReasonLinkDown, ""
	for _, l := range links {
		switch {
		case !l.Up:
			why, detail = model.ReasonLinkDown, l.Name+" is down or has no carrier"
		case vip.Addr.Is6() && !l.IPv6:
			why, detail = model.ReasonFamilyDisabled, "IPv6 is disabled on "+l.Name+"; set net.ipv6.conf."+l.Name+".disable_ipv6=0"
		default:
			return l, model.ReasonStandby, ""
		}
	}
	return model.Link{}, why, detail
}

func localAddress(links map[string]model.Link, a addr) (string, bool) {
	for _, l := range links {
		for _, p := range l.Prefixes {
			if p.Addr() == a {
				return l.Name, true
			}
		}
	}
	return "", false
}

// standing says whether this node may own the VIP and, if not, the first reason
// in the order in which an operator would want to hear them.
func (f *facts) standing(vip model.VIP, place model.Reason, m model.VIPMemory) (model.Reason, string) {
	v := f.v
	switch {
	case !vip.L2:
		return model.ReasonNotAnnounced, ""
	case !matches(vip.NodeSelector, v.Labels):
		return model.ReasonNotSelected, ""
	case !place.Eligible():
		return place, ""
	case vip.Partition == model.PartitionQuorum && !f.quorum:
		return model.ReasonNoQuorum, f.quorumDetail
	}
	if vip.Check != "" {
		switch h := v.Health[vip.Check]; h.State {
		case model.HealthDown:
			return model.ReasonUnhealthy, h.Detail
		case model.HealthUnknown:
			return model.ReasonHealthPending, h.Detail
		}
	}
	switch {
	case v.Draining || v.Stopping:
		return model.ReasonDraining, ""
	case !f.settled:
		return model.ReasonNotSettled, ""
	case m.Lost == model.ReasonDriverError && m.Phase == model.PhaseIdle && v.Now.Before(m.Deferred):
		f.w.by(m.Deferred)
		return model.ReasonDriverError, "pausing after an error of the kernel"
	}
	return model.ReasonStandby, ""
}

// matches tells whether all labels of the selector are there.
func matches(selector, labels map[string]string) bool {
	for k, want := range selector {
		if got, ok := labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}
