package tenants

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// tenant makes a Tenant of one cluster, whose namespace is its name.
func tenant(name string, age int, cidr string) Tenant {
	t := &v1alpha1.Tenant{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindTenant}, Metadata: v1alpha1.ObjectMeta{Name: name},
		Spec: v1alpha1.TenantSpec{Pools: []string{"public"}, Clusters: []v1alpha1.TenantCluster{{Name: "main", Namespace: name, NodeCIDRs: []string{cidr}}}},
	}
	t.Default()
	return Tenant{t, begin.Add(time.Duration(age) * time.Hour)}
}

// nodes makes nodes out of "NAME ADDRESS...".
func nodes(lines ...string) *v1alpha1.TenantNodes {
	n := new(v1alpha1.TenantNodes)
	for _, l := range lines {
		words := strings.Fields(l)
		n.Spec.Nodes = append(n.Spec.Nodes, v1alpha1.TenantNode{Name: words[0], Addresses: words[1:]})
	}
	n.Default()
	return n
}

// service makes a Service with port 80 and a NodePort, that has these addresses.
func service(age int, nodePort int32, given ...string) *Service {
	s := &v1alpha1.TenantService{Spec: v1alpha1.TenantServiceSpec{Ports: []v1alpha1.TenantPort{{Port: 80, NodePort: nodePort}}}}
	s.Default()
	out := &Service{TenantService: s, Created: begin.Add(time.Duration(age) * time.Minute)}
	for _, a := range given {
		out.Given = append(out.Given, netip.MustParseAddr(a))
	}
	return out
}

func key(namespace, name string) model.Key { return model.Key{Namespace: namespace, Name: name} }

// two is a hub with two tenants that have the same names of nodes and Services, and equal NodePorts.
func two() *Input {
	return &Input{
		Room:    1000,
		Tenants: []Tenant{tenant("shop", 0, "10.1.0.0/24"), tenant("bank", 1, "10.2.0.0/24")},
		Nodes:   map[model.Key]*v1alpha1.TenantNodes{key("shop", "n-0"): nodes("a1 10.1.0.1", "a2 10.1.0.2"), key("bank", "n-0"): nodes("a1 10.2.0.1")},
		Services: map[model.Key]*Service{
			key("shop", "default.web"): service(0, 30080, "192.0.2.1"), key("bank", "default.web"): service(0, 30080, "192.0.2.2"),
		},
		Pools: map[string][]v1alpha1.AddressRange{
			"public": {v1alpha1.RangeOf(netip.MustParsePrefix("192.0.2.0/24")), v1alpha1.RangeOf(netip.MustParsePrefix("2001:db8::/64"))},
			"other":  {v1alpha1.RangeOf(netip.MustParsePrefix("198.51.100.0/24"))},
		},
		Hub: Hub{
			Hosts:     map[netip.Addr]string{netip.MustParseAddr("10.1.0.99"): "the Node h1 of the hub"},
			Protected: []Protected{{v1alpha1.RangeOf(netip.MustParsePrefix("10.244.0.0/16")), "the Pods of the hub"}, {v1alpha1.RangeOf(netip.MustParsePrefix("192.0.2.0/24")), "the IPAddressPool public"}},
		},
	}
}

