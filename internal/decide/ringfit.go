package decide

import (
	"fmt"
	"slices"
	"strings"

	"lbd.dev/lbd/internal/model"
)

// RingUnfit says why this node can have no ring for a VIP, by what its relay driver has
// seen and by the interface on which it would be; empty if it can. A node that is unfit
// is in no ring: it would reset, or lose, what others relay to it.
func RingUnfit(seen *model.RingHost, links map[string]model.Link, iface string, a addr) string {
	if why := unfitHost(seen, a); why != "" || !a.Is4() {
		return why
	}
	return unfitLink(links, iface)
}

func unfitHost(seen *model.RingHost, a addr) string {
	if seen == nil {
		return ""
	}
	if words := seen.Kernel.Of(a); words != "" {
		return "the kernel cannot relay: " + words
	}
	if port, ok := seen.ListensOn(a); ok {
		return fmt.Sprintf("a server listens on the address itself, port %d, and not on the wildcard address: it takes the packets of all connections for its own", port)
	}
	if chain := seen.Drops.Of(a); chain != "" {
		return fmt.Sprintf("%s drops what is relayed; let it accept `ct state untracked %s daddr %s`", chain, [...]string{"ip6", "ip"}[one(a.Is4())], a)
	}
	return ""
}

func unfitLink(links map[string]model.Link, iface string) string {
	if l, ok := links[iface]; ok && oneWay(links, &l) {
		return "rp_filter is 1 on " + iface + ", and the routes to clients leave by another interface; set it to 2 there"
	}
	return ""
}

// oneWay tells whether the kernel takes IPv4 packets of clients elsewhere by another
// link only: relayed ones would be dropped on this one.
func oneWay(links map[string]model.Link, l *model.Link) bool {
	if !l.Strict || l.Gateway {
		return false
	}
	for _, o := range links {
		if o.Gateway && o.Name != l.Name {
			return true
		}
	}
	return false
}

// ringFacts are what the rings of all VIPs share, or those of many.
type ringFacts struct {
	seen *model.RingHost // nil: nothing is known
	last ringOf          // of the VIP before

	// What was found out last about the way back of what is relayed to an interface.
	asked      bool
	iface, way string
	// What was found out last about who is not on an interface.
	apart struct {
		names []model.NodeName
		iface string
		is4   bool
		words string
	}
}

// unfit is RingUnfit for a VIP that is bound, or would be, on the interface; by BGP if
// that is "".
func (f *facts) unfit(a addr, iface string) string {
	if why := unfitHost(f.rings.seen, a); why != "" || !a.Is4() {
		return why
	}
	if r := &f.rings; !r.asked || r.iface != iface {
		r.asked, r.iface = true, iface
		if r.way = unfitLink(f.v.Links, iface); iface == "" {
			r.way = f.unfitLinks()
		}
	}
	return f.rings.way
}

// unfitLinks is unfitLink for BGP, whose rings are on whatever link has other nodes.
func (f *facts) unfitLinks() string {
	name := ""
	for _, l := range f.v.Links {
		switch {
		case !l.Up || l.Name == model.LoopbackInterface || !f.meets(&l):
		case !oneWay(f.v.Links, &l):
			return ""
		case name == "" || l.Name < name:
			name = l.Name
		}
	}
	return unfitLink(f.v.Links, name)
}

// meets tells whether another node is on the link.
func (f *facts) meets(l *model.Link) bool {
	for _, m := range f.v.Gossip.Members {
		if _, ok := near(l, m.Addrs, true); ok {
			return true
		}
	}
	return false
}

// wantsRing tells whether a ring is to be asked for: the kernel that could not relay is
// asked again now and then, by its driver.
func (f *facts) wantsRing(vip *model.VIP, iface string) bool {
	return f.again(vip) || f.keeps(vip, iface)
}

func (f *facts) again(vip *model.VIP) bool {
	return f.rings.seen != nil && f.rings.seen.Kernel.Of(vip.Addr) != "" && !f.v.NoRelay && (!vip.Unbound || f.v.KeepServices)
}

// keeps tells whether connections to a VIP that this node has are found by a ring.
func (f *facts) keeps(vip *model.VIP, iface string) bool {
	return !f.v.NoRelay && !vip.Unbound && f.unfit(vip.Addr, iface) == ""
}

// ringless says for people why connections to a VIP that are open may be reset when it
// moves, if they ought not to be; empty if nothing is known to be in the way.
func (f *facts) ringless(vip *model.VIP, iface string) string {
	if f.v.NoRelay || vip.Unbound && !f.v.KeepServices {
		return "" // as it was asked for
	}
	if vip.Unbound {
		if why := f.unfitService(); why != "" {
			return why
		}
	}
	if why := f.unfit(vip.Addr, iface); why != "" {
		return why
	}
	names := f.v.Gossip.Holders[vip.Addr]
	if len(names) == 0 || len(names) > model.MaxRing {
		return "" // more are divided into rings, see members
	}
	last := &f.rings.apart
	if last.iface != iface || last.is4 != vip.Addr.Is4() || !slices.Equal(last.names, names) {
		last.names, last.iface, last.is4 = names, iface, vip.Addr.Is4()
		last.words = f.apart(names, iface, vip.Addr.Is4())
	}
	return last.words
}

// apart names those of the nodes that are alive but on no subnet of the interface, or of
// any if it has no name.
func (f *facts) apart(names []model.NodeName, iface string, is4 bool) string {
	var apart []string
	for _, n := range names {
		if m := f.v.Gossip.Members[n]; m.State == model.MemberAlive && !f.meetsOn(&m, iface, is4) {
			apart = append(apart, string(n))
		}
	}
	if len(apart) == 0 {
		return ""
	}
	where := iface
	if iface == "" {
		where = "this node"
	}
	return fmt.Sprintf("nothing is relayed to %s: no address in a subnet of %s", strings.Join(apart, ", "), where)
}

// meetsOn tells whether a member is on the link, or on any if it has no name.
func (f *facts) meetsOn(m *model.Member, iface string, is4 bool) bool {
	for _, l := range f.v.Links {
		if l.Up && l.Name != model.LoopbackInterface && (iface == "" || iface == l.Name) {
			if _, ok := near(&l, m.Addrs, is4); ok {
				return true
			}
		}
	}
	return false
}
