package balance

import (
	"net/netip"
	"slices"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// TestReplies: what a server says is known by its port, unless clients know that by several names.
func TestReplies(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	if got := Forward(node(x)).State; len(got.Replies) > 0 || got.Services[0].ClientSource || Repliers(got.Services, vip4, nil) != nil {
		t.Errorf("servers see the VIP: %+v", got.Replies)
	}
	x.in.Wanted.ClientSource = true
	v := node(x)
	near := v.Links["eth0"]
	near.Prefixes = append(near.Prefixes, netip.MustParsePrefix("fd00::1/64"), netip.MustParsePrefix("10.0.0.7/32"), netip.MustParsePrefix("10.0.0.2/24"))
	v.Links["eth0"] = near
	got := Forward(v).State
	if s := got.Services[0]; !s.ClientSource || !slices.Equal(s.Near, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}) {
		t.Errorf("near are %v", s.Near)
	}
	of := func(got model.ForwardState, server netip.Addr, p model.Protocol, port uint16) netip.AddrPort {
		i := slices.IndexFunc(got.Replies, func(r model.ForwardReply) bool {
			return r.Server == netip.AddrPortFrom(server, port) && r.Protocol == p
		})
		if i < 0 {
			t.Fatalf("%s %s: no reply in %v", server, p, got.Replies)
		}
		return got.Replies[i].VIP
	}
	if is := of(got, b, model.TCP, 6443); is != netip.AddrPortFrom(vip4, 443) {
		t.Errorf("it is known as %s", is)
	}
	if r := Repliers(got.Services, vip4, nil); r == nil || !slices.Equal(r.Addrs, []netip.Addr{a, b, c}) || !slices.Contains(r.Ports, 6443) || Repliers(got.Services, vip6, nil) != nil {
		t.Errorf("repliers %+v", r)
	} else if again := Repliers(got.Services, vip4, r); again != r {
		t.Error("the same repliers are not taken over")
	} else if again := Repliers(got.Services, vip4, &model.Repliers{Addrs: r.Addrs}); again == nil || !again.Same(r) {
		t.Errorf("other repliers are taken over: %+v", again)
	}
	x.in.Wanted.Ports = append(slices.Clone(x.in.Wanted.Ports), model.ForwardPort{Protocol: model.TCP, Port: 8443, TargetPort: 6443})
	if is := of(Forward(node(x)).State, b, model.TCP, 6443); is.IsValid() {
		t.Errorf("of two names one is chosen: %s", is)
	}
}