// servers are those of a Service, in words.
func servers(out *Output, k model.Key) string {
	var all []string
	for _, s := range out.Served {
		if s.Name != model.TenantName(k) {
			continue
		}
		for _, x := range s.Servers {
			text := fmt.Sprintf("%s*%d", x.Addr, x.Weight)
			if x.Leaving {
				text += " leaving"
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, ", ")
}

func TestTwoTenants(t *testing.T) {
	in := two()
	out := Judge(in)
	if got := servers(&out, key("shop", "default.web")); got != "10.1.0.1*10, 10.1.0.2*10" {
		t.Error("shop:", got)
	}
	if got := servers(&out, key("bank", "default.web")); got != "10.2.0.1*10" {
		t.Error("bank:", got)
	}
	x := out.Served[1]
	if x.Name != "tenant/shop/default.web" || x.VIPs[0] != netip.MustParseAddr("192.0.2.1") || x.Ports[0] != (model.ForwardPort{Protocol: model.TCP, Port: 80, TargetPort: 30080}) {
		t.Errorf("%+v", x)
	}
	c := out.Checks[x.Servers[0].Check]
	if c.HTTP == nil || c.HTTP.Host != "10.1.0.1" || c.HTTP.Port != 10256 || c.HTTP.Path != "/healthz" {
		t.Errorf("check %+v", c)
	}
	c.Default()
	if vip := (&v1alpha1.VirtualIP{Spec: v1alpha1.VirtualIPSpec{HealthCheck: &c}}); len(vip.Validate()) == 0 {
		t.Error("a VirtualIP without an address is valid")
	} else {
		for _, e := range vip.Validate() {
			if strings.HasPrefix(e.Path, "spec.healthCheck") {
				t.Error("no valid check:", e)
			}
		}
	}
	for k, v := range out.Services {
		if v.Reason != ReasonAccepted {
			t.Error(k, v)
		}
	}
}

// TestAttacks: whatever an agent writes, no connection goes where its Tenant has no nodes, the
// object says why, and the other tenant keeps what it has.
func TestAttacks(t *testing.T) {
	shop := key("shop", "default.web")
	for name, c := range map[string]struct {
		change func(in *Input)
		object string // of which the verdict is looked at
		reason Reason
		words  string
		served string // of shop
	}{
		"node of another tenant": {
			func(in *Input) { in.Nodes[key("shop", "n-1")] = nodes("b1 10.2.0.1") },
			"shop/n-1", ReasonRefusedNodes, "in none of the nodeCIDRs", "10.1.0.1*10, 10.1.0.2*10",
		},
		"node of the hub": {
			func(in *Input) { in.Nodes[key("shop", "n-1")] = nodes("h1 10.1.0.99") },
			"shop/n-1", ReasonRefusedNodes, "the Node h1 of the hub", "10.1.0.1*10, 10.1.0.2*10",
		},
		"link-local address of a cloud": {
			func(in *Input) { in.Nodes[key("shop", "n-1")] = nodes("m1 169.254.169.254") },
			"shop/n-1", ReasonRefusedNodes, "in none of the nodeCIDRs", "10.1.0.1*10, 10.1.0.2*10",
		},
		"address of a pool": {
			func(in *Input) { in.Nodes[key("shop", "n-1")] = nodes("v1 192.0.2.2") },
			"shop/n-1", ReasonRefusedNodes, "in none of the nodeCIDRs", "10.1.0.1*10, 10.1.0.2*10",
		},
		"address of a VirtualIP in its own network": {
			func(in *Input) {
				in.Hub.Hosts[netip.MustParseAddr("10.1.0.50")] = "the VirtualIP cp"
				in.Nodes[key("shop", "n-1")] = nodes("v1 10.1.0.50")
			},
			"shop/n-1", ReasonRefusedNodes, "an address of the VirtualIP cp", "10.1.0.1*10, 10.1.0.2*10",
		},
		"one good address and one bad": {
			func(in *Input) { in.Nodes[key("shop", "n-0")] = nodes("a1 10.1.0.1 127.0.0.1", "a2 10.1.0.2") },
			"shop/n-0", ReasonRefusedNodes, "127.0.0.1 is in none", "10.1.0.2*10",
		},
		"one address of two nodes": {
			func(in *Input) { in.Nodes[key("shop", "n-0")] = nodes("a1 10.1.0.1", "a2 10.1.0.1") },
			"shop/n-0", ReasonRefusedNodes, "is an address of a1, too", "10.1.0.1*10",
		},
		"one name in two objects": {
			func(in *Input) { in.Nodes[key("shop", "n-1")] = nodes("a1 10.1.0.3") },
			"shop/n-1", ReasonRefusedNodes, "in another object", "10.1.0.1*10, 10.1.0.2*10",
		},
		"port of the kubelet": {
			func(in *Input) { in.Services[shop].Spec.Ports[0].NodePort = 10250 },
			"shop/default.web", ReasonNodePort, "10250 is in no range", "",
		},
		"port of sshd": {
			func(in *Input) { in.Services[shop].Spec.Ports[0].NodePort = 22 },
			"shop/default.web", ReasonNodePort, "22 is in no range", "",
		},
		"port of the API server": {
			func(in *Input) { in.Services[shop].Spec.Ports[0].NodePort = 6443 },
			"shop/default.web", ReasonNodePort, "6443 is in no range", "",
		},
		"check at a port of the host": {
			func(in *Input) {
				in.Services[shop].Spec.Local = &v1alpha1.TenantLocal{HealthCheckNodePort: 22, Nodes: []v1alpha1.TenantEndpoints{{Name: "a1", Endpoints: 1}}}
			},
			"shop/default.web", ReasonNodePort, "22 is in no range", "",
		},
		"namespace of nobody": {
			func(in *Input) { in.Services[key("other", "default.web")] = service(0, 30080, "192.0.2.3") },
			"other/default.web", ReasonNoTenant, "no Tenant", "10.1.0.1*10, 10.1.0.2*10",
		},
		"pool of others": {
			func(in *Input) { in.Services[shop].Spec.Pool = "internal" },
			"shop/default.web", ReasonPool, `its pools are ["public"]`, "",
		},
		"source that is not allowed": {
			func(in *Input) { in.Services[shop].Spec.Source = v1alpha1.SourceClient },
			"shop/default.web", ReasonSource, "may not have the source client", "",
		},
		"NodePort that a newer Service has": {
			func(in *Input) { in.Services[key("shop", "default.new")] = service(1, 30080, "192.0.2.3") },
			"shop/default.web", ReasonConflict, "default.new has the NodePort 30080", "",
		},
		"too many Services": {
			func(in *Input) {
				in.Tenants[0].Spec.Limits.Services = 1
				in.Services[key("shop", "default.new")] = service(1, 30081, "192.0.2.3")
			},
			"shop/default.new", ReasonLimit, "has 2 services of 1", "10.1.0.1*10, 10.1.0.2*10",
		},
		"an address more, while others rest": {
			func(in *Input) {
				in.Tenants[0].Spec.Limits.Addresses, in.Rests = 3, map[string]int{"shop": 2, "bank": 7, "nobody": 7}
				in.Services[key("shop", "default.new")] = service(1, 30081)
			},
			"shop/default.new", ReasonLimit, "has 4 addresses of 3", "10.1.0.1*10, 10.1.0.2*10",
		},
		"an address more, while few rest": {
			func(in *Input) {
				in.Tenants[0].Spec.Limits.Addresses, in.Rests = 3, map[string]int{"shop": 1, "bank": 7}
				in.Services[key("shop", "default.new")] = service(1, 30081)
			},
			"shop/default.new", ReasonNoAddress, "", "10.1.0.1*10, 10.1.0.2*10",
		},
		"another address, while others rest": {
			func(in *Input) {
				in.Tenants[0].Spec.Limits.Addresses, in.Rests = 1, map[string]int{"shop": 1}
				in.Services[shop].Spec.Addresses = []string{"192.0.2.7"}
			},
			"shop/default.web", ReasonAccepted, "", "10.1.0.1*10, 10.1.0.2*10",
		},
		"what it has, while others rest": {
			func(in *Input) {
				in.Tenants[0].Spec.Limits.Addresses, in.Rests = 1, map[string]int{"shop": 20}
				in.Services[shop].Spec.Addresses = []string{"192.0.2.1"}
			},
			"shop/default.web", ReasonAccepted, "", "10.1.0.1*10, 10.1.0.2*10",
		},
		"too many checks of nodes that have endpoints": {
			func(in *Input) {
				in.Tenants[0].Spec.Limits.Nodes = 2
				s := service(1, 30081, "192.0.2.3")
				s.Spec.Local = &v1alpha1.TenantLocal{HealthCheckNodePort: 30090}
				for i := range 9 {
					s.Spec.Local.Nodes = append(s.Spec.Local.Nodes, v1alpha1.TenantEndpoints{Name: fmt.Sprintf("x%d", i), Endpoints: 1})
				}
				in.Services[key("shop", "default.new")] = s
			},
			"shop/default.new", ReasonLimit, "has 9 nodes of Services with the policy Local of 8", "10.1.0.1*10, 10.1.0.2*10",
		},
		"too many nodes": {
			func(in *Input) { in.Tenants[0].Spec.Limits.Nodes = 1 },
			"shop/n-0", ReasonRefusedNodes, "a2: the Tenant may have 1 nodes", "10.1.0.1*10",
		},
		"room for the older one alone": {
			func(in *Input) {
				in.Room = 4
				in.Services[key("shop", "default.new")] = service(1, 30081, "192.0.2.3")
			},
			"shop/default.new", ReasonNoRoom, "no room for 2 more ways", "10.1.0.1*10, 10.1.0.2*10",
		},
		"room for a smaller one": {
			func(in *Input) {
				in.Room = 2
				in.Services[shop].Created = begin.Add(-time.Minute)
				in.Services[shop].Spec.Ports = append(in.Services[shop].Spec.Ports, v1alpha1.TenantPort{Port: 443, NodePort: 30443, Protocol: v1alpha1.ProtocolTCP})
			},
			"shop/default.web", ReasonNoRoom, "no room for 4 more ways", "",
		},
		"suspended, with an address": {
			func(in *Input) { in.Tenants[0].Spec.Suspended = true },
			"shop/default.web", ReasonAccepted, "", "10.1.0.1*10, 10.1.0.2*10",
		},
		"suspended, without one": {
			func(in *Input) { in.Tenants[0].Spec.Suspended, in.Services[shop].Given = true, nil },
			"shop/default.web", ReasonSuspended, "gets nothing new", "",
		},
		"status with an address of another pool": {
			func(in *Input) { in.Services[shop].Given = []netip.Addr{netip.MustParseAddr("198.51.100.1")} },
			"shop/default.web", ReasonNoAddress, "", "",
		},
		"status with an address of no pool": {
			func(in *Input) { in.Services[shop].Given = []netip.Addr{netip.MustParseAddr("203.0.113.1")} },
			"shop/default.web", ReasonNoAddress, "", "",
		},
		"status with an address of a VirtualIP": {
			func(in *Input) { in.Hub.Hosts[netip.MustParseAddr("192.0.2.1")] = "the VirtualIP cp" },
			"shop/default.web", ReasonNoAddress, "", "",
		},
		"status with an address of an older Service": {
			func(in *Input) { in.Services[key("shop", "default.new")] = service(1, 30081, "192.0.2.2", "192.0.2.1") },
			"shop/default.new", ReasonNoAddress, "", "10.1.0.1*10, 10.1.0.2*10",
		},
		"suspended, with a status that it wrote itself": {
			func(in *Input) {
				in.Tenants[0].Spec.Suspended, in.Services[shop].Given = true, []netip.Addr{netip.MustParseAddr("203.0.113.1")}
			},
			"shop/default.web", ReasonSuspended, "gets nothing new", "",
		},
		"no node of the family": {
			func(in *Input) {
				in.Services[shop].Given = append(in.Services[shop].Given, netip.MustParseAddr("2001:db8::1"))
			},
			"shop/default.web", ReasonFamilyMissing, "2001:db8::1", "10.1.0.1*10, 10.1.0.2*10",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := two()
			c.change(in)
			out := Judge(in)
			k := model.ParseKey(c.object)
			verdict, has := out.Services[k]
			if !has {
				verdict = out.Nodes[k]
			}
			if verdict.Reason != c.reason || !strings.Contains(verdict.Message, c.words) {
				t.Errorf("%s: %+v, want %s with %q", k, verdict, c.reason, c.words)
			}
			if got := servers(&out, shop); got != c.served {
				t.Errorf("shop is served by %q, want %q", got, c.served)
			}
			if got := servers(&out, key("bank", "default.web")); got != "10.2.0.1*10" {
				t.Errorf("bank is served by %q", got)
			}
		})
	}
}

// TestTenantsThatExcludeEachOther: the older one keeps what it has, and the younger one gets nothing.
func TestTenantsThatExcludeEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		younger Tenant
		reason  Reason
	}{
		"overlap":           {tenant("evil", 5, "10.1.0.0/16"), ReasonOverlap},
		"Pods of the hub":   {tenant("evil", 5, "10.244.3.0/24"), ReasonProtected},
		"pool":              {tenant("evil", 5, "192.0.2.128/25"), ReasonProtected},
		"nothing in common": {tenant("evil", 5, "10.3.0.0/24"), ReasonAccepted},
	} {
		in := two()
		in.Tenants = append([]Tenant{c.younger}, in.Tenants...)
		in.Nodes[key("evil", "n-0")] = nodes("e1 10.1.0.1", "e2 10.3.0.1")
		in.Services[key("evil", "default.web")] = service(0, 30080, "192.0.2.9")
		out := Judge(in)
		if got := out.Tenants["evil"]; got.Reason != c.reason {
			t.Errorf("%s: %+v, want %s", name, got, c.reason)
		}
		if got, want := servers(&out, key("evil", "default.web")), map[bool]string{true: "10.3.0.1*10"}[c.reason == ReasonAccepted]; got != want {
			t.Errorf("%s: evil is served by %q, want %q", name, got, want)
		}
		if got := servers(&out, key("shop", "default.web")); got != "10.1.0.1*10, 10.1.0.2*10" {
			t.Errorf("%s: shop is served by %q", name, got)
		}
	}
	in := two()
	stolen := tenant("evil", 5, "10.3.0.0/24")
	stolen.Spec.Clusters[0].Namespace = "shop"
	in.Tenants = append(in.Tenants, stolen)
	if out := Judge(in); out.Tenants["evil"].Reason != ReasonNamespace || out.Tenants["shop"].Reason != ReasonAccepted {
		t.Errorf("a stolen namespace: %+v", out.Tenants)
	}
}

