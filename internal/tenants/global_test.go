package tenants

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// both is a hub in which shop has two clusters, of two nodes and of one, and bank has one.
func both() *Input {
	in := two()
	in.Tenants[0].Spec.Clusters = append(in.Tenants[0].Spec.Clusters, v1alpha1.TenantCluster{Name: "second", Namespace: "second", NodeCIDRs: []string{"10.3.0.0/24"}})
	in.Tenants[0].Default()
	in.Nodes[key("second", "n-0")] = nodes("c1 10.3.0.1")
	in.Services = make(map[model.Key]*Service)
	return in
}

// joint makes a Service with the global name web, that has these addresses under it.
func joint(age int, nodePort int32, given ...string) *Service {
	s := service(age, nodePort, given...)
	if s.Spec.GlobalName = "web"; len(given) > 0 {
		s.Shared = "web"
	}
	return s
}

func weighs(s *Service, weight int32) *Service {
	s.Spec.Weight = &weight
	return s
}

// shown is the LoadBalancer of a global name of shop in words: addresses, and for each server where it serves the
// first port, and its share in a thousand.
func shown(out *Output, global string) string {
	i := slices.IndexFunc(out.Served, func(x model.LoadBalancer) bool { return x.Name == model.GlobalName("shop", global) })
	if i < 0 {
		return "none"
	}
	x, total := &out.Served[i], 0
	for _, s := range x.Servers {
		total += s.Weight
	}
	text := fmt.Sprint(x.VIPs)
	for _, s := range x.Servers {
		text += fmt.Sprintf(" %s:%d=%d", s.Addr, s.Port, 1000*s.Weight/max(total, 1))
	}
	return text
}

// TestGlobal: the nodes of both clusters are behind the addresses, each at the NodePort of its own Service, with
// the weight of the Service as their share, however many they are.
func TestGlobal(t *testing.T) {
	in := both()
	a, b := key("shop", "default.web"), key("second", "default.web")
	in.Services[a], in.Services[b] = joint(0, 30080, "192.0.2.1"), joint(1, 31080, "192.0.2.1")
	for _, c := range []struct {
		a, b int32
		want string
	}{
		{100, 100, "[192.0.2.1] 10.1.0.1:30080=250 10.1.0.2:30080=250 10.3.0.1:31080=500"},
		{90, 10, "[192.0.2.1] 10.1.0.1:30080=450 10.1.0.2:30080=450 10.3.0.1:31080=100"},
		{100, 0, "[192.0.2.1] 10.1.0.1:30080=500 10.1.0.2:30080=500 10.3.0.1:31080=0"},
		{0, 1, "[192.0.2.1] 10.1.0.1:30080=0 10.1.0.2:30080=0 10.3.0.1:31080=1000"},
		{0, 0, "[192.0.2.1] 10.1.0.1:30080=0 10.1.0.2:30080=0 10.3.0.1:31080=0"},
	} {
		weighs(in.Services[a], c.a)
		weighs(in.Services[b], c.b)
		out := Judge(in)
		if got := shown(&out, "web"); got != c.want || len(out.Served) != 1 {
			t.Errorf("%d and %d: %s, want %s", c.a, c.b, got, c.want)
		}
		for _, s := range out.Served[0].Servers {
			if _, has := out.Checks[s.Check]; !has || s.Leaving {
				t.Errorf("%+v", s)
			}
		}
	}
	in.Services[a].Spec.Weight, in.Services[b].Spec.Weight = nil, nil
	in.Nodes[key("shop", "n-0")].Spec.Nodes[0].State = v1alpha1.TenantNodeDraining // the other node of the cluster gets its share
	if out := Judge(in); shown(&out, "web") != "[192.0.2.1] 10.1.0.1:30080=0 10.1.0.2:30080=500 10.3.0.1:31080=500" || !out.Served[0].Servers[0].Leaving {
		t.Error(shown(&out, "web"))
	}
	weighs(in.Services[a], 0) // and none of it is to help out
	if out := Judge(in); out.Served[0].Servers[0].Leaving {
		t.Errorf("%+v", out.Served[0].Servers[0])
	}
}

