package audience

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

const (
	// RestartTime is how long peers with graceful restart keep paths without a
	// session (RFC 4724). It is not longer than what is left of model.LoopbackLifetime, so
	// that a router never sends packets to a node whose address is gone.
	RestartTime = 10 * time.Second
	// RestartTimeL2 is the same for peers of a VIP that layer 2 announces too: its
	// address has the short lifetime that the election waits for, or another node
	// advertises it soon.
	RestartTimeL2 = 2 * time.Second
)

// Peers are the peers that this node has, with their restart time.
func Peers(v *model.View) []model.BGPPeer {
	var out []model.BGPPeer
	for _, p := range v.Peers {
		if len(p.NodeSelectors) > 0 && !slices.ContainsFunc(p.NodeSelectors, func(s map[string]string) bool { return model.Matches(s, v.Labels) }) {
			continue
		}
		if p.GracefulRestart {
			p.RestartTime = RestartTime
			for i := range v.VIPs {
				if x := &v.VIPs[i]; x.L2 && (!x.Unbound || x.FollowsOwner()) && wanted(x.BGP, &p, x.Addr) {
					p.RestartTime = RestartTimeL2
					break
				}
			}
		}
		out = append(out, p)
	}
	return out
}

// wanted tells whether any of the adverts of a VIP is for the peer.
func wanted(all []model.BGPAdvert, p *model.BGPPeer, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(b model.BGPAdvert) bool { return wants(&b, p, a.Is4()) })
}

// wants tells whether an advert of addresses of one family is for the peer.
func wants(b *model.BGPAdvert, p *model.BGPPeer, four bool) bool {
	return (len(b.Peers) == 0 || slices.Contains(b.Peers, p.Name)) && (four && p.IPv4 || !four && p.IPv6)
}

// PeersOf are those of the peers that a node with these labels would tell of the
// VIP.
func PeersOf(peers []model.BGPPeer, labels map[string]string, vip *model.VIP) []model.BGPPeer {
	var out []model.BGPPeer
	for _, p := range Peers(&model.View{Peers: peers, Labels: labels}) {
		if wanted(vip.BGP, &p, vip.Addr) {
			out = append(out, p)
		}
	}
	return out
}

// RouterID chooses the BGP identifier once: the configured one, else an IPv4
// address of the node, else a number made of the node's name. Of the addresses
// those on a subnet with a peer go first, then the highest as routers do: a bridge
// of containers has the same address on every node.
func RouterID(v *model.View, peers []model.BGPPeer) netip.Addr {
	if v.BGP.RouterID.IsValid() {
		return v.BGP.RouterID
	}
	for _, p := range peers {
		if p.RouterID.IsValid() {
			return p.RouterID
		}
	}
	var best netip.Addr
	beside := false
	for _, l := range v.Links {
		for _, p := range l.Prefixes {
			a := p.Addr()
			if !a.Is4() || a.IsLoopback() || a.IsLinkLocalUnicast() {
				continue
			}
			near := slices.ContainsFunc(peers, func(r model.BGPPeer) bool { return p.Contains(r.Address) })
			if !best.IsValid() || near && !beside || near == beside && best.Less(a) {
				best, beside = a, near
			}
		}
	}
	if best.IsValid() {
		return best
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(v.Self))
	x := h.Sum32() | 1 // never 0.0.0.0, which RFC 6286 forbids
	return netip.AddrFrom4([4]byte{byte(x >> 24), byte(x >> 16), byte(x >> 8), byte(x)})
}
