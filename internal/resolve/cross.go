package resolve

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
)

// Pair are two objects, by their places in a list, that cannot both have what they
// ask for: First comes first, Second is at fault.
type Pair struct{ First, Second int }

// Good tells whether a field of an object in a list breaks no rule by itself; what does
// is not compared.
type Good func(i int, path string) bool

// AllGood compares everything that can be read.
func AllGood(int, string) bool { return true }

// place is an address, with the interface that a link-local one counts on.
type place struct {
	addr netip.Addr
	link string
}

// placeOf reads an address of a peer; false if it is wrong or not there.
func placeOf(i int, path, text, link string, good Good) (place, bool) {
	addr, err := netip.ParseAddr(text)
	return place{addr, link}, err == nil && good(i, path)
}

// SameAddress finds peers with one address that one node could have: a node has one
// session with an address.
func SameAddress(peers []*v1alpha1.BGPPeer, good Good) (all []Pair) {
	before := make(map[place][]int)
	for i, p := range peers {
		at, ok := placeOf(i, "spec.peerAddress", p.Spec.PeerAddress, p.Spec.Interface, good)
		if !ok {
			continue
		}
		if n := meeting(peers, before[at], p); n >= 0 {
			all = append(all, Pair{n, i})
		}
		before[at] = append(before[at], i)
	}
	return all
}

// WithItself finds peers at an address from which the same node opens another session:
// that is the node itself.
func WithItself(peers []*v1alpha1.BGPPeer, good Good) (all []Pair) {
	from := make(map[place][]int)
	for i, p := range peers {
		if at, ok := placeOf(i, "spec.sourceAddress", p.Spec.SourceAddress, p.Spec.Interface, good); ok {
			from[at] = append(from[at], i)
		}
	}
	for i, p := range peers {
		if at, ok := placeOf(i, "spec.peerAddress", p.Spec.PeerAddress, p.Spec.Interface, good); ok {
			if n := meeting(peers, from[at], p); n >= 0 {
				all = append(all, Pair{n, i})
			}
		}
	}
	return all
}

// RouterIDs finds peers that ask for different BGP identifiers of one node, which has
// one for all of its sessions.
func RouterIDs(peers []*v1alpha1.BGPPeer, good Good) (all []Pair) {
	var before []int
	for i, p := range peers {
		if p.Spec.RouterID == "" || !good(i, "spec.routerID") {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(before), func(n int) bool { return peers[n].Spec.RouterID == p.Spec.RouterID })
		if n := meeting(peers, others, p); n >= 0 {
			all = append(all, Pair{n, i})
		}
		before = append(before, i)
	}
	return all
}

// meeting is the first of some peers that a node could have together with p; -1: none.
func meeting(peers []*v1alpha1.BGPPeer, some []int, p *v1alpha1.BGPPeer) int {
	i := slices.IndexFunc(some, func(n int) bool { return Meet(peers[n].Spec.NodeSelectors, p.Spec.NodeSelectors) })
	if i < 0 {
		return -1
	}
	return some[i]
}

// Untaken finds the addresses of a VirtualIP that nobody could hear of: layer 2 does
// not announce them, and none of its BGP peers has their family.
func Untaken(o *v1alpha1.VirtualIP, peers []*v1alpha1.BGPPeer) (all []int) {
	if a := o.Spec.Advertise; a == nil || a.BGP == nil || a.L2 != nil || len(peers) == 0 {
		return nil
	}
	for i, text := range o.Spec.Addresses {
		addr, err := netip.ParseAddr(text)
		if err == nil && !slices.ContainsFunc(peers, func(p *v1alpha1.BGPPeer) bool { return p.Spec.Has(FamilyOf(addr)) }) {
			all = append(all, i)
		}
	}
	return all
}

// FamilyOf returns the family of an address.
func FamilyOf(addr netip.Addr) v1alpha1.AddressFamily {
	if addr.Is4() {
		return v1alpha1.FamilyIPv4
	}
	return v1alpha1.FamilyIPv6
}
