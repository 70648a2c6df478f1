package machines

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestPeers: who a host of a control plane talks to.
func TestPeers(t *testing.T) {
	worker := with(machine("a/prod/w1", "w1", "10.0.0.31"), func(m *Machine) { delete(m.Labels, ControlPlaneLabel) })
	target := with(machine("a/prod/t1", "t1", "10.0.0.41"), func(m *Machine) { m.Target = "x/v1/hosts" })
	all := []*Machine{
		machine("a/prod/m2", "", "fd00::12", "10.0.0.12"), machine("a/prod/m1", "cp1", "10.0.0.200", "10.0.0.11", "fd00::11"),
		machine("a/prod/m3", "cp3"), machine("a/other/m1", "cp1", "10.0.0.51"), machine("b/prod/m1", "cp1", "10.0.0.61"), worker, target,
	}
	for name, c := range map[string]struct {
		named   string // the rules' ClusterName
		cluster model.Key
		like    string
		want    string
	}{
		"those of its own cluster":                       {"", model.Key{Namespace: "a", Name: "prod"}, "10.0.0.11", "[10.0.0.11 10.0.0.12]"},
		"by IPv6":                                        {"", model.Key{Namespace: "a", Name: "prod"}, "fd00::11", "[fd00::11 fd00::12]"},
		"not yet found: those of the name":               {"prod", model.Key{}, "10.0.0.99", "[10.0.0.11 10.0.0.12 10.0.0.61]"},
		"not yet found, and no name: nobody's":           {"", model.Key{}, "10.0.0.99", "[]"},
		"of another cluster than it is to look at: none": {"else", model.Key{Namespace: "a", Name: "prod"}, "10.0.0.11", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rules()
			r.ClusterName = c.named
			got, surplus := r.Peers(all, c.cluster, addr(c.like), []netip.Addr{addr("10.0.0.200")})
			if fmt.Sprint(got) != c.want || surplus != 0 {
				t.Errorf("%v and %d more, want %s", got, surplus, c.want)
			}
		})
	}
}

// TestTooManyPeers: of more Machines than a control plane can have the oldest count, whatever is added.
func TestTooManyPeers(t *testing.T) {
	r, start := rules(), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var all []*Machine
	for i := range 5000 { // the last ones are the oldest, and have the highest addresses
		a := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		all = append(all, with(machine("a/prod/m"+a.String(), "", a.String()), func(m *Machine) { m.Created = start.Add(-time.Duration(i) * time.Minute) }))
	}
	twice := with(machine("a/prod/again", "", "10.1.19.135"), func(m *Machine) { m.Created = start })
	for _, more := range [][]*Machine{nil, {twice}} {
		got, surplus := r.Peers(append(more, all...), all[0].Cluster(), addr("10.0.0.11"), nil)
		if len(got) != MaxPeers || surplus != 5000-MaxPeers || got[0] != addr("10.1.19.72") || got[MaxPeers-1] != addr("10.1.19.135") || !slices.IsSortedFunc(got, netip.Addr.Compare) {
			t.Errorf("%d peers and %d more: %v", len(got), surplus, got)
		}
	}
	if got, surplus := r.Peers(all[:MaxPeers], all[0].Cluster(), addr("10.0.0.11"), nil); len(got) != MaxPeers || surplus != 0 {
		t.Errorf("%d peers and %d more", len(got), surplus)
	}
}
