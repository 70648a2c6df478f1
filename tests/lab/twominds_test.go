package lab_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/tests/lab"
)

// share waits until a backend gets new connections on each of the nodes, or none.
func share(t *testing.T, c *lab.Cluster, backend *lab.Node, gets bool, nodes ...*lab.Node) {
	t.Helper()
	l := c.System.(*lab.LBD)
	for _, n := range nodes {
		err := lab.Wait(t.Context(), 20*time.Second, 50*time.Millisecond, "what a backend gets", func() error {
			out, _ := c.Exec(t.Context(), &n.Host, c.LBD(n), "explain", lab.VIP4().String(), "--socket", l.Socket(n), "-o", "json")
			var is []v1alpha1.Explanation
			if err := json.Unmarshal([]byte(out), &is); err != nil || len(is) != 1 {
				return fmt.Errorf("%s: %w", out, err)
			}
			for _, b := range is[0].Backends {
				if b.Backend == backend.IP4.String() && (b.Share > 0) == gets {
					return nil
				}
			}
			return fmt.Errorf("%s: %+v", n.Name, is[0].Backends)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestForwardedCrashOfTwoMinds: the owner alone does not reach a backend. The others, whose checks
// of it pass, send nothing there either; so when the owner loses its link the new one sends the
// connections that it has never heard of where they are.
func TestForwardedCrashOfTwoMinds(t *testing.T) { // P18
	t.Parallel()
	c := forwarded(t)
	owner := ownerOf(t, c, lab.VIP4())
	if err := c.Mute(t.Context(), &owner.Host, "ip daddr "+c.Backends[0].IP4.String()+" tcp dport 6443"); err != nil {
		t.Fatal(err)
	}
	share(t, c, c.Backends[0], false, c.Nodes...)
	kept(t, c, lab.LinkDown(), lab.VIP4(), anyMayFail)
}

// TestForwardedCrashAfterAChange: a backend that was out is back a moment before the owner loses
// its link. The connections that would be with it are reset; they are a third. The others go on.
func TestForwardedCrashAfterAChange(t *testing.T) { // P18
	t.Parallel()
	c := forwarded(t)
	if err := c.Backends[0].Service.Kill(); err != nil {
		t.Fatal(err)
	}
	share(t, c, c.Backends[0], false, c.Nodes...)
	s := lab.LinkDown()
	cut := s.Inject
	s.Conns = held
	s.Inject = func(ctx context.Context, c *lab.Cluster, n *lab.Node) error {
		if err := c.StartService(ctx, c.Backends[0]); err != nil {
			return err
		}
		share(t, c, c.Backends[0], true, c.Nodes...)
		return cut(ctx, c, n)
	}
	o, err := c.Run(t.Context(), s, lab.VIP4())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(describe(o), "survived", o.Conns.Survived(), "of", o.Conns.Open)
	// Of 60 with a chance of a third, 35 and more are one in ten thousand.
	if o.Conns.Open != held || o.Conns.Hanging > 0 || o.Conns.Lost > 35 {
		t.Errorf("%+v", o.Conns)
	}
}
