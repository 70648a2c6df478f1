package services

import (
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
)

// TestCross: what objects ask for together and cannot have is a problem of one of
// them, wherever the node is.
func TestCross(t *testing.T) {
	peer := func(name, zone string) *v1alpha1.BGPPeer {
		p := &v1alpha1.BGPPeer{Metadata: v1alpha1.ObjectMeta{Name: name}}
		p.Spec.MyASN, p.Spec.PeerASN, p.Spec.PeerAddress = 1, 2, "198.51.100.1"
		if zone != "" {
			p.Spec.NodeSelectors = []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"zone": zone}}}
		}
		p.Default()
		return p
	}
	community := func(name string) *v1alpha1.Community {
		c := &v1alpha1.Community{Metadata: v1alpha1.ObjectMeta{Name: name}}
		c.Spec.Communities = []v1alpha1.CommunityAlias{{Name: "far", Value: "1:2"}}
		return c
	}
	pool := &v1alpha1.IPAddressPool{Metadata: v1alpha1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}}}
	pool.Spec.Addresses = []string{"192.0.2.0/28", "2001:db8::/120"}
	pool.Default()
	selector := func(v string) []v1alpha1.Selector {
		return []v1alpha1.Selector{{MatchLabels: map[string]string{"a": v}}}
	}
	advert := func(name string, change func(*v1alpha1.BGPAdvertisementSpec)) *v1alpha1.BGPAdvertisement {
		a := &v1alpha1.BGPAdvertisement{Metadata: v1alpha1.ObjectMeta{Name: name}}
		change(&a.Spec)
		a.Default()
		return a
	}
	l2 := &v1alpha1.L2Advertisement{Metadata: v1alpha1.ObjectMeta{Name: "l2"}}
	l2.Spec.IPAddressPoolSelectors = selector("c")
	b := New(Options{Class: "x"})
	b.SetObjects(Objects{
		Peers:       []*v1alpha1.BGPPeer{peer("east", "east"), peer("east2", "east"), peer("west", "west")},
		Communities: []*v1alpha1.Community{community("one"), community("two")},
		Pools:       []*v1alpha1.IPAddressPool{pool}, L2Advertisements: []*v1alpha1.L2Advertisement{l2},
		BGPAdvertisements: []*v1alpha1.BGPAdvertisement{
			advert("fits", func(s *v1alpha1.BGPAdvertisementSpec) {
				s.AggregationLength, s.AggregationLengthV6, s.IPAddressPoolSelectors = new(int32(28)), new(int32(120)), selector("b")
			}),
			advert("wide", func(s *v1alpha1.BGPAdvertisementSpec) { s.AggregationLength = new(int32(27)) }),
			advert("wide6", func(s *v1alpha1.BGPAdvertisementSpec) { s.AggregationLengthV6 = new(int32(64)) }),
		},
	})
	r, _ := b.Build()
	var got []string
	for _, p := range r.Problems {
		got = append(got, p.Kind+" "+p.Name+": "+p.Text)
	}
	want := []string{
		`BGPAdvertisement wide: spec.aggregationLength 27 makes prefixes larger than "192.0.2.0/28" of IPAddressPool "p"`,
		`BGPAdvertisement wide6: spec.aggregationLengthV6 64 makes prefixes larger than "2001:db8::/120" of IPAddressPool "p"`,
		`BGPPeer east2: spec.peerAddress "198.51.100.1" is also that of BGPPeer "east", and a node could match both`,
		`Community two: the name "far" is also defined by Community "one", which counts`,
		`L2Advertisement l2: spec.ipAddressPoolSelectors match the labels of no valid IPAddressPool`,
	}
	ok := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		ok = ok && strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestCrossPeers: the rules between peers, VirtualIPs and pools that files have are
