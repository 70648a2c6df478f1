package control

import (
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
	if p := vipProblems(s); len(p) > 0 {
		t.Errorf("problems: %q", p)
	}
}
