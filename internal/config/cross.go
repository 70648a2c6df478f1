package config

import (
	"fmt"
	"net/netip"

	"lbd.dev/lbd/api/v1alpha1"
)

// crossCheck adds errors for rules that hold between objects, and returns the
// NodeConfiguration, or nil if there is none. complete says that all files could
// be read to their end.
func crossCheck(objects []*object, complete bool) *object {
	node := oneNode(objects)
	var vips []*object
	for _, o := range objects {
		if o.vip != nil {
			vips = append(vips, o)
		}
	}
	uniqueNames(objects)
	uniqueAddresses(vips)
	if node != nil {
		notNodeAddresses(vips, node)
		quorumHasPeers(vips, node)
		balancedHasRing(vips, node)
	}
	names := newNamed(objects, complete)
	crossBGP(objects, vips, node, names)
	crossServices(objects, vips, node, names)
	return node
}

// place says where another object is.
func (o *object) place() string { return fmt.Sprintf("%s:%d", o.file, o.line) }

// oneNode returns the first NodeConfiguration and refuses the others.
func oneNode(objects []*object) *object {
	var node *object
	for _, o := range objects {
		switch {
		case o.node == nil:
		case node == nil:
			node = o
		default:
			o.breaks("kind", o.kind, "is allowed once for each node; the first is in %s", node.place())
		}
	}
	return node
}

// uniqueNames refuses a second object of the same kind and name.
func uniqueNames(objects []*object) {
	first := make(map[string]*object)
	for _, o := range objects {
		name, has := o.metaName()
		if !has || name == "" {
			continue
		}
		key := o.kind + " " + name
		if other, again := first[key]; again {
			o.breaks("metadata.name", name, "is the name of another %s (%s)", o.kind, other.place())
			continue
		}
		first[key] = o
	}
}

// metaName returns metadata.name, which a NodeConfiguration does not have.
func (o *object) metaName() (name string, has bool) {
	switch {
	case o.vip != nil:
		return o.vip.Metadata.Name, true
	case o.peer != nil:
		return o.peer.Metadata.Name, true
	case o.profile != nil:
		return o.profile.Metadata.Name, true
	case o.communities != nil:
		return o.communities.Metadata.Name, true
	case o.pool != nil:
		return o.pool.Metadata.Name, true
	case o.l2 != nil:
		return o.l2.Metadata.Name, true
	case o.bgp != nil:
		return o.bgp.Metadata.Name, true
	}
	return "", false
}

// eachAddress calls f for every address of the objects that is one.
func eachAddress(vips []*object, f func(o *object, path, text string, addr netip.Addr)) {
	for _, o := range vips {
		for i, text := range o.vip.Spec.Addresses {
			if addr, err := netip.ParseAddr(text); err == nil {
				f(o, fmt.Sprintf("spec.addresses[%d]", i), text, addr)
			}
		}
	}
}

// uniqueAddresses refuses an address that another object has. The object itself
// is checked by its own rules.
func uniqueAddresses(vips []*object) {
	first := make(map[netip.Addr]*object)
	eachAddress(vips, func(o *object, path, text string, addr netip.Addr) {
		other, again := first[addr]
		if !again {
			first[addr] = o
		} else if other != o {
			o.breaks(path, text, "is also an address of %s (%s)", other.title(), other.place())
		}
	})
}

// notNodeAddresses refuses a VIP that is the address of a node: it would move
// away with the gossip of that node on it.
func notNodeAddresses(vips []*object, node *object) {
	taken := nodeAddresses(node)
	for i, peer := range node.node.Gossip.Peers {
		host, _, _ := v1alpha1.SplitPeer(peer) // empty if it is wrong
		if addr, err := netip.ParseAddr(host); err == nil && taken[addr] == "" {
			taken[addr] = fmt.Sprintf("gossip.peers[%d]", i)
		}
	}
	eachAddress(vips, func(o *object, path, text string, addr netip.Addr) {
		if field, ok := taken[addr]; ok {
			o.breaks(path, text, "is the address of a node: %s of %s (%s:%d)",
				field, node.title(), node.file, node.lineOf(field))
		}
	})
}

// quorumHasPeers refuses a quorum among nobody.
func quorumHasPeers(vips []*object, node *object) {
	if len(node.node.Gossip.Peers) > 0 || node.isBroken("gossip.peers") {
		return
	}
	for _, o := range vips {
		if o.vip.Spec.Partition == v1alpha1.PartitionQuorum {
			o.breaks("spec.partition", string(v1alpha1.PartitionQuorum), "needs gossip.peers in %s (%s)", node.title(), node.place())
		}
	}
}

// balancedHasRing refuses to spread connections that no other node could find.
func balancedHasRing(vips []*object, node *object) {
	if node.node.Connections != v1alpha1.ConnectionsReset {
		return
	}
	for _, o := range vips {
		if a := o.vip.Spec.Advertise; a != nil && a.L2 != nil && a.L2.Mode == v1alpha1.L2Balanced {
			o.breaks("spec.advertise.l2.mode", string(v1alpha1.L2Balanced), "needs connections: keep in %s (%s)", node.title(), node.place())
		}
	}
}
