package daemon

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// many returns statuses of n VIPs with addresses from 10.0.0.0 on.
func many(n int, change func(i int, s *model.VIPStatus)) []model.VIPStatus {
	var all []model.VIPStatus
	for i, addr := 0, netip.MustParseAddr("10.0.0.0"); i < n; i, addr = i+1, addr.Next() {
		s := vipStatus(addr, "m2", model.ReasonStandby)
		change(i, &s)
		all = append(all, s)
	}
	return all
}

// TestClusterStatus: of many VIPs those are told that matter, and all are counted.
func TestClusterStatus(t *testing.T) {
	d := statuses()
	d.Status = many(2000, func(i int, s *model.VIPStatus) {
		switch {
		case i%100 == 7: // 20
			s.Announced, s.Owner = true, "m1"
		case i%10 == 9: // 200
			s.Owner = ""
		}
	})
	d.BGP.Peers = []model.BGPPeer{{Name: "a", Address: addrB}, {Name: "b", Address: addrA}}
	advertised := map[netip.Prefix][]string{}
	for _, s := range d.Status {
		prefix := model.PrefixOf(s.VIP.Addr, 0)
		d.BGP.Paths = append(d.BGP.Paths, model.BGPPath{Prefix: prefix, To: []model.BGPAudience{{Peers: []string{"a"}}}})
		advertised[prefix] = []string{"a"}
	}
	v := viewOf(member("m2", model.MemberAlive, nil), member("m3", model.MemberDead, nil))
	v.Applied = map[model.SinkName]model.Applied{model.SinkBGP: {Paths: advertised, Peers: []model.PeerReport{{Name: "a", State: established, BFD: "Up"}, {Name: "b", State: "Active", BFD: "Down"}}}}
	s := clusterStatus(v, &d, nil)
	same(t, "summary", *s.Summary, v1alpha1.NodeSummary{VIPs: 2000, Announced: 20, Members: "1/2", BGP: "1/2", BFD: "1/2"})
	if len(s.VIPs) != v1alpha1.MaxNodeStatusVIPs {
		t.Errorf("%d VIPs", len(s.VIPs))
	}
	count := map[string]int{}
	last := netip.Addr{}
	for _, x := range s.VIPs {
		count[fmt.Sprint(x.Owner, x.Announced)]++
		if addr := netip.MustParseAddr(x.Address); !last.Less(addr) {
			t.Errorf("%v after %v", addr, last)
		} else {
			last = addr
		}
	}
	same(t, "VIPs", count, map[string]int{"m1true": 20, "false": 200, "m2false": 280})
	if got := s.BGP[0]; len(got.Advertised) != v1alpha1.MaxNodeStatusVIPs || got.Paths != nil {
		t.Errorf("%d prefixes, %d paths", len(got.Advertised), len(got.Paths))
	}
	if len(d.Status) != 2000 || len(d.BGP.Paths) != 2000 {
		t.Error("the decision was changed")
	}
	// Of the same decision the VIPs are not told anew.
	d.BGP.Paths = nil
	again := clusterStatus(v, &d, &s)
	if &again.VIPs[0] != &s.VIPs[0] || !reflect.DeepEqual(again.Summary, s.Summary) {
		t.Error("the VIPs of the same decision were told anew, or otherwise")
	}
	if n := testing.AllocsPerRun(10, func() { clusterStatus(v, &d, &s) }); n > 50 {
		t.Errorf("%v allocations for what has not changed", n)
	}
}

// TestSummaryCountsAddresses: one that is announced by layer 2 and by BGP counts once.
// TestPickBackends: an object of a cluster has room for so many, those first that get nothing.
func TestPickBackends(t *testing.T) {
	status := func() (all []v1alpha1.BalancerStatus) {
		for i := range 3 {
			lb := v1alpha1.BalancerStatus{Addresses: []string{"a"}, Ports: make([]v1alpha1.BalancerPort, 2)}
			for n, state := range []string{"in", "out", "in", "draining"} {
				lb.Backends = append(lb.Backends, v1alpha1.BackendStatus{Backend: fmt.Sprintf("%d%d", i, n), State: state})
			}
			all = append(all, lb)
		}
		return all
	}
	for most, want := range map[int]string{
		20: "[00 01 02 03][10 11 12 13][20 21 22 23]", 9: "[00 01 02 03][10 11 13][21 23]", 8: "[00 01 02 03][10 11 12 13]", 3: "[00 01 03]", 2: "",
	} {
		got := ""
		for _, lb := range pickBackends(status(), most) {
			var names []string
			for _, b := range lb.Backends {
				names = append(names, b.Backend)
			}
			got += fmt.Sprint(names)
		}
		if got != want {
			t.Errorf("room for %d: %s, want %s", most, got, want)
		}
	}
}