// TestGlobalPorts: each port leads to its own NodePort of each cluster, in whatever order Services list them.
func TestGlobalPorts(t *testing.T) {
	in := both()
	a, b := joint(0, 30080, "192.0.2.1"), joint(1, 31080, "192.0.2.1")
	a.Spec.Ports = append(a.Spec.Ports, v1alpha1.TenantPort{Port: 53, NodePort: 30053, Protocol: v1alpha1.ProtocolUDP}, v1alpha1.TenantPort{Port: 53, NodePort: 30053, Protocol: v1alpha1.ProtocolTCP})
	b.Spec.Ports = append([]v1alpha1.TenantPort{{Port: 53, NodePort: 31054, Protocol: v1alpha1.ProtocolUDP}, {Port: 53, NodePort: 31053, Protocol: v1alpha1.ProtocolTCP}}, b.Spec.Ports...)
	in.Services[key("shop", "default.web")], in.Services[key("second", "default.web")] = a, b
	out := Judge(in)
	x := out.Served[0]
	if want := []model.ForwardPort{{Protocol: model.TCP, Port: 53}, {Protocol: model.TCP, Port: 80}, {Protocol: model.UDP, Port: 53}}; !slices.Equal(x.Ports, want) {
		t.Errorf("%v", x.Ports)
	}
	for i, want := range [][]uint16{{30053, 30080, 30053}, {30053, 30080, 30053}, {31053, 31080, 31054}} {
		var got []uint16
		for p := []byte(x.Servers[i].Ports); len(p) > 0; p = p[2:] {
			got = append(got, binary.BigEndian.Uint16(p))
		}
		if !slices.Equal(got, want) || x.Servers[i].Port != want[0] {
			t.Errorf("%s serves at %v, want %v", x.Servers[i].Addr, got, want)
		}
	}
}

// TestGlobalDiffers: what differs from the first is left out with the difference in words, and costs that nothing.
func TestGlobalDiffers(t *testing.T) {
	a, b := key("shop", "default.web"), key("second", "default.web")
	for words, change := range map[string]func(s *v1alpha1.TenantServiceSpec){
		"": func(s *v1alpha1.TenantServiceSpec) { s.Ports[0].NodePort = 31081 },
		"other ports: 80/TCP, and this one 81/TCP":             func(s *v1alpha1.TenantServiceSpec) { s.Ports[0].Port = 81 },
		"other families: ipv4, and this one ipv6":              func(s *v1alpha1.TenantServiceSpec) { s.Families[0] = v1alpha1.FamilyIPv6 },
		"other affinity: connection, and this one client":      func(s *v1alpha1.TenantServiceSpec) { s.Affinity = v1alpha1.AffinityClient },
		"other allowedSources: none, and this one 10.0.0.0/8":  func(s *v1alpha1.TenantServiceSpec) { s.AllowedSources = []string{"10.0.0.0/8"} },
		"other addresses: none, and this one 192.0.2.7":        func(s *v1alpha1.TenantServiceSpec) { s.Addresses = []string{"192.0.2.7"} },
		"other pool: none, and this one public":                func(s *v1alpha1.TenantServiceSpec) { s.Pool = "public" },
		"other source: vip, and this one client":               func(s *v1alpha1.TenantServiceSpec) { s.Source = v1alpha1.SourceClient },
		"other externalTrafficPolicy: Cluster, and this one L": func(s *v1alpha1.TenantServiceSpec) { s.Local = &v1alpha1.TenantLocal{HealthCheckNodePort: 32000} },
	} {
		in := both()
		in.Tenants[0].Spec.Sources = append(in.Tenants[0].Spec.Sources, v1alpha1.SourceClient)
		in.Services[a], in.Services[b] = joint(0, 30080, "192.0.2.1"), joint(1, 31080, "192.0.2.1")
		change(&in.Services[b].Spec)
		out := Judge(in)
		v := out.Services[b]
		if words == "" {
			if v.Reason != ReasonAccepted {
				t.Error(v)
			}
			continue
		}
		if want := "the Service default.web of the cluster main had the global name web first and has " + words; v.Reason != ReasonConflict || !strings.HasPrefix(v.Message, want) {
			t.Errorf("%+v, want %s", v, want)
		}
		if got := shown(&out, "web"); got != "[192.0.2.1] 10.1.0.1:30080=500 10.1.0.2:30080=500" || len(out.Given[b]) > 0 {
			t.Errorf("%s: %s", words, got)
		}
	}
}

