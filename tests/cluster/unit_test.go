package cluster_test

import (
	"strings"
	"testing"
)

// TestUnitBeforeInit follows the README and docs/control-plane.md: lbd as a unit, then
// kubeadm init, then two joins at once.
func TestUnitBeforeInit(t *testing.T) {
	c := unitCluster(t)
	out, err := c.Kubectl(t.Context(), "get", "nodes")
	must(t, err)
	t.Logf("kubectl get nodes\n%s", out)
	if n := strings.Count(out, " Ready "); n != 3 {
		t.Errorf("%d nodes are ready, want 3", n)
	}
	for _, m := range c.Machines {
		failed, err := m.Run(t.Context(), "systemctl", "list-units", "--failed", "--no-legend")
		if err != nil || strings.TrimSpace(failed) != "" {
			t.Errorf("%s: failed units: %v %s", m.Name, err, failed)
		}
		status, err := m.Status(t.Context())
		must(t, err)
		if !status.Settled || len(status.Members) != 2 || len(status.VIPs) != 1 || !status.VIPs[0].Healthy {
			t.Errorf("%s: status: %+v", m.Name, status)
		}
	}
}
