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
		(&Output{Owner: "m5", Next: true}).Tell(&Input{VIP: &model.VIP{}}, &g)
	}
	if !slices.Equal(g.Owners, []model.NodeName{"m5"}) {
		t.Errorf("heartbeats are expected from %v", g.Owners)
	}
}