// TestGlobalTakesNothing: Services that join take nothing from those that share an address, nor do they gain what
// a Tenant may not have.
func TestGlobalTakesNothing(t *testing.T) {
	a, b := key("shop", "default.web"), key("second", "default.web")
	const first = " 10.1.0.1:30080=500 10.1.0.2:30080=500"
	for what, c := range map[string]struct {
		change func(in *Input)
		of     model.Key
		want   Reason
		served string
	}{
		"another Tenant": {func(in *Input) {
			in.Services[key("bank", "default.web")] = joint(-9, 30080)
		}, key("bank", "default.web"), ReasonNoAddress, "[192.0.2.1]" + first},
		"another Tenant, by its status": {func(in *Input) {
			in.Services[key("bank", "default.web")] = joint(5, 30080, "192.0.2.1")
		}, key("bank", "default.web"), ReasonNoAddress, "[192.0.2.1]" + first},
		"another name, by its status": {func(in *Input) {
			in.Services[b] = joint(5, 31080, "192.0.2.1")
			in.Services[b].Spec.GlobalName, in.Services[b].Shared = "other", "other"
		}, b, ReasonNoAddress, "[192.0.2.1]" + first},
		"an older one with an address of its own": {func(in *Input) {
			in.Services[b] = joint(-9, 31080, "192.0.2.9")
			in.Services[b].Shared = ""
		}, b, ReasonNoAddress, "[192.0.2.1]" + first},
		"an older one without, of other ports": {func(in *Input) {
			in.Services[b] = joint(-9, 31080)
			in.Services[b].Spec.Ports[0].Port = 443
		}, b, ReasonConflict, "[192.0.2.1]" + first},
		"an older one that has left": {func(in *Input) {
			in.Services[b] = joint(-9, 31080, "192.0.2.1")
			in.Services[b].Spec.GlobalName = ""
		}, b, ReasonNoAddress, "[192.0.2.1]" + first},
		"an older one that has another name": {func(in *Input) {
			in.Services[b] = joint(-9, 31080, "192.0.2.1")
			in.Services[b].Spec.GlobalName = "other"
		}, b, ReasonNoAddress, "[192.0.2.1]" + first},
		"of one age with a lower name": {func(in *Input) {
			in.Services[b] = joint(0, 31080)
		}, b, ReasonNoAddress, "[192.0.2.1]" + first},
		"one more than there may be": {func(in *Input) {
			for i := range maxGlobal - 1 {
				in.Services[key("second", fmt.Sprintf("x.%02d", i))] = joint(-9, int32(31000+i))
			}
			in.Services[b] = joint(-8, 31080)
		}, b, ReasonConflict, "[192.0.2.1]" + first},
		"one after as many refused ones as there may be": {func(in *Input) {
			for i := range maxGlobal - 1 {
				x := joint(1, int32(31000+i))
				x.Spec.Ports[0].Port, in.Services[key("second", fmt.Sprintf("x.%02d", i))] = 443, x
			}
			in.Services[b] = joint(5, 31080)
		}, b, ReasonNoAddress, "[192.0.2.1]" + first},
		"a newer name, over the address limit": {func(in *Input) {
			in.Tenants[0].Spec.Limits.Addresses = 1
			in.Services[b] = joint(5, 31080, "192.0.2.2")
			in.Services[b].Spec.GlobalName, in.Services[b].Shared = "other", "other"
		}, b, ReasonLimit, "[192.0.2.1]" + first},
		"over a limit": {func(in *Input) {
			in.Tenants[0].Spec.Limits.Services = 1
			in.Services[b] = joint(5, 31080, "192.0.2.1")
		}, b, ReasonLimit, "[192.0.2.1]" + first},
		"the address limit counts once": {func(in *Input) {
			in.Tenants[0].Spec.Limits.Addresses = 1
			in.Services[b] = joint(5, 31080, "192.0.2.1")
		}, b, ReasonAccepted, "[192.0.2.1] 10.1.0.1:30080=250 10.1.0.2:30080=250 10.3.0.1:31080=500"},
		"and while others rest": {func(in *Input) {
			in.Tenants[0].Spec.Limits.Addresses, in.Rests = 1, map[string]int{"second": 1}
			in.Services[b] = joint(5, 31080)
		}, b, ReasonNoAddress, "[192.0.2.1]" + first},
		"no room for its nodes": {func(in *Input) {
			in.Room = 2
			in.Services[b] = joint(5, 31080, "192.0.2.1")
		}, b, ReasonNoRoom, "[192.0.2.1]" + first},
		"of a NodePort that it may not have": {func(in *Input) {
			in.Services[b] = joint(-9, 22, "192.0.2.1")
		}, b, ReasonNodePort, "[192.0.2.1]" + first},
	} {
		in := both()
		in.Services[a] = joint(0, 30080, "192.0.2.1")
		c.change(in)
		out := Judge(in)
		if got := out.Services[c.of]; got.Reason != c.want {
			t.Errorf("%s: %+v, want %s", what, got, c.want)
		}
		if got := shown(&out, "web"); got != c.served || out.Services[a].Reason != ReasonAccepted {
			t.Errorf("%s: %s %+v, want %s", what, got, out.Services[a], c.served)
		}
	}
}

