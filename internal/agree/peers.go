package agree

import (
	"fmt"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
)

// Selects tells whether a node with these labels matches the selectors of a peer. An
// empty list matches every node.
func Selects(list []v1alpha1.LabelSelector, labels map[string]string) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(s v1alpha1.LabelSelector) bool {
		return v1alpha1.Selector{MatchLabels: s.MatchLabels}.Matches(labels)
	})
}

// Meet tells whether one node could match both lists of selectors.
func Meet(a, b []v1alpha1.LabelSelector) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	return slices.ContainsFunc(a, func(x v1alpha1.LabelSelector) bool {
		return slices.ContainsFunc(b, func(y v1alpha1.LabelSelector) bool { return compatible(x.MatchLabels, y.MatchLabels) })
	})
}

// compatible tells whether no label has two values.
func compatible(a, b map[string]string) bool {
	for key, value := range a {
		if other, ok := b[key]; ok && other != value {
			return false
		}
	}
	return true
}

// FamilyOf returns the family of an address.
func FamilyOf(addr netip.Addr) v1alpha1.AddressFamily {
	if addr.Is4() {
		return v1alpha1.FamilyIPv4
	}
	return v1alpha1.FamilyIPv6
}

// place is an address, with the interface that a link-local one counts on.
type place struct {
	addr netip.Addr
	link string
}

func (j *Judge) peer(i int, path string, value any) Field {
	return Field{v1alpha1.KindBGPPeer, j.Peers[i].Metadata.Name, i, path, value}
}

func (j *Judge) peerAddress(i int) Field {
	return j.peer(i, "spec.peerAddress", j.Peers[i].Spec.PeerAddress)
}

func (j *Judge) sourceAddress(i int) Field {
	return j.peer(i, "spec.sourceAddress", j.Peers[i].Spec.SourceAddress)
}

// eachPlace calls f for each peer of which a field has an address that is not broken.
func (j *Judge) eachPlace(field func(i int) Field, f func(i int, at Field, p place)) {
	for i, o := range j.Peers {
		at := field(i)
		if addr, err := netip.ParseAddr(fmt.Sprint(at.Value)); err == nil && !j.broken(at) {
			f(i, at, place{addr, o.Spec.Interface})
		}
	}
}

// sessions judges the peers: a node has one session with an address, one identifier for
// all of them, and none with itself.
func (j *Judge) sessions() {
	for i, o := range j.Peers {
		if name := o.Spec.BFDProfile; name != "" {
			if _, ok := j.index.named[v1alpha1.KindBFDProfile][name]; !ok {
				if at := j.peer(i, "spec.bfdProfile", name); j.Complete && !j.broken(at) {
					j.find(UnknownProfile, at, Field{})
				}
			}
		}
	}
	own := j.nodeAddresses()
	j.eachPlace(j.peerAddress, func(_ int, at Field, p place) {
		if path, ok := own[p.addr]; ok {
			j.find(PeerIsNode, at, j.node(path, nil))
		} else if vip, ok := j.index.virtual[p.addr]; ok {
			j.find(PeerIsVirtual, at, vip)
		}
	})
	from := make(map[place][]int)
	j.eachPlace(j.sourceAddress, func(i int, at Field, p place) {
		if vip, ok := j.index.virtual[p.addr]; ok {
			j.find(SourceIsVirtual, at, vip)
		}
		if !j.broken(at) {
			from[p] = append(from[p], i)
		}
	})
	j.eachPlace(j.peerAddress, func(i int, at Field, p place) {
		if n := j.meeting(from[p], i); n >= 0 {
			j.find(PeerIsSource, at, j.sourceAddress(n))
		}
	})
	before := make(map[place][]int)
	j.eachPlace(j.peerAddress, func(i int, at Field, p place) {
		if n := j.meeting(before[p], i); n >= 0 {
			j.find(PeerTwice, at, j.peerAddress(n))
		}
		before[p] = append(before[p], i)
	})
	j.routerIDs()
}

// routerIDs finds peers that ask for different BGP identifiers of one node.
func (j *Judge) routerIDs() {
	const path = "spec.routerID"
	var before []int
	for i, o := range j.Peers {
		id, at := o.Spec.RouterID, j.peer(i, path, o.Spec.RouterID)
		if id == "" || j.broken(at) {
			continue
		}
		if n := j.Node; n != nil && n.BGP.RouterID != "" && n.BGP.RouterID != id && Selects(o.Spec.NodeSelectors, n.NodeLabels) {
			j.find(RouterIDOfNode, at, j.node("bgp.routerID", n.BGP.RouterID))
			if j.broken(at) {
				continue
			}
		}
		others := slices.DeleteFunc(slices.Clone(before), func(n int) bool { return j.Peers[n].Spec.RouterID == id })
		if n := j.meeting(others, i); n >= 0 {
			j.find(RouterIDTwice, at, j.peer(n, path, j.Peers[n].Spec.RouterID))
		}
		before = append(before, i)
	}
}

// meeting is the first of some peers that a node could have together with another; -1: none.
func (j *Judge) meeting(some []int, peer int) int {
	i := slices.IndexFunc(some, func(n int) bool { return Meet(j.Peers[n].Spec.NodeSelectors, j.Peers[peer].Spec.NodeSelectors) })
	if i < 0 {
		return -1
	}
	return some[i]
}

// routed reports names of communities and peers that do not exist, and addresses of an object that no
// peer is told although each has to be.
func (j *Judge) routed(of Field, a *v1alpha1.BGPAdvertise, addresses []string, each bool) {
	at := func(path string, value any) Field {
		of.Path, of.Value = path, value
		return of
	}
	j.knownCommunities(at("spec.advertise.bgp.communities", nil), a.Communities)
	all := j.known(at("spec.advertise.bgp.peers", nil), a.Peers, v1alpha1.KindBGPPeer, UnknownPeer)
	var told []int
	for n, p := range j.Peers {
		if len(a.Peers) == 0 || slices.Contains(a.Peers, p.Metadata.Name) && j.index.named[v1alpha1.KindBGPPeer][p.Metadata.Name] == n {
			told = append(told, n)
		}
	}
	unclear := func(n int) bool { return j.broken(j.peer(n, "spec.families", nil)) }
	if !each || !all || !j.Complete || len(told) == 0 || slices.ContainsFunc(told, unclear) {
		return
	}
	for n, text := range addresses {
		addr, err := netip.ParseAddr(text)
		if err == nil && !slices.ContainsFunc(told, func(p int) bool { return j.Peers[p].Spec.Has(FamilyOf(addr)) }) {
			j.find(FamilyUntold, at(fmt.Sprintf("spec.addresses[%d]", n), text), Field{Value: FamilyOf(addr)})
		}
	}
}
