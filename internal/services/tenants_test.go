package services

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// hub is a cluster with a pool, an L2Advertisement and a tenant whose Service has an address.
func hub() world {
	pool := &v1alpha1.IPAddressPool{Metadata: v1alpha1.ObjectMeta{Name: "public"}, Spec: v1alpha1.IPAddressPoolSpec{Addresses: []string{"192.0.2.0/28"}}}
	advert := &v1alpha1.L2Advertisement{Metadata: v1alpha1.ObjectMeta{Name: "lan"}, Spec: v1alpha1.L2AdvertisementSpec{NodeSelectors: []v1alpha1.Selector{{MatchLabels: map[string]string{"edge": "yes"}}}}}
	tenant := &v1alpha1.Tenant{Metadata: v1alpha1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.TenantSpec{
		Pools: []string{"public"}, Clusters: []v1alpha1.TenantCluster{{Name: "main", Namespace: "shop", NodeCIDRs: []string{"10.1.0.0/24"}}},
	}}
	nodes := &v1alpha1.TenantNodes{Spec: v1alpha1.TenantNodesSpec{Nodes: []v1alpha1.TenantNode{{Name: "a1", Addresses: []string{"10.1.0.1"}}, {Name: "a2", Addresses: []string{"10.1.0.2"}}}}}
	service := &v1alpha1.TenantService{Spec: v1alpha1.TenantServiceSpec{Ports: []v1alpha1.TenantPort{{Port: 80, NodePort: 30080}}}}
	for _, o := range []interface{ Default() }{pool, advert, tenant, nodes, service} {
		o.Default()
	}
	key := func(name string) model.Key { return model.Key{Namespace: "shop", Name: name} }
	return world{
		objects: Objects{
			Pools: []*v1alpha1.IPAddressPool{pool}, L2Advertisements: []*v1alpha1.L2Advertisement{advert}, Tenants: []tenants.Tenant{{Tenant: tenant, Created: time.Now()}},
			TenantNodes:    map[model.Key]*v1alpha1.TenantNodes{key("n-0"): nodes},
			TenantServices: map[model.Key]*tenants.Service{key("default.web"): {TenantService: service, Given: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}},
		},
		nodes: map[string]*Node{"n1": ready(map[string]string{"edge": "yes"}), "n2": ready(nil)},
	}
}

// TestServiceOfATenant: its address is announced as its pool is, and leads to the nodes of the
// tenant, each of which is asked.
func TestServiceOfATenant(t *testing.T) {
	w := hub()
	r := w.build(t)
	if got := text(r.VIPs); got != "192.0.2.1 tenant/shop/default.web forwarded l2[]" {
		t.Error(got)
	}
	if len(r.LoadBalancers) != 1 || r.LoadBalancers[0].Name != "tenant/shop/default.web" || len(r.LoadBalancers[0].Servers) != 2 {
		t.Fatalf("%+v", r.LoadBalancers)
	}
	for _, s := range r.LoadBalancers[0].Servers {
		if c, has := r.ChecksHere(nil)[s.Check]; !has || c.HTTP == nil || c.HTTP.Host != s.Addr.String() {
			t.Errorf("%s is asked by %+v", s.Addr, c)
		}
	}
	w.options = Options{Self: "n2", Class: "lbd.dev/lbd"}
	if got := text(w.build(t).VIPs); !strings.HasSuffix(got, "NotSelected: no L2Advertisement for the address selects this node") {
		t.Error(got)
	}
}

