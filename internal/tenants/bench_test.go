package tenants

import (
	"fmt"
	"net/netip"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// many is a hub of 200 Nodes with 20 tenants, each of 200 nodes and 50 Services that have addresses.
func many() *Input {
	in := &Input{
		Room: 400_000, Nodes: make(map[model.Key]*v1alpha1.TenantNodes), Services: make(map[model.Key]*Service), Hub: Hub{Hosts: make(map[netip.Addr]string)},
		Pools: map[string][]v1alpha1.AddressRange{"public": {v1alpha1.RangeOf(netip.MustParsePrefix("192.0.0.0/16"))}},
	}
	for i := range 200 {
		in.Hub.Hosts[netip.AddrFrom4([4]byte{10, 255, 0, byte(i)})] = "a Node of the hub"
		in.Hub.Protected = append(in.Hub.Protected, Protected{v1alpha1.RangeOf(netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i), 0}), 24)), "Pods"})
	}
	for i := range 20 {
		name := fmt.Sprintf("t%d", i)
		t := tenant(name, i, fmt.Sprintf("10.%d.0.0/16", i+1))
		t.Spec.Limits = v1alpha1.TenantLimits{Services: 50, Addresses: 50, Ports: 50, Nodes: 200}
		in.Tenants = append(in.Tenants, t)
		for part := range 2 {
			var lines []string
			for n := range 100 {
				lines = append(lines, fmt.Sprintf("n%d-%d 10.%d.%d.%d", part, n, i+1, part, n))
			}
			in.Nodes[key(name, fmt.Sprintf("nodes-%d", part))] = nodes(lines...)
		}
		for n := range 50 {
			in.Services[key(name, fmt.Sprintf("default.s%d", n))] = service(n, int32(30000+n), fmt.Sprintf("192.0.%d.%d", i, n))
		}
	}
	return in
}

// BenchmarkJudge judges many tenants, as each change of one has it done.
func BenchmarkJudge(b *testing.B) {
	in := many()
	b.ReportAllocs()
	for b.Loop() {
		if out := Judge(in); len(out.Served) != 1000 || len(out.Served[0].Servers) != 200 {
			b.Fatalf("%d Services, of which one has %d nodes", len(out.Served), len(out.Served[0].Servers))
		}
	}
}
