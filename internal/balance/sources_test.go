package balance

import (
	"net/netip"
	"slices"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// TestSources: servers see sources that the owner of the VIP has. One that another node has, or that
// has no place here, is replaced by the VIP, and the others keep their connections.
func TestSources(t *testing.T) {
	one, two := netip.MustParseAddr("10.0.0.201"), netip.MustParseAddr("10.0.0.202")
	holds := func(v *model.View, vips ...netip.Addr) {
		v.Memory.VIPs = make(map[netip.Addr]model.VIPMemory)
		for _, a := range vips {
			v.Memory.VIPs[a] = model.VIPMemory{Phase: model.PhaseOwner}
		}
	}
	claims := func(v *model.View, by model.NodeName, vips ...netip.Addr) {
		for _, a := range vips {
			v.Gossip.Claims[a] = []model.Claim{{Owner: by, Epoch: 1}}
		}
	}
	for what, x := range map[string]struct {
		change func(*model.View)
		want   []netip.Addr
	}{
		"nobody has anything": {func(*model.View) {}, []netip.Addr{one, two}},
		"this node has all":   {func(v *model.View) { holds(v, vip4, one, two) }, []netip.Addr{one, two}},
		"another one does":    {func(v *model.View) { claims(v, "m2", vip4, one, two) }, []netip.Addr{one, two}},
		"another one has a source": {func(v *model.View) {
			holds(v, vip4, one)
			claims(v, "m2", two)
		}, []netip.Addr{one, vip4}},
		"another one has the VIP": {func(v *model.View) {
			holds(v, one, two)
			claims(v, "m2", vip4)
		}, nil},
		"that one is dead": {func(v *model.View) {
			holds(v, vip4, one)
			claims(v, "m3", two)
		}, []netip.Addr{one, two}},
		"a source is handed over, and not announced yet": {func(v *model.View) {
			holds(v, vip4, one)
			m := model.VIPMemory{Phase: model.PhaseTaking}
			m.Consented, m.From = true, "m2"
			v.Memory.VIPs[two] = m
		}, []netip.Addr{one, vip4}},
		"a source is taken after a crash, and not announced yet": {func(v *model.View) {
			holds(v, vip4, one)
			m := model.VIPMemory{Phase: model.PhaseTaking}
			m.From = "m3"
			v.Memory.VIPs[two] = m
		}, []netip.Addr{one, two}},
		"a foreign host has one": {func(v *model.View) {
			holds(v, vip4, one)
			v.Memory.VIPs[two] = model.VIPMemory{Told: model.Told{Reason: model.ReasonConflict}}
		}, []netip.Addr{one, vip4}},
		"a foreign host answers for one of this node": {func(v *model.View) {
			holds(v, vip4, one, two)
			v.Applied = map[model.SinkName]model.Applied{model.SinkLayer2: {VIPs: map[netip.Addr]model.AppliedVIP{two: {Duplicate: model.MAC{2}}}}}
		}, []netip.Addr{one, vip4}},
		"a foreign host answers for one of another node": {func(v *model.View) {
			claims(v, "m2", vip4, one)
			v.Gossip.Claims[two] = []model.Claim{{Owner: "m2", Epoch: 1, Duplicate: model.MAC{2}}}
		}, []netip.Addr{one, vip4}},
		"a foreign host had one, which another node has now": {func(v *model.View) {
			claims(v, "m2", vip4, one, two)
			v.Memory.VIPs = map[netip.Addr]model.VIPMemory{two: {Told: model.Told{Reason: model.ReasonConflict}}}
		}, []netip.Addr{one, two}},
		"a source is taken yet": {func(v *model.View) { holds(v, vip4, one) }, []netip.Addr{one, two}},
		"one has no place here": {func(v *model.View) { v.VIPs[1].Interfaces = []string{"eth9"} }, []netip.Addr{vip4, two}},
		"none is asked for":     {func(v *model.View) { v.LoadBalancers[0].Sources = nil }, nil},
		"of the other family":   {func(v *model.View) { v.LoadBalancers[0].Sources = []netip.Addr{vip6} }, nil},
	} {
		bed := newBed(t)
		bed.is(model.HealthUp, a, b, c, six)
		v := node(bed)
		v.LoadBalancers[0].VIPs, v.LoadBalancers[0].Sources = []netip.Addr{vip4, one, two}, []netip.Addr{one, two}
		for _, a := range []netip.Addr{one, two} {
			more := v.VIPs[0]
			more.Addr = a
			v.VIPs = append(v.VIPs, more)
		}
		v.Gossip.Claims = make(map[netip.Addr][]model.Claim)
		v.Gossip.Members = map[model.NodeName]model.Member{"m2": {State: model.MemberAlive}, "m3": {State: model.MemberDead}}
		x.change(v)
		f := Forward(v)
		i := slices.IndexFunc(f.State.Services, func(s model.ForwardService) bool { return s.Addr == vip4 })
		if got := f.State.Services[i].Sources; !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", what, got, x.want)
		}
	}
}

