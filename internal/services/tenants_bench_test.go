package services

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// BenchmarkTenants: a node of one of 20 tenants changes its state, in a hub of 200 Nodes. Each tenant has
// 200 nodes and 50 Services.
func BenchmarkTenants(b *testing.B) {
	w := hub()
	w.objects.Pools[0].Spec.Addresses = []string{"192.0.0.0/16"}
	w.objects.Tenants = nil
	clear(w.objects.TenantNodes)
	clear(w.objects.TenantServices)
	for i := range 200 {
		n := ready(map[string]string{"edge": "yes"})
		n.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 255, 0, byte(i)})}
		n.PodCIDRs = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i), 0}), 24)}
		w.nodes[fmt.Sprintf("n%d", i)] = n
	}
	for i := range 20 {
		name := fmt.Sprintf("t%d", i)
		t := &v1alpha1.Tenant{Metadata: v1alpha1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{
			Pools: []string{"public"}, Limits: v1alpha1.TenantLimits{Addresses: 50, Nodes: 200},
			Clusters: []v1alpha1.TenantCluster{{Name: "main", Namespace: name, NodeCIDRs: []string{fmt.Sprintf("10.%d.0.0/16", i+1)}}},
		}}
		t.Default()
		w.objects.Tenants = append(w.objects.Tenants, tenants.Tenant{Tenant: t, Created: time.Unix(int64(i), 0)})
		for part := range 2 {
			nodes := new(v1alpha1.TenantNodes)
			for n := range 100 {
				nodes.Spec.Nodes = append(nodes.Spec.Nodes, v1alpha1.TenantNode{Name: fmt.Sprintf("n%d-%d", part, n), Addresses: []string{fmt.Sprintf("10.%d.%d.%d", i+1, part, n)}})
			}
			nodes.Default()
			w.objects.TenantNodes[model.Key{Namespace: name, Name: fmt.Sprintf("nodes-%d", part)}] = nodes
		}
		for n := range 50 {
			s := &v1alpha1.TenantService{Spec: v1alpha1.TenantServiceSpec{Ports: []v1alpha1.TenantPort{{Port: 80, NodePort: int32(30000 + n)}}}}
			s.Default()
			w.objects.TenantServices[model.Key{Namespace: name, Name: fmt.Sprintf("default.s%d", n)}] = &tenants.Service{
				TenantService: s, Created: time.Unix(int64(n), 0), Given: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, byte(i), byte(n)})},
			}
		}
	}
	x := New(self())
	w.fill(x)
	if r, _ := x.Build(); len(r.LoadBalancers) != 1000 || len(r.LoadBalancers[0].Servers) != 200 {
		b.Fatalf("%d LoadBalancers", len(r.LoadBalancers))
	}
	states := []v1alpha1.TenantNodeState{v1alpha1.TenantNodeDraining, v1alpha1.TenantNodeServing}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.objects.TenantNodes[model.Key{Namespace: "t0", Name: "nodes-0"}].Spec.Nodes[0].State = states[i%2]
		x.SetObjects(w.objects)
		if _, changed := x.Build(); !changed {
			b.Fatal("nothing has changed")
		}
	}
}