// problems of the object at fault.
func TestCrossPeers(t *testing.T) {
	peer := func(name, zone string, change func(*v1alpha1.BGPPeerSpec)) *v1alpha1.BGPPeer {
		p := &v1alpha1.BGPPeer{Metadata: v1alpha1.ObjectMeta{Name: name}}
		p.Spec.MyASN, p.Spec.PeerASN, p.Spec.PeerAddress = 1, 2, "198.51.100.1"
		p.Spec.NodeSelectors = []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"zone": zone}}}
		change(&p.Spec)
		p.Default()
		return p
	}
	at := func(addr string) func(*v1alpha1.BGPPeerSpec) {
		return func(s *v1alpha1.BGPPeerSpec) { s.PeerAddress = addr }
	}
	router := func(addr, id string) func(*v1alpha1.BGPPeerSpec) {
		return func(s *v1alpha1.BGPPeerSpec) { s.PeerAddress, s.RouterID = addr, id }
	}
	source := func(addr, from string) func(*v1alpha1.BGPPeerSpec) {
		return func(s *v1alpha1.BGPPeerSpec) { s.PeerAddress, s.SourceAddress = addr, from }
	}
	vip := func(name string, bgp *v1alpha1.BGPAdvertise, l2 *v1alpha1.L2Advertise, addrs ...string) *v1alpha1.VirtualIP {
		v := &v1alpha1.VirtualIP{Metadata: v1alpha1.ObjectMeta{Name: name}}
		v.Spec.Addresses, v.Spec.Advertise = addrs, &v1alpha1.Advertise{BGP: bgp, L2: l2}
		v.Default()
		return v
	}
	pool := &v1alpha1.IPAddressPool{Metadata: v1alpha1.ObjectMeta{Name: "p"}}
	pool.Spec.Addresses = []string{"192.0.2.0/28"}
	pool.Default()
	four := func(s *v1alpha1.BGPPeerSpec) {
		s.PeerAddress, s.Families = "198.51.100.4", []v1alpha1.AddressFamily{v1alpha1.FamilyIPv4}
	}
	b := New(Options{Class: "x"})
	b.SetObjects(Objects{
		Pools: []*v1alpha1.IPAddressPool{pool},
		VirtualIPs: []*v1alpha1.VirtualIP{
			vip("both", &v1alpha1.BGPAdvertise{Peers: []string{"four"}}, &v1alpha1.L2Advertise{}, "2001:db8::2"),
			vip("lost", &v1alpha1.BGPAdvertise{Peers: []string{"four"}}, nil, "203.0.113.1", "2001:db8::1"),
			vip("taken", &v1alpha1.BGPAdvertise{}, nil, "2001:db8::3"),
		},
		Peers: []*v1alpha1.BGPPeer{
			peer("four", "f", four), peer("from", "a", source("198.51.100.2", "198.51.100.9")), peer("fromvip", "b", source("198.51.100.3", "203.0.113.1")),
			peer("id1", "c", router("198.51.100.5", "192.0.2.101")), peer("id2", "c", router("198.51.100.6", "192.0.2.102")),
			peer("id3", "d", router("198.51.100.7", "192.0.2.103")),
			peer("inpool", "e", at("192.0.2.3")), peer("isvip", "e", at("203.0.113.1")),
			peer("self", "a", at("198.51.100.9")), peer("selfelsewhere", "g", at("198.51.100.9")),
		},
	})
	r, _ := b.Build()
	var got []string
	for _, p := range r.Problems {
		got = append(got, p.Kind+" "+p.Name+": "+p.Text)
	}
	want := []string{
		`BGPPeer fromvip: spec.sourceAddress "203.0.113.1" is an address of VirtualIP "lost", which is not always on the node`,
		`BGPPeer id2: spec.routerID 192.0.2.102 is not that of BGPPeer "id1", 192.0.2.101, and a node could match both: a node has one`,
		`BGPPeer inpool: spec.peerAddress "192.0.2.3" is in IPAddressPool "p"; a Service could be given it`,
		`BGPPeer isvip: spec.peerAddress "203.0.113.1" is an address of VirtualIP "lost"; give the router's own address`,
		`BGPPeer self: spec.peerAddress "198.51.100.9" is spec.sourceAddress of BGPPeer "from", and a node could match both: a node has no session with itself`,
		`VirtualIP lost: the address 2001:db8::1 cannot be advertised: none of its BGP peers has its family in spec.families`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestCrossElsewhere: of two peers that contradict each other it is said here only if this
// node does not have both, since of those it is said why one has no session.
func TestCrossElsewhere(t *testing.T) {
	peer := func(name, label string) *v1alpha1.BGPPeer {
		p := &v1alpha1.BGPPeer{Metadata: v1alpha1.ObjectMeta{Name: name}}
		p.Spec.MyASN, p.Spec.PeerASN, p.Spec.PeerAddress = 1, 2, "198.51.100.1"
		p.Spec.NodeSelectors = []v1alpha1.LabelSelector{{MatchLabels: map[string]string{label: "yes"}}}
		p.Default()
		return p
	}
	for labels, want := range map[string]string{"": "could match both", "one": "could match both", "two": "could match both", "one two": "on this node"} {
		b := New(Options{Self: "n", Class: "x"})
		n := &Node{Ready: ConditionTrue, Labels: map[string]string{}}
		for l := range strings.FieldsSeq(labels) {
			n.Labels[l] = "yes"
		}
		b.SetNode("n", n)
		b.SetObjects(Objects{Peers: []*v1alpha1.BGPPeer{peer("p", "one"), peer("q", "two")}})
		r, _ := b.Build()
		if len(r.Problems) != 1 || r.Problems[0].Name != "q" || !strings.Contains(r.Problems[0].Text, want) {
			t.Errorf("labels %q: %+v, want %q", labels, r.Problems, want)
		}
	}
}
