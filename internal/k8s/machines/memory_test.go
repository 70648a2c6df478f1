package machines

import (
	"fmt"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
)

// TestMemoryOfAddresses: a balancer that is new in this API keeps what it had, also if its Cluster
// has decided the order or one of them, unless it names others than it did.
func TestMemoryOfAddresses(t *testing.T) {
	t.Parallel()
	balancer := func(uid string, status []string, named ...string) *machines.Balancer {
		b := &machines.Balancer{Key: model.Key{Namespace: "a", Name: "api"}, UID: uid, Spec: v1alpha1.MachineLoadBalancerSpec{Addresses: named}}
		if len(status) > 0 {
			b.Status.Address, b.Status.Addresses = status[0], status
		}
		return b
	}
	has := []string{"10.0.0.7", "fd00::5"}
	for name, c := range map[string]struct {
		was, is []string
		want    string
	}{
		"the same":           {[]string{"10.0.0.7", "fd00::5"}, []string{"10.0.0.7", "fd00::5"}, "[10.0.0.7 fd00::5]"},
		"another order":      {[]string{"fd00::5", "10.0.0.7"}, []string{"fd00::5", "10.0.0.7"}, "[10.0.0.7 fd00::5]"},
		"that of a Cluster":  {[]string{"10.0.0.5", "fd00::5"}, []string{"10.0.0.5", "fd00::5"}, "[10.0.0.7 fd00::5]"},
		"of a pool":          {nil, nil, "[10.0.0.7 fd00::5]"},
		"others than before": {[]string{"10.0.0.7", "fd00::5"}, []string{"10.0.0.9", "fd00::5"}, "[]"},
	} {
		var m memory
		m.addrs(balancer("old", has, c.was...))
		if got := fmt.Sprint(m.addrs(balancer("new", nil, c.is...))); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
