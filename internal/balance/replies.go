package balance

import (
	"cmp"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// near are the subnets of this node that have a server of the family of a VIP, sorted.
func near(links map[string]model.Link, lb *model.LoadBalancer, vip netip.Addr) (out []netip.Prefix) {
	for _, l := range links {
		for _, p := range l.Prefixes {
			has := func(x model.Server) bool { return p.Contains(x.Addr) }
			if p.Addr().Is4() == vip.Is4() && !p.IsSingleIP() && slices.ContainsFunc(lb.Servers, has) {
				out = append(out, p.Masked())
			}
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// replies are what servers say to clients whose addresses they see.
func replies(services []model.ForwardService) (out []model.ForwardReply) {
	for i := range services {
		x := &services[i]
		if !x.ClientSource {
			continue
		}
		for _, s := range x.Servers {
			out = append(out, model.ForwardReply{Server: s, Protocol: x.Protocol, VIP: netip.AddrPortFrom(x.Addr, x.Port)})
		}
	}
	slices.SortStableFunc(out, func(a, b model.ForwardReply) int {
		return cmp.Or(a.Server.Compare(b.Server), cmp.Compare(a.Protocol, b.Protocol))
	})
	kept := out[:0]
	for _, r := range out {
		if last := len(kept) - 1; last >= 0 && kept[last].Server == r.Server && kept[last].Protocol == r.Protocol {
			kept[last].VIP = netip.AddrPort{}
			continue
		}
		kept = append(kept, r)
	}
	return kept
}

// Repliers are the servers whose answers to the clients of a VIP are to be found by its ring,
// nil if none are. If they are the known ones, those are returned, so that one decision shares
// them with the next.
func Repliers(services []model.ForwardService, vip netip.Addr, known *model.Repliers) *model.Repliers {
	first, _ := slices.BinarySearchFunc(services, vip, func(s model.ForwardService, a netip.Addr) int { return s.Addr.Compare(a) })
	var out model.Repliers
	for _, s := range services[first:] {
		if s.Addr != vip {
			break
		}
		if !s.ClientSource || s.Protocol != model.TCP {
			continue
		}
		for _, x := range s.Servers {
			out.Addrs, out.Ports = append(out.Addrs, x.Addr()), append(out.Ports, x.Port())
		}
	}
	if len(out.Addrs) == 0 {
		return nil
	}
	slices.SortFunc(out.Addrs, netip.Addr.Compare)
	slices.Sort(out.Ports)
	out.Addrs, out.Ports = slices.Compact(out.Addrs), slices.Compact(out.Ports)
	if out.Same(known) {
		return known
	}
	return &out
}
