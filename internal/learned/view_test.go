package learned

import (
	"net/netip"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// routed is a View of the box, with its VIPs, a plain one, and these masters.
func routed(masters ...int) *model.View {
	in := box()
	v := &model.View{Now: in.Now, Started: in.Started, Links: in.Links, Listeners: in.Listeners, Applied: map[model.SinkName]model.Applied{}}
	v.VIPs = []model.VIP{
		{Addr: netip.MustParseAddr("203.0.113.0"), Kind: "VirtualIP", L2: true},
		{Addr: vip.Addr(), Kind: model.KindBGPListener, L2: true, Unbound: true},
		{Addr: vip6.Addr(), Kind: model.KindBGPListener, L2: true, Unbound: true},
	}
	var told model.Applied
	for _, m := range masters {
		told.Learned = append(told.Learned, path(vip, m))
	}
	v.Applied[model.SinkBGP] = told
	return v
}

// kernel has the routes to a prefix.
func kernel(v *model.View, prefix netip.Prefix, is model.AppliedRoute) {
	v.Applied[model.SinkRoute] = model.Applied{Routes: map[netip.Prefix]model.AppliedRoute{prefix: is}}
}

// TestStanding: this machine serves a VIP of masters while one is known and the kernel sends to it.
func TestStanding(t *testing.T) {
	hop := []model.NextHop{{Gateway: netip.MustParseAddr("10.0.0.11"), Interface: "eth0", Weight: 1}}
	for _, c := range []struct {
		name    string
		masters []int
		change  func(*model.View)
		want    model.Reason
		words   string
	}{
		{"a master, and the route", []int{11}, func(v *model.View) { kernel(v, vip, model.AppliedRoute{NextHops: hop}) }, model.ReasonOwner, ""},
		{"no route yet", []int{11}, func(*model.View) {}, model.ReasonHealthPending, "not in the kernel yet"},
		{"not this route yet", []int{11}, func(v *model.View) { kernel(v, vip6, model.AppliedRoute{NextHops: hop}) }, model.ReasonHealthPending, "not in the kernel yet"},
		{"no route to be had", []int{11}, func(v *model.View) { kernel(v, vip, model.AppliedRoute{Err: "no buffer space"}) }, model.ReasonNoNextHop, "no buffer space"},
		{"no master", nil, func(v *model.View) { kernel(v, vip, model.AppliedRoute{NextHops: hop}) }, model.ReasonNoNextHop, "no master advertises 203.0.113.1/32"},
		{"just started, the route is there", nil, func(v *model.View) { v.Now = start; kernel(v, vip, model.AppliedRoute{NextHops: hop}) }, model.ReasonOwner, ""},
		{"just started", nil, func(v *model.View) { v.Now = start }, model.ReasonHealthPending, "no time to connect"},
		{"an address of this machine", []int{11}, func(v *model.View) {
			l := v.Links["eth1"]
			l.Prefixes = append(l.Prefixes, vip)
			v.Links["eth1"] = l
		}, model.ReasonNoNextHop, "it holds 203.0.113.1, an address of this machine"},
		{"barred already", nil, func(v *model.View) { v.VIPs[1].Barred, v.VIPs[1].BarredDetail = model.ReasonNodeExcluded, "label" }, model.ReasonNodeExcluded, "label"},
		{"accepted no more", []int{11}, func(v *model.View) { v.Listeners[0].Accept = v.Listeners[0].Accept[1:] }, model.ReasonNoNextHop, "no BGPListener accepts it"},
	} {
		v := routed(c.masters...)
		c.change(v)
		r := Route(v)
		if got := r.VIPs[1]; got.Barred != c.want || !strings.Contains(got.BarredDetail, c.words) {
			t.Errorf("%s: %s, %s", c.name, got.Barred, got.BarredDetail)
		}
		if r.VIPs[0].Barred != model.ReasonOwner || v.VIPs[2].Barred != model.ReasonOwner {
			t.Errorf("%s: another VIP is barred, or the View was changed: %+v", c.name, r.VIPs)
		}
	}
}

// TestNoListener costs nothing and changes nothing.
func TestNoListener(t *testing.T) {
	v := routed(11)
	v.Listeners, v.VIPs = nil, v.VIPs[:1]
	if n := testing.AllocsPerRun(10, func() {
		if r := Route(v); len(r.State.Routes) > 0 || &r.VIPs[0] != &v.VIPs[0] {
			t.Errorf("%+v", r)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestMemoryIsKept: what is the same stays the same one.
func TestMemoryIsKept(t *testing.T) {
	v := routed(11)
	v.Memory.Learned = Route(v).Memory
	if r := Route(v); &r.Memory.Routes[0] != &v.Memory.Learned.Routes[0] {
		t.Error("the memory was made anew")
	}
}
