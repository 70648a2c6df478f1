package balance

import (
	"net/netip"
	"slices"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// TestRemovedIsForwardedOn: what is configured no more and has yet to be handed over is forwarded as
// before, an object or one of its addresses, and nothing else.
func TestRemovedIsForwardedOn(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	v := node(x)
	other := netip.MustParseAddr("10.0.0.201")
	v.LoadBalancers[0].VIPs = []netip.Addr{vip4, other}
	second := v.VIPs[0]
	second.Addr = other
	v.VIPs = append(v.VIPs, second)
	forwarded := func(what string, want ...netip.Addr) {
		t.Helper()
		was := v.Memory.Balance
		v.Memory.Balance = Forward(v).Memory
		f := Forward(v)
		var got []netip.Addr
		for _, s := range f.State.Services {
			if s.Slots == nil || len(s.Slots.Slots) != 1024 {
				t.Errorf("%s: %s has no table", what, s.Addr)
			}
			got = append(got, s.Addr)
		}
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
		for name, m := range f.Memory {
			if n := v.Memory.Balance[name]; !m.Same(&n) {
				t.Errorf("%s: a second decision changes %+v, before that %+v", what, m, was[name])
			}
		}
	}
	forwarded("at first", vip4, other)
	fewer := v.LoadBalancers[0]
	fewer.VIPs = []netip.Addr{vip4}
	v.LoadBalancers = []model.LoadBalancer{fewer}
	v.VIPs[1].Barred = model.ReasonRemoved
	forwarded("one address less", vip4, other)
	if got := Verdicts(v.Memory.Balance)[v.VIPs[1].Addr]; got.Servers == 0 {
		t.Error("of the address that is removed nothing is told")
	}
	both := v.VIPs
	v.VIPs = both[:1]
	forwarded("and it is handed over", vip4)
	v.VIPs = both
	forwarded("it is not forwarded again", vip4)
	v.LoadBalancers, v.VIPs[0].Barred, v.Health = nil, model.ReasonRemoved, nil
	forwarded("the whole object", vip4)
	v.VIPs = nil
	if f := Forward(v); len(f.State.Services) != 0 || len(f.Memory) != 0 {
		t.Errorf("in the end: %+v", f)
	}
}

// TestRemovedAddressOfAnother: of an object that is gone one address belongs to another object now, and
// one has yet to be handed over. What is told of the first is what the other object says.
func TestRemovedAddressOfAnother(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	v := node(x)
	other := netip.MustParseAddr("10.0.0.201")
	v.LoadBalancers[0].VIPs = []netip.Addr{vip4, other}
	second := v.VIPs[0]
	second.Addr = other
	v.VIPs = append(v.VIPs, second)
	v.Memory.Balance = Forward(v).Memory
	next := v.LoadBalancers[0]
	next.Name, next.VIPs, next.Servers = "next", []netip.Addr{vip4}, next.Servers[:1]
	v.LoadBalancers = []model.LoadBalancer{next}
	v.VIPs[1].Barred = model.ReasonRemoved
	v.Memory.Balance = Forward(v).Memory
	want := v.Memory.Balance["next"].Fills[0].Verdict
	for range 50 { // maps have no order
		if got := Verdicts(v.Memory.Balance)[vip4]; got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
	}
	if got := Verdicts(v.Memory.Balance)[other]; got.Servers == 0 || got == want {
		t.Errorf("of the address that is removed: %+v", got)
	}
}