// TestLocal: only nodes with endpoints get connections, by how many they have, and are asked at the
// port of the Service. A node that drains keeps what it has.
func TestLocal(t *testing.T) {
	in := two()
	k := key("shop", "default.web")
	in.Services[k].Spec.Local = &v1alpha1.TenantLocal{HealthCheckNodePort: 31999, Nodes: []v1alpha1.TenantEndpoints{{Name: "a2", Endpoints: 3}, {Name: "gone", Endpoints: 1}}}
	out := Judge(in)
	if got := servers(&out, k); got != "10.1.0.2*3" {
		t.Error(got)
	}
	x := out.Served[1]
	if !x.KeepFailed || !x.AtOnce || x.DrainTimeout != time.Hour {
		t.Errorf("%+v", x)
	}
	if c := out.Checks[x.Servers[0].Check]; c.HTTP.Port != 31999 || c.HTTP.Path != "/" {
		t.Errorf("%+v", c)
	}
	in.Services[k].Spec.Local = nil
	in.Nodes[key("shop", "n-0")].Spec.Nodes[0].State = v1alpha1.TenantNodeDraining
	if out = Judge(in); servers(&out, k) != "10.1.0.1*0 leaving, 10.1.0.2*10" {
		t.Error(servers(&out, k))
	}
}

