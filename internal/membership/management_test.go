package membership

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// TestManagementOfForwarded: the node that writes says how the Machines do to which connections
// are forwarded, and which addresses it does not forward since another object has them.
func TestManagementOfForwarded(t *testing.T) {
	own, file := netip.MustParseAddr("10.0.0.200"), netip.MustParseAddr("10.0.0.201")
	v := &model.View{
		Self: "m1", Synced: map[model.SourceName]bool{model.SourceMachines: true},
		VIPs:     []model.VIP{{Addr: own, Kind: model.KindMachineLoadBalancer, Unbound: true}, {Addr: file, Kind: "VirtualIP"}},
		Machines: model.Machines{Manager: true, Checks: []string{"down", "new", "up"}, Forwarded: []netip.Addr{own, file}},
		Health:   map[string]model.HealthState{"up": {State: model.HealthUp}, "down": {State: model.HealthDown}, "other": {State: model.HealthUp}},
	}
	s := Management(v, &model.GroupState{Manager: true})
	if want := map[string]model.Health{"up": model.HealthUp, "down": model.HealthDown, "new": model.HealthUnknown}; !maps.Equal(s.Health, want) {
		t.Errorf("health %v, want %v", s.Health, want)
	}
	if !slices.Equal(s.Taken, []netip.Addr{file}) {
		t.Errorf("taken %v", s.Taken)
	}
	if s = Management(v, &model.GroupState{}); s.Writer || s.Health != nil || s.Taken != nil {
		t.Errorf("who does not write says %+v", s)
	}
}

// TestOwnerWithoutSession: where connections are forwarded, the claim tells which of the nodes without a session
// has the address. Where nodes serve it themselves, being without a session is what counts.
func TestOwnerWithoutSession(t *testing.T) {
	forwarded, served := netip.MustParseAddr("10.0.0.200"), netip.MustParseAddr("10.0.0.201")
	both := map[netip.Addr]model.Reason{forwarded: model.ReasonDegraded, served: model.ReasonDegraded}
	for owner, want := range map[model.NodeName]string{"m1": "m1 Owner, m2 Degraded", "m2": "m1 Degraded, m2 Owner", "": "m1 Degraded, m2 Degraded", "m3": "m1 Degraded, m2 Degraded"} {
		told := &model.GroupState{Manager: true}
		v := &model.View{
			Self: "m1", Synced: map[model.SourceName]bool{model.SourceMachines: true},
			Machines: model.Machines{Manager: true, Balanced: []netip.Addr{forwarded, served}, Forwarded: []netip.Addr{forwarded}},
			Gossip: model.Gossip{
				Members: map[model.NodeName]model.Member{"m2": {State: model.MemberAlive, Known: true, Standing: both}},
				Claims:  map[netip.Addr][]model.Claim{},
			},
		}
		for _, a := range []netip.Addr{forwarded, served} {
			is := model.GroupVIP{Addr: a, Standing: model.ReasonDegraded}
			if owner == v.Self {
				is.Claim = model.Claim{Owner: owner, Epoch: 3}
			} else if owner != "" {
				v.Gossip.Claims[a] = []model.Claim{{Owner: owner, Epoch: 3}}
			}
			told.VIPs = append(told.VIPs, is)
		}
		var got []string
		for _, m := range Management(v, told).Members {
			got = append(got, string(m.Node)+" "+m.Standing[forwarded].String())
			if r := m.Standing[served]; r != model.ReasonDegraded {
				t.Errorf("the owner is %q: %s serves as %v", owner, m.Node, r)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("the owner is %q: %v", owner, got)
		}
	}
}
