package place

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// SameLinks tells whether two sets of interfaces are the same for every decision about
// these VIPs. Of an interface without a subnet that no VIP names, such as the end of a
// pod's veth, only its addresses count: a node where pods come and go decides nothing anew.
func SameLinks(vips []model.VIP, a, b map[string]model.Link) bool {
	named := namedLinks(vips)
	x, y := matter(named, a), matter(named, b)
	return maps.EqualFunc(x.links, y.links, func(l, o *model.Link) bool { return l.Equal(o) }) && maps.Equal(x.addrs, y.addrs)
}

// Mattering are the interfaces at which decisions about these VIPs look, besides the addresses of
// the others.
func Mattering(vips []model.VIP, links map[string]model.Link) map[string]*model.Link {
	return matter(namedLinks(vips), links).links
}

// namedLinks are the names of the interfaces that VIPs name.
func namedLinks(vips []model.VIP) map[string]bool {
	out := make(map[string]bool)
	for i := range vips {
		for _, n := range vips[i].Interfaces {
			out[n] = true
		}
	}
	return out
}

// mattering is what decisions look at of the interfaces.
type mattering struct {
	links map[string]*model.Link
	addrs map[netip.Addr]bool // of the others
}

func matter(named map[string]bool, links map[string]model.Link) mattering {
	m := mattering{make(map[string]*model.Link), make(map[netip.Addr]bool)}
	for name, l := range links {
		if named[name] || name == model.LoopbackInterface || name == model.IPVSInterface || l.Gateway || subnet(&l) || carries(links, named, name) {
			m.links[name] = &l
			continue
		}
		for _, p := range l.Prefixes {
			if !p.Addr().IsLinkLocalUnicast() {
				m.addrs[p.Addr()] = true
			}
		}
	}
	return m
}

// subnet tells whether other hosts may be on a subnet of the link.
func subnet(l *model.Link) bool {
	return slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Addr().IsGlobalUnicast() && !p.IsSingleIP() })
}

// carries tells whether the frames of a link that matters are seen on this one, too: it is
// a port of a bond, which in some modes sends with its own hardware address, or the parent
// of a macvlan.
func carries(links map[string]model.Link, named map[string]bool, name string) bool {
	for _, o := range links {
		if o.Parent == name && (subnet(&o) || named[o.Name]) {
			return true
		}
	}
	bond, ok := links[links[name].Bond]
	return ok && (subnet(&bond) || named[bond.Name])
}

// Beside are the other interfaces of this node, sorted, that are on the LAN of the one of
// this name and answer ARP for its addresses, too: a second card with the same subnet, or
// what is below a macvlan. Whether clients come in by one or the other depends on who
// answered first. Nothing of that is true of IPv6.
func Beside(links map[string]model.Link, name string) []string {
	l, ok := links[name]
	if !ok || name == model.LoopbackInterface {
		return nil
	}
	var out []string
	for _, o := range links {
		if o.Name != name && o.Up && o.Name != model.LoopbackInterface && answersForAll(&o) && sameLAN(&l, &o) {
			out = append(out, o.Name)
		}
	}
	slices.Sort(out)
	return out
}

// answersForAll tells whether the kernel answers ARP on the link for addresses of others:
// arp_ignore 1 and 2 keep it from that, 8 from all answers.
func answersForAll(l *model.Link) bool {
	return l.ARPIgnore != 1 && l.ARPIgnore != 2 && l.ARPIgnore != answersNobody
}

// answersNobody is the arp_ignore with which the kernel answers no ARP.
const answersNobody = 8

// sameLAN tells whether what is known of two links says that they are on one LAN.
func sameLAN(l, o *model.Link) bool {
	if l.Parent == o.Name || o.Parent == l.Name || l.Parent != "" && l.Parent == o.Parent {
		return true
	}
	for _, p := range l.Prefixes {
		for _, q := range o.Prefixes {
			if p.Addr().Is4() && !p.Addr().IsLinkLocalUnicast() && !p.IsSingleIP() && !q.IsSingleIP() && p.Overlaps(q) {
				return true
			}
		}
	}
	return false
}

// Addresses are the addresses of this node in subnets of a link, each family sorted.
func Addresses(l *model.Link) (four, six []netip.Addr) {
	for _, p := range l.Prefixes {
		switch a := p.Addr(); {
		case !a.IsGlobalUnicast() || p.IsSingleIP():
		case a.Is4():
			four = append(four, a)
		default:
			six = append(six, a)
		}
	}
	slices.SortFunc(four, netip.Addr.Compare)
	slices.SortFunc(six, netip.Addr.Compare)
	return four, six
}

// Reaches tells whether an address of another host is in a subnet of the link.
func Reaches(l *model.Link, a netip.Addr) bool {
	return slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool {
		return p.Contains(a) && p.Addr() != a && !p.IsSingleIP()
	})
}
