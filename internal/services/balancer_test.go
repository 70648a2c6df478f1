package services

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/resolve"
)

// balancer is a LoadBalancer with one backend.
func balancer(name, backend string, addrs ...string) *v1alpha1.LoadBalancer {
	lb := &v1alpha1.LoadBalancer{Metadata: v1alpha1.ObjectMeta{Name: name}, Spec: v1alpha1.LoadBalancerSpec{
		Addresses: addrs, Ports: []v1alpha1.ForwardedPort{{Port: 443}}, Backends: []v1alpha1.Backend{{Address: backend}},
		HealthCheck: &v1alpha1.HealthCheck{TCP: &v1alpha1.TCPCheck{Port: 443}},
	}}
	lb.Default()
	return lb
}

// TestLoadBalancers: an address belongs to one object; the object that lacks one goes on with
// the others, and a change of a backend is a change.
func TestLoadBalancers(t *testing.T) {
	bare := balancer("bare", "198.51.100.12", "198.51.100.4")
	bare.Spec.HealthCheck = nil
	w := world{objects: Objects{}.with(
		virtualIP("api", "198.51.100.1"), bare, balancer("one", "198.51.100.11", "198.51.100.1", "198.51.100.2"),
		balancer("taken", "198.51.100.13", "198.51.100.1"), balancer("wrong", "198.51.100.2", "198.51.100.4", "198.51.100.5"),
	), services: map[string]*Service{"web": svc("198.51.100.2")}}
	r := w.build(t)
	if got := text(r.VIPs); got != "198.51.100.1 api virtual l2[]\n198.51.100.2 one forwarded l2[]\n198.51.100.4 bare forwarded l2[]\n198.51.100.5 wrong forwarded l2[]" {
		t.Errorf("got %s", got)
	}
	names := ""
	for _, lb := range r.LoadBalancers {
		names += fmt.Sprintf("%s %v %v; ", lb.Name, lb.VIPs, lb.Servers[0].Addr)
	}
	if names != "bare [198.51.100.4] 198.51.100.12; one [198.51.100.2] 198.51.100.11; wrong [198.51.100.5] 198.51.100.2; " {
		t.Errorf("LoadBalancers %s", names)
	}
	if got := strings.Join(slices.Sorted(maps.Keys(r.Checks)), " "); got != "one/198.51.100.11 wrong/198.51.100.2" {
		t.Errorf("checks %s", got)
	}
	if got := said(r.Problems); got != `LoadBalancer one: the address 198.51.100.1 is also one of VirtualIP "api", which has it`+"\n"+
		`LoadBalancer taken: the address 198.51.100.1 is also one of VirtualIP "api", which has it`+"\n"+
		`LoadBalancer wrong: the address 198.51.100.4 is also one of LoadBalancer "bare", which has it`+"\n"+
		"LoadBalancer wrong: the backend 198.51.100.2 is an address of LoadBalancer \"one\"; give the server's own address\n"+
		`Service default/web: the address 198.51.100.2 is one of LoadBalancer "one": it is not announced for the Service` {
		t.Errorf("problems\n%s", got)
	}
	if got, want := said(r.Warnings), "LoadBalancer bare: spec.healthCheck: "+resolve.NoBackendCheck; !strings.Contains(got, want) {
		t.Errorf("warnings\n%s\nwant\n%s", got, want)
	}

	b := New(self())
	w.fill(b)
	b.Build()
	w.objects.LoadBalancers = slices.Clone(w.objects.LoadBalancers)
	w.objects.LoadBalancers[1] = balancer("one", "198.51.100.19", "198.51.100.1", "198.51.100.2")
	b.SetObjects(w.objects)
	if r, changed := b.Build(); !changed || r.LoadBalancers[1].Servers[0].Addr.String() != "198.51.100.19" {
		t.Errorf("changed %v: %+v", changed, r.LoadBalancers)
	}
	lighter := balancer("one", "198.51.100.19", "198.51.100.1", "198.51.100.2")
	lighter.Spec.Backends[0].Weight = new(int32(1))
	w.objects.LoadBalancers = slices.Clone(w.objects.LoadBalancers)
	w.objects.LoadBalancers[1] = lighter
	b.SetObjects(w.objects)
	if r, changed := b.Build(); !changed || r.LoadBalancers[1].Servers[0].Weight != 1 {
		t.Errorf("another weight, changed %v: %+v", changed, r.LoadBalancers)
	}
	b.SetObjects(w.objects)
	if _, changed := b.Build(); changed {
		t.Error("the same again is a change")
	}
}

