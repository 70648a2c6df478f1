package election

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestTell: of several VIPs the group is told the latest end of a lifetime, and each successor and
// rival gets heartbeats about the VIP once.
func TestTell(t *testing.T) {
	now := time.Unix(1000, 0)
	var g model.GroupState
	for i, left := range []time.Duration{2, 3, 1} {
		in := &Input{VIP: &model.VIP{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}}
		in.Address.Expires = now.Add(left * time.Second)
		o := &Output{Owner: "m1", Claim: model.Claim{Epoch: 1}, Successors: []model.NodeName{"m3"}, Rivals: []model.NodeName{"m2", "m3"}, Asking: i == 0}
		o.Tell(in, &g)
	}
	if !g.LeaseEnd.Equal(now.Add(3*time.Second)) || !g.Ask || len(g.Owners) != 0 {
		t.Errorf("%+v", g)
	}
	if len(g.Heartbeats) != 2 || g.Heartbeats[0].Node != "m2" || len(g.Heartbeats[0].VIPs) != 3 || len(g.Heartbeats[1].VIPs) != 3 {
		t.Errorf("heartbeats %+v", g.Heartbeats)
	}
	for range 2 {
		(&Output{Owner: "m5", Next: 1}).Tell(&Input{VIP: &model.VIP{}}, &g)
		(&Output{Owner: "m6", Next: 2}).Tell(&Input{VIP: &model.VIP{}}, &g)
		(&Output{Owner: "m4", Next: 1}).Tell(&Input{VIP: &model.VIP{Unbound: true}}, &g)
	}
	if !slices.Equal(g.Owners, []model.NodeName{"m4", "m5", "m6"}) {
		t.Errorf("heartbeats are expected from %v", g.Owners)
	}
	if !slices.Equal(g.First, []model.NodeName{"m5"}) {
		t.Errorf("the wire is asked at the first missed heartbeat of %v", g.First)
	}
}

// TestCount: what waits, what asks, and what nobody ever owned is counted by what changes.
func TestCount(t *testing.T) {
	m := model.Counts{Waiting: 3, Probing: 2, Fresh: 1}
	for _, c := range []struct {
		from, to                model.Phase
		fresh                   bool
		waiting, probing, first int
	}{
		{model.PhaseIdle, model.PhaseWaiting, true, 4, 2, 2},
		{model.PhaseWaiting, model.PhaseProbing, false, 3, 3, 2},
		{model.PhaseProbing, model.PhaseTaking, false, 3, 2, 2},
		{model.PhaseOwner, model.PhaseOwner, false, 3, 2, 2},
	} {
		o := Output{Memory: model.VIPMemory{Phase: c.to}, Fresh: c.fresh}
		o.Count(&Input{Memory: model.VIPMemory{Phase: c.from}}, &m)
		if m.Waiting != c.waiting || m.Probing != c.probing || m.Fresh != c.first {
			t.Errorf("%v to %v: %d wait, %d ask, %d are fresh; want %d, %d, %d", c.from, c.to, m.Waiting, m.Probing, m.Fresh, c.waiting, c.probing, c.first)
		}
	}
}

// TestHeaviest: nobody weighs more, not even a node that has not said what it weighs.
func TestHeaviest(t *testing.T) {
	for what, c := range map[string]struct{ self, other, want int }{
		"nobody says": {0, 0, model.DefaultWeight}, "all are light": {50, 50, model.DefaultWeight}, "this node": {150, 0, 150}, "another": {0, 200, 200},
	} {
		v := &model.View{Weight: c.self, Gossip: model.Gossip{Members: map[model.NodeName]model.Member{"m2": {}, "m3": {Weight: c.other}}}}
		if got := heaviest(v); got != c.want {
			t.Errorf("%s: %d, want %d", what, got, c.want)
		}
	}
}
