package decide

import (
	"cmp"
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
	addrs map[addr]bool // of the others
}

func matter(named map[string]bool, links map[string]model.Link) mattering {
	m := mattering{make(map[string]*model.Link), make(map[addr]bool)}
	for name, l := range links {
		if named[name] || name == model.LoopbackInterface || name == ipvs || l.Gateway || subnet(&l) || carries(links, named, name) {
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

// tellMACs sets the hardware addresses from which this node speaks to others of the group:
// those of the links that a VIP of layer 2 may be on, then of those with another node or a
// router, and of what is below either. There is no room for more than model.MaxMACs.
func tellMACs(v *model.View, g *model.GroupState) {
	rank := func(l *model.Link) int {
		switch {
		case l.Name == model.LoopbackInterface:
		case anyServed(v.VIPs, l, true):
			return 1
		case neighbours(v, l):
			return 2
		}
		return 0
	}
	type told struct {
		rank, index int
		mac         model.MAC
	}
	var all []told
	for _, l := range matter(namedLinks(v.VIPs), v.Links).links {
		r := rank(l)
		for _, o := range v.Links {
			if r == 0 && (o.Name == l.Bond || o.Parent == l.Name) {
				r = rank(&o)
			}
		}
		if r != 0 && l.MAC != (model.MAC{}) {
			all = append(all, told{r, l.Index, l.MAC})
		}
	}
	slices.SortFunc(all, func(a, b told) int { return cmp.Or(a.rank-b.rank, a.index-b.index) })
	g.MACs = nil
	for _, t := range all {
		if !slices.Contains(g.MACs, t.mac) {
			g.MACs = append(g.MACs, t.mac)
		}
	}
	g.Untold = max(0, len(g.MACs)-model.MaxMACs)
	g.MACs = g.MACs[:len(g.MACs)-g.Untold]
	slices.SortFunc(g.MACs, model.MAC.Compare)
}
