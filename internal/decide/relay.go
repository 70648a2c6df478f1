package decide

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// maxAddrs bounds how many addresses the group is told.
const maxAddrs = 4

// lanAddrs are the addresses of this node on the links that a VIP of layer 2 may
// be on.
func lanAddrs(v *model.View) []addr {
	var out []addr
	for _, l := range v.Links {
		if !l.Up || l.Name == model.LoopbackInterface || !anyServed(v.VIPs, &l, true) {
			continue
		}
		for _, p := range l.Prefixes {
			if a := p.Addr(); a.IsGlobalUnicast() && !p.IsSingleIP() {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	out = slices.Compact(out)
	return out[:min(len(out), maxAddrs)]
}

// relay asks, after a planned move, that packets of connections that only the
// former owner has are sent on to it: it is silent on the LAN but still bound.
// Without this a client whose handshake meets both, SYN there and ACK here, is
// reset.
func (f *facts) relay(vip *model.VIP, m *model.VIPMemory, d *model.Desired) {
	// Connections to what is not bound end in no socket of this host, so they would
	// all be taken for strays.
	if m.Unbound || present(m) == "" || !f.v.Now.Before(m.RelayUntil) {
		return
	}
	f.w.by(m.RelayUntil)
	from := f.v.Gossip.Members[m.From]
	link, ok := f.v.Links[m.Interface]
	if !ok || from.State != model.MemberAlive {
		return
	}
	next, ok := near(&link, from.Addrs, vip.Addr)
	if !ok {
		return
	}
	f.gatherPeers()
	d.Relay = append(d.Relay, model.Relay{Addr: vip.Addr, Interface: m.Interface, Ring: &model.Ring{
		Nodes: 2, Next: next, Peers: f.peerMACs, Origins: f.origins, Ends: ends(&link, from.Addrs),
	}})
}

// near is the first of the addresses of a node, of the family of the VIP, that is in a
// subnet of the link and not an address of this node.
func near(l *model.Link, addrs []addr, vip addr) (addr, bool) {
	i := slices.IndexFunc(addrs, func(a addr) bool {
		return a.Is4() == vip.Is4() && slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool {
			return p.Contains(a) && p.Addr() != a && !p.IsSingleIP()
		})
	})
	if i < 0 {
		return addr{}, false
	}
	return addrs[i], true
}

// ends are the addresses of this node on the link and those of the next one.
func ends(l *model.Link, next []addr) []addr {
	out := slices.Clone(next)
	for _, p := range l.Prefixes {
		out = append(out, p.Addr())
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// maxOrigins bounds the sources of frames that are told from relayed ones. In a
// group of so many that it is reached, connections of some nodes to VIPs are not
// relayed.
const maxOrigins = 4096

// gatherPeers finds the hardware addresses of all other nodes and the sources of
// their own connections, once for all VIPs that a decision relays.
func (f *facts) gatherPeers() {
	if f.peerMACs != nil {
		return
	}
	for _, m := range f.v.Gossip.Members {
		f.peerMACs = append(f.peerMACs, m.MACs...)
		for _, mac := range m.MACs {
			for _, a := range m.Addrs {
				f.origins = append(f.origins, model.Origin{MAC: mac, Addr: a})
			}
		}
	}
	slices.SortFunc(f.peerMACs, model.MAC.Compare)
	f.peerMACs = slices.Compact(f.peerMACs)
	slices.SortFunc(f.origins, model.Origin.Compare)
	f.origins = slices.Compact(f.origins)
	f.origins = f.origins[:min(len(f.origins), maxOrigins)]
}
