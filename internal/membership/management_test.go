package membership

import (
	"maps"
	"net/netip"
	"slices"
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