// requestOf is the request of one Service.
func requestOf(t *testing.T, out *Output, k model.Key) Request {
	i := slices.IndexFunc(out.Requests, func(r Request) bool { return r.Key == k })
	if i < 0 {
		t.Fatalf("%s asks for nothing: %+v", k, out.Services[k])
	}
	return out.Requests[i]
}

// TestGlobalFollows: those that join ask for what the first has, whatever else that asks for, and for what it asks for
// while it has nothing.
func TestGlobalFollows(t *testing.T) {
	a, b := key("shop", "default.web"), key("second", "default.web")
	has, asked := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.9")
	in := both()
	in.Services[a], in.Services[b] = joint(0, 30080, has.String()), joint(1, 31080)
	in.Services[a].Spec.Addresses = []string{asked.String()}
	out := Judge(in)
	if r := requestOf(t, &out, b); !slices.Equal(r.Fixed, []netip.Addr{has}) {
		t.Errorf("it asks for %v, and the first has %s", r.Fixed, has)
	}
	if r := requestOf(t, &out, a); !slices.Equal(r.Fixed, []netip.Addr{asked}) {
		t.Errorf("the first asks for %v", r.Fixed)
	}
	in.Services[a].Given, in.Services[a].Shared = nil, ""
	out = Judge(in)
	if r := requestOf(t, &out, b); !slices.Equal(r.Fixed, []netip.Addr{asked}) {
		t.Errorf("it asks for %v, and the first for %s", r.Fixed, asked)
	}
}

