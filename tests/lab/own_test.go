package lab_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// What a node's own clients may notice of a move, and how long a node may take that
// serves nobody else.
const (
	ownSilence = time.Second
	ownDrain   = 2 * time.Second
	ownRestart = 3 * time.Second
	// hangs is how long it takes until the check of a server that hangs fails, and
	// another node has the address (P4).
	hangs = 1500 * time.Millisecond
)

// ownClients are watches of the VIP on every node.
type ownClients struct {
	c       *lab.Cluster
	vip     netip.Addr
	watches map[*lab.Node]*lab.Stream
}

func openOwn(t *testing.T, c *lab.Cluster, vip netip.Addr) *ownClients {
	t.Helper()
	o := &ownClients{c, vip, map[*lab.Node]*lab.Stream{}}
	for _, n := range c.Nodes {
		w, err := c.Eyes.OpenWatch(t.Context(), &n.Host, vip)
		if err != nil {
			t.Fatal(err)
		}
		o.watches[n] = w
	}
	return o
}

// through does something to the owner, and returns it, once another node owns the VIP
// and a while has passed. No watch may be silent for long.
func (o *ownClients) through(t *testing.T, what string, limit time.Duration, do func(*lab.Node)) *lab.Node {
	t.Helper()
	if err := o.c.Stable(t.Context()); err != nil {
		t.Fatal(err)
	}
	owner, err := o.c.Owner(o.vip)
	if err != nil {
		t.Fatal(err)
	}
	stood, begin := measure.Standstill(), measure.Now()
	do(owner)
	deadline := time.Now().Add(30 * time.Second)
	next, err := o.c.Owner(o.vip)
	for (err != nil || next == owner) && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
		next, err = o.c.Owner(o.vip)
	}
	if err != nil || next == owner {
		t.Fatalf("%s: nobody else has %s: %v", what, o.vip, err)
	}
	time.Sleep(slack*limit + time.Second) // longer than any silence that is allowed
	still := stood()
	for n, w := range o.watches {
		silence := w.Silence(begin)
		t.Logf("%s %s: %s on %s, then %s: silent for %v (the machine stood still for %v)", what, o.vip, n.Name, owner.Name, next.Name, silence, still)
		if silence > slack*limit+still {
			t.Errorf("%s %s: a client on %s heard nothing for %v, want %v", what, o.vip, n.Name, silence, limit)
		}
	}
	return owner
}

// took compares how long something took.
func took(t *testing.T, what string, limit time.Duration, f func() error) {
	t.Helper()
	begin := time.Now()
	if err := f(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	d := time.Since(begin)
	t.Logf("%s took %v", what, d.Round(time.Millisecond))
	if d > slack*limit {
		t.Errorf("%s took %v, want %v", what, d, limit)
	}
}

// TestOwnClients has watches of the VIP on every node, as kube-proxy has them: they
// neither end by themselves nor say anything. They keep no drain and no stop waiting,
// and go on, at the new owner, after a moment.
func TestOwnClients(t *testing.T) { // P17
	t.Parallel()
	for name, s := range map[string]*lab.LBD{"active-backup": {}, "balanced": {Balanced: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, s, 3)
			ctx := t.Context()
			for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
				own := openOwn(t, c, vip)
				for range 3 {
					drained := own.through(t, "drain", ownSilence, func(n *lab.Node) {
						took(t, "lbd drain", ownDrain, func() error { return s.DrainFor(ctx, c.Lab, n, 30*time.Second) })
					})
					if err := s.Undrain(ctx, c.Lab, drained); err != nil {
						t.Fatal(err)
					}
				}
				stopped := own.through(t, "SIGTERM", ownSilence, func(n *lab.Node) {
					took(t, "SIGTERM", ownRestart, func() error { return n.Terminate(30 * time.Second) })
				})
				if err := s.Start(ctx, c.Lab, stopped); err != nil {
					t.Fatal(err)
				}
				hung := own.through(t, "hanging server", hangs+ownSilence, func(n *lab.Node) {
					if err := n.FreezeService(); err != nil {
						t.Fatal(err)
					}
				})
				gone(ctx, t, hung, vip)
				if err := hung.ThawService(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// gone waits until a node has let go of a VIP that it cannot serve.
func gone(ctx context.Context, t *testing.T, n *lab.Node, vip netip.Addr) {
	t.Helper()
	if _, err := n.Gone(ctx, vip, 10*time.Second); err != nil {
		t.Error(err)
	}
}