// TestTenantsComeLast: however many addresses and backends tenants have, and whatever they do, what is
// left out are theirs.
func TestTenantsComeLast(t *testing.T) {
	one := func(name, state string) v1alpha1.BalancerStatus {
		return v1alpha1.BalancerStatus{Name: name, Backends: []v1alpha1.BackendStatus{{Backend: name, State: state}}}
	}
	got := ""
	for _, lb := range pickBackends([]v1alpha1.BalancerStatus{one("web", "in"), one("zone", "in"), one("tenant/shop/a", "out"), one("tenant/shop/b", "in")}, 2) {
		for _, b := range lb.Backends {
			got += b.Backend + " "
		}
	}
	if got != "web zone " {
		t.Error(got)
	}
	var v model.View
	var d model.Desired
	for _, name := range []string{"machines/web", "tenant/shop/a", "web"} {
		v.LoadBalancers = append(v.LoadBalancers, model.LoadBalancer{Name: name})
	}
	got = ""
	for _, lb := range balancers(&v, &d) {
		got += lb.Name + " "
	}
	if got != "machines/web web tenant/shop/a " {
		t.Error(got)
	}
	count := 0
	for _, s := range pick(many(2000, func(i int, s *model.VIPStatus) {
		if s.Owner = ""; i < 1500 {
			s.VIP.Kind, s.Announced, s.Owner = model.KindTenantService, true, "m1"
		}
	}), v1alpha1.MaxNodeStatusVIPs) {
		if s.VIP.Kind != model.KindTenantService {
			count++
		}
	}
	if count != v1alpha1.MaxNodeStatusVIPs {
		t.Errorf("%d of the node's own cluster", count)
	}
	s := snapshot{loadBalancers: []model.LoadBalancer{{Name: "tenant/shop/a"}, {Name: "tenant/shop/b"}, {Name: "web"}}}
	for i, n := range []int{4000, 100, 200} {
		for k := range n {
			s.loadBalancers[i].Servers = append(s.loadBalancers[i].Servers, model.Server{Addr: netip.AddrFrom4([4]byte{10, byte(i), byte(k >> 8), byte(k)})})
		}
	}
	c := make(chan prometheus.Metric, 3*4300)
	s.collectBackends(c)
	if len(c) != 3*300 {
		t.Errorf("%d series, want those of web and tenant/shop/b", len(c))
	}
}

// TestChecksOfBackendsAreLeftOut: of a thousand backends the object of a node has no check each.
func TestChecksOfBackendsAreLeftOut(t *testing.T) {
	v := viewOf()
	v.Health = map[string]model.HealthState{"api": {}, "web/10.0.0.11": {}, "web/10.0.0.12": {}}
	v.LoadBalancers = []model.LoadBalancer{{Name: "web", Servers: []model.Server{{Check: "web/10.0.0.11"}, {Check: "web/10.0.0.12"}, {}}}}
	d := statuses()
	s := clusterStatus(v, &d, nil)
	if len(s.Health) != 1 || s.Health[0].Name != "api" {
		t.Errorf("%+v", s.Health)
	}
	if own := status(v, &d); len(own.Health) != 3 {
		t.Errorf("the node itself tells of %+v", own.Health)
	}
}

func TestSummaryCountsAddresses(t *testing.T) {
	l2, bgp := vipStatus(addrA, "m1", model.ReasonOwner), vipStatus(addrA, "m1", model.ReasonAdvertised)
	l2.Announced, bgp.Announced, bgp.BGP = true, true, true
	d := statuses(l2, bgp, vipStatus(addrB, "m2", model.ReasonStandby))
	s := clusterStatus(viewOf(), &d, nil)
	same(t, "summary", *s.Summary, v1alpha1.NodeSummary{VIPs: 2, Announced: 1, Members: "0/0"})
}

// TestVIPs: who asks for the status of the cluster gets all VIPs beside those that it names, and the
// same list for as long as it is the same decision.
func TestVIPs(t *testing.T) {
	d := &Daemon{view: *viewOf(), last: statuses()}
	d.last.Gen, d.last.Status = 1, many(v1alpha1.MaxNodeStatusVIPs+100, func(int, *model.VIPStatus) {})
	if all := d.VIPs(); all != nil {
		t.Errorf("%d VIPs before the first turn", len(all))
	}
	for range 2 {
		d.ClusterStatus() // asks
		d.answer()
		if s := d.ClusterStatus(); len(s.VIPs) != v1alpha1.MaxNodeStatusVIPs {
			t.Errorf("the status names %d VIPs", len(s.VIPs))
		}
		if all := d.VIPs(); len(all) != len(d.last.Status) || &all[0] != &d.last.Status[0] {
			t.Errorf("%d VIPs, or copies, of %d", len(all), len(d.last.Status))
		}
	}
	before := d.VIPs()
	d.last.Gen, d.last.Status = 2, many(2, func(int, *model.VIPStatus) {})
	d.answer()
	if all := d.VIPs(); len(all) != 2 || len(before) != v1alpha1.MaxNodeStatusVIPs+100 {
		t.Errorf("%d VIPs after another decision, and %d of the one before", len(all), len(before))
	}
}

// TestNamed: people may leave out what sets the names of tenants apart.
func TestNamed(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	of := model.VIP{Addr: addr, Name: model.TenantName(model.Key{Namespace: "shop", Name: "default.web"})}
	hubs := model.VIP{Addr: addr, Name: "shop/default.web"}
	for by, want := range map[string][2]bool{
		"tenant/shop/default.web": {true, false}, "shop/default.web": {true, true}, "192.0.2.1": {true, true}, "default.web": {}, "shop": {},
	} {
		if got := [2]bool{named(&of, by), named(&hubs, by)}; got != want {
			t.Errorf("%s: %v, want %v", by, got, want)
		}
	}
}