// TestGlobalRests: a Service that asks for other addresses again and again cannot empty a pool by a global name either.
// What it has stays, until those that it gave up rest no more.
func TestGlobalRests(t *testing.T) {
	a, b := key("shop", "default.web"), key("second", "default.web")
	for rests, want := range map[int]string{0: "192.0.2.7", 1: "192.0.2.1"} {
		in := both()
		in.Tenants[0].Spec.Limits.Addresses, in.Rests = 1, map[string]int{"second": rests}
		in.Services[a], in.Services[b] = joint(0, 30080, "192.0.2.1"), joint(1, 31080, "192.0.2.1")
		in.Services[a].Spec.Addresses = []string{"192.0.2.7"}
		out := Judge(in)
		if r := requestOf(t, &out, a); fmt.Sprint(r.Fixed) != "["+want+"]" {
			t.Errorf("while %d rest it asks for %v, want %s", rests, r.Fixed, want)
		}
		if r := requestOf(t, &out, b); fmt.Sprint(r.Fixed) != "[192.0.2.1]" {
			t.Errorf("while %d rest the other one asks for %v", rests, r.Fixed)
		}
	}
}

// TestGlobalMost: one more than there may be is told of that, and not compared with the first: no number of Services
// makes a judgement long.
func TestGlobalMost(t *testing.T) {
	in, b := both(), key("second", "default.web")
	for i := range maxGlobal {
		in.Services[key("shop", fmt.Sprintf("x.%02d", i))] = joint(i, int32(31000+i), "192.0.2.1")
	}
	in.Services[b] = joint(99, 31080)
	in.Services[b].Spec.Ports[0].Port = 443
	out := Judge(in)
	if v := out.Services[b]; v.Reason != ReasonConflict || v.Message != "16 other Services ask for the global name web, which is the most" {
		t.Errorf("%+v", v)
	}
}

// world gives addresses as the controller does, until nothing changes.
func world(t *rapid.T, in *Input) Output {
	for range 20 {
		out, changed := Judge(in), false
		byShare, used := make(map[string]netip.Addr), make(map[netip.Addr]string)
		shares := func(r Request) string { return r.Share + map[bool]string{true: r.Key.String()}[r.Share == ""] }
		for _, r := range out.Requests {
			for _, a := range out.Given[r.Key] {
				byShare[shares(r)], used[a] = a, shares(r)
			}
		}
		for _, r := range out.Requests {
			s := in.Services[r.Key]
			a, has := byShare[shares(r)]
			if len(r.Fixed) > 0 {
				a, has = r.Fixed[0], true
			}
			for next := netip.MustParseAddr("192.0.2.1"); !has; next = next.Next() {
				if used[next] == "" {
					a, has = next, true
				}
			}
			byShare[shares(r)], used[a] = a, shares(r)
			if !slices.Equal(s.Given, []netip.Addr{a}) || s.Shared != s.Spec.GlobalName {
				s.Given, s.Shared, changed = []netip.Addr{a}, s.Spec.GlobalName, true
			}
		}
		for k, s := range in.Services {
			if v := out.Services[k].Reason; v != ReasonAccepted && v != ReasonNoAddress && len(s.Given) > 0 {
				s.Given, s.Shared, changed = nil, "", true
			}
		}
		if !changed {
			return out
		}
	}
	t.Fatal("it never comes to rest")
	return Output{}
}

