package decide

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// others are nodes that have a VIP too, and their addresses of one family.
type others struct {
	is4   bool
	nodes []model.NodeName
	addrs []addr // never changed
}

// elsewhere adds, for a VIP that is kept for connections, the addresses of the nodes
// that have it too: of the one that claims it, which has it bound by then, and of those
// that hold it silently. A node that may not own it, by its standing, keeps it for no
// other node either: daemons watch API servers for as long as these run, and come back at
// once.
func (f *facts) elsewhere(b *model.Binding, standing model.Reason, d *model.Desired) {
	if !b.Linger {
		return
	}
	nodes := f.taken[:0]
	if !standing.Eligible() {
		nodes = slices.AppendSeq(nodes, maps.Keys(f.v.Gossip.Members))
		slices.Sort(nodes)
	} else {
		nodes = append(nodes, f.v.Gossip.Holders[b.Addr]...)
		for _, c := range f.v.Gossip.Claims[b.Addr] {
			if c.Epoch != 0 && !slices.Contains(nodes, c.Owner) {
				nodes = append(nodes, c.Owner)
			}
		}
	}
	f.taken = nodes
	if o := &f.others; o.is4 != b.Addr.Is4() || !slices.Equal(o.nodes, nodes) { // it is the same for many VIPs
		*o = others{is4: b.Addr.Is4(), nodes: slices.Clone(nodes)}
		for _, n := range nodes {
			if m := f.v.Gossip.Members[n]; m.State == model.MemberAlive && n != f.v.Self {
				o.addrs = append(append(o.addrs, m.Addrs...), m.Addr)
			}
		}
		o.addrs = slices.DeleteFunc(o.addrs, func(a addr) bool { return !a.IsValid() || a.Is4() != o.is4 })
		slices.SortFunc(o.addrs, netip.Addr.Compare)
		o.addrs = slices.Compact(o.addrs)
	}
	if len(f.others.addrs) == 0 {
		return
	}
	if d.Elsewhere == nil {
		d.Elsewhere = make(map[netip.Addr][]netip.Addr)
	}
	d.Elsewhere[b.Addr] = f.others.addrs
}
