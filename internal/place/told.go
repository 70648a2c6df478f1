package place

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// maxAddrs bounds how many addresses the group is told; one of each link and family goes
// before a second one.
const maxAddrs = 4

// LANAddresses are the addresses of this node on the links that a VIP of layer 2 may be
// on, and for VIPs of BGP on those with another node or a router.
func LANAddresses(v *model.View) []netip.Addr {
	var out, more []netip.Addr
	bgp := false
	for i := range v.VIPs {
		bgp = bgp || len(v.VIPs[i].BGP) > 0
	}
	for _, l := range v.Links {
		if !l.Up || l.Name == model.LoopbackInterface || !AnyBelongsOn(v.VIPs, &l, true) && !(bgp && neighbours(v, &l)) {
			continue
		}
		four, six := Addresses(&l)
		for _, all := range [][]netip.Addr{four, six} {
			first := min(len(all), 1)
			out, more = append(out, all[:first]...), append(more, all[first:]...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	slices.SortFunc(more, netip.Addr.Compare)
	out = append(out, more...)
	out = out[:min(len(out), maxAddrs)]
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// neighbours tells whether another node, or a BGP peer, is on the link.
func neighbours(v *model.View, l *model.Link) bool {
	for _, m := range v.Gossip.Members {
		if Reaches(l, m.Addr) {
			return true
		}
	}
	return slices.ContainsFunc(v.Peers, func(p model.BGPPeer) bool { return Reaches(l, p.Address) })
}

// TellMACs sets the hardware addresses from which this node speaks to others of the group:
// those of the links that a VIP of layer 2 may be on, then of those with another node or a
// router, and of what is below either. There is no room for more than model.MaxMACs.
func TellMACs(v *model.View, g *model.GroupState) {
	rank := func(l *model.Link) int {
		switch {
		case l.Name == model.LoopbackInterface:
		case AnyBelongsOn(v.VIPs, l, true):
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
	for _, l := range Mattering(v.VIPs, v.Links) {
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

// HostOf names the host that has a hardware address, with its node if it is one of the group; "" for
// no address.
func HostOf(v *model.View, mac model.MAC) string {
	if mac == (model.MAC{}) {
		return ""
	}
	for _, l := range v.Links {
		if l.MAC == mac {
			return fmt.Sprintf("%s (%s)", mac, v.Self)
		}
	}
	for n, m := range v.Gossip.Members {
		if slices.Contains(m.MACs, mac) {
			return fmt.Sprintf("%s (%s)", mac, n)
		}
	}
	return mac.String()
}
