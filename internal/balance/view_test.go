package balance

import (
	"net/netip"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// node is a View of one that is on the network of the VIP.
func node(x *bed) *model.View {
	lb := *x.in.Wanted
	lb.VIPs = []netip.Addr{vip4}
	return &model.View{
		Now: x.in.Now, Self: "m1", Health: x.in.Health, LoadBalancers: []model.LoadBalancer{lb},
		VIPs: []model.VIP{{Addr: vip4, Name: "api", Kind: model.KindLoadBalancer, Unbound: true, L2: true}},
		Links: map[string]model.Link{
			"eth0": {Name: "eth0", Index: 2, Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}},
			"eth1": {Name: "eth1", Index: 3, Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.1/24")}},
		},
	}
}

// TestForwardsWhereTheVIPBelongs: an object of a cluster is read by all nodes. What is sent to an
// address of this node, or to one that it has no network of, is not forwarded.
func TestForwardsWhereTheVIPBelongs(t *testing.T) {
	link := func(v *model.View, name string, change func(*model.Link)) {
		l := v.Links[name]
		change(&l)
		v.Links[name] = l
	}
	for what, c := range map[string]struct {
		change func(*model.View)
		want   string // the interface; "-": not forwarded
	}{
		"on its network": {func(*model.View) {}, "eth0"},
		"an own address": {func(v *model.View) {
			link(v, "eth1", func(l *model.Link) { l.Prefixes[0] = netip.PrefixFrom(vip4, 24) })
		}, "-"},
		"no network of it":  {func(v *model.View) { delete(v.Links, "eth0") }, "-"},
		"another interface": {func(v *model.View) { v.VIPs[0].Interfaces = []string{"eth1"} }, "eth1"},
		"no such interface": {func(v *model.View) { v.VIPs[0].Interfaces = []string{"eth7"} }, "-"},
		"not selected":      {func(v *model.View) { v.VIPs[0].NodeSelector = map[string]string{"rack": "a"} }, "-"},
		"selected no more": {func(v *model.View) {
			v.VIPs[0].NodeSelector = map[string]string{"rack": "a"}
			v.Memory.VIPs = map[netip.Addr]model.VIPMemory{vip4: {Phase: model.PhaseHandover, Interface: "eth0"}}
		}, "eth0"},
		"selected": {func(v *model.View) {
			v.VIPs[0].NodeSelector = map[string]string{"rack": "a"}
			v.Labels = v.VIPs[0].NodeSelector
		}, "eth0"},
		"the cable is out": {func(v *model.View) { link(v, "eth0", func(l *model.Link) { l.Up = false }) }, ""},
		"and it was there": {func(v *model.View) {
			link(v, "eth0", func(l *model.Link) { l.Up = false })
			v.Memory.VIPs = map[netip.Addr]model.VIPMemory{vip4: {Interface: "eth0"}}
		}, "eth0"},
		"is not configured": {func(v *model.View) { v.VIPs = nil }, "-"},
	} {
		v := node(newBed(t))
		c.change(v)
		got := Forward(v)
		if forwarded := len(got.State.Services) > 0; forwarded != (c.want != "-") || forwarded && got.State.Services[0].Interface != c.want {
			t.Errorf("%s: %+v", what, got.State.Services)
		}
	}
}

// TestClaimed: while no node has the VIP, the address may be that of another machine.
func TestClaimed(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*model.View)
		want   bool
	}{
		"nobody":         {func(*model.View) {}, false},
		"another node":   {func(v *model.View) { v.Gossip.Claims = map[netip.Addr][]model.Claim{vip4: {{Owner: "m2", Epoch: 1}}} }, true},
		"this node":      {func(v *model.View) { v.Memory.VIPs = map[netip.Addr]model.VIPMemory{vip4: {Phase: model.PhaseTaking}} }, true},
		"about to probe": {func(v *model.View) { v.Memory.VIPs = map[netip.Addr]model.VIPMemory{vip4: {Phase: model.PhaseProbing}} }, false},
	} {
		v := node(newBed(t))
		c.change(v)
		if got := Forward(v).State.Services[0].Claimed; got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestServerThatIsAVIP: two LoadBalancers that lead to each other would send a packet to and fro.
func TestServerThatIsAVIP(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.in.VIPs = []model.VIP{{Addr: a}}
	o := x.step()
	for _, to := range o.Services[0].Slots.Slots {
		if to.Addr() == a {
			t.Fatal("new connections go to a VIP")
		}
	}
	x.in.VIPs = []model.VIP{{Addr: a}, {Addr: b}, {Addr: c}}
	o = x.step()
	if o.Standing[0] != model.ReasonUnhealthy || !strings.Contains(o.Detail[0], "10.0.0.11: it is a VIP of lbd") {
		t.Errorf("%v: %s", o.Standing[0], o.Detail[0])
	}
}
