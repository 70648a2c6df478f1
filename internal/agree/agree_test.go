package agree

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
)

func meta(name string) v1alpha1.ObjectMeta { return v1alpha1.ObjectMeta{Name: name} }

func vip(name string, change func(*v1alpha1.VirtualIPSpec), addrs ...string) *v1alpha1.VirtualIP {
	o := &v1alpha1.VirtualIP{Metadata: meta(name)}
	if o.Spec.Addresses = addrs; change != nil {
		change(&o.Spec)
	}
	return o
}

func peer(name, addr string, change func(*v1alpha1.BGPPeerSpec)) *v1alpha1.BGPPeer {
	o := &v1alpha1.BGPPeer{Metadata: meta(name)}
	if o.Spec.PeerAddress = addr; change != nil {
		change(&o.Spec)
	}
	return o
}

func pool(name string, entries ...string) *v1alpha1.IPAddressPool {
	o := &v1alpha1.IPAddressPool{Metadata: meta(name)}
	o.Spec.Addresses = entries
	return o
}

func listener(name, peers, accept string, change func(*v1alpha1.BGPListenerSpec)) *v1alpha1.BGPListener {
	o := &v1alpha1.BGPListener{Metadata: meta(name)}
	if o.Spec.PeerPrefixes, o.Spec.AcceptPrefixes = []string{peers}, []string{accept}; change != nil {
		change(&o.Spec)
	}
	return o
}

func byBGP(peers ...string) func(*v1alpha1.VirtualIPSpec) {
	return func(s *v1alpha1.VirtualIPSpec) {
		s.Advertise = &v1alpha1.Advertise{BGP: &v1alpha1.BGPAdvertise{Peers: peers}}
	}
}