// TestSourcesOfOneClient: connections of one client, from one port, to several VIPs have different
// sources. With one source they would be the same connection to a server, which only a balancer that
// has them all sees.
func TestSourcesOfOneClient(t *testing.T) {
	ipv4 := []netip.Addr{vip4, netip.MustParseAddr("10.0.0.201"), netip.MustParseAddr("10.0.0.202"), netip.MustParseAddr("10.0.0.203")}
	ipv6 := []netip.Addr{vip6, netip.MustParseAddr("fd00::201")}
	for what, x := range map[string]struct{ sources, clients []netip.Addr }{
		"all are sources":                {slices.Concat(ipv4, ipv6), slices.Concat(ipv4, ipv6)},
		"two more than clients know":     {slices.Concat(ipv4[2:], ipv6), slices.Concat(ipv4[:2], ipv6)},
		"clients know one that is none":  {ipv4[1:], ipv4[:3]},
		"clients know those, and others": {ipv4[:2], ipv4[:2]},
	} {
		lb := &model.LoadBalancer{VIPs: slices.Concat(ipv4, ipv6), Sources: x.sources}
		used := make(map[netip.Addr][]netip.Addr)
		for _, vip := range x.clients {
			used[vip] = sources(&model.View{Self: "m1"}, &wanted{lb, lb, nil}, lb.VIPs, vip)
			if of := slices.SortedFunc(slices.Values(used[vip]), netip.Addr.Compare); !slices.Equal(of, slices.DeleteFunc(slices.Clone(x.sources), func(s netip.Addr) bool { return s.Is4() != vip.Is4() })) {
				t.Errorf("%s: %s has %v, not each source once", what, vip, of)
			}
			for other, of := range used {
				for i, s := range used[vip] {
					if other != vip && i < len(of) && of[i] == s {
						t.Errorf("%s: connections of one port to %s and to %s come from %s", what, other, vip, s)
					}
				}
			}
		}
	}
}

// TestSourcesWhileOneIsRemoved: a node that has yet to hand an address over, which is configured no more, and
// the others give connections to the addresses that stay the same sources.
func TestSourcesWhileOneIsRemoved(t *testing.T) {
	stay := []netip.Addr{netip.MustParseAddr("10.0.0.201"), netip.MustParseAddr("10.0.0.202")}
	lb := &model.LoadBalancer{VIPs: stay, Sources: stay}
	with := *lb
	with.VIPs = slices.Concat([]netip.Addr{vip4}, stay)
	holder, other := &wanted{&with, lb, []netip.Addr{vip4}}, &wanted{lb, lb, nil}
	for _, vip := range stay {
		here, there := sources(&model.View{Self: "m1"}, holder, with.VIPs, vip), sources(&model.View{Self: "m2"}, other, stay, vip)
		if len(here) != 2 || !slices.Equal(here, there) {
			t.Errorf("%s: %v where one is removed, %v elsewhere", vip, here, there)
		}
	}
}
