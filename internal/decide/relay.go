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
	for _, a := range from.Addrs {
		near := func(p netip.Prefix) bool { return p.Contains(a) && !p.IsSingleIP() }
		if a.Is4() == vip.Addr.Is4() && slices.ContainsFunc(link.Prefixes, near) {
			d.Relay = append(d.Relay, model.Relay{Addr: vip.Addr, Interface: m.Interface, To: a, Peers: f.peerMACs()})
			return
		}
	}
}

// peerMACs are the hardware addresses of all other nodes, gathered once for all
// VIPs that a decision relays.
func (f *facts) peerMACs() []model.MAC {
	if f.macs == nil {
		for _, m := range f.v.Gossip.Members {
			f.macs = append(f.macs, m.MACs...)
		}
		slices.SortFunc(f.macs, model.MAC.Compare)
		f.macs = slices.Compact(f.macs)
	}
	return f.macs
}