// TestRules: each rule that two objects break is found once, at the later one, and a field
// that is broken already is not compared.
func TestRules(t *testing.T) {
	zone := func(name string) []v1alpha1.LabelSelector {
		return []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"zone": name}}}
	}
	four := func(s *v1alpha1.BGPPeerSpec) { s.Families = []v1alpha1.AddressFamily{v1alpha1.FamilyIPv4} }
	aggregate := func(length int32) *v1alpha1.BGPAdvertisement {
		o := &v1alpha1.BGPAdvertisement{Metadata: meta("a")}
		o.Spec.AggregationLength, o.Spec.AggregationLengthV6 = &length, new(int32(v1alpha1.DefaultAggregationLengthV6))
		return o
	}
	named := &v1alpha1.L2Advertisement{Metadata: meta("l")}
	named.Spec.IPAddressPools = []string{"none"}
	alias := func(object string) *v1alpha1.Community {
		o := &v1alpha1.Community{Metadata: meta(object)}
		o.Spec.Communities = []v1alpha1.CommunityAlias{{Name: "far", Value: "1:2"}}
		return o
	}
	node := func(change func(*v1alpha1.NodeConfiguration)) *v1alpha1.NodeConfiguration {
		n := &v1alpha1.NodeConfiguration{NodeName: "n", NodeLabels: map[string]string{"zone": "a"}}
		change(n)
		return n
	}
	for rule, c := range map[Rule]struct {
		j      Judge
		at     string
		broken bool // the rule looks at whether the field is broken
	}{
		AddressTwice: {Judge{VirtualIPs: []*v1alpha1.VirtualIP{vip("a", nil, "192.0.2.1"), vip("b", nil, "192.0.2.1")}}, "b spec.addresses[0]", false},
		AddressOfNode: {Judge{Node: node(func(n *v1alpha1.NodeConfiguration) { n.Gossip.Peers = []string{"192.0.2.1"} }),
			VirtualIPs: []*v1alpha1.VirtualIP{vip("a", nil, "192.0.2.1")}}, "a spec.addresses[0]", false},
		QuorumAlone: {Judge{Node: node(func(*v1alpha1.NodeConfiguration) {}),
			VirtualIPs: []*v1alpha1.VirtualIP{vip("a", func(s *v1alpha1.VirtualIPSpec) { s.Partition = v1alpha1.PartitionQuorum })}}, "a spec.partition", false},
		BalancedAlone: {Judge{Node: node(func(n *v1alpha1.NodeConfiguration) { n.Connections = v1alpha1.ConnectionsReset }),
			VirtualIPs: []*v1alpha1.VirtualIP{vip("a", func(s *v1alpha1.VirtualIPSpec) {
				s.Advertise = &v1alpha1.Advertise{L2: &v1alpha1.L2Advertise{Mode: v1alpha1.L2Balanced}}
			})}}, "a spec.advertise.l2.mode", false},
		CommunityTwice: {Judge{Communities: []*v1alpha1.Community{alias("a"), alias("b")}}, "b spec.communities[0].name", false},
		UnknownProfile: {Judge{Peers: []*v1alpha1.BGPPeer{peer("p", "192.0.2.1", func(s *v1alpha1.BGPPeerSpec) { s.BFDProfile = "none" })}}, "p spec.bfdProfile", true},
		UnknownPeer:    {Judge{VirtualIPs: []*v1alpha1.VirtualIP{vip("a", byBGP("none"))}}, "a spec.advertise.bgp.peers[0]", true},
		UnknownPool:    {Judge{L2Advertisements: []*v1alpha1.L2Advertisement{named}}, "l spec.ipAddressPools[0]", true},
		UnknownCommunity: {Judge{VirtualIPs: []*v1alpha1.VirtualIP{vip("a", func(s *v1alpha1.VirtualIPSpec) {
			s.Advertise = &v1alpha1.Advertise{BGP: &v1alpha1.BGPAdvertise{Communities: []string{"none", "65000:1"}}}
		})}}, "a spec.advertise.bgp.communities[0]", true},
		PeerIsNode: {Judge{Node: node(func(n *v1alpha1.NodeConfiguration) { n.Gossip.BindAddress = "192.0.2.1" }),
			Peers: []*v1alpha1.BGPPeer{peer("p", "192.0.2.1", nil)}}, "p spec.peerAddress", true},
		PeerIsVirtual: {Judge{VirtualIPs: []*v1alpha1.VirtualIP{vip("a", nil, "192.0.2.1")}, Peers: []*v1alpha1.BGPPeer{peer("p", "192.0.2.1", nil)}}, "p spec.peerAddress", true},
		SourceIsVirtual: {Judge{VirtualIPs: []*v1alpha1.VirtualIP{vip("a", nil, "192.0.2.1")},
			Peers: []*v1alpha1.BGPPeer{peer("p", "192.0.2.2", func(s *v1alpha1.BGPPeerSpec) { s.SourceAddress = "192.0.2.1" })}}, "p spec.sourceAddress", true},
		PeerIsSource: {Judge{Peers: []*v1alpha1.BGPPeer{peer("p", "192.0.2.1", nil),
			peer("q", "192.0.2.2", func(s *v1alpha1.BGPPeerSpec) { s.SourceAddress = "192.0.2.1" })}}, "p spec.peerAddress", true},
		PeerTwice: {Judge{Peers: []*v1alpha1.BGPPeer{peer("p", "192.0.2.1", func(s *v1alpha1.BGPPeerSpec) { s.NodeSelectors = zone("a") }),
			peer("q", "192.0.2.1", func(s *v1alpha1.BGPPeerSpec) { s.NodeSelectors = zone("b") }), peer("r", "192.0.2.1", func(s *v1alpha1.BGPPeerSpec) { s.NodeSelectors = zone("b") })}},
			"r spec.peerAddress", true},
		RouterIDOfNode: {Judge{Node: node(func(n *v1alpha1.NodeConfiguration) { n.BGP.RouterID = "1.1.1.1" }), Peers: []*v1alpha1.BGPPeer{
			peer("p", "192.0.2.1", func(s *v1alpha1.BGPPeerSpec) { s.RouterID, s.NodeSelectors = "2.2.2.2", zone("a") }),
			peer("q", "192.0.2.2", func(s *v1alpha1.BGPPeerSpec) { s.RouterID, s.NodeSelectors = "3.3.3.3", zone("b") })}}, "p spec.routerID", true},
		RouterIDTwice: {Judge{Peers: []*v1alpha1.BGPPeer{peer("p", "192.0.2.1", func(s *v1alpha1.BGPPeerSpec) { s.RouterID = "1.1.1.1" }),
			peer("q", "192.0.2.2", func(s *v1alpha1.BGPPeerSpec) { s.RouterID = "2.2.2.2" })}}, "q spec.routerID", true},
		FamilyUntold: {Judge{VirtualIPs: []*v1alpha1.VirtualIP{vip("a", byBGP(), "192.0.2.1", "2001:db8::1")},
			Peers: []*v1alpha1.BGPPeer{peer("p", "192.0.2.9", four)}}, "a spec.addresses[1]", false},
		PoolBesideNode: {Judge{Node: node(func(*v1alpha1.NodeConfiguration) {}), Pools: []*v1alpha1.IPAddressPool{pool("p")}}, "p kind", false},
		PoolsOverlap: {Judge{Pools: []*v1alpha1.IPAddressPool{pool("p", "192.0.2.8/29"), pool("q", "198.51.100.0/24", "192.0.2.0-192.0.2.8")}},
			"q spec.addresses[1]", true},
		AddressInPool: {Judge{VirtualIPs: []*v1alpha1.VirtualIP{vip("a", nil, "192.0.2.1")}, Pools: []*v1alpha1.IPAddressPool{pool("p", "192.0.2.0/24")}}, "a spec.addresses[0]", false},
		PeerInPool:    {Judge{Peers: []*v1alpha1.BGPPeer{peer("q", "192.0.2.1", nil)}, Pools: []*v1alpha1.IPAddressPool{pool("p", "192.0.2.0/24")}}, "q spec.peerAddress", true},
		PrefixTooWide: {Judge{BGPAdvertisements: []*v1alpha1.BGPAdvertisement{aggregate(24)}, Pools: []*v1alpha1.IPAddressPool{pool("p", "192.0.2.0/24", "198.51.100.0/25")}},
			"a spec.aggregationLength", true},
		ListenerInCluster: {Judge{Node: node(func(n *v1alpha1.NodeConfiguration) { n.Kubernetes = new(v1alpha1.KubernetesSpec) }),
			Listeners: []*v1alpha1.BGPListener{listener("l", "192.0.2.0/24", "198.51.100.1/32", nil)}}, "l kind", false},
		PeersOverlap: {Judge{Listeners: []*v1alpha1.BGPListener{listener("l", "192.0.2.0/24", "198.51.100.1/32", nil), listener("m", "192.0.2.128/25", "198.51.100.2/32", nil)}},
			"m spec.peerPrefixes[0]", true},
		AcceptOverlaps: {Judge{Listeners: []*v1alpha1.BGPListener{listener("l", "192.0.2.0/25", "198.51.100.1/32", nil), listener("m", "192.0.2.128/25", "198.51.100.0/30", nil)}},
			"m spec.acceptPrefixes[0]", true},
		AcceptIsTaken: {Judge{VirtualIPs: []*v1alpha1.VirtualIP{vip("a", nil, "198.51.100.1")},
			Listeners: []*v1alpha1.BGPListener{listener("l", "192.0.2.0/25", "198.51.100.0/30", nil)}}, "l spec.acceptPrefixes[0]", true},
		PeerIsMaster: {Judge{Peers: []*v1alpha1.BGPPeer{peer("p", "192.0.2.1", nil)},
			Listeners: []*v1alpha1.BGPListener{listener("l", "192.0.2.0/25", "198.51.100.1/32", nil)}}, "p spec.peerAddress", true},
		SeedTwice: {Judge{Listeners: []*v1alpha1.BGPListener{listener("l", "192.0.2.0/25", "198.51.100.1/32", nil),
			listener("m", "192.0.2.128/25", "198.51.100.2/32", func(s *v1alpha1.BGPListenerSpec) { s.HashSeed = 7 })}}, "m spec.hashSeed", true},
		NodesOfNoCluster: {Judge{Node: node(func(*v1alpha1.NodeConfiguration) {}), LoadBalancers: []*v1alpha1.LoadBalancer{{Metadata: v1alpha1.ObjectMeta{Name: "lb"},
			Spec: v1alpha1.LoadBalancerSpec{BackendNodes: &v1alpha1.LabelSelector{}}}}}, "lb spec.backendNodes", false},
		NoUpstream: {Judge{Node: node(func(*v1alpha1.NodeConfiguration) {}), Peers: []*v1alpha1.BGPPeer{peer("p", "203.0.113.1", func(s *v1alpha1.BGPPeerSpec) { s.NodeSelectors = zone("b") })},
			Listeners: []*v1alpha1.BGPListener{listener("l", "192.0.2.0/25", "198.51.100.1/32", func(s *v1alpha1.BGPListenerSpec) { s.Upstream = v1alpha1.UpstreamBGP })}}, "l spec.upstream", true},
	} {
		var got []string
		c.j.Complete = true
		c.j.Report = func(f Finding) { got = append(got, fmt.Sprint(f.Rule, " ", f.At.Name, " ", f.At.Path)) }
		c.j.Run()
		if want := fmt.Sprint(rule, " ", c.at); !slices.Equal(got, []string{want}) {
			t.Errorf("rule %d: %q, want %q", rule, got, want)
		}
		got = nil
		c.j.Broken = func(at Field) bool { return at.Name+" "+at.Path == c.at }
		if c.j.Run(); c.broken != (len(got) == 0) {
			t.Errorf("rule %d: with %s broken %q", rule, c.at, got)
		}
	}
}

