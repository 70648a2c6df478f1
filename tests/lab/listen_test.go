package lab_test

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// serves is the node that has the watch of a VIP.
func serves(t *testing.T, c *lab.Cluster, vip netip.Addr) *lab.Node {
	t.Helper()
	src := netip.AddrPortFrom(vip, 6443).String()
	for _, n := range c.Nodes {
		out, err := c.Exec(t.Context(), &n.Host, "ss", "-Htn", "state", "established", "src", src)
		if err != nil {
			t.Fatal(err)
		}
		if out != "" {
			return n
		}
	}
	t.Fatalf("nobody has the connection to %s", vip)
	return nil
}

// TestClientsThatOnlyListen: a client elsewhere that watches an API says nothing by itself.
// When its node is drained and the time is over it goes on at another one at once: without a
// reset it would wait for its keepalive, 15 s. Nothing is reset before: one whose node is well
// goes on through the crash of the new owner.
func TestClientsThatOnlyListen(t *testing.T) { // P13
	t.Parallel()
	const drained, silence = 4 * time.Second, time.Second
	for name, s := range map[string]*lab.LBD{"active-backup": {Drained: drained}, "balanced": {Drained: drained, Balanced: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, s, 3)
			ctx := t.Context()
			for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
				w, err := c.Eyes.OpenWatch(ctx, c.Client, vip)
				if err != nil {
					t.Fatal(err)
				}
				n, stood, begin := serves(t, c, vip), measure.Standstill(), measure.Now()
				if err := s.DrainFor(ctx, c.Lab, n, 30*time.Second); err != nil {
					t.Error(err)
				}
				took := measure.Now().Sub(begin)
				time.Sleep(slack*silence + time.Second)
				silent, still := w.Silence(begin), stood()
				t.Logf("%s on %s: drained in %v, silent for %v (the machine stood still for %v)", vip, n.Name, took, silent, still)
				if took < drained || silent > slack*silence+still {
					t.Errorf("%s: a client heard nothing for %v, want %v; the drain took %v, want %v", vip, silent, silence, took, drained)
				}
				if err := s.Undrain(ctx, c.Lab, n); err != nil {
					t.Fatal(err)
				}
				if err := c.Stable(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if !s.Balanced {
				outlives(t, c, s, lab.VIP4())
			}
		})
	}
}

// outlives keeps a watch open while its node hands the VIP over and the new owner crashes. It
// is open until the instruments are closed, so that its node may not let go before.
func outlives(t *testing.T, c *lab.Cluster, s *lab.LBD, vip netip.Addr) {
	t.Helper()
	ctx := t.Context()
	w, err := c.Eyes.OpenStream(ctx, vip)
	if err != nil {
		t.Fatal(err)
	}
	n := serves(t, c, vip)
	_ = s.DrainFor(ctx, c.Lab, n, time.Second) // it does not wait for the watch
	if err := s.Undrain(ctx, c.Lab, n); err != nil {
		t.Fatal(err)
	}
	next := ownerOf(t, c, vip)
	if next == n {
		t.Fatalf("nobody else has %s", vip)
	}
	if err := c.LinkDown(ctx, &next.Host); err != nil {
		t.Fatal(err)
	}
	if _, err := w.More(ctx, 20); err != nil {
		t.Errorf("%s, with %s, and %s that had the VIP has died: %v", vip, n.Name, next.Name, err)
	}
}
