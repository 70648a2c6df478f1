package config

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/resolve"
)

// named are the objects that others refer to by name.
type named struct {
	peers, profiles, pools map[string]*object
	communities            map[string]v1alpha1.CommunityValue
	// complete: no object is missing because it could not be read, so that a name
	// that is not there is a mistake of whoever refers to it.
	complete bool
}

// newNamed collects names; the first of several counts.
func newNamed(objects []*object, complete bool) *named {
	n := &named{
		peers:       make(map[string]*object),
		profiles:    make(map[string]*object),
		pools:       make(map[string]*object),
		communities: make(map[string]v1alpha1.CommunityValue),
		complete:    complete,
	}
	for _, o := range objects {
		switch {
		case o.body == nil:
			n.complete = false
		case o.peer != nil:
			setFirst(n.peers, o.peer.Metadata.Name, o)
		case o.profile != nil:
			setFirst(n.profiles, o.profile.Metadata.Name, o)
		case o.pool != nil:
			setFirst(n.pools, o.pool.Metadata.Name, o)
		case o.communities != nil:
			for _, entry := range o.communities.Spec.Communities {
				value, _ := v1alpha1.ParseCommunity(entry.Value) // zero if it is wrong, which is an error by itself
				setFirst(n.communities, entry.Name, value)
			}
		}
	}
	return n
}

// setFirst sets m[key] unless it is set.
func setFirst[V any](m map[string]V, key string, v V) {
	if _, again := m[key]; !again {
		m[key] = v
	}
}

// unknown adds an error about a name that no object of the kind has.
func (n *named) unknown(o *object, path, name, kind string, have iter.Seq[string]) {
	if !n.complete || o.isBroken(path) {
		return
	}
	const many = 100 // comparing with more takes long, and may be asked for often
	var candidates []string
	for c := range have {
		if candidates = append(candidates, c); len(candidates) > many {
			candidates = nil
			break
		}
	}
	article := "a"
	if strings.HasPrefix(kind, "I") {
		article = "an"
	}
	if near := nearest(name, candidates); near != "" {
		o.breaks(path, name, "is not the name of %s %s; did you mean %q?", article, kind, near)
		return
	}
	o.breaks(path, name, "is not the name of %s %s", article, kind)
}

// crossBGP checks the rules between the objects about BGP.
func crossBGP(objects, vips []*object, node *object, names *named) {
	uniqueCommunities(objects)
	var peers []*object
	for _, o := range objects {
		if o.peer != nil {
			peers = append(peers, o)
		}
	}
	for _, o := range peers {
		profile := o.peer.Spec.BFDProfile
		if profile != "" && names.profiles[profile] == nil {
			names.unknown(o, "spec.bfdProfile", profile, v1alpha1.KindBFDProfile, maps.Keys(names.profiles))
		}
	}
	notOwnAddresses(peers, vips, node)
	notSourceAddresses(peers)
	uniquePeers(peers)
	agreeOnRouterID(peers, node)
	for _, o := range vips {
		if a := o.vip.Spec.Advertise; a != nil && a.BGP != nil {
			knownCommunities(o, "spec.advertise.bgp.communities", a.BGP.Communities, names)
			familiesOfPeers(o, a, peers, names)
		}
	}
}

// uniqueCommunities refuses a name that another object has defined. The object
// itself is checked by its own rules.
func uniqueCommunities(objects []*object) {
	first := make(map[string]*object)
	for _, o := range objects {
		if o.communities == nil {
			continue
		}
		for i, entry := range o.communities.Spec.Communities {
			other, again := first[entry.Name]
			if !again {
				first[entry.Name] = o
			} else if other != o && entry.Name != "" {
				o.breaks(fmt.Sprintf("spec.communities[%d].name", i), entry.Name, "is also defined by %s (%s)", other.title(), other.place())
			}
		}
	}
}

// addrAt parses an address of a peer; the zero one if it is wrong or not there.
func (o *object) addrAt(path, text string) netip.Addr {
	addr, err := netip.ParseAddr(text)
	if err != nil || o.isBroken(path) {
		return netip.Addr{}
	}
	return addr
}

// sessions are peers as the rules between them look at them.
func sessions(peers []*object) ([]*v1alpha1.BGPPeer, resolve.Good) {
	all := make([]*v1alpha1.BGPPeer, len(peers))
	for i, o := range peers {
		all[i] = o.peer
	}
	return all, func(i int, path string) bool { return !peers[i].isBroken(path) }
}

// notOwnAddresses refuses peers that are this node, and sessions from an address
// that moves.
func notOwnAddresses(peers, vips []*object, node *object) {
	own := make(map[netip.Addr]string)
	virtual := make(map[netip.Addr]*object)
	if node != nil {
		own = nodeAddresses(node)
	}
	eachAddress(vips, func(o *object, _, _ string, addr netip.Addr) { virtual[addr] = o })
	for _, o := range peers {
		s := &o.peer.Spec
		peer := o.addrAt("spec.peerAddress", s.PeerAddress)
		if field, ok := own[peer]; ok {
			o.breaks("spec.peerAddress", s.PeerAddress, "is the address of this node: %s of %s (%s:%d)",
				field, node.title(), node.file, node.lineOf(field))
		} else if vip := virtual[peer]; vip != nil {
			o.breaks("spec.peerAddress", s.PeerAddress, "is an address of %s (%s); give the router's own address", vip.title(), vip.place())
		}
		if vip := virtual[o.addrAt("spec.sourceAddress", s.SourceAddress)]; vip != nil {
			o.breaks("spec.sourceAddress", s.SourceAddress, "is an address of %s (%s), which is not always on this node", vip.title(), vip.place())
		}
	}
}

