package unconfigured

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

var one, two, three = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::3")

func addrs(vips []model.VIP) []netip.Addr {
	var out []netip.Addr
	for i := range vips {
		out = append(out, vips[i].Addr)
	}
	return out
}

// TestWithRemoved: a VIP that was removed from the files is let go only if this node has it.
func TestWithRemoved(t *testing.T) {
	status := func(a netip.Addr) model.VIPStatus {
		return model.VIPStatus{VIP: model.VIP{Addr: a, L2: true, Balanced: true, BGP: []model.BGPAdvert{{}}}}
	}
	for what, c := range map[string]struct {
		change func(*model.View)
		want   []netip.Addr
	}{
		"owner":        {func(v *model.View) { v.Memory.VIPs[one] = model.VIPMemory{Phase: model.PhaseOwner} }, []netip.Addr{one, two}},
		"never had it": {func(*model.View) {}, []netip.Addr{two}},
		"still asks":   {func(v *model.View) { v.Memory.VIPs[one] = model.VIPMemory{Phase: model.PhaseProbing} }, []netip.Addr{two}},
		"of a Service": {func(v *model.View) { owns(v); v.Memory.Lists.Status[0].VIP.Unbound = true }, []netip.Addr{two}},
		"of a LoadBalancer": {func(v *model.View) {
			owns(v)
			v.Memory.Lists.Status[0].VIP.Unbound, v.Memory.Lists.Status[0].VIP.Kind = true, model.KindLoadBalancer
		}, []netip.Addr{one, two}},
		"of a LoadBalancer, handed over": {func(v *model.View) {
			v.Now = time.Unix(1000, 0)
			v.Memory.VIPs[one] = model.VIPMemory{HeldUntil: v.Now.Add(1)}
			v.Gossip.Claims = map[netip.Addr][]model.Claim{one: {{Owner: "m2", Epoch: 1}}}
			v.Gossip.Members = map[model.NodeName]model.Member{"m2": {State: model.MemberAlive}}
			v.Memory.Lists.Status[0].VIP.Unbound, v.Memory.Lists.Status[0].VIP.Kind = true, model.KindLoadBalancer
		}, []netip.Addr{one, two}},
		"of a LoadBalancer, and nobody has it": {func(v *model.View) {
			v.Now = time.Unix(1000, 0)
			v.Memory.VIPs[one] = model.VIPMemory{HeldUntil: v.Now.Add(1)}
			v.Gossip.Claims = map[netip.Addr][]model.Claim{one: {{Owner: "m2", Epoch: 1}}} // which is dead
			v.Memory.Lists.Status[0].VIP.Unbound, v.Memory.Lists.Status[0].VIP.Kind = true, model.KindLoadBalancer
		}, []netip.Addr{two}},
		"of a LoadBalancer, a minute later": {func(v *model.View) {
			v.Now = time.Unix(1000, 0)
			v.Memory.VIPs[one] = model.VIPMemory{HeldUntil: v.Now}
			v.Memory.Lists.Status[0].VIP.Unbound, v.Memory.Lists.Status[0].VIP.Kind = true, model.KindLoadBalancer
		}, []netip.Addr{two}},
		"told by BGP":     {func(v *model.View) { owns(v); v.Memory.Lists.Status[0].BGP = true }, []netip.Addr{two}},
		"configured anew": {func(v *model.View) { owns(v); v.VIPs = []model.VIP{{Addr: one}, {Addr: two}} }, []netip.Addr{one, two}},
		"connections that another node keeps too": {func(v *model.View) {
			v.Memory.BGP[one] = model.BGPMemory{Balanced: true, Phase: model.BGPAdvertised}
			v.Gossip.Eligible = map[netip.Addr][]model.NodeName{one: {"m1", "m2"}}
		}, []netip.Addr{one, two}},
		"connections that only this node keeps": {func(v *model.View) {
			v.Memory.BGP[one] = model.BGPMemory{Balanced: true, Phase: model.BGPAdvertised}
			v.Gossip.Eligible = map[netip.Addr][]model.NodeName{one: {"m1"}}
		}, []netip.Addr{two}},
	} {
		v := &model.View{Self: "m1", VIPs: []model.VIP{{Addr: two}}, Memory: model.Memory{
			VIPs: map[netip.Addr]model.VIPMemory{}, BGP: map[netip.Addr]model.BGPMemory{}, Lists: model.Lists{Status: []model.VIPStatus{status(one), status(two)}},
		}}
		c.change(v)
		before := slices.Clone(v.VIPs)
		got := WithRemoved(v).VIPs
		if !slices.Equal(addrs(got), c.want) {
			t.Errorf("%s: %v, want %v", what, addrs(got), c.want)
		}
		if !slices.EqualFunc(v.VIPs, before, func(a, b model.VIP) bool { return a.Same(&b) }) {
			t.Errorf("%s: the View has changed", what)
		}
		if x := got[0]; x.Addr == one && what != "configured anew" && (x.Barred != model.ReasonRemoved || (x.BGP != nil) != x.Forwarded() || x.Balanced) {
			t.Errorf("%s: the removed VIP is %+v", what, x)
		}
	}
}

func owns(v *model.View) { v.Memory.VIPs[one] = model.VIPMemory{Phase: model.PhaseOwner} }

func TestByLayer2(t *testing.T) {
	v := &model.View{VIPs: []model.VIP{{Addr: two}}, Memory: model.Memory{VIPs: map[netip.Addr]model.VIPMemory{
		three: {Interface: "eth1", Unbound: true}, two: {}, one: {Interface: "eth0"},
	}}}
	got := ByLayer2(v, 1)
	if !slices.Equal(addrs(got), []netip.Addr{one, three}) || got[0].Interfaces[0] != "eth0" || !got[1].Unbound {
		t.Errorf("%+v", got)
	}
	if got := ByLayer2(v, 3); got != nil {
		t.Errorf("all belong to VIPs that are configured, and yet: %+v", got)
	}
}

func TestOnLoopback(t *testing.T) {
	v := &model.View{VIPs: []model.VIP{{Addr: two}}, Memory: model.Memory{BGP: map[netip.Addr]model.BGPMemory{two: {}, three: {Unbound: true}}}}
	report := func(lo map[netip.Addr]model.AppliedVIP) {
		v.Applied = map[model.SinkName]model.Applied{model.SinkAddress: {Loopback: lo}}
	}
	report(map[netip.Addr]model.AppliedVIP{two: {Bound: true}, three: {Bound: true}, one: {Bound: true}})
	if got := OnLoopback(v, 1, 1); !slices.Equal(addrs(got), []netip.Addr{one, three}) || got[0].Unbound || !got[1].Unbound {
		t.Errorf("%+v", got)
	}
	report(map[netip.Addr]model.AppliedVIP{one: {Err: "it could not be removed"}})
	if got := OnLoopback(v, 1, 0); !slices.Equal(addrs(got), []netip.Addr{three}) {
		t.Errorf("what is not bound is let go: %+v", got)
	}
	report(nil)
	if got := OnLoopback(v, 1, 0); !slices.Equal(addrs(got), []netip.Addr{three}) {
		t.Errorf("what is remembered and not bound any more is not let go: %+v", got)
	}
	report(map[netip.Addr]model.AppliedVIP{two: {Bound: true}})
	if got := OnLoopback(v, 2, 1); got != nil {
		t.Errorf("all is known to belong to VIPs that are configured, and yet: %+v", got)
	}
}