// TestPartial: while an object is missing because it cannot be read, a name that is not
// there is no mistake, nor is an address of which nobody known hears.
func TestPartial(t *testing.T) {
	j := Judge{VirtualIPs: []*v1alpha1.VirtualIP{vip("a", byBGP("none"), "192.0.2.1")}}
	j.Report = func(f Finding) { t.Errorf("%+v", f) }
	j.Run()
}

// TestPoolIndex: of pools that overlap the first has the address, whichever begins first.
func TestPoolIndex(t *testing.T) {
	for entries, want := range map[string]string{
		"192.0.2.0/24 192.0.2.8/29": "0 0", "192.0.2.8/29 192.0.2.0/24": "0 0", "192.0.2.12/30 192.0.2.0/24 192.0.2.9/32": "1 0",
		"192.0.2.0/32 192.0.2.10/32": "-1 -1", "2001:db8::/64": "-1 -1", "wrong 192.0.2.9/32": "1 0",
	} {
		var pools []*v1alpha1.IPAddressPool
		for i, e := range strings.Fields(entries) {
			pools = append(pools, pool(fmt.Sprint(i), e))
		}
		x := NewPoolIndex(pools)
		p, n := x.Find(netip.MustParseAddr("192.0.2.9"))
		if got := fmt.Sprint(p, n); got != want {
			t.Errorf("%s: %s, want %s", entries, got, want)
		}
	}
}

// TestQuorumOfMachines: peers that come from Machines are not known after every start, so a quorum
// needs some in the file, too.
func TestQuorumOfMachines(t *testing.T) {
	quorum := vip("a", func(s *v1alpha1.VirtualIPSpec) { s.Partition = v1alpha1.PartitionQuorum })
	for _, c := range []struct {
		peers []string
		want  int
	}{{nil, 1}, {[]string{"10.0.0.11", "10.0.0.12", "10.0.0.13"}, 0}} {
		got := 0
		n := &v1alpha1.NodeConfiguration{NodeName: "n", Machines: &v1alpha1.MachinesSpec{Peers: true}}
		n.Gossip.Peers = c.peers
		j := Judge{Node: n, VirtualIPs: []*v1alpha1.VirtualIP{quorum}, Report: func(Finding) { got++ }}
		if j.Run(); got != c.want {
			t.Errorf("peers %v: %d findings", c.peers, got)
		}
	}
}
