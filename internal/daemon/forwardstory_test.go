package daemon

import (
	"net/netip"
	"slices"
	"testing"

	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/model"
)

// TestForwardStory: a person sees where new connections go, and why a server gets none.
func TestForwardStory(t *testing.T) {
	vip := netip.MustParseAddr("10.0.0.200")
	server := func(addr string, weight int) model.Server {
		return model.Server{Addr: netip.MustParseAddr(addr), Weight: weight, Check: addr}
	}
	v := model.View{
		LoadBalancers: []model.LoadBalancer{{
			Name: "api", VIPs: []netip.Addr{vip}, Ports: []model.ForwardPort{{Protocol: model.TCP, Port: 443, TargetPort: 6443}},
			Servers: []model.Server{server("10.0.0.11", 30), server("10.0.0.12", 10), server("10.0.0.13", 0), server("10.0.0.14", 10), server("fd00::11", 10)},
		}},
		Health: map[string]model.HealthState{
			"10.0.0.11": {State: model.HealthUp}, "10.0.0.12": {State: model.HealthUp}, "10.0.0.13": {State: model.HealthUp},
			"10.0.0.14": {State: model.HealthDown, Detail: "connection refused"},
		},
	}
	o := balance.Step(&balance.Input{Wanted: &v.LoadBalancers[0], Health: v.Health, Memory: model.BalanceMemory{Ready: true}})
	d := model.Desired{Forward: model.ForwardState{Services: o.Services}}
	want := []string{
		"10.0.0.11 gets 75 % of the new connections.",
		"10.0.0.12 gets 25 % of the new connections.",
		"10.0.0.13 gets no new connections: its weight is 0.",
		"10.0.0.14 gets no new connections: its check is down: connection refused.",
	}
	if got := forwardStory(&v, &d, &model.VIP{Addr: vip}); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	v.Health["10.0.0.12"] = model.HealthState{State: model.HealthUp, Failing: "no answer in time"}
	o = balance.Step(&balance.Input{Wanted: &v.LoadBalancers[0], Health: v.Health, Memory: o.Memory})
	if got := forwardStory(&v, &model.Desired{Forward: model.ForwardState{Services: o.Services}}, &model.VIP{Addr: vip})[1]; got != "10.0.0.12 gets no new connections: its last check failed: no answer in time." {
		t.Errorf("%q", got)
	}
	v.Health["10.0.0.11"], v.Health["10.0.0.12"] = v.Health["10.0.0.14"], v.Health["10.0.0.14"]
	if got := forwardStory(&v, &d, &model.VIP{Addr: vip})[0]; got != "10.0.0.11 gets 75 % of the new connections, although its check is down: connection refused." {
		t.Errorf("%q", got)
	}
}
