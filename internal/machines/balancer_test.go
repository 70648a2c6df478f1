package machines

import (
	"fmt"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

func TestRequest(t *testing.T) {
	ref := func(b *Balancer) { b.Spec.ClusterRef = &v1alpha1.ClusterReference{Name: "prod"} }
	one := func(b *Balancer) { ref(b); b.Spec.Address = "10.0.0.5" }
	two := func(b *Balancer) { ref(b); b.Spec.Addresses = []string{"10.0.0.5", "fd00::5"} }
	gone := func(b *Balancer) {
		one(b)
		b.Status.Endpoint = &v1alpha1.MachineEndpoint{Host: "10.0.0.7", Port: 443}
		b.Status.Conditions = []v1alpha1.Condition{{Type: v1alpha1.ConditionEndpointAssigned, Reason: EndpointAdopted}}
	}
	// pool is of both families, and gave what the status has.
	pool := func(from string, has ...string) func(*Balancer) {
		return func(b *Balancer) {
			ref(b)
			b.Spec.AddressPool, b.Spec.Families = "edge", []v1alpha1.AddressFamily{"ipv4", "ipv6"}
			b.Status.Address, b.Status.Addresses, b.Status.AddressPool = has[0], has, from
		}
	}
	for name, c := range map[string]struct {
		change func(*Balancer)
		host   string // of the Cluster
		want   string
	}{
		"its own address":                        {one, "", "{[10.0.0.5]  []}"},
		"its own address, a name":                {one, "api.example.net", "{[10.0.0.5]  []}"},
		"a Cluster's address":                    {one, "10.0.0.7", "{[10.0.0.7]  []}"},
		"that of a Cluster that is not there":    {gone, "", "{[10.0.0.7]  []}"},
		"a pool":                                 {func(b *Balancer) { b.Spec.AddressPool = "edge" }, "", "{[] edge []}"},
		"two addresses":                          {two, "", "{[10.0.0.5 fd00::5]  []}"},
		"two, and the Cluster was told":          {two, "10.0.0.5", "{[10.0.0.5 fd00::5]  []}"},
		"two, and the Cluster has another":       {two, "10.0.0.7", "{[10.0.0.7 fd00::5]  []}"},
		"two, and the Cluster has the second":    {two, "fd00::7", "{[fd00::7 10.0.0.5]  []}"},
		"both families of a pool":                {pool("edge", "10.0.0.5", "fd00::5"), "", "{[] edge [ipv4 ipv6]}"},
		"both, and the Cluster was told":         {pool("edge", "10.0.0.5", "fd00::5"), "10.0.0.5", "{[] edge [ipv4 ipv6]}"},
		"a second one beside the Cluster's":      {pool("edge", "10.0.0.5"), "10.0.0.5", "{[] edge [ipv4 ipv6]}"},
		"a second one beside the Cluster's IPv6": {pool("edge", "fd00::5"), "fd00::5", "{[] edge [ipv6 ipv4]}"},
		"a Cluster's that another pool gave":     {pool("old", "10.0.0.5"), "10.0.0.5", "{[10.0.0.5]  []}"},
		"a Cluster's that no pool gave":          {pool("", "10.0.0.5"), "10.0.0.5", "{[10.0.0.5]  []}"},
		"a Cluster's that is not its own":        {pool("edge", "10.0.0.6"), "10.0.0.5", "{[10.0.0.5]  []}"},
	} {
		var cluster *Cluster
		if c.host != "" {
			cluster = &Cluster{Key: model.Key{Namespace: "a", Name: "prod"}, Endpoint: &v1alpha1.MachineEndpoint{Host: c.host, Port: 443}}
		}
		if got := fmt.Sprint(balancer(c.change).Request(cluster)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestAddrs: that of the endpoint comes first, and who knows one only has the word.
func TestAddrs(t *testing.T) {
	for _, c := range []struct {
		address   string
		addresses []string
		want      string
	}{
		{"", nil, "[]"},
		{"10.0.0.5", nil, "[10.0.0.5]"},
		{"10.0.0.5", []string{"10.0.0.5", "fd00::5"}, "[10.0.0.5 fd00::5]"},
		{"10.0.0.5", []string{"fd00::5", "10.0.0.5"}, "[10.0.0.5 fd00::5]"},
		{"10.0.0.6", []string{"10.0.0.5", "fd00::5"}, "[10.0.0.6]"}, // a version before has given another one
		{"", []string{"10.0.0.5", "fd00::5"}, "[]"},                 // or has taken it away
	} {
		b := balancer(func(b *Balancer) { b.Status.Address, b.Status.Addresses = c.address, c.addresses })
		if got := fmt.Sprint(b.Addrs()); got != c.want {
			t.Errorf("%q, %q: %s, want %s", c.address, c.addresses, got, c.want)
		}
	}
}