// TestBackendsOfSelectedNodesOnly: a node that cannot have the address asks no backend.
func TestBackendsOfSelectedNodesOnly(t *testing.T) {
	here, elsewhere := balancer("here", "198.51.100.11", "198.51.100.1"), balancer("elsewhere", "198.51.100.12", "198.51.100.2")
	here.Spec.NodeSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"zone": "a"}}
	elsewhere.Spec.NodeSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"zone": "b"}}
	w := world{objects: Objects{}.with(here, elsewhere), nodes: map[string]*Node{"n1": ready(map[string]string{"zone": "a"})}}
	r := w.build(t)
	if got := strings.Join(slices.Sorted(maps.Keys(r.ChecksHere(nil))), " "); got != "here/198.51.100.11" {
		t.Errorf("checks of %s run on this node", got)
	}
}

// TestBackendNodes: Nodes of the cluster are backends by their labels, each with one address of a
// family, and follow what becomes of the Nodes.
func TestBackendNodes(t *testing.T) {
	node := func(role string, addrs ...string) *Node {
		n := ready(map[string]string{"role": role, ExcludeLabel: ""})
		for _, a := range addrs {
			n.Addresses = append(n.Addresses, netip.MustParseAddr(a))
		}
		return n
	}
	lb := balancer("web", "198.51.100.11", "198.51.100.1", "2001:db8::1")
	lb.Spec.Backends[0].Weight = new(int32(3))
	lb.Spec.BackendNodes = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"role": "ingress"}}
	cordoned := node("ingress", "198.51.100.14")
	cordoned.Unschedulable = true
	replaced := node("ingress", "198.51.100.14")
	replaced.Ready = ConditionUnknown
	w := world{options: self(), objects: Objects{}.with(lb, virtualIP("api", "198.51.100.2")), nodes: map[string]*Node{
		"a5": replaced, // its machine is n5 by now
		"n1": node("control-plane", "198.51.100.10"),
		"n2": node("ingress", "198.51.100.11", "2001:db8::11"),                  // listed by itself
		"n3": node("ingress", "2001:db8::12", "198.51.100.12", "198.51.100.99"), // two of one family
		"n4": node("ingress", "198.51.100.1", "198.51.100.2", "198.51.100.13"),  // reports VIPs
		"n5": cordoned,
		"n6": node("ingress", "198.51.100.12"), // reports the address of another
		"n7": node("ingress", "127.0.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1", "169.254.169.254", "::1", "fe80::1", "ff02::1", "2001:db8::7%eth0"),
	}}
	b := New(w.options)
	w.fill(b)
	servers := func() string {
		r, _ := b.Build()
		out := ""
		for _, lb := range r.LoadBalancers {
			for _, s := range lb.Servers {
				out += fmt.Sprintf("%s %d %v; ", s.Addr, s.Weight, s.Leaving)
				if r.Checks[s.Check].TCP == nil || r.Checks[s.Check].TCP.Host != s.Addr.String() {
					t.Errorf("%s has the check %+v", s.Addr, r.Checks[s.Check])
				}
			}
		}
		return out
	}
	const listed, others = "198.51.100.11 3 false; ", "198.51.100.13 10 false; 198.51.100.14 10 false; 2001:db8::11 10 false; "
	if got := servers(); got != listed+"198.51.100.12 10 false; "+others+"2001:db8::12 10 false; " {
		t.Errorf("servers %s", got)
	}
	delete(w.nodes, "n6")
	b.SetNode("n6", nil)
	for name, change := range map[string]func(*Node){
		"not ready": func(n *Node) { n.Ready = ConditionFalse },
		"deleted":   func(n *Node) { n.Deleting = true },
		"drained":   func(n *Node) { n.Annotations = map[string]string{DrainKey: ""} },
	} {
		changed := *w.nodes["n3"]
		change(&changed)
		b.SetNode("n3", &changed)
		if got := servers(); got != listed+"198.51.100.12 0 true; "+others+"2001:db8::12 0 true; " {
			t.Errorf("%s: servers %s", name, got)
		}
		b.SetNode("n3", w.nodes["n3"])
	}
	b.SetNode("n3", nil)
	if got := servers(); got != listed+others {
		t.Errorf("without n3: servers %s", got)
	}
	b.SetNode("n2", nil)
	servers()
	if got, want := said(b.last.Problems), "LoadBalancer web: spec.backendNodes: no Node that matches has an InternalIP of the family of 2001:db8::1: no node announces it"; got != want {
		t.Errorf("problems %s", got)
	}
	for i := range v1alpha1.MaxBackends {
		b.SetNode(fmt.Sprintf("m%d", i), node("ingress", fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)))
	}
	if got := strings.Count(servers(), ";"); got != v1alpha1.MaxBackends || !strings.Contains(said(b.last.Problems), "3 backends are left out") {
		t.Errorf("%d servers, problems %s", got, said(b.last.Problems))
	}
	for i := range int32(999) {
		lb.Spec.Ports = append(lb.Spec.Ports, v1alpha1.ForwardedPort{Port: 1000 + i, Protocol: v1alpha1.ProtocolTCP})
	}
	b.SetObjects(w.objects)
	if got := strings.Count(servers(), ";"); got != v1alpha1.MaxForwardings/1000 || !strings.Contains(said(b.last.Problems), "803 backends are left out") {
		t.Errorf("%d servers, problems %s", got, said(b.last.Problems))
	}
}

