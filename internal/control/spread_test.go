package control

import (
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// TestRoutersFollowTheOwner: of what its owner alone advertises it is said who that is, and a node that
// does not own it is calm; of other VIPs every healthy node is the one.
func TestRoutersFollowTheOwner(t *testing.T) {
	s := v1alpha1.NodeStatus{Node: "m1", Settled: true, VIPs: []v1alpha1.VIPStatus{
		{Name: "api", Kind: model.KindLoadBalancer, Address: "10.0.0.200", Mode: "bgp", Owner: "m2", Reason: "Standby", Standing: "Standby"},
		{Name: "web", Kind: "VirtualIP", Address: "10.0.0.201", Mode: "bgp", Owner: "m1", Reason: "Advertised", Standing: "Standby"},
	}}
	rows := vipSection(s).Rows
	if rows[0].Cells[2] != "m2" || rows[0].Look || rows[1].Cells[2] != "all healthy" {
		t.Errorf("%+v", rows)
	}
	for want, v := range map[string]v1alpha1.VIPStatus{
		"the owner of a tenant's":                   {Kind: model.KindTenantService},
		"the owner of what is forwarded":            {Kind: model.KindMachineLoadBalancer, Owner: "m2", Reason: "Standby"},
		"that owner itself":                         {Kind: model.KindMachineLoadBalancer, Owner: "m1", Announced: true, Reason: "Advertised"},
		"spread: what its members have":             {Kind: model.KindMachineLoadBalancer, Owner: "m1", Announced: true, Bound: true, Reason: "Advertised"},
		"spread: and what they do not have at once": {Kind: model.KindMachineLoadBalancer, Reason: "HealthPending"},
	} {
		if v.Mode = "bgp"; Spread(v) != strings.HasPrefix(want, "spread") {
			t.Errorf("%s: %v", want, Spread(v))
		}
	}
	if p := vipProblems(s); len(p) > 0 {
		t.Errorf("problems: %q", p)
	}
}
