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
		p.Spec.MyASN, p.Spec.PeerASN, p.Spec.PeerAddress = 1, 2, "192.0.2.1"
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
		`BGPPeer east2: spec.peerAddress "192.0.2.1" is also that of BGPPeer "east", and a node could match both`,
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
