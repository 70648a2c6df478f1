package lab_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// serving counts the connections to a VIP that a node has.
func serving(t *testing.T, c *lab.Cluster, n *lab.Node, vip netip.Addr) int {
	t.Helper()
	k, err := c.Serving(t.Context(), n, vip)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestBalanced: all nodes serve, one answers. No connection is lost by a planned move,
// and a node that dies costs its own.
func TestBalanced(t *testing.T) {
	t.Parallel()
	const conns = 30
	c := cluster(t, &lab.LBD{Balanced: true}, 3)
	at := make(map[string]int)
	spread := func(vip netip.Addr) bool {
		if err := c.Eyes.OpenConns(t.Context(), vip, conns); err != nil {
			t.Fatal(err)
		}
		for _, n := range c.Nodes {
			at[n.Name] = serving(t, c, n, vip)
		}
		return at[c.Nodes[0].Name] > 0 && at[c.Nodes[1].Name] > 0 && at[c.Nodes[2].Name] > 0
	}
	for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
		for end := time.Now().Add(30 * time.Second); !spread(vip); {
			if time.Now().After(end) {
				t.Fatalf("%s: %d connections are at %v, want some at each node", vip, conns, at)
			}
		}
		t.Logf("%s: %d connections are at %v", vip, conns, at)
		c.Eyes.CloseConns()
		s := lab.Drain()
		s.Conns = conns
		o, err := c.Run(t.Context(), s, vip)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(describe(o), "survived", o.Conns.Survived())
		if o.Conns.Open != conns || o.Conns.Survived() != conns || o.First.Reach.Failed > 0 {
			t.Errorf("drain %s: %d of new connections failed, long-lived ones: %+v", vip, o.First.Reach.Failed, o.Conns)
		}
	}
	// The attempts of new clients are among those that a node has.
	owner := func(_ *lab.Cluster, n *lab.Node) *lab.Node { return n }
	silent := func(c *lab.Cluster, n *lab.Node) *lab.Node { return c.Others(n)[0] }
	member := lab.LinkDown()
	member.Name, member.Moves = "a silent node's link", false
	for _, f := range []struct {
		lab.Scenario
		of func(*lab.Cluster, *lab.Node) *lab.Node
	}{{lab.Kill(), owner}, {lab.LinkDown(), owner}, {member, silent}} {
		s, vip, own := f.Scenario, lab.VIP4(), 0
		s.Conns, s.Hold = conns, 4*time.Second
		s.Inject = func(ctx context.Context, c *lab.Cluster, n *lab.Node) error {
			own = serving(t, c, f.of(c, n), vip)
			return f.Inject(ctx, c, f.of(c, n))
		}
		s.Repair = func(ctx context.Context, c *lab.Cluster, n *lab.Node) error { return f.Repair(ctx, c, f.of(c, n)) }
		o, err := c.Run(t.Context(), s, vip)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(describe(o), "it had", own, "survived", o.Conns.Survived())
		if lost := conns - o.Conns.Survived(); o.Conns.Open != conns || lost > own || lost == conns || own == 0 || o.First.Moved != s.Moves {
			t.Errorf("%s: it had %d, long-lived ones: %+v, moved %v", s.Name, own, o.Conns, o.First.Moved)
		}
	}
}
