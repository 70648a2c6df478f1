package services

import (
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
