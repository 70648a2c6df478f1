// Package agree judges whether objects agree with each other, whether they come from files
// or from a cluster. Whether each is valid by itself is no question here. What it finds are
// values; the callers have the words, since a file has lines and an object of a cluster a
// status.
package agree

import (
	"errors"
	"fmt"
	"net/netip"

	"lbd.dev/lbd/api/v1alpha1"
)

// Field is a field of an object.
type Field struct {
	Kind, Name string
	Index      int // of the object among those of its kind; that of the NodeConfiguration does not count
	Path       string
	Value      any
}

// Rule is what objects may break together.
type Rule uint8

// The rules. At is the field at fault, and Other the one that it contradicts.
const (
	AddressTwice      Rule = iota + 1 // an address of two objects that are announced
	BackendIsVirtual                  // a backend has an address that moves
	AddressOfNode                     // an address of a VirtualIP is that of a node, with which gossip would move away
	QuorumAlone                       // a VirtualIP asks for a quorum, and the node knows no peers
	BalancedAlone                     // a VirtualIP spreads connections that no other node could find
	CommunityTwice                    // two objects define one name
	UnknownProfile                    // no BFDProfile has the name
	UnknownPeer                       // no BGPPeer has the name
	UnknownPool                       // no IPAddressPool has the name
	UnknownCommunity                  // nothing defines the name
	PeerIsNode                        // the peer is this node itself
	PeerIsVirtual                     // the peer has an address that moves
	SourceIsVirtual                   // the session comes from an address that moves
	PeerIsSource                      // another session of one node comes from the address of the peer
	PeerTwice                         // two peers of one node have one address
	RouterIDOfNode                    // the BGP identifier is not that of the node
	RouterIDTwice                     // one node has two BGP identifiers
	FamilyUntold                      // no peer is told the address; Other has its family as the value
	PoolBesideNode                    // an object for Services is beside a NodeConfiguration
	PoolsOverlap                      // two pools have one address
	AddressInPool                     // an address of a VirtualIP could be given to a Service
	PeerInPool                        // so could that of a peer
	PrefixTooWide                     // routers would be told of addresses that are not in the pool
	ListenerInCluster                 // a BGPListener is on a machine of a cluster
	PeersOverlap                      // masters of two BGPListeners
	AcceptOverlaps                    // prefixes that two BGPListeners accept
	AcceptIsTaken                     // an accepted prefix holds what another object or this node has
	PeerIsMaster                      // a peer with an object of its own is where masters are
	SeedTwice                         // two BGPListeners ask for different seeds of one machine
	NodesOfNoCluster                  // a LoadBalancer from a file selects Nodes, of which files know none
	NoUpstream                        // no router is told of what a BGPListener accepts
)

// Finding is a rule that two objects break.
type Finding struct {
	Rule      Rule
	At, Other Field
}

// Judge has the objects, each kind in the order in which the first of two is in its right.
type Judge struct {
	Node              *v1alpha1.NodeConfiguration // that they are beside; nil: none
	VirtualIPs        []*v1alpha1.VirtualIP
	LoadBalancers     []*v1alpha1.LoadBalancer
	Peers             []*v1alpha1.BGPPeer
	Listeners         []*v1alpha1.BGPListener
	Profiles          []*v1alpha1.BFDProfile
	Communities       []*v1alpha1.Community
	Pools             []*v1alpha1.IPAddressPool
	L2Advertisements  []*v1alpha1.L2Advertisement
	BGPAdvertisements []*v1alpha1.BGPAdvertisement
	// Complete: no object is missing because it could not be read, so that a name that is
	// not there is a mistake of whoever refers to it.
	Complete bool
	// Broken tells whether a field breaks a rule by itself, or one that was reported: it
	// is not compared. nil: none does.
	Broken func(Field) bool
	// Report is called for each finding.
	Report func(Finding)

	index index
}

// index is by what the objects are found; the first of several counts.
type index struct {
	virtual     map[netip.Addr]Field      // VirtualIPs and LoadBalancers by address
	named       map[string]map[string]int // places by kind and name
	communities map[string]Field
	ranges      PoolIndex
}

