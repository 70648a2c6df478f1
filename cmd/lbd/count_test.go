package main

import (
	"net/netip"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/forward"
	"lbd.dev/lbd/internal/model"
)

// TestCountBackends: a backend without a port of its own has the connections of all ports, and
// those by another address are not its own.
func TestCountBackends(t *testing.T) {
	way := func(vip, server string, p model.Protocol) forward.Way {
		return forward.Way{VIP: netip.MustParseAddr(vip), Counted: forward.Counted{Server: netip.MustParseAddrPort(server), Protocol: p}}
	}
	counts := &forward.Counts{Open: map[forward.Way]int{
		way("10.0.0.100", "10.0.0.11:80", model.TCP):  1,
		way("10.0.0.100", "10.0.0.11:443", model.TCP): 2,
		way("10.0.0.100", "10.0.0.11:443", model.UDP): 4,
		way("10.0.0.101", "10.0.0.11:443", model.TCP): 8,
		way("fd00::100", "[fd00::11]:443", model.TCP): 16,
	}}
	backends := func(names ...string) (out []v1alpha1.BackendStatus) {
		for _, n := range names {
			out = append(out, v1alpha1.BackendStatus{Backend: n})
		}
		return out
	}
	for _, c := range []struct {
		vips     []string
		backends []v1alpha1.BackendStatus
		want     []int
	}{
		{[]string{"10.0.0.100"}, backends("10.0.0.11", "10.0.0.11:443", "10.0.0.12"), []int{7, 6, 0}},
		{[]string{"fd00::100"}, backends("[fd00::11]:443", "fd00::11"), []int{16, 16}},
		{[]string{"10.0.0.100", "10.0.0.101", "fd00::100"}, backends("10.0.0.11", "fd00::11"), []int{15, 16}},
	} {
		countBackends(c.vips, c.backends, openBy(counts))
		for n, b := range c.backends {
			if b.Connections == nil || *b.Connections != c.want[n] {
				t.Errorf("%s by %s: %v, want %d", b.Backend, c.vips, b.Connections, c.want[n])
			}
		}
	}
}
