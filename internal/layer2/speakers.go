package layer2

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/layer2/silence"
)

// linkLocal returns a usable IPv6 link-local address of an interface; an invalid
// one if there is none.
func linkLocal(addrs []Address, index int) netip.Addr {
	for _, a := range addrs {
		if ip := a.Prefix.Addr(); a.Index == index && a.Usable && ip.Is6() && ip.IsLinkLocalUnicast() {
			return ip
		}
	}
	return netip.Addr{}
}

// speakers are the addresses in whose name the interfaces ask while VIPs on them
// are silent.
func speakers(f Family, s *scene, ifaces map[string]struct{}) []silence.Speaker {
	var all []silence.Speaker
	for _, name := range slices.Sorted(maps.Keys(ifaces)) {
		index := s.links[name].Index
		if f == silence.ND {
			ip := linkLocal(s.addrs, index)
			if !ip.IsValid() {
				ip = netip.IPv6Unspecified()
			}
			all = append(all, silence.Speaker{Interface: name, Addr: ip})
			continue
		}
		all = append(all, speakers4(name, nodeAddresses(s, index))...)
	}
	return all
}

// speakers4 answers for each subnet with the address in it, as arp_announce=1
// would, and for the rest with the first one. Without any the request becomes a
// probe, which is answered too.
func speakers4(name string, own []netip.Prefix) []silence.Speaker {
	rest := silence.Speaker{Interface: name, Addr: netip.IPv4Unspecified()}
	if len(own) > 0 {
		rest.Addr = own[0].Addr()
	}
	var all []silence.Speaker
	seen := make(map[netip.Prefix]struct{})
	for _, p := range own {
		if _, dup := seen[p.Masked()]; !dup && !p.IsSingleIP() {
			seen[p.Masked()] = struct{}{}
			all = append(all, silence.Speaker{Interface: name, Addr: p.Addr(), Subnet: p.Masked()})
		}
	}
	return append(all, rest)
}

// nodeAddresses are the IPv4 addresses of an interface that are not VIPs, those
// with a subnet first.
func nodeAddresses(s *scene, index int) []netip.Prefix {
	vips := make(map[netip.Addr]struct{}, len(s.want.L2)+len(s.want.Bind))
	for _, w := range s.want.L2 {
		vips[w.Addr] = struct{}{}
	}
	for _, b := range s.want.Bind {
		vips[b.Addr] = struct{}{}
	}
	var own []netip.Prefix
	for _, a := range s.addrs {
		if _, vip := vips[a.Prefix.Addr()]; a.Index == index && a.Prefix.Addr().Is4() && !vip {
			own = append(own, a.Prefix)
		}
	}
	slices.SortStableFunc(own, func(a, b netip.Prefix) int {
		switch {
		case a.IsSingleIP() == b.IsSingleIP():
			return 0
		case b.IsSingleIP():
			return -1
		}
		return 1
	})
	return own
}