// notSourceAddresses refuses a peer at an address from which the same node opens
// another session. A session from and to one address is refused by the rules of one
// object.
func notSourceAddresses(peers []*object) {
	for _, x := range resolve.WithItself(sessions(peers)) {
		o, other := peers[x.Second], peers[x.First]
		o.breaks("spec.peerAddress", o.peer.Spec.PeerAddress, "is spec.sourceAddress of %s (%s), and a node could match both; "+
			"a node has no session with itself", other.title(), other.place())
	}
}

// nodeAddresses returns the addresses that a NodeConfiguration says are those of
// its node, with the field that says so.
func nodeAddresses(node *object) map[netip.Addr]string {
	own := make(map[netip.Addr]string)
	for i, text := range node.node.BGP.ListenAddresses {
		if addr, err := netip.ParseAddr(text); err == nil {
			own[addr] = fmt.Sprintf("bgp.listenAddresses[%d]", i)
		}
	}
	if addr, err := netip.ParseAddr(node.node.Gossip.BindAddress); err == nil {
		own[addr] = "gossip.bindAddress"
	}
	return own
}

// selects tells whether a node with these labels matches the selectors.
func selects(selectors []v1alpha1.LabelSelector, labels map[string]string) bool {
	return len(selectors) == 0 || slices.ContainsFunc(selectors, func(s v1alpha1.LabelSelector) bool {
		return matches(s.MatchLabels, labels)
	})
}

// matches tells whether a node with these labels has all that are wanted.
func matches(wanted, labels map[string]string) bool {
	for key, value := range wanted {
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

// uniquePeers refuses two peers with one address that one node could have.
func uniquePeers(peers []*object) {
	for _, x := range resolve.SameAddress(sessions(peers)) {
		o, other := peers[x.Second], peers[x.First]
		o.breaks("spec.peerAddress", o.peer.Spec.PeerAddress, "is also the address of %s (%s), and a node could match both; "+
			"give them nodeSelectors of which no node can match two", other.title(), other.place())
	}
}

// agreeOnRouterID refuses a second BGP identifier for one node, which has one for
// all of its sessions.
func agreeOnRouterID(peers []*object, node *object) {
	const path = "spec.routerID"
	for _, o := range peers {
		s := &o.peer.Spec
		if node != nil && node.node.BGP.RouterID != "" && s.RouterID != "" && !o.isBroken(path) && node.node.BGP.RouterID != s.RouterID &&
			selects(s.NodeSelectors, node.node.NodeLabels) {
			o.breaks(path, s.RouterID, "is not that of the node: bgp.routerID of %s (%s:%d) is %s",
				node.title(), node.file, node.lineOf("bgp.routerID"), node.node.BGP.RouterID)
		}
	}
	for _, x := range resolve.RouterIDs(sessions(peers)) {
		o, other := peers[x.Second], peers[x.First]
		o.breaks(path, o.peer.Spec.RouterID, "is not that of %s (%s), %s, and a node could match both; a node has one",
			other.title(), other.place(), other.peer.Spec.RouterID)
	}
}

// knownCommunities refuses names of communities that nothing defines.
func knownCommunities(o *object, path string, list []string, names *named) {
	have := slices.AppendSeq(v1alpha1.WellKnownCommunities(), maps.Keys(names.communities))
	for i, text := range list {
		if _, err := v1alpha1.ParseCommunity(text); !errors.Is(err, v1alpha1.ErrCommunityName) {
			continue
		}
		if _, ok := names.communities[text]; !ok {
			names.unknown(o, fmt.Sprintf("%s[%d]", path, i), text, "community", slices.Values(have))
		}
	}
}

// familiesOfPeers refuses names of peers that do not exist, and an address that
// no peer takes although nothing else announces it.
func familiesOfPeers(o *object, a *v1alpha1.Advertise, all []*object, names *named) {
	peers := all
	if len(a.BGP.Peers) > 0 {
		peers = nil
	}
	for i, name := range a.BGP.Peers {
		peer := names.peers[name]
		if peer == nil {
			names.unknown(o, fmt.Sprintf("spec.advertise.bgp.peers[%d]", i), name, v1alpha1.KindBGPPeer, maps.Keys(names.peers))
			continue
		}
		peers = append(peers, peer)
	}
	broken := func(p *object) bool { return p.isBroken("spec.families") }
	if len(peers) < len(a.BGP.Peers) || !names.complete || slices.ContainsFunc(peers, broken) {
		return
	}
	given, _ := sessions(peers)
	for _, i := range resolve.Untaken(o.vip, given) {
		text := o.vip.Spec.Addresses[i]
		addr, _ := netip.ParseAddr(text) // it can be read, or it would not be there
		o.breaks(fmt.Sprintf("spec.addresses[%d]", i), text, "cannot be advertised: none of its BGP peers has the family %s in spec.families", resolve.FamilyOf(addr))
	}
}
