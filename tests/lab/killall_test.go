package lab_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// TestAllKilled: the daemons of all nodes are killed at the same moment and come back at
// once. None of them knows who of the others has connections; their kernels do.
func TestAllKilled(t *testing.T) { // P13
	t.Parallel()
	for name, s := range map[string]*lab.LBD{"active-backup": {}, "balanced": {Balanced: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, s, 3)
			for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
				allKilled(t, c, s, vip)
			}
		})
	}
}

// allKilled has some connections at other nodes than the owner, kills all daemons and
// starts them again. A run that did not bring them back in time is done again.
func allKilled(t *testing.T, c *lab.Cluster, lbd *lab.LBD, vip netip.Addr) {
	t.Helper()
	const conns = 30
	s, back := lab.KillAll()
	kill := s.Inject
	if s.Conns = conns; !lbd.Balanced {
		s.Inject = func(ctx context.Context, c *lab.Cluster, owner *lab.Node) error {
			if _, err := lbd.MoveOff(ctx, c, vip, owner); err != nil {
				return err
			}
			return errors.Join(lbd.UndrainAll(ctx, c, c.Nodes), kill(ctx, c, owner))
		}
	}
	for again := 3; ; again-- {
		o, err := c.Run(t.Context(), s, vip)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(describe(o), "back after", *back, "survived", o.Conns.Survived())
		switch {
		case o.Conns.Open == conns && o.Conns.Survived() == conns:
			return
		case again == 0 || o.Stood < standstill && *back < time.Second:
			t.Errorf("%s: long-lived connections: %+v, want %d alive", vip, o.Conns, conns)
			return
		}
		t.Log("the run does not count, since the machine stood still")
	}
}