// Run judges everything.
func (j *Judge) Run() {
	j.index = index{make(map[netip.Addr]Field), map[string]map[string]int{
		v1alpha1.KindBGPPeer:       byName(j.Peers, func(o *v1alpha1.BGPPeer) string { return o.Metadata.Name }),
		v1alpha1.KindBFDProfile:    byName(j.Profiles, func(o *v1alpha1.BFDProfile) string { return o.Metadata.Name }),
		v1alpha1.KindIPAddressPool: byName(j.Pools, func(o *v1alpha1.IPAddressPool) string { return o.Metadata.Name }),
	}, make(map[string]Field), NewPoolIndex(j.Pools)}
	j.uniqueAddresses()
	j.backends()
	j.besideNode()
	j.uniqueCommunities()
	j.sessions()
	j.listeners()
	for i, o := range j.VirtualIPs {
		if a := o.Spec.Advertise; a != nil && a.BGP != nil {
			j.routed(j.vip(i, "", nil), a.BGP, o.Spec.Addresses, a.L2 == nil)
		}
	}
	for i, o := range j.LoadBalancers {
		if a := o.Spec.Advertise; a != nil && a.BGP != nil {
			j.routed(j.balancer(i, "", nil), a.BGP, o.Spec.Addresses, true) // only a node with a session owns an address
		}
	}
	j.pools()
	for i, o := range j.L2Advertisements {
		j.known(Field{v1alpha1.KindL2Advertisement, o.Metadata.Name, i, "spec.ipAddressPools", nil}, o.Spec.IPAddressPools, v1alpha1.KindIPAddressPool, UnknownPool)
	}
	for i, o := range j.BGPAdvertisements {
		at := func(path string) Field { return Field{v1alpha1.KindBGPAdvertisement, o.Metadata.Name, i, path, nil} }
		j.known(at("spec.ipAddressPools"), o.Spec.IPAddressPools, v1alpha1.KindIPAddressPool, UnknownPool)
		j.known(at("spec.peers"), o.Spec.Peers, v1alpha1.KindBGPPeer, UnknownPeer)
		j.knownCommunities(at("spec.communities"), o.Spec.Communities)
		j.roomForPrefixes(at, &o.Spec)
	}
}

// byName finds the places of objects by name; the first of several counts.
func byName[T any](list []T, name func(T) string) map[string]int {
	all := make(map[string]int, len(list))
	for i := range list {
		if _, again := all[name(list[i])]; !again {
			all[name(list[i])] = i
		}
	}
	return all
}

func (j *Judge) find(rule Rule, at, other Field) { j.Report(Finding{rule, at, other}) }

func (j *Judge) broken(at Field) bool { return j.Broken != nil && j.Broken(at) }

func (j *Judge) vip(i int, path string, value any) Field {
	return Field{v1alpha1.KindVirtualIP, j.VirtualIPs[i].Metadata.Name, i, path, value}
}

func (j *Judge) balancer(i int, path string, value any) Field {
	return Field{v1alpha1.KindLoadBalancer, j.LoadBalancers[i].Metadata.Name, i, path, value}
}

func (j *Judge) node(path string, value any) Field {
	return Field{v1alpha1.KindNodeConfiguration, j.Node.NodeName, 0, path, value}
}

// eachAddress calls f for every address of a VirtualIP or LoadBalancer that is one.
func (j *Judge) eachAddress(f func(at Field, addr netip.Addr)) {
	each := func(at Field, path string, texts []string) {
		for n, text := range texts {
			if addr, err := netip.ParseAddr(text); err == nil {
				at.Path, at.Value = fmt.Sprintf(path, n), text
				f(at, addr)
			}
		}
	}
	for i, o := range j.VirtualIPs {
		each(j.vip(i, "", nil), "spec.addresses[%d]", o.Spec.Addresses)
	}
	for i, o := range j.LoadBalancers {
		each(j.balancer(i, "", nil), "spec.addresses[%d]", o.Spec.Addresses)
	}
}

// backends finds those that have an address which moves. The own ones of the object are judged
// by its own rules.
func (j *Judge) backends() {
	for i, o := range j.LoadBalancers {
		for n, b := range o.Spec.Backends {
			addr, err := netip.ParseAddr(b.Address)
			at := j.balancer(i, fmt.Sprintf("spec.backends[%d].address", n), b.Address)
			if other, is := j.index.virtual[addr]; err == nil && is && (other.Kind != at.Kind || other.Index != i) {
				j.find(BackendIsVirtual, at, other)
			}
		}
	}
}

// uniqueAddresses finds addresses that another object has. The object itself is judged
// by its own rules.
func (j *Judge) uniqueAddresses() {
	j.eachAddress(func(at Field, addr netip.Addr) {
		first, again := j.index.virtual[addr]
		if !again {
			j.index.virtual[addr] = at
		} else if first.Kind != at.Kind || first.Index != at.Index {
			j.find(AddressTwice, at, first)
		}
	})
}

