package ring

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/internal/model"
)

// Unfit says why this node can have no ring for a VIP, by what its relay driver has seen and by
// the interface on which it would be; empty if it can. A node that is unfit is in no ring: it
// would reset, or lose, what others relay to it.
func Unfit(seen *model.RingHost, links map[string]model.Link, iface string, a netip.Addr) string {
	if why := unfitHost(seen, a); why != "" || !a.Is4() {
		return why
	}
	return unfitLink(links, iface)
}

func unfitHost(seen *model.RingHost, a netip.Addr) string {
	if seen == nil {
		return ""
	}
	if port, ok := seen.ListensOn(a); ok && seen.Kernel.Of(a) == "" {
		return fmt.Sprintf("a server listens on the address itself, port %d, and not on the wildcard address: it takes the packets of all connections for its own", port)
	}
	if seen.Drops.Of(a) == "" {
		return unfitFamily(seen, a, "")
	}
	return unfitFamily(seen, a, fmt.Sprintf(" %s daddr %s", map[bool]string{true: "ip", false: "ip6"}[a.Is4()], a))
}

// unfitFamily is what is in the way of all addresses of the family; what a firewall is to accept is
// narrowed by a match.
func unfitFamily(seen *model.RingHost, a netip.Addr, match string) string {
	if seen == nil {
		return ""
	}
	if words := seen.Kernel.Of(a); words != "" {
		return "the kernel cannot relay: " + words
	}
	if chain := seen.Drops.Of(a); chain != "" {
		return fmt.Sprintf("%s drops what is relayed; let it accept `ct state untracked%s`", chain, match)
	}
	return ""
}

func unfitLink(links map[string]model.Link, iface string) string {
	if l, ok := links[iface]; ok && oneWay(links, &l) {
		return "rp_filter is 1 on " + iface + ", and the routes to clients leave by another interface; set it to 2 there"
	}
	return ""
}

// oneWay tells whether the kernel takes IPv4 packets of clients elsewhere by another link only:
// relayed ones would be dropped on this one.
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

// way is what was found out last about the way back of what is relayed to an interface.
type way struct {
	asked        bool
	iface, words string
}

// apart is what was found out last about who is not on an interface.
type apart struct {
	names []model.NodeName
	iface string
	is4   bool
	words string
}

// unfit is Unfit for a VIP that is bound, or would be, on the interface; by BGP if that is "".
func (all *All) unfit(a netip.Addr, iface string) string {
	if why := unfitHost(all.seen, a); why != "" || !a.Is4() {
		return why
	}
	last := &all.way
	if !last.asked || last.iface != iface {
		*last = way{true, iface, unfitLink(all.v.Links, iface)}
		if iface == "" {
			last.words = all.unfitLinks()
		}
	}
	return last.words
}

// unfitLinks is unfitLink for BGP, whose rings are on whatever link has other nodes.
func (all *All) unfitLinks() string {
	name := ""
	for _, l := range all.v.Links {
		switch {
		case !l.Up || l.Name == model.LoopbackInterface || !all.meets(&l):
		case !oneWay(all.v.Links, &l):
			return ""
		case name == "" || l.Name < name:
			name = l.Name
		}
	}
	return unfitLink(all.v.Links, name)
}

// meets tells whether another node is on the link.
func (all *All) meets(l *model.Link) bool {
	for _, m := range all.v.Gossip.Members {
		if _, ok := near(l, m.Addrs, true); ok {
			return true
		}
	}
	return false
}

// Retries tells whether a ring is to be asked for although it would not work: the kernel that
// could not relay is asked again now and then, by its driver.
func (all *All) Retries(vip *model.VIP) bool {
	return all.seen != nil && all.seen.Kernel.Of(vip.Addr) != "" && !all.v.NoRelay && (!vip.Unbound || all.tracks(vip))
}

// Keeps tells whether connections to a VIP that this node has bound on an interface, or on lo if
// that is "", are found by a ring.
func (all *All) Keeps(vip *model.VIP, iface string) bool {
	return !all.v.NoRelay && !vip.Unbound && all.unfit(vip.Addr, iface) == ""
}

// tracks tells whether connections to a VIP that is bound on no node are to be found by a ring:
// those that lbd forwards, and those of Services where that can work.
func (all *All) tracks(vip *model.VIP) bool {
	return vip.Forwarded() || all.services.Kept && !vip.Learned()
}

// KeepsService tells whether connections to the VIP of a Service that kube-proxy has translated
// here are found by a ring.
func (all *All) KeepsService(vip *model.VIP, iface string) bool {
	return vip.Unbound && all.tracks(vip) && !all.v.NoRelay && untracked(all.seen, vip.Addr) == "" && all.unfit(vip.Addr, iface) == ""
}

// Obstacle says for people why connections to a VIP that are open may be reset when it moves, if
// they ought not to be; empty if nothing is known to be in the way. Of Services it is added to what
// is said of all of them.
func (all *All) Obstacle(vip *model.VIP, iface string) string {
	if all.v.NoRelay || vip.Learned() || ofService(vip) && all.v.ServiceConnections == model.ServicesReset {
		return "" // as it was asked for
	}
	why := all.obstacle(vip, iface)
	told := why
	if why == "" {
		if why = all.withoutHolders(vip, iface); why != "" {
			told = "some nodes that have such an address have none in a subnet of this node" // who they are changes with each Pod
		}
	}
	if s := &all.services; ofService(vip) {
		s.tell(told, s.Works && s.some || all.KeepsService(vip, iface))
	}
	return why
}

func (all *All) obstacle(vip *model.VIP, iface string) string {
	if ofService(vip) && all.services.NoProxy != "" {
		return all.services.NoProxy
	}
	if vip.Unbound {
		if why := untracked(all.seen, vip.Addr); why != "" {
			return why
		}
	}
	return all.unfit(vip.Addr, iface)
}

// withoutHolders says to which of the nodes that have the address nothing is relayed.
func (all *All) withoutHolders(vip *model.VIP, iface string) string {
	names := all.v.Gossip.Holders[vip.Addr]
	if len(names) == 0 || len(names) > model.MaxRing {
		return "" // more are divided into rings, see members
	}
	last := &all.apart
	if last.iface != iface || last.is4 != vip.Addr.Is4() || !slices.Equal(last.names, names) {
		*last = apart{names, iface, vip.Addr.Is4(), all.without(names, iface, vip.Addr.Is4())}
	}
	return last.words
}

// without names those of the nodes that are alive but on no subnet of the interface, or of any if
// it has no name.
func (all *All) without(names []model.NodeName, iface string, is4 bool) string {
	var apart []string
	for _, n := range names {
		if m := all.v.Gossip.Members[n]; m.State == model.MemberAlive && !all.meetsOn(&m, iface, is4) {
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
func (all *All) meetsOn(m *model.Member, iface string, is4 bool) bool {
	for _, l := range all.v.Links {
		if l.Up && l.Name != model.LoopbackInterface && (iface == "" || iface == l.Name) {
			if _, ok := near(&l, m.Addrs, is4); ok {
				return true
			}
		}
	}
	return false
}