func TestVirtualIPs(t *testing.T) {
	checked := virtualIP("api", "198.51.100.1", "2001:db8:1::1")
	checked.Spec.HealthCheck = &v1alpha1.HealthCheck{}
	checked.Default()
	red := virtualIP("red", "198.51.100.2")
	red.Spec.Advertise = &v1alpha1.Advertise{BGP: &v1alpha1.BGPAdvertise{Communities: []string{"red"}}, L2: &v1alpha1.L2Advertise{}}
	w := world{objects: Objects{}.with(checked, red, virtualIP("twice", "198.51.100.1", "198.51.100.3"))}
	r := w.build(t)
	if got := text(r.VIPs); got != "198.51.100.1 api virtual l2[]\n198.51.100.2 red virtual l2[]\n198.51.100.3 twice virtual l2[]\n2001:db8:1::1 api virtual l2[]" {
		t.Errorf("got %s", got)
	}
	if len(r.Checks) != 1 || r.VIPs[0].Check != "api" || r.VIPs[1].Check != "" {
		t.Errorf("checks %v", r.Checks)
	}
	if got := said(r.Problems); got != `VirtualIP red: names the community "red", and no valid Community defines it: nothing is advertised by it`+"\n"+
		`VirtualIP twice: the address 198.51.100.1 is also one of VirtualIP "api", which has it` {
		t.Errorf("problems\n%s", got)
	}
}

// TestManyForwardings: what all LoadBalancers ask of a node is bounded. Those that fit are served.
func TestManyForwardings(t *testing.T) {
	w := world{objects: Objects{}.with(
		large("a", "198.51.100.1", 1000), large("b", "198.51.100.2", 999), large("c", "198.51.100.3", 2), large("d", "198.51.100.4", 1))}
	r := w.build(t)
	var names []string
	for _, lb := range r.LoadBalancers {
		names = append(names, lb.Name)
	}
	if got := strings.Join(names, " "); got != "a b d" || len(r.VIPs) != 3 {
		t.Errorf("%s, %d VIPs", got, len(r.VIPs))
	}
	if got := said(r.Problems); !strings.HasPrefix(got, "LoadBalancer c: with the LoadBalancers before it, by name, there are more than 400000 ways") {
		t.Error(got)
	}
}

// large is a LoadBalancer with 200 backends.
func large(name, vip string, ports int) *v1alpha1.LoadBalancer {
	lb := balancer(name, "198.51.100.200", vip)
	for i := range ports - len(lb.Spec.Ports) {
		lb.Spec.Ports = append(lb.Spec.Ports, v1alpha1.ForwardedPort{Port: int32(20000 + i)})
	}
	for i := range 199 {
		lb.Spec.Backends = append(lb.Spec.Backends, v1alpha1.Backend{Address: fmt.Sprintf("192.0.2.%d", i+1)})
	}
	lb.Default()
	return lb
}