func (j *Judge) besideNode() {
	if j.Node == nil {
		return
	}
	taken := j.nodeAddresses()
	for i, peer := range j.Node.Gossip.Peers {
		host, _, _ := v1alpha1.SplitPeer(peer) // empty if it is wrong
		if addr, err := netip.ParseAddr(host); err == nil && taken[addr] == "" {
			taken[addr] = fmt.Sprintf("gossip.peers[%d]", i)
		}
	}
	j.eachAddress(func(at Field, addr netip.Addr) {
		if path, ok := taken[addr]; ok {
			j.find(AddressOfNode, at, j.node(path, nil))
		}
	})
	// Peers that come from Machines are not known after a start while the management cluster is away,
	// and a node that knows no peers would be its own majority.
	alone := len(j.Node.Gossip.Peers) == 0 && !j.broken(j.node("gossip.peers", nil))
	for i, o := range j.LoadBalancers {
		if o.Spec.BackendNodes != nil {
			j.find(NodesOfNoCluster, j.balancer(i, "spec.backendNodes", nil), j.node("kind", nil))
		}
		if alone && o.Spec.Partition == v1alpha1.PartitionQuorum {
			j.find(QuorumAlone, j.balancer(i, "spec.partition", string(v1alpha1.PartitionQuorum)), j.node("gossip.peers", nil))
		}
	}
	for i, o := range j.VirtualIPs {
		if alone && o.Spec.Partition == v1alpha1.PartitionQuorum {
			j.find(QuorumAlone, j.vip(i, "spec.partition", string(v1alpha1.PartitionQuorum)), j.node("gossip.peers", nil))
		}
		if a := o.Spec.Advertise; j.Node.Connections == v1alpha1.ConnectionsReset && a != nil && a.L2 != nil && a.L2.Mode == v1alpha1.L2Balanced {
			j.find(BalancedAlone, j.vip(i, "spec.advertise.l2.mode", string(v1alpha1.L2Balanced)), j.node("connections", nil))
		}
	}
}

// nodeAddresses are the addresses that the NodeConfiguration says are those of its node,
// with the field that says so.
func (j *Judge) nodeAddresses() map[netip.Addr]string {
	own := make(map[netip.Addr]string)
	if j.Node == nil {
		return own
	}
	for i, text := range j.Node.BGP.ListenAddresses {
		if addr, err := netip.ParseAddr(text); err == nil {
			own[addr] = fmt.Sprintf("bgp.listenAddresses[%d]", i)
		}
	}
	if addr, err := netip.ParseAddr(j.Node.Gossip.BindAddress); err == nil {
		own[addr] = "gossip.bindAddress"
	}
	return own
}

// uniqueCommunities finds names that another object has defined. The object itself is
// judged by its own rules.
func (j *Judge) uniqueCommunities() {
	for i, o := range j.Communities {
		for n, entry := range o.Spec.Communities {
			at := Field{v1alpha1.KindCommunity, o.Metadata.Name, i, fmt.Sprintf("spec.communities[%d].name", n), entry.Name}
			first, again := j.index.communities[entry.Name]
			if !again {
				j.index.communities[entry.Name] = at
			} else if first.Index != i && entry.Name != "" {
				j.find(CommunityTwice, at, first)
			}
		}
	}
}

// unknown reports a name in a list that nothing has.
func (j *Judge) unknown(rule Rule, list Field, i int, name string) {
	list.Path, list.Value = fmt.Sprintf("%s[%d]", list.Path, i), name
	if j.Complete && !j.broken(list) {
		j.find(rule, list, Field{})
	}
}

// known reports names in a list that no object of the kind has, and tells whether all
// are there.
func (j *Judge) known(list Field, names []string, kind string, rule Rule) (all bool) {
	all = true
	for i, name := range names {
		if _, ok := j.index.named[kind][name]; !ok {
			j.unknown(rule, list, i, name)
			all = false
		}
	}
	return all
}

// knownCommunities reports names that nothing defines.
func (j *Judge) knownCommunities(list Field, names []string) {
	for i, name := range names {
		_, err := v1alpha1.ParseCommunity(name)
		if _, ok := j.index.communities[name]; !ok && errors.Is(err, v1alpha1.ErrCommunityName) {
			j.unknown(UnknownCommunity, list, i, name)
		}
	}
}
