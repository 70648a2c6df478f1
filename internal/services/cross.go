package services

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/resolve"
)

// cross reports what objects ask for together and no node can give them, or not the
// nodes that match both. The rules are those of files; here the objects stay in use.
// What peers of this node have is reported where it is resolved.
func (c *config) cross(labels map[string]string) {
	c.crossPeers(labels)
	owner := make(map[netip.Addr]string, len(c.virtual))
	for i := range c.virtual {
		owner[c.virtual[i].Addr] = c.virtual[i].Name
	}
	for _, o := range c.objects.Peers {
		c.places(o, owner)
	}
	for _, o := range c.objects.VirtualIPs {
		for _, i := range resolve.Untaken(o, c.peersOf(o)) {
			c.bad(v1alpha1.KindVirtualIP, o.Metadata.Name, "the address %s cannot be advertised: none of its BGP peers has its family in spec.families", o.Spec.Addresses[i])
		}
	}
}

// crossPeers reports peers that contradict others.
func (c *config) crossPeers(labels map[string]string) {
	const kind = v1alpha1.KindBGPPeer
	peers := c.objects.Peers
	elsewhere := func(x resolve.Pair) bool {
		return !selects(peers[x.First].Spec.NodeSelectors, labels) || !selects(peers[x.Second].Spec.NodeSelectors, labels)
	}
	for _, x := range resolve.SameAddress(peers, resolve.AllGood) {
		if o := peers[x.Second]; elsewhere(x) {
			c.bad(kind, o.Metadata.Name, "spec.peerAddress %q is also that of BGPPeer %q, and a node could match both",
				o.Spec.PeerAddress, peers[x.First].Metadata.Name)
		}
	}
	for _, x := range resolve.RouterIDs(peers, resolve.AllGood) {
		if o, other := peers[x.Second], peers[x.First]; elsewhere(x) {
			c.bad(kind, o.Metadata.Name, "spec.routerID %s is not that of BGPPeer %q, %s, and a node could match both: a node has one",
				o.Spec.RouterID, other.Metadata.Name, other.Spec.RouterID)
		}
	}
	for _, x := range resolve.WithItself(peers, resolve.AllGood) {
		o := peers[x.Second]
		c.bad(kind, o.Metadata.Name, "spec.peerAddress %q is spec.sourceAddress of BGPPeer %q, and a node could match both: a node has no session with itself",
			o.Spec.PeerAddress, peers[x.First].Metadata.Name)
	}
}

// places reports a peer at an address that is not a router's, and sessions from one
// that moves.
func (c *config) places(o *v1alpha1.BGPPeer, owner map[netip.Addr]string) {
	const kind = v1alpha1.KindBGPPeer
	name, s := o.Metadata.Name, &o.Spec
	if peer, err := netip.ParseAddr(s.PeerAddress); err == nil {
		if vip, ok := owner[peer]; ok {
			c.bad(kind, name, "spec.peerAddress %q is an address of VirtualIP %q; give the router's own address", s.PeerAddress, vip)
		}
		if p := c.pools.find(peer); p >= 0 {
			c.bad(kind, name, "spec.peerAddress %q is in IPAddressPool %q; a Service could be given it", s.PeerAddress, c.objects.Pools[p].Metadata.Name)
		}
	}
	if source, err := netip.ParseAddr(s.SourceAddress); err == nil {
		if vip, ok := owner[source]; ok {
			c.bad(kind, name, "spec.sourceAddress %q is an address of VirtualIP %q, which is not always on the node", s.SourceAddress, vip)
		}
	}
}

// peersOf are those that a VirtualIP is advertised to; nil if it is to none, or if some
// are missing, which is reported by itself.
func (c *config) peersOf(o *v1alpha1.VirtualIP) []*v1alpha1.BGPPeer {
	if o.Spec.Advertise == nil || o.Spec.Advertise.BGP == nil {
		return nil
	}
	names := o.Spec.Advertise.BGP.Peers
	if len(names) == 0 {
		return c.objects.Peers
	}
	var all []*v1alpha1.BGPPeer
	for _, p := range c.objects.Peers {
		if slices.Contains(names, p.Metadata.Name) {
			all = append(all, p)
		}
	}
	if len(all) < len(names) {
		return nil
	}
	return all
}
