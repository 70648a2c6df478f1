package lab_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// TestNobodyReadsTheLog: on one node after the other nobody reads the log any more, and
// every promise holds as before, whether that node owns the VIP or is to take it. With
// LBD_LAB_LOG=all that is tried in every fault, which takes some minutes for each mode.
func TestNobodyReadsTheLog(t *testing.T) {
	t.Parallel()
	few := []lab.Scenario{lab.ServiceDeath(), lab.Drain(), lab.Terminate(), lab.LinkDown(), lab.Kill()}
	all := os.Getenv("LBD_LAB_LOG") == "all"
	for name, of := range map[string]struct {
		s      *lab.LBD
		nodes  int
		faults []lab.Scenario
	}{"active-backup": {&lab.LBD{PipedLog: true}, 3, few}, "balanced": {&lab.LBD{PipedLog: true, Balanced: true}, 1, few[:2]}} {
		if all {
			of.nodes, of.faults = 3, lab.Scenarios()
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, of.s, 3)
			for i, n := range c.Nodes[:of.nodes] {
				vip := of.s.VIPs()[i%2]
				nobodyReads(t, of.s, n, func() {
					for _, fault := range of.faults {
						repeat(t, c, fault, vip, 1)
					}
					if all {
						allKilled(t, c, of.s, vip)
					}
				})
			}
		})
	}
}

// nobodyReads runs the faults while nobody reads the log of a node. After that it goes on
// with what was said meanwhile: not only with the line that was stuck.
func nobodyReads(t *testing.T, s *lab.LBD, n *lab.Node, faults func()) {
	t.Helper()
	if err := s.StallLog(n); err != nil {
		t.Fatal(err)
	}
	t.Logf("nobody reads the log of %s", n.Name)
	faults()
	before := len(s.PipedText(n))
	if err := s.ReadLog(n); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); strings.Count(s.PipedText(n)[before:], "msg=") < 5; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("%s: the log does not go on:\n%s", n.Name, s.PipedText(n))
			break
		}
	}
}
