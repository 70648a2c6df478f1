package ring

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// elsewhere are nodes that have a VIP too, and their addresses of one family. They are the same
// for many VIPs.
type elsewhere struct {
	is4   bool
	nodes []model.NodeName
	addrs []netip.Addr // never changed
}

// Elsewhere are, for a VIP that is kept for its connections, the addresses of the nodes that have
// it too: of the one that claims it, which has it bound by then, and of those that hold it
// silently. A node that may not own it, by its standing, keeps it for no other node either:
// daemons watch API servers for as long as these run, and come back at once.
func (all *All) Elsewhere(vip netip.Addr, standing model.Reason) []netip.Addr {
	nodes := all.others[:0]
	if !standing.Eligible() {
		nodes = slices.AppendSeq(nodes, maps.Keys(all.v.Gossip.Members))
		slices.Sort(nodes)
	} else {
		nodes = append(nodes, all.v.Gossip.Holders[vip]...)
		for _, c := range all.v.Gossip.Claims[vip] {
			if c.Epoch != 0 && !slices.Contains(nodes, c.Owner) {
				nodes = append(nodes, c.Owner)
			}
		}
	}
	all.others = nodes
	if e := &all.elsewhere; e.is4 != vip.Is4() || !slices.Equal(e.nodes, nodes) {
		*e = elsewhere{is4: vip.Is4(), nodes: slices.Clone(nodes)}
		for _, n := range nodes {
			if m := all.v.Gossip.Members[n]; m.State == model.MemberAlive && n != all.v.Self {
				e.addrs = append(append(e.addrs, m.Addrs...), m.Addr)
			}
		}
		e.addrs = slices.DeleteFunc(e.addrs, func(a netip.Addr) bool { return !a.IsValid() || a.Is4() != e.is4 })
		slices.SortFunc(e.addrs, netip.Addr.Compare)
		e.addrs = slices.Compact(e.addrs)
	}
	return all.elsewhere.addrs
}