// TestTenantsByBGP: routers are told of an address by its owner at layer 2 and by nobody else, and of no
// address without one. Each address is told by itself, beside the prefixes that are asked for.
func TestTenantsByBGP(t *testing.T) {
	length := int32(24)
	here, there := []v1alpha1.Selector{{MatchLabels: map[string]string{"edge": "yes"}}}, []v1alpha1.Selector{{MatchLabels: map[string]string{"edge": "no"}}}
	plain, wide := bgp("plain", v1alpha1.BGPAdvertisementSpec{Peers: []string{"tor1"}, NodeSelectors: here}), bgp("wide", v1alpha1.BGPAdvertisementSpec{AggregationLength: &length})
	elsewhere, gold := bgp("elsewhere", v1alpha1.BGPAdvertisementSpec{NodeSelectors: there}), bgp("gold", v1alpha1.BGPAdvertisementSpec{ServiceSelectors: labelled("tier", "gold")})
	for name, c := range map[string]struct {
		adverts []*v1alpha1.BGPAdvertisement
		change  func(*world)
		want    string // of each advert the peers and the length of its prefix, 0: a single address
		problem string
	}{
		"none":                 {nil, nil, "", ""},
		"one":                  {[]*v1alpha1.BGPAdvertisement{plain}, nil, "[tor1]/0", ""},
		"a prefix":             {[]*v1alpha1.BGPAdvertisement{wide}, nil, "[]/24 []/0", ""},
		"a prefix for more":    {[]*v1alpha1.BGPAdvertisement{plain, wide}, nil, "[tor1]/0 []/24 []/0", ""},
		"a prefix beside":      {[]*v1alpha1.BGPAdvertisement{bgp("a", v1alpha1.BGPAdvertisementSpec{}), wide}, nil, "[]/0 []/24", ""},
		"of another node":      {[]*v1alpha1.BGPAdvertisement{elsewhere}, nil, `[""]/0`, ""},
		"here and elsewhere":   {[]*v1alpha1.BGPAdvertisement{elsewhere, plain}, nil, "[tor1]/0", ""},
		"for labels":           {[]*v1alpha1.BGPAdvertisement{gold}, nil, "", ""},
		"source client":        {[]*v1alpha1.BGPAdvertisement{plain}, func(w *world) { clientSource(w) }, "", ""},
		"without layer 2":      {[]*v1alpha1.BGPAdvertisement{plain}, func(w *world) { w.objects.L2Advertisements = nil }, "", "need beside it: nobody announces 192.0.2.1"},
		"layer 2 for labels":   {[]*v1alpha1.BGPAdvertisement{plain}, func(w *world) { w.objects.L2Advertisements[0].Spec.ServiceSelectors = labelled("tier", "gold") }, "", "nobody announces 192.0.2.1"},
		"layer 2 of another":   {[]*v1alpha1.BGPAdvertisement{plain}, func(w *world) { w.objects.L2Advertisements[0].Spec.NodeSelectors = there }, "[tor1]/0", ""},
		"no advert of any way": {nil, func(w *world) { w.objects.L2Advertisements = nil }, "", ""},
	} {
		w := hub()
		w.objects.BGPAdvertisements = c.adverts
		w.objects.Pools[0].Spec.Addresses = []string{"192.0.2.0/24"}
		w.objects.Peers = []*v1alpha1.BGPPeer{peer("tor1", "10.0.0.1")}
		if c.change != nil {
			c.change(&w)
		}
		r := w.build(t)
		var got []string
		for _, a := range r.VIPs[0].BGP {
			got = append(got, fmt.Sprintf("%q/%d", a.Peers, a.Length))
		}
		if text := strings.ReplaceAll(strings.Join(got, " "), `"tor1"`, "tor1"); text != c.want || len(got) > 0 && !r.VIPs[0].FollowsOwner() {
			t.Errorf("%s: %s, want %s: %+v", name, text, c.want, r.VIPs[0])
		}
		if text := said(r.Problems); (text == "") != (c.problem == "") || !strings.Contains(text, c.problem) {
			t.Errorf("%s: problems %q, want %q", name, text, c.problem)
		}
	}
}

// clientSource has the Service of the tenant ask for the addresses of clients.
func clientSource(w *world) {
	w.objects.Tenants[0].Spec.Sources = []v1alpha1.SourceAddress{v1alpha1.SourceClient}
	for _, s := range w.objects.TenantServices {
		s.Spec.Source = v1alpha1.SourceClient
	}
}

// TestSelectiveAdvertisement: one that is for some Services only takes nothing from that for all.
func TestSelectiveAdvertisement(t *testing.T) {
	w := hub()
	gold := &v1alpha1.L2Advertisement{Metadata: v1alpha1.ObjectMeta{Name: "gold"}, Spec: v1alpha1.L2AdvertisementSpec{ServiceSelectors: []v1alpha1.Selector{{MatchLabels: map[string]string{"tier": "gold"}}}}}
	gold.Default()
	w.objects.L2Advertisements = append(w.objects.L2Advertisements, gold)
	if got := text(w.build(t).VIPs); got != "192.0.2.1 tenant/shop/default.web forwarded l2[]" {
		t.Error(got)
	}
}

