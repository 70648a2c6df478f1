package services

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/resolve"
)

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		name      string
		service   *Service
		endpoints string
		want      string
	}{
		{"Cluster, ready here", svc("192.0.2.1"), "here:ready", ""},
		{"Cluster, ready elsewhere", svc("192.0.2.1"), "elsewhere:ready", ""},
		{"Cluster, none", svc("192.0.2.1"), "", "NoEndpoint: no endpoint of default/web is ready"},
		{"Cluster, one that is not ready", svc("192.0.2.1"), "elsewhere:down", "NoEndpoint: no endpoint of default/web is ready"},
		{"Cluster, the last one ends but serves", svc("192.0.2.1"), "elsewhere:serving", ""},
		{"Local, ready here", svc("192.0.2.1").local(), "here:ready elsewhere:ready", ""},
		{"Local, ready elsewhere", svc("192.0.2.1").local(), "elsewhere:ready", "NoEndpoint: no endpoint of default/web is ready on this node"},
		{"Local, none", svc("192.0.2.1").local(), "", "NoEndpoint: no endpoint of default/web is ready"},
		{"Local, ends here, ready elsewhere", svc("192.0.2.1").local(), "here:serving elsewhere:ready", "NoEndpoint: the endpoints of default/web on this node are ending"},
		{"Local, ends here, none elsewhere", svc("192.0.2.1").local(), "here:serving", ""},
		{"Local, ends here, ends elsewhere", svc("192.0.2.1").local(), "here:serving elsewhere:serving", ""},
		{"Local, ready and ending here", svc("192.0.2.1").local(), "here:serving here:ready", ""},
		{"the other family counts for nothing", svc("192.0.2.1"), "6:here:ready", "NoEndpoint: no endpoint of default/web is ready"},
		{"IPv6", svc("2001:db8::1"), "6:here:ready", ""},
		{"IPv6 without", svc("2001:db8::1"), "here:ready", "NoEndpoint: no endpoint of default/web is ready"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world{services: one(c.service), endpoints: map[string]string{"web": c.endpoints}, objects: everywhere()}
			got := text(w.build(t).VIPs)
			want := strings.TrimSpace(c.service.Addresses[0].String() + " web l2[] " + c.want)
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestSelection(t *testing.T) {
	zone := map[string]*Node{"n1": ready(map[string]string{"zone": "x"}), "n2": ready(map[string]string{"zone": "y"})}
	pools := Objects{Pools: []*v1alpha1.IPAddressPool{pool("a", "192.0.2.0/25"), pool("b", "192.0.2.128-192.0.2.200")}}
	for _, c := range []struct {
		name     string
		service  *Service
		objects  Objects
		nodes    map[string]*Node
		options  Options
		want     string
		problems string
	}{
		{name: "class of somebody else", service: svc("192.0.2.1").class("example.com/x"), objects: everywhere()},
		{name: "no class", service: svc("192.0.2.1").class(""), objects: everywhere()},
		{name: "no class, by option", service: svc("192.0.2.1").class(""), objects: everywhere(),
			options: Options{Self: "n1", Class: "lbd.dev/lbd", Classless: true}, want: "192.0.2.1 web l2[]"},
		{name: "no class of our own", service: svc("192.0.2.1").class(""), objects: everywhere(), options: Options{Self: "n1"}},
		{name: "no address yet", service: svc(), objects: everywhere()},
		{name: "dual stack", service: svc("192.0.2.1", "2001:db8::1"), objects: everywhere(), want: "192.0.2.1 web l2[]\n2001:db8::1 web l2[]"},
		{name: "no pool", service: svc("198.51.100.1"), objects: everywhere(),
			problems: "Service default/web: the address 198.51.100.1 is in no valid IPAddressPool: it is not announced"},
		{name: "no advertisement", service: svc("192.0.2.1"), objects: pools, want: "192.0.2.1 web",
			problems: `Service default/web: no L2Advertisement or BGPAdvertisement is for IPAddressPool "a" and the labels of the Service: 192.0.2.1 is not announced`},
		{name: "pool by name", service: svc("192.0.2.1", "192.0.2.129"),
			objects:  pools.with(l2("l", v1alpha1.L2AdvertisementSpec{IPAddressPools: []string{"b"}})),
			want:     "192.0.2.1 web\n192.0.2.129 web l2[]",
			problems: `Service default/web: no L2Advertisement or BGPAdvertisement is for IPAddressPool "a" and the labels of the Service: 192.0.2.1 is not announced`},
		{name: "pool by label", service: svc("192.0.2.1"), want: "192.0.2.1 web l2[]",
			objects: pools.with(l2("l", v1alpha1.L2AdvertisementSpec{IPAddressPoolSelectors: labelled("pool", "a")}))},
		{name: "pool by name or label", service: svc("192.0.2.1", "192.0.2.129"), want: "192.0.2.1 web l2[]\n192.0.2.129 web l2[]",
			objects: pools.with(l2("l", v1alpha1.L2AdvertisementSpec{IPAddressPools: []string{"b"}, IPAddressPoolSelectors: labelled("pool", "a")}))},
		{name: "name of no pool", service: svc("192.0.2.1"), want: "192.0.2.1 web l2[]",
			objects:  pools.with(l2("l", v1alpha1.L2AdvertisementSpec{IPAddressPools: []string{"a", "c"}})),
			problems: `L2Advertisement l: spec.ipAddressPools names "c", and there is no valid IPAddressPool of that name`},
		{name: "Service by label", service: svc("192.0.2.1").labels(map[string]string{"app": "x"}), want: "192.0.2.1 web l2[]",
			objects: pools.with(l2("l", v1alpha1.L2AdvertisementSpec{ServiceSelectors: labelled("app", "x")}))},
		{name: "Service without the label", service: svc("192.0.2.1").labels(map[string]string{"app": "y"}), want: "192.0.2.1 web",
			objects:  pools.with(l2("l", v1alpha1.L2AdvertisementSpec{ServiceSelectors: labelled("app", "x")})),
			problems: `Service default/web: no L2Advertisement or BGPAdvertisement is for IPAddressPool "a" and the labels of the Service: 192.0.2.1 is not announced`},
		{name: "this node", service: svc("192.0.2.1"), nodes: zone, want: "192.0.2.1 web l2[]",
			objects: pools.with(l2("l", v1alpha1.L2AdvertisementSpec{NodeSelectors: labelled("zone", "x")}))},
		{name: "another node", service: svc("192.0.2.1"), nodes: zone,
			want:    "192.0.2.1 web l2[] NotSelected: no advertisement for the Service selects this node",
			objects: pools.with(l2("l", v1alpha1.L2AdvertisementSpec{NodeSelectors: labelled("zone", "y")}))},
		{name: "node by expression", service: svc("192.0.2.1"), nodes: zone,
			want:    "192.0.2.1 web l2[] NotSelected: no advertisement for the Service selects this node",
			objects: pools.with(l2("l", v1alpha1.L2AdvertisementSpec{NodeSelectors: notLabelled("zone")}))},
		{name: "another node by layer 2, this one by BGP", service: svc("192.0.2.1"), nodes: zone, want: "192.0.2.1 web bgp[]",
			objects: pools.with(l2("l", v1alpha1.L2AdvertisementSpec{NodeSelectors: labelled("zone", "y")}), bgp("b", v1alpha1.BGPAdvertisementSpec{}))},
		{name: "interfaces add up", service: svc("192.0.2.1"), nodes: zone, want: "192.0.2.1 web l2[eth1 eth0]",
			objects: pools.with(
				l2("k", v1alpha1.L2AdvertisementSpec{Interfaces: []string{"eth1"}}),
				l2("l", v1alpha1.L2AdvertisementSpec{Interfaces: []string{"eth0", "eth1"}}),
				l2("m", v1alpha1.L2AdvertisementSpec{Interfaces: []string{"eth9"}, NodeSelectors: labelled("zone", "y")}))},
		{name: "all interfaces win", service: svc("192.0.2.1"), want: "192.0.2.1 web l2[]",
			objects: pools.with(l2("k", v1alpha1.L2AdvertisementSpec{Interfaces: []string{"eth1"}}), l2("l", v1alpha1.L2AdvertisementSpec{}))},
		{name: "layer 2 and BGP", service: svc("192.0.2.1"), want: "192.0.2.1 web l2[] bgp[r]",
			objects: everywhere().with(bgp("b", v1alpha1.BGPAdvertisementSpec{Peers: []string{"r"}}), peer("r", "198.51.100.1"))},
		{name: "BGP on another node", service: svc("192.0.2.1"), nodes: zone,
			want:    "192.0.2.1 web bgp[] NotSelected: no advertisement for the Service selects this node",
			objects: pools.with(bgp("b", v1alpha1.BGPAdvertisementSpec{NodeSelectors: labelled("zone", "y")}))},
		{name: "pools that overlap: the first by name", service: svc("192.0.2.130"), want: "192.0.2.130 web l2[]",
			objects: Objects{Pools: []*v1alpha1.IPAddressPool{pool("a", "192.0.2.0/24"), pool("b", "192.0.2.129-192.0.2.130")}}.
				with(l2("l", v1alpha1.L2AdvertisementSpec{IPAddressPools: []string{"a"}}))},
		{name: "pools that overlap: behind the inner one", service: svc("192.0.2.150"), want: "192.0.2.150 web l2[]",
			objects: Objects{Pools: []*v1alpha1.IPAddressPool{pool("a", "192.0.2.0/24"), pool("b", "192.0.2.129-192.0.2.130")}}.
				with(l2("l", v1alpha1.L2AdvertisementSpec{}))},
		{name: "pools that overlap: the inner one is the first", service: svc("192.0.2.130"), want: "192.0.2.130 web l2[]",
			objects: Objects{Pools: []*v1alpha1.IPAddressPool{pool("a", "192.0.2.129-192.0.2.130"), pool("b", "192.0.2.0/24")}}.
				with(l2("l", v1alpha1.L2AdvertisementSpec{IPAddressPools: []string{"a"}}))},
		{name: "a VirtualIP has the address", service: svc("192.0.2.1"), want: "192.0.2.1 api virtual l2[]",
			objects: everywhere().with(virtualIP("api", "192.0.2.1")),
			problems: "Service default/web: the address 192.0.2.1 is one of VirtualIP \"api\": it is not announced for the Service\n" +
				`VirtualIP api: the address 192.0.2.1 is in IPAddressPool "a": no Service is announced with it`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world{services: one(c.service), endpoints: map[string]string{"web": "here:ready 6:here:ready"},
				objects: c.objects, nodes: c.nodes, options: c.options}
			r := w.build(t)
			if got := text(r.VIPs); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if got := said(r.Problems); got != c.problems {
				t.Errorf("problems\n%s\nwant\n%s", got, c.problems)
			}
			for _, v := range r.VIPs {
				if v.Unbound != (v.Kind == KindService) {
					t.Errorf("%s: unbound %v", v.Addr, v.Unbound)
				}
			}
		})
	}
}

func virtualIP(name string, addrs ...string) *v1alpha1.VirtualIP {
	v := &v1alpha1.VirtualIP{Spec: v1alpha1.VirtualIPSpec{Addresses: addrs}}
	v.Metadata.Name = name
	v.Default()
	return v
}

func TestNodeSignals(t *testing.T) {
	with := func(change func(*Node)) *Node { n := ready(nil); change(n); return n }
	const label = ExcludeLabel
	for _, c := range []struct {
		name   string
		node   *Node
		other  *Node // nil: ready
		cordon bool
		want   string
	}{
		{name: "ready", node: ready(nil)},
		{name: "excluded", node: ready(map[string]string{label: ""}), want: "the Node has the label " + label},
		{name: "excluded: true", node: ready(map[string]string{label: "true"}), want: "the Node has the label " + label},
		{name: "excluded: anything", node: ready(map[string]string{label: "no"}), want: "the Node has the label " + label},
		{name: "excluded: false", node: ready(map[string]string{label: "false"})},
		{name: "drain label", node: ready(map[string]string{DrainKey: "true"}), want: "the Node has the label lbd.dev/drain"},
		{name: "drain label false", node: ready(map[string]string{DrainKey: "false"})},
		{name: "drain annotation", node: with(func(n *Node) { n.Annotations = map[string]string{DrainKey: ""} }), want: "the Node has the annotation lbd.dev/drain"},
		{name: "deleting", node: with(func(n *Node) { n.Deleting = true }), want: "the Node is being deleted"},
		{name: "autoscaler", node: with(func(n *Node) { n.Taints = []string{"x", TaintAutoscaler} }), want: "the Node has the taint ToBeDeletedByClusterAutoscaler"},
		{name: "out of service", node: with(func(n *Node) { n.Taints = []string{TaintOutOfService} }), want: "the Node has the taint node.kubernetes.io/out-of-service"},
		{name: "another taint", node: with(func(n *Node) { n.Taints = []string{"node.kubernetes.io/not-ready"} })},
		{name: "no network", node: with(func(n *Node) { n.NetworkUnavailable = true }), want: "the Node has the condition NetworkUnavailable"},
		{name: "not ready", node: with(func(n *Node) { n.Ready = ConditionFalse }), want: "the condition Ready of the Node is False"},
		{name: "not heard of", node: with(func(n *Node) { n.Ready = ConditionUnknown }), want: "the condition Ready of the Node is Unknown"},
		{name: "just made", node: with(func(n *Node) { n.Ready = "" }), want: "the condition Ready of the Node is Unknown"},
		{name: "nobody is heard of", node: with(func(n *Node) { n.Ready = ConditionUnknown }), other: &Node{Ready: ConditionUnknown}},
		{name: "nobody is ready", node: with(func(n *Node) { n.Ready = ConditionFalse }), other: &Node{Ready: ConditionFalse}},
		{name: "cordoned", node: with(func(n *Node) { n.Unschedulable = true })},
		{name: "cordoned, by option", node: with(func(n *Node) { n.Unschedulable = true }), cordon: true, want: "the Node is cordoned"},
		{name: "no Node", want: `the cluster has no Node "n1"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.other == nil {
				c.other = ready(nil)
			}
			w := world{services: one(svc("192.0.2.1")), endpoints: map[string]string{"web": "here:ready"},
				objects: everywhere().with(virtualIP("api", "198.51.100.1")),
				nodes:   map[string]*Node{"n1": c.node, "n2": c.other},
				options: Options{Self: "n1", Class: "lbd.dev/lbd", CordonDrains: c.cordon}}
			if c.node == nil {
				delete(w.nodes, "n1")
			}
			want := "192.0.2.1 web l2[]"
			if c.want != "" {
				want += " NodeExcluded: " + c.want
			}
			want += "\n198.51.100.1 api virtual l2[]" // never barred
			if got := text(w.build(t).VIPs); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// TestNoNodesYet: a node that knows no Node, itself included, announces no Services.
func TestNoNodesYet(t *testing.T) {
	w := world{services: one(svc("192.0.2.1")), endpoints: map[string]string{"web": "here:ready"}, objects: everywhere(),
		nodes: map[string]*Node{}, options: Options{Self: "n1", Class: "lbd.dev/lbd"}}
	if got := text(w.build(t).VIPs); got != `192.0.2.1 web l2[] NodeExcluded: the cluster has no Node "n1"` {
		t.Error(got)
	}
}

// TestReasonsOfAnExcludedNode: an address that has no endpoint is let go; one that
// has is only moved.
func TestReasonsOfAnExcludedNode(t *testing.T) {
	w := world{services: one(svc("192.0.2.1")), objects: everywhere(), nodes: map[string]*Node{"n1": ready(map[string]string{DrainKey: ""})}}
	if got := text(w.build(t).VIPs); got != "192.0.2.1 web l2[] NoEndpoint: no endpoint of default/web is ready" {
		t.Error(got)
	}
}

func TestSharedAddresses(t *testing.T) {
	app := func(name string, s *Service) *Service { return s.labels(map[string]string{"app": name}) }
	for _, c := range []struct {
		name      string
		services  map[string]*Service
		endpoints map[string]string
		objects   Objects
		want      string
	}{
		{"one VIP, by the name of the first", map[string]*Service{"tcp": svc("192.0.2.1"), "dns": svc("192.0.2.1")},
			map[string]string{"tcp": "here:ready", "dns": "here:ready"}, everywhere(), "192.0.2.1 dns l2[]"},
		{"one has endpoints", map[string]*Service{"tcp": svc("192.0.2.1"), "dns": svc("192.0.2.1")},
			map[string]string{"tcp": "elsewhere:ready"}, everywhere(), "192.0.2.1 dns l2[]"},
		{"none has", map[string]*Service{"tcp": svc("192.0.2.1"), "dns": svc("192.0.2.1")}, nil, everywhere(),
			"192.0.2.1 dns l2[] NoEndpoint: no endpoint of default/dns is ready"},
		{"Local, one here", map[string]*Service{"tcp": svc("192.0.2.1").local(), "dns": svc("192.0.2.1").local()},
			map[string]string{"tcp": "here:ready", "dns": "elsewhere:ready"}, everywhere(), "192.0.2.1 dns l2[]"},
		{"Local, none here", map[string]*Service{"tcp": svc("192.0.2.1").local(), "dns": svc("192.0.2.1").local()},
			map[string]string{"tcp": "elsewhere:ready", "dns": "elsewhere:ready"}, everywhere(),
			"192.0.2.1 dns l2[] NoEndpoint: no endpoint of default/dns is ready on this node"},
		{"of another class is not one of them", map[string]*Service{"tcp": svc("192.0.2.1"), "dns": svc("192.0.2.1").class("x/y")},
			map[string]string{"tcp": "here:ready", "dns": "here:ready"}, everywhere(), "192.0.2.1 tcp l2[]"},
		{"announced as any of them", map[string]*Service{"tcp": app("x", svc("192.0.2.1")), "dns": app("y", svc("192.0.2.1"))},
			map[string]string{"tcp": "here:ready", "dns": "here:ready"},
			Objects{Pools: []*v1alpha1.IPAddressPool{pool("a", "192.0.2.0/24")}}.with(
				l2("l", v1alpha1.L2AdvertisementSpec{ServiceSelectors: labelled("app", "x")}),
				bgp("b", v1alpha1.BGPAdvertisementSpec{ServiceSelectors: labelled("app", "y")})),
			"192.0.2.1 dns l2[] bgp[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world{services: c.services, endpoints: c.endpoints, objects: c.objects}
			if got := text(w.build(t).VIPs); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestPreferredNodes(t *testing.T) {
	weigh := func(w int32, k, v string) v1alpha1.PreferredNode {
		return v1alpha1.PreferredNode{Weight: w, Preference: labelled(k, v)[0]}
	}
	nodes := map[string]*Node{
		"n1": ready(map[string]string{"disk": "ssd", "rack": "1"}), "n2": ready(map[string]string{"disk": "ssd"}), "n3": ready(nil),
	}
	o := Objects{Pools: []*v1alpha1.IPAddressPool{pool("a", "192.0.2.0/24")}}.with(
		l2("k", v1alpha1.L2AdvertisementSpec{PreferredNodeSelectors: []v1alpha1.PreferredNode{weigh(10, "disk", "ssd"), weigh(5, "rack", "1")}}))
	w := world{services: one(svc("192.0.2.1")), endpoints: map[string]string{"web": "here:ready"}, nodes: nodes, objects: o}
	b := New(self())
	w.fill(b)
	scores := func() map[model.NodeName]int {
		r, _ := b.Build()
		if p := r.VIPs[0].Preference; p != nil {
			return p.Scores
		}
		return nil
	}
	if got := scores(); !maps.Equal(got, map[model.NodeName]int{"n1": 15, "n2": 10}) {
		t.Errorf("scores %v", got)
	}
	b.SetNode("n3", ready(map[string]string{"rack": "1"}))
	if got := scores(); !maps.Equal(got, map[model.NodeName]int{"n1": 15, "n2": 10, "n3": 5}) {
		t.Errorf("after a node was labelled: scores %v", got)
	}
	// A node that the advertisement does not select is not preferred by it.
	b.SetObjects(o.with(l2("l", v1alpha1.L2AdvertisementSpec{NodeSelectors: labelled("rack", "1"),
		PreferredNodeSelectors: []v1alpha1.PreferredNode{weigh(7, "rack", "1"), {Weight: 1}}})))
	if got := scores(); !maps.Equal(got, map[model.NodeName]int{"n1": 23, "n2": 10, "n3": 13}) {
		t.Errorf("with two advertisements: scores %v", got)
	}
	b.SetObjects(everywhere())
	if got := scores(); got != nil {
		t.Errorf("without a preference: scores %v", got)
	}
}

func TestBGPAdvertisements(t *testing.T) {
	peers := []any{peer("r1", "198.51.100.1"), peer("r2", "198.51.100.2")}
	named := &v1alpha1.Community{Spec: v1alpha1.CommunitySpec{Communities: []v1alpha1.CommunityAlias{{Name: "blue", Value: "64512:7"}}}}
	base := Objects{Pools: []*v1alpha1.IPAddressPool{pool("a", "192.0.2.0/24", "2001:db8::/112")}}.with(peers...).with(named)
	type spec = v1alpha1.BGPAdvertisementSpec
	for _, c := range []struct {
		name     string
		adverts  []spec
		want     string // peers, communities, large communities, local preference; of IPv4
		want6    string // of IPv6 if it differs
		problems string
	}{
		{"alone", []spec{{Peers: []string{"r2", "r1"}, Communities: []string{"64512:1", "blue"}, LocalPref: 200}}, "[r1 r2] [64512:1 64512:7] [] 200", "", ""},
		{"all peers", []spec{{}}, "[] [] [] 0", "", ""},
		{"several for the same peers",
			[]spec{{Communities: []string{"64512:2"}}, {Communities: []string{"64512:1", "large:1:2:3"}}}, "[] [64512:2] [] 0 + [] [64512:1] [[1 2 3]] 0", "", ""},
		{"local preferences that differ", []spec{{LocalPref: 5}, {LocalPref: 6}, {LocalPref: 5}}, "[] [] [] 5 + [] [] [] 6 + [] [] [] 5", "",
			`BGPAdvertisement ad1: spec.localPref 6 is not that of BGPAdvertisement "ad0", 5, for the same addresses and peers: the higher one counts` + "\n" +
				`BGPAdvertisement ad2: spec.localPref 5 is not that of BGPAdvertisement "ad1", 6, for the same addresses and peers: the higher one counts`},
		{"a local preference and none", []spec{{Peers: []string{"r1"}}, {LocalPref: 6}}, "[r1] [] [] 0 + [] [] [] 6", "",
			`BGPAdvertisement ad1: spec.localPref 6 is not that of BGPAdvertisement "ad0", 0, for the same addresses and peers: the higher one counts`},
		{"other attributes for other peers",
			[]spec{{Peers: []string{"r1"}, Communities: []string{"64512:1"}, LocalPref: 5}, {Peers: []string{"r2"}}}, "[r1] [64512:1] [] 5 + [r2] [] [] 0", "", ""},
		{"aggregation", []spec{{AggregationLength: new(int32(24))}}, "[] [] [] 0 /24", "[] [] [] 0", ""},
		{"aggregation and not", []spec{{AggregationLength: new(int32(24)), AggregationLengthV6: new(int32(120)), LocalPref: 7}, {}}, "[] [] [] 7 /24 + [] [] [] 0", "[] [] [] 7 /120 + [] [] [] 0", ""},
		{"aggregation beyond the pool", []spec{{AggregationLength: new(int32(23)), AggregationLengthV6: new(int32(120)), LocalPref: 7}}, "[] [] [] 7", "[] [] [] 7 /120",
			`BGPAdvertisement ad0: spec.aggregationLength 23 makes prefixes larger than "192.0.2.0/24" of IPAddressPool "a": each address is advertised by itself`},
		{"a community that nothing defines", []spec{{Communities: []string{"red"}}}, "", "",
			`BGPAdvertisement ad0: names the community "red", and no valid Community defines it: nothing is advertised by it` + "\n" +
				`Service default/web: no usable advertisement is for IPAddressPool "a" and the labels of the Service: 192.0.2.1 is not announced` + "\n" +
				`Service default/web: no usable advertisement is for IPAddressPool "a" and the labels of the Service: 2001:db8::1 is not announced`},
		{"a peer that is not there", []spec{{Peers: []string{"r1", "r9"}}}, "[r1 r9] [] [] 0", "",
			`BGPAdvertisement ad0: names the peer "r9", and there is no valid BGPPeer of that name`},
		{"one of another node does not count", []spec{{NodeSelectors: labelled("x", "y"), LocalPref: 9}, {LocalPref: 8}}, "[] [] [] 8", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := base
			for i, s := range c.adverts {
				o = o.with(bgp(fmt.Sprintf("ad%d", i), s))
			}
			w := world{services: one(svc("192.0.2.1", "2001:db8::1")), endpoints: map[string]string{"web": "here:ready 6:here:ready"}, objects: o}
			r := w.build(t)
			if c.want6 == "" {
				c.want6 = c.want
			}
			for i, want := range []string{c.want, c.want6} {
				got := ""
				for j, a := range r.VIPs[i].BGP {
					var std []string
					for _, x := range a.Communities {
						std = append(std, fmt.Sprintf("%d:%d", x>>16, x&0xffff))
					}
					if j > 0 {
						got += "+"
					}
					got += fmt.Sprint(a.Peers, std, a.LargeCommunities, a.LocalPref)
					if a.Length != 0 {
						got += fmt.Sprint("/", a.Length)
					}
				}
				if strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
					t.Errorf("%s: got %s, want %s", r.VIPs[i].Addr, got, want)
				}
			}
			if got := said(r.Problems); got != c.problems {
				t.Errorf("problems\n%s\nwant\n%s", got, c.problems)
			}
		})
	}
}

// TestNoCheckRunsWhereTheSelectorDoesNotMatch: whoever may create a VirtualIP must not
// have its check run on nodes that could never have the address.
func TestNoCheckRunsWhereTheSelectorDoesNotMatch(t *testing.T) {
	checked := func(name, addr string, selector map[string]string) *v1alpha1.VirtualIP {
		o := virtualIP(name, addr)
		o.Spec.NodeSelector = &v1alpha1.LabelSelector{MatchLabels: selector}
		o.Spec.HealthCheck = &v1alpha1.HealthCheck{TCP: &v1alpha1.TCPCheck{Port: 80}}
		o.Default()
		return o
	}
	w := world{
		nodes: map[string]*Node{"n1": ready(map[string]string{"zone": "node"})},
		objects: Objects{}.with(checked("all", "198.51.100.1", nil), checked("elsewhere", "198.51.100.2", map[string]string{"no": "node"}),
			checked("file", "198.51.100.3", map[string]string{"rack": "1"}), checked("overridden", "198.51.100.4", map[string]string{"zone": "file"}),
			checked("here", "198.51.100.5", map[string]string{"zone": "node"})),
	}
	r := w.build(t)
	here := r.ChecksHere(map[string]string{"rack": "1", "zone": "file"})
	if got := strings.Join(slices.Sorted(maps.Keys(here)), " "); got != "all file here" {
		t.Errorf("checks of %s run on this node, want all file here", got)
	}
}

// TestVirtualIPWithoutCheckIsWarnedOf: it is used as it is written, and every node has
// its address even while nothing listens there, so the status says so.
func TestVirtualIPWithoutCheckIsWarnedOf(t *testing.T) {
	checked := virtualIP("checked", "198.51.100.1")
	checked.Spec.HealthCheck = &v1alpha1.HealthCheck{TCP: &v1alpha1.TCPCheck{Port: 80}}
	w := world{objects: Objects{}.with(checked, virtualIP("bare", "198.51.100.2", "2001:db8:1::2"))}
	r := w.build(t)
	if got, want := said(r.Warnings), "VirtualIP bare: spec.healthCheck: "+resolve.NoHealthCheck; got != want {
		t.Errorf("warnings\n%s\nwant\n%s", got, want)
	}
	if len(r.Problems) != 0 || len(r.VIPs) != 3 {
		t.Errorf("problems %s, VIPs %s", said(r.Problems), text(r.VIPs))
	}
}
