package speaker

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// tellPeers tells the addresses of the Nodes that run lbd: of each the first of the
// family that this node's first one has.
func (l *loop) tellPeers() {
	if !l.w.nodes.Synced() {
		return
	}
	nodes := l.w.nodes.All()
	var own netip.Addr
	if self := nodes[model.Key{Name: string(l.s.o.Services.Self)}]; self != nil && len(self.Addresses) > 0 {
		own = self.Addresses[0]
	}
	peers := []netip.Addr{}
	for _, n := range nodes {
		if len(n.Addresses) == 0 || !l.s.o.PeerSelector.Matches(n.Labels) {
			continue
		}
		a := n.Addresses[0]
		if i := slices.IndexFunc(n.Addresses, func(x netip.Addr) bool { return x.Is4() == own.Is4() }); own.IsValid() && i >= 0 {
			a = n.Addresses[i]
		}
		peers = append(peers, a)
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	if l.peers == nil || !slices.Equal(peers, l.peers) {
		l.peers = peers
		l.s.o.OnPeers(peers)
	}
}
