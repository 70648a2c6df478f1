package lab_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// TestNobodyReadsTheLog: on one node after the other nobody reads the log any more, and
// every promise holds as before, whether that node owns the VIP or is to take it.
func TestNobodyReadsTheLog(t *testing.T) {
	t.Parallel()
	all := []lab.Scenario{lab.ServiceDeath(), lab.Drain(), lab.Terminate(), lab.LinkDown(), lab.Kill()}
	for name, of := range map[string]struct {
		s      *lab.LBD
		nodes  int
		faults []lab.Scenario
	}{"active-backup": {&lab.LBD{PipedLog: true}, 3, all}, "balanced": {&lab.LBD{PipedLog: true, Balanced: true}, 1, all[:2]}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, of.s, 3)
			for i, n := range c.Nodes[:of.nodes] {
				nobodyReads(t, c, of.s, n, of.faults, of.s.VIPs()[i%2])
			}
		})
	}
}

func nobodyReads(t *testing.T, c *lab.Cluster, s *lab.LBD, n *lab.Node, faults []lab.Scenario, vip netip.Addr) {
	t.Helper()
	if err := s.StallLog(n); err != nil {
		t.Fatal(err)
	}
	t.Logf("nobody reads the log of %s", n.Name)
	for _, fault := range faults {
		repeat(t, c, fault, vip, 1)
	}
	if err := s.ReadLog(n); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); !strings.Contains(s.PipedText(n), "member"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("%s: the log does not go on:\n%s", n.Name, s.PipedText(n))
			break
		}
	}
}
