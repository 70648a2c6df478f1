package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
)

// TestStaticPodBeforeInit follows docs/control-plane.md with lbd as a static pod, then
// kills and freezes the daemon of the owner.
func TestStaticPodBeforeInit(t *testing.T) {
	c := newCluster(t, 3)
	from := time.Now()
	must(t, c.InstallStaticPod(t.Context(), c.Machines...))
	must(t, c.Init(t.Context(), c.Machines[0]))
	must(t, c.Join(t.Context(), c.Machines[1:]...))
	must(t, c.WaitWhole(t.Context()))
	t.Logf("the control plane is whole after %v", since(from))
	pods, err := c.Kubectl(t.Context(), "get", "pods", "--all-namespaces", "--output=wide")
	must(t, err)
	t.Logf("kubectl get pods\n%s", pods)
	for _, m := range c.Machines {
		if !strings.Contains(pods, "lbd-"+m.Name+" ") {
			t.Errorf("there is no mirror pod of lbd on %s", m.Name)
		}
	}
	t.Run("kill", func(t *testing.T) { testPodDaemon(t, c, "KILL", 90*time.Second) }) // kubelet may wait
	t.Run("freeze", func(t *testing.T) { testPodDaemon(t, c, "STOP", 24*time.Second) })
}

// testPodDaemon sends a signal to the daemon of the owner and waits until a new one is
// there. The VIP may have moved or not: clients write all the time.
func testPodDaemon(t *testing.T, c *cluster.Cluster, signal string, limit time.Duration) {
	unlessBusy(t, c, func() []string {
		return writing(t, c, signal, func(owner *cluster.Machine) {
			was := daemonPID(t, owner)
			from := time.Now()
			_, err := owner.Run(t.Context(), "kill", "-"+signal, was)
			must(t, err)
			eventually(t, limit, "a new daemon answers", func() error {
				now, err := owner.Run(t.Context(), "pidof", "lbd")
				if now = strings.TrimSpace(now); err != nil || now == was {
					return fmt.Errorf("lbd is process %q: %w", now, err)
				}
				_, err = owner.Status(t.Context())
				return err
			})
			t.Logf("a new daemon answers on the owner after %v", since(from))
			_, err = c.WaitOwner(t.Context(), time.Minute, c.Machines...)
			must(t, err)
		}).within(slack * lapse)
	})
}

// daemonPID is the process of lbd in a machine.
func daemonPID(t *testing.T, m *cluster.Machine) string {
	t.Helper()
	out, err := m.Run(t.Context(), "pidof", "lbd")
	must(t, err)
	if len(strings.Fields(out)) != 1 {
		t.Fatalf("%s: lbd is processes %q", m.Name, out)
	}
	return strings.TrimSpace(out)
}
