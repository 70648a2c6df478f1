package membership

import (
	"net/netip"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// TestDrainedOnceNothingIsLeft: who asks to drain a node may stop it then, so nothing may be
// said before it is known what it has.
func TestDrainedOnceNothingIsLeft(t *testing.T) {
	vip := netip.MustParseAddr("10.0.0.100")
	at := func(l2 model.Phase, bgp model.BGPPhase) model.Memory {
		return model.Memory{
			Membership: model.Membership{Settled: true}, VIPs: map[netip.Addr]model.VIPMemory{vip: {Phase: l2}}, BGP: map[netip.Addr]model.BGPMemory{vip: {Phase: bgp}},
		}
	}
	for _, c := range []struct {
		name string
		d    model.Desired
		want bool
	}{
		{"nothing left", model.Desired{Synced: true, Memory: at(model.PhaseIdle, model.BGPIdle)}, true},
		{"the sources have not said yet", model.Desired{Memory: at(model.PhaseIdle, model.BGPIdle)}, false},
		{"not settled", model.Desired{Synced: true}, false},
		{"takes it", model.Desired{Synced: true, Memory: at(model.PhaseTaking, model.BGPIdle)}, false},
		{"keeps connections", model.Desired{Synced: true, Memory: at(model.PhaseReleasing, model.BGPIdle)}, false},
		{"has yet to unbind", model.Desired{Synced: true, Memory: at(model.PhaseUnbinding, model.BGPIdle)}, false},
		{"routers have a path", model.Desired{Synced: true, Memory: at(model.PhaseIdle, model.BGPIdle+1)}, false},
	} {
		if got := drained(&c.d); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