// TestGlobalProperties: whatever Services there are, what has a global name shares one address and no other has
// it, whoever goes leaves the others as they are, and whoever comes takes nothing. No order of objects counts.
func TestGlobalProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := both()
		in.Tenants[0].Spec.Limits.Addresses = int32(rapid.IntRange(1, 4).Draw(t, "addresses"))
		draw := func(i, age int) {
			namespace := rapid.SampledFrom([]string{"shop", "second", "bank"}).Draw(t, "namespace")
			s := weighs(joint(age, int32(30100+i)), int32(rapid.IntRange(0, 100).Draw(t, "weight")))
			s.Spec.GlobalName = rapid.SampledFrom([]string{"", "web", "api"}).Draw(t, "global")
			s.Spec.Ports[0].Port = rapid.SampledFrom([]int32{80, 443}).Draw(t, "port")
			in.Services[key(namespace, fmt.Sprintf("x.%d", i))] = s
		}
		n := rapid.IntRange(1, 8).Draw(t, "services")
		for i := range n {
			draw(i, rapid.IntRange(0, 3).Draw(t, "age"))
		}
		out := world(t, in)
		in.Tenants = slices.Clone(in.Tenants)
		slices.Reverse(in.Tenants)
		if again := Judge(in); !reflect.DeepEqual(again.Served, out.Served) || !reflect.DeepEqual(again.Services, out.Services) || !reflect.DeepEqual(again.Requests, out.Requests) {
			t.Fatalf("another order: %+v, before %+v", again, out)
		}
		owner := make(map[netip.Addr]string)
		for _, x := range out.Served {
			for _, a := range x.VIPs {
				if owner[a] != "" {
					t.Fatalf("%s is of %s and %s", a, owner[a], x.Name)
				}
				owner[a] = x.Name
			}
			for _, s := range x.Servers {
				if bank := strings.HasPrefix(x.Name, "tenant/bank/"); bank != strings.HasPrefix(s.Addr.String(), "10.2.0.") {
					t.Fatalf("%s leads to %s", x.Name, s.Addr)
				}
			}
		}

		accepted := func(out *Output) (all []model.Key) {
			for k, v := range out.Services {
				if v.Reason == ReasonAccepted {
					all = append(all, k)
				}
			}
			return slices.SortedFunc(slices.Values(all), model.Key.Compare)
		}
		before := accepted(&out)
		draw(n, 9) // the newest of all
		if after := Judge(in); slices.ContainsFunc(before, func(k model.Key) bool {
			return !reflect.DeepEqual(after.Services[k], out.Services[k]) || !reflect.DeepEqual(after.Given[k], out.Given[k])
		}) {
			t.Fatalf("something came: %+v, before %+v", after.Services, out.Services)
		}
		world(t, in)
		delete(in.Services, key("shop", fmt.Sprintf("x.%d", n)))
		delete(in.Services, key("second", fmt.Sprintf("x.%d", n)))
		delete(in.Services, key("bank", fmt.Sprintf("x.%d", n)))
		out = Judge(in)

		gone := rapid.SampledFrom(slices.SortedFunc(maps.Keys(in.Services), model.Key.Compare)).Draw(t, "gone")
		delete(in.Services, gone)
		after := Judge(in)
		for _, k := range accepted(&out) {
			if k != gone && (after.Services[k].Reason != ReasonAccepted || !slices.Equal(after.Given[k], out.Given[k])) {
				t.Fatalf("%s went: %s is %+v with %v, before %v", gone, k, after.Services[k], after.Given[k], out.Given[k])
			}
		}
		for _, x := range after.Served {
			i := slices.IndexFunc(out.Served, func(y model.LoadBalancer) bool { return x.Name == y.Name })
			if i < 0 || !slices.Equal(out.Served[i].VIPs, x.VIPs) || slices.ContainsFunc(x.Servers, func(s model.Server) bool { return !slices.Contains(out.Served[i].Servers, s) }) {
				t.Fatalf("%s went: %+v, before %+v", gone, x, out.Served)
			}
		}
	})
}

// TestGlobalAllFollow: when the first has moved to another address, all that share follow it, as many as there may be.
func TestGlobalAllFollow(t *testing.T) {
	in := both()
	in.Services = map[model.Key]*Service{}
	for i := range maxGlobal {
		in.Services[key("shop", fmt.Sprintf("x.%02d", i))] = joint(i, int32(31000+i), "192.0.2.1")
	}
	first := in.Services[key("shop", "x.00")]
	first.Spec.Addresses, first.Given = []string{"192.0.2.7"}, []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	out := Judge(in)
	for k, v := range out.Services {
		if v.Reason == ReasonConflict {
			t.Errorf("%v: %v", k, v)
		}
	}
}
