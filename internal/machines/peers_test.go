package machines

import (
	"fmt"
	"net/netip"
	"testing"

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
			if got := r.Peers(all, c.cluster, addr(c.like), []netip.Addr{addr("10.0.0.200")}); fmt.Sprint(got) != c.want {
				t.Errorf("%v, want %s", got, c.want)
			}
		})
	}
}
