package ring

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// near is the first of the addresses of a node, of the family of the VIP, that is in a subnet of
// the link and not an address of this node.
func near(l *model.Link, addrs []netip.Addr, is4 bool) (netip.Addr, bool) {
	i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() == is4 && place.Reaches(l, a) })
	if i < 0 {
		return netip.Addr{}, false
	}
	return addrs[i], true
}

// ends are the addresses of this node on the link and those of the next one.
func ends(l *model.Link, next []netip.Addr) []netip.Addr {
	out := slices.Clone(next)
	for _, p := range l.Prefixes {
		out = append(out, p.Addr())
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// crowd is what the rings on a link know of all other nodes on it, whether or not they are in the
// ring: their hardware addresses, and the sources of their own connections.
type crowd struct {
	peers   []model.MAC
	origins []model.Origin
}

// crowdOn is where a crowd is.
type crowdOn struct {
	iface string
	is4   bool
}

// crowd finds who is on a link, once for all rings there. The frames of a node that is on other
// links only do not come in here but by a router, with its hardware address.
func (all *All) crowd(l *model.Link, is4 bool) crowd {
	at := crowdOn{l.Name, is4}
	c, known := all.crowds[at]
	if known {
		return c
	}
	for _, m := range all.v.Gossip.Members {
		if !all.beside(l, &m) {
			continue
		}
		c.peers = append(c.peers, m.MACs...)
		for _, mac := range m.MACs {
			for _, a := range m.Addrs {
				if a.Is4() == is4 {
					c.origins = append(c.origins, model.Origin{MAC: mac, Addr: a})
				}
			}
		}
	}
	slices.SortFunc(c.peers, model.MAC.Compare)
	c.peers = slices.Compact(c.peers)
	slices.SortFunc(c.origins, model.Origin.Compare)
	c.origins = slices.Compact(c.origins)
	if all.crowds == nil {
		all.crowds = make(map[crowdOn]crowd)
	}
	all.crowds[at] = c
	return c
}

// beside tells whether a node is on the link, by any of its addresses. One that has not told any
// may be.
func (all *All) beside(l *model.Link, m *model.Member) bool {
	return len(m.Addrs) == 0 || place.Reaches(l, m.Addr) || slices.ContainsFunc(m.Addrs, func(a netip.Addr) bool { return place.Reaches(l, a) })
}
