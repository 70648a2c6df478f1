package ring

import (
	"net/netip"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// A ring is refused on a link only if the way back to clients is another one: rp_filter there
// does no harm where the default route is, or if there is none.
func TestWayBackByAnotherLink(t *testing.T) {
	eth0 := model.Link{Name: "eth0", Strict: true}
	for _, c := range []struct {
		name   string
		change func(l *model.Link)
		others []model.Link
		want   bool
	}{
		{"another one has the default route", nil, []model.Link{{Name: "eth1", Gateway: true}}, true},
		{"nobody has", nil, []model.Link{{Name: "eth1"}, {Name: "eth2"}}, false},
		{"both have", func(l *model.Link) { l.Gateway = true }, []model.Link{{Name: "eth1", Gateway: true}}, false},
		{"it does not look", func(l *model.Link) { l.Strict = false }, []model.Link{{Name: "eth1", Gateway: true}}, false},
		{"it is alone", nil, nil, false},
	} {
		l := eth0
		if c.change != nil {
			c.change(&l)
		}
		links := map[string]model.Link{l.Name: l}
		for _, o := range c.others {
			links[o.Name] = o
		}
		if got := oneWay(links, &l); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestNoRelayOfOneFamily: a member that shares a subnet with this node in one family only is
// told of for the VIPs of the other one, whichever VIP comes first.
func TestNoRelayOfOneFamily(t *testing.T) {
	names := []model.NodeName{"m2"} // the others
	v := &model.View{Self: "m1"}
	v.Links = map[string]model.Link{"eth0": {Name: "eth0", Up: true, Prefixes: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.11/24"), netip.MustParsePrefix("fd00::11/64")}}}
	v.Gossip.Members = map[model.NodeName]model.Member{"m2": {Name: "m2", State: model.MemberAlive, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.12")}}}
	v.Gossip.Holders = map[netip.Addr][]model.NodeName{four: names, six: names}
	all := New(v, 1, 0)
	for range 2 {
		if got := all.Obstacle(&model.VIP{Addr: four}, "eth0"); got != "" {
			t.Errorf("IPv4: %s", got)
		}
		if got, want := all.Obstacle(&model.VIP{Addr: six}, "eth0"), "nothing is relayed to m2: no address in a subnet of eth0"; got != want {
			t.Errorf("IPv6: %q, want %q", got, want)
		}
	}
}

// TestUnfit: what is in the way of a ring, in words, the kernel first. The way back matters for
// IPv4 only.
func TestUnfit(t *testing.T) {
	links := map[string]model.Link{"eth0": {Name: "eth0", Strict: true}, "eth1": {Name: "eth1", Gateway: true}}
	seen := &model.RingHost{
		Kernel: model.PerFamily{"no 4", "no 6"}, Drops: model.PerFamily{"chain4", "chain6"},
		Listeners: []netip.AddrPort{netip.AddrPortFrom(four, 80), netip.AddrPortFrom(six, 81)},
	}
	for _, c := range []struct {
		mend      func()
		four, six string
	}{
		{func() {}, "the kernel cannot relay: no 4", "the kernel cannot relay: no 6"},
		{func() { seen.Kernel = model.PerFamily{} }, "a server listens on the address itself, port 80", "a server listens on the address itself, port 81"},
		{func() { seen.Listeners = nil }, "chain4 drops what is relayed; let it accept `ct state untracked ip daddr 10.0.0.200`", "chain6 drops what is relayed; let it accept `ct state untracked ip6 daddr fd00::200`"},
		{func() { seen.Drops = model.PerFamily{} }, "rp_filter is 1 on eth0", ""},
	} {
		c.mend()
		for a, want := range map[netip.Addr]string{four: c.four, six: c.six} {
			if got := Unfit(seen, links, "eth0", a); !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("%s: %q, want %q", a, got, want)
			}
		}
	}
	if got := Unfit(nil, links, "eth1", four) + Unfit(nil, links, "eth9", four); got != "" {
		t.Errorf("nothing is known: %q", got)
	}
	for want, c := range map[string]struct {
		seen  *model.RingHost
		links map[string]model.Link
	}{
		"":                           {&model.RingHost{Proxy: model.ProxyIPTables}, links},
		"tracked connections cannot": {&model.RingHost{Untold: "no"}, links},
		"kube-proxy has no rules":    {&model.RingHost{Proxy: model.ProxyNone}, links},
		"kube-proxy is in IPVS mode": {&model.RingHost{Proxy: model.ProxyIPTables}, map[string]model.Link{model.IPVSInterface: {}}},
	} {
		if got := ServiceUnfit(c.seen, c.links); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("Services: %q, want %q", got, want)
		}
	}
}

// TestFitByLink: what was found out about one interface is not said of the next one. By BGP one
// link that works is enough, if there is another node on it.
func TestFitByLink(t *testing.T) {
	v := world(2)
	v.Links["eth1"] = model.Link{Name: "eth1", Up: true, Gateway: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.0.1/24")}}
	strict := v.Links["eth0"]
	strict.Strict = true
	v.Links["eth0"] = strict
	vip := &model.VIP{Addr: four, L2: true}
	all := New(v, 1, 0)
	look := func(what string, ways map[string]bool) {
		t.Helper()
		for range 2 {
			for iface, want := range ways {
				if got := all.Keeps(vip, iface); got != want {
					t.Errorf("%s: on %q %v, want %v", what, iface, got, want)
				}
			}
		}
	}
	look("nobody is on eth1", map[string]bool{"": false, "eth0": false, "eth1": true})
	change(v, 2, func(m *model.Member) { m.Addrs = append(m.Addrs, netip.MustParseAddr("192.168.0.2")) })
	all = New(v, 1, 0)
	look("the other one is on both", map[string]bool{"": true, "eth0": false, "eth1": true})
	down := v.Links["eth1"]
	down.Up = false
	v.Links["eth1"] = down
	all = New(v, 1, 0)
	look("eth1 is down", map[string]bool{"": false, "eth0": false})
	v.NoRelay = true
	look("no rings here", map[string]bool{"": false, "eth1": false})
}

// TestRetries: a ring is asked for although the kernel cannot relay, which may have changed, and
// not where anything else is in the way.
func TestRetries(t *testing.T) {
	v := world(2)
	vip, of := &model.VIP{Addr: four}, &model.VIP{Addr: four, Unbound: true}
	for _, c := range []struct {
		seen         *model.RingHost
		relay, keep  bool
		bound, other bool
	}{
		{nil, true, true, false, false},
		{&model.RingHost{Drops: model.PerFamily{"chain"}}, true, true, false, false},
		{&model.RingHost{Kernel: model.PerFamily{"", "no 6"}}, true, true, false, false},
		{&model.RingHost{Kernel: model.PerFamily{"no 4"}}, true, true, true, true},
		{&model.RingHost{Kernel: model.PerFamily{"no 4"}}, true, false, true, false},
		{&model.RingHost{Kernel: model.PerFamily{"no 4"}}, false, true, false, false},
	} {
		v.Applied[model.SinkRelay] = model.Applied{Ring: c.seen}
		v.NoRelay, v.ServiceConnections = !c.relay, map[bool]model.ServiceConnections{true: model.ServicesKeep}[c.keep]
		v.VIPs = []model.VIP{*vip, *of}
		all := New(v, 1, 0)
		if got := all.Retries(vip); got != c.bound {
			t.Errorf("%+v: %v", c, got)
		}
		if got := all.Retries(of); got != c.other {
			t.Errorf("%+v: a Service: %v", c, got)
		}
	}
}

// TestObstacle: people hear of nothing that they asked for, and of nodes that nothing is relayed
// to only if those are alive and in one ring.
func TestObstacle(t *testing.T) {
	apart := func(v *model.View) {
		change(v, 2, func(m *model.Member) { m.Addrs = []netip.Addr{netip.MustParseAddr("10.9.0.2")} })
	}
	for _, c := range []struct {
		what   string
		nodes  int
		change func(*model.View, *model.VIP)
		want   string
	}{
		{"nothing", 3, func(*model.View, *model.VIP) {}, ""},
		{"another subnet", 3, func(v *model.View, _ *model.VIP) { apart(v) }, "nothing is relayed to m02: no address in a subnet of eth0"},
		{"it is dead", 3, func(v *model.View, _ *model.VIP) {
			apart(v)
			change(v, 2, func(m *model.Member) { m.State = model.MemberDead })
		}, ""},
		{"as many as a ring can have", model.MaxRing + 1, func(v *model.View, _ *model.VIP) { apart(v) }, "nothing is relayed to m02: no address in a subnet of eth0"},
		{"many rings", model.MaxRing + 2, func(v *model.View, _ *model.VIP) { apart(v) }, ""},
		{"no rings here", 3, func(v *model.View, _ *model.VIP) { apart(v); v.NoRelay = true }, ""},
		{"Services are not kept", 3, func(v *model.View, vip *model.VIP) { apart(v); vip.Unbound = true }, ""},
		{"IPVS", 3, func(v *model.View, vip *model.VIP) {
			vip.Unbound, v.ServiceConnections = true, model.ServicesKeep
			v.Links[model.IPVSInterface] = model.Link{}
		}, "kube-proxy is in IPVS mode: only the modes nftables and iptables track connections where lbd looks for them"},
	} {
		v, vip := world(c.nodes), &model.VIP{Addr: four, L2: true}
		c.change(v, vip)
		v.VIPs = []model.VIP{*vip}
		all := New(v, 1, 0)
		if got := all.Obstacle(vip, "eth0"); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	v := world(2)
	apart(v)
	all := New(v, 1, 0)
	if got := all.Obstacle(&model.VIP{Addr: four}, ""); got != "nothing is relayed to m02: no address in a subnet of this node" {
		t.Errorf("by BGP: %q", got)
	}
	if all.Obstacle(&model.VIP{Addr: four}, "eth0") != "nothing is relayed to m02: no address in a subnet of eth0" {
		t.Error("what is said of any link is said of one")
	}
	for _, l := range []model.Link{{Name: "eth1"}, {Name: model.LoopbackInterface, Up: true}} {
		l.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")}
		v.Links[l.Name] = l
		if all = New(v, 1, 0); all.Obstacle(&model.VIP{Addr: four}, "") == "" {
			t.Errorf("it is reached by %s", l.Name)
		}
	}
}
