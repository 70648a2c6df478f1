package lab_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
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
// starts them again. A run in which they do not answer again long before their addresses
// lapse, which is 2 s after the kill at the earliest, is done again, and so is one in which
// the commands before it took long: then the daemons, too, were kept from their work.
func allKilled(t *testing.T, c *lab.Cluster, lbd *lab.LBD, vip netip.Addr) {
	t.Helper()
	const conns = 30
	s, back := lab.KillAll()
	killAndStart := s.Inject
	kill := func(ctx context.Context, c *lab.Cluster, owner *lab.Node) error {
		from := measure.Now()
		err := killAndStart(ctx, c, owner)
		for _, n := range c.Nodes {
			err = errors.Join(err, lab.Wait(ctx, 20*time.Second, 5*time.Millisecond, "the daemon of "+n.Name, func() error {
				conn, err := net.Dial("unix", lbd.Socket(n))
				if err == nil {
					err = conn.Close()
				}
				return err
			}))
		}
		*back = measure.Now().Sub(from)
		return err
	}
	s.Inject = kill
	var moved time.Duration
	if s.Conns = conns; !lbd.Balanced {
		s.Inject = func(ctx context.Context, c *lab.Cluster, owner *lab.Node) error {
			from := measure.Now()
			if _, err := lbd.MoveOff(ctx, c, vip, owner); err != nil {
				return err
			}
			err := lbd.UndrainAll(ctx, c, c.Nodes)
			moved = measure.Now().Sub(from)
			return errors.Join(err, kill(ctx, c, owner))
		}
	}
	for again := 3; ; again-- {
		o, err := c.Run(t.Context(), s, vip)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(describe(o), "back after", *back, "moved in", moved, "survived", o.Conns.Survived())
		switch {
		case o.Conns.Open == conns && o.Conns.Survived() == conns:
			return
		case again == 0 || o.Stood < standstill && *back < time.Second && moved < 3*time.Second:
			t.Errorf("%s: long-lived connections: %+v, want %d alive", vip, o.Conns, conns)
			return
		}
		t.Log("the run does not count, since the machine stood still")
	}
}
