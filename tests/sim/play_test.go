package sim

import (
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// play runs a scenario in a bubble, once for each seed, and fails with the trace
// if an invariant was broken.
func play(t *testing.T, o Options, seeds uint64, f func(*Cluster)) {
	t.Helper()
	for seed := range seeds {
		o.Seed = seed + 1
		failures, trace := Run(t, o, f)
		for _, f := range failures {
			t.Errorf("seed %d: %s", o.Seed, f)
		}
		if len(failures) > 0 {
			if os.Getenv("LBD_SIM_TRACE") != "" {
				t.Logf("%s", trace)
			}
			return
		}
	}
}

// settle starts all nodes and waits until one of them has owned the VIP for long.
func settle(c *Cluster) (vip netip.Addr, owner string) {
	c.StartAll()
	c.Quiet(10 * time.Second)
	vip = c.vips[0].Addr
	return vip, c.Owner(vip)
}

// others are all nodes but one.
func (c *Cluster) others(name string) []string {
	var out []string
	for _, n := range c.all() {
		if n.Name != name {
			out = append(out, n.Name)
		}
	}
	return out
}

// expect fails the scenario unless the VIP is with the node.
func (c *Cluster) expect(vip netip.Addr, owner string) {
	if got := c.Owner(vip); got != owner {
		c.failf("%s is with %q, want %q", vip, got, owner)
	}
}

// announcedAfter is how long after a moment some other node first announced the
// VIP.
func (c *Cluster) announcedAfter(vip netip.Addr, at time.Time) time.Duration {
	for _, n := range c.all() {
		if n.running() {
			if a := n.Layer2.Announced(vip); a.After(at) {
				return a.Sub(at)
			}
		}
	}
	c.failf("nobody announced %s", vip)
	return 0
}

// figures collects measurements and prints them.
type figures []time.Duration

func (f figures) judge(t *testing.T, what string, limit time.Duration) {
	t.Helper()
	if len(f) == 0 {
		t.Fatalf("%s: nothing measured", what)
	}
	slices.Sort(f)
	t.Logf("%s: median %s, worst %s of %d", what, f[len(f)/2].Round(time.Millisecond), f[len(f)-1].Round(time.Millisecond), len(f))
	if f[len(f)-1] > limit {
		t.Errorf("%s: worst %s, want at most %s", what, f[len(f)-1], limit)
	}
}

// labelled is a configuration in which the node is not selected.
func (c *Cluster) labelled(string) func(*model.View) {
	vips := slices.Clone(c.vips)
	for i := range vips {
		vips[i].NodeSelector = map[string]string{"role": "control-plane"}
	}
	return func(v *model.View) { v.VIPs, v.DrainTimeout = vips, c.opts.Drain }
}