// TestServiceOfTheHubCountsFirst: a status that names an address of a Service of the hub takes nothing
// from it.
func TestServiceOfTheHubCountsFirst(t *testing.T) {
	w := hub()
	b := New(self())
	w.fill(b)
	b.SetService(model.Key{Namespace: "default", Name: "own"}, &Service{Class: "lbd.dev/lbd", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
	r, _ := b.Build()
	if len(r.VIPs) != 1 || r.VIPs[0].Kind != KindService || r.VIPs[0].Name != "default/own" {
		t.Errorf("%+v", r.VIPs)
	}
}

// TestTenantsYield: what a tenant forwards counts with the LoadBalancers of the hub, and comes after them.
func TestTenantsYield(t *testing.T) {
	for most, want := range map[int]string{998: "a b tenant/shop/default.web", 999: "a b c"} {
		w := hub()
		w.objects = w.objects.with(large("a", "198.51.100.1", 1000), large("b", "198.51.100.2", most))
		if most == 999 {
			w.objects = w.objects.with(large("c", "198.51.100.3", 1))
		}
		r := w.build(t)
		var names []string
		for _, lb := range r.LoadBalancers {
			names = append(names, lb.Name)
		}
		if got := strings.Join(names, " "); got != want || len(r.VIPs) != 3 {
			t.Errorf("%s, want %s, %d VIPs", got, want, len(r.VIPs))
		}
		if got := said(r.Problems); strings.Contains(got, "TenantService shop/default.web: the hub has no room for 2 more ways") != (most == 999) {
			t.Error(got)
		}
	}
}

// TestPodsOfTheHub: a Tenant whose nodes would be Pods of the hub gets nothing.
func TestPodsOfTheHub(t *testing.T) {
	w := hub()
	b := New(self())
	w.fill(b)
	b.SetNode("n3", &Node{Ready: ConditionTrue, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.128/25")}})
	if r, _ := b.Build(); len(r.LoadBalancers) > 0 {
		t.Errorf("%+v", r.LoadBalancers)
	}
}

// TestTenantsReachNoHost: once a Node of the hub, a VirtualIP or a BGPPeer has the address of a node of a
// tenant, no connection goes there.
func TestTenantsReachNoHost(t *testing.T) {
	node := netip.MustParseAddr("10.1.0.2")
	vip := &v1alpha1.VirtualIP{Metadata: v1alpha1.ObjectMeta{Name: "cp"}, Spec: v1alpha1.VirtualIPSpec{Addresses: []string{node.String()}}}
	vip.Default()
	peer := &v1alpha1.BGPPeer{Metadata: v1alpha1.ObjectMeta{Name: "tor"}, Spec: v1alpha1.BGPPeerSpec{PeerAddress: node.String(), PeerASN: 64512, MyASN: 64512}}
	peer.Default()
	for name, change := range map[string]func(w *world, b *Builder){
		"a Node": func(_ *world, b *Builder) {
			b.SetNode("n3", &Node{Ready: ConditionTrue, Addresses: []netip.Addr{node}})
		},
		"a VirtualIP": func(w *world, b *Builder) {
			w.objects.VirtualIPs = append(w.objects.VirtualIPs, vip)
			b.SetObjects(w.objects)
		},
		"a BGPPeer": func(w *world, b *Builder) { w.objects.Peers = append(w.objects.Peers, peer); b.SetObjects(w.objects) },
	} {
		w := hub()
		b := New(self())
		w.fill(b)
		before, _ := b.Build()
		change(&w, b)
		after, _ := b.Build()
		reaches := func(r Result) bool {
			return slices.ContainsFunc(r.LoadBalancers[0].Servers, func(s model.Server) bool { return s.Addr == node })
		}
		if !reaches(before) || reaches(after) {
			t.Errorf("%s: it is led to before: %t, after: %t", name, reaches(before), reaches(after))
		}
	}
}