// TestServersAreShared: Services of one cluster lead to one list of its nodes, of the families that they have.
func TestServersAreShared(t *testing.T) {
	in := two()
	in.Nodes[key("shop", "n-0")] = nodes("a1 10.1.0.1 2001:db8:1::1", "a2 10.1.0.2")
	in.Tenants[0].Spec.Clusters[0].NodeCIDRs = append(in.Tenants[0].Spec.Clusters[0].NodeCIDRs, "2001:db8:1::/64")
	for i, given := range [][]string{{"192.0.2.4"}, {"2001:db8::5"}, {"192.0.2.6", "2001:db8::6"}} {
		in.Services[key("shop", fmt.Sprintf("default.s%d", i))] = service(i+1, int32(30081+i), given...)
	}
	out := Judge(in)
	for name, want := range map[string]string{
		"web": "10.1.0.1*10, 10.1.0.2*10", "s0": "10.1.0.1*10, 10.1.0.2*10", "s1": "2001:db8:1::1*10", "s2": "10.1.0.1*10, 10.1.0.2*10, 2001:db8:1::1*10",
	} {
		if got := servers(&out, key("shop", "default."+name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if a, b := out.Served[1].Servers, out.Served[4].Servers; &a[0] != &b[0] {
		t.Errorf("%s and %s have lists of their own", out.Served[1].Name, out.Served[4].Name)
	}
	for _, s := range out.Served {
		for _, x := range s.Servers {
			if c, has := out.Checks[x.Check]; !has || c.HTTP.Host != x.Addr.String() {
				t.Errorf("%s of %s is asked by %+v", x.Addr, s.Name, c)
			}
		}
	}
}

// TestNobodyTakesFromTheOlder: whatever younger tenants ask for, an older one has what it would have
// without them.
func TestNobodyTakesFromTheOlder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := two()
		before := Judge(in)
		for i := range rapid.IntRange(1, 4).Draw(t, "tenants") {
			name := fmt.Sprintf("t%d", i)
			x := tenant(name, 2+i, rapid.SampledFrom([]string{"10.1.0.0/25", "10.0.0.0/8", "10.2.0.0/24", "10.9.0.0/16", "10.244.0.0/24", "192.0.2.0/30"}).Draw(t, "cidr"))
			x.Spec.Clusters[0].Namespace = rapid.SampledFrom([]string{name, "shop", "bank"}).Draw(t, "namespace")
			in.Tenants = append(in.Tenants, x)
			in.Nodes[key(name, "n-0")] = nodes("a1 " + rapid.SampledFrom([]string{"10.1.0.1", "10.2.0.1", "10.9.0.1", "10.1.0.99"}).Draw(t, "node"))
			in.Services[key(name, "default.web")] = service(0, 30080, "192.0.2.77")
		}
		after := Judge(in)
		for _, k := range []model.Key{key("shop", "default.web"), key("bank", "default.web")} {
			if was, is := servers(&before, k), servers(&after, k); was != is || !reflect.DeepEqual(before.Services[k], after.Services[k]) {
				t.Fatalf("%s: %q %+v, before %q %+v", k, is, after.Services[k], was, before.Services[k])
			}
		}
		for _, s := range after.Served {
			for _, x := range s.Servers {
				owner := map[string]string{"shop": "10.1.0.", "bank": "10.2.0."}[model.ParseKey(strings.TrimPrefix(s.Name, "tenant/")).Namespace]
				if owner == "" {
					owner = "10.9."
				}
				if !strings.HasPrefix(x.Addr.String(), owner) {
					t.Fatalf("%s leads to %s", s.Name, x.Addr)
				}
			}
		}
	})
}
