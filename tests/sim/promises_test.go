package sim

import (
	"testing"
	"time"
)

// play runs a scenario in a bubble and fails with the trace if an invariant was
// broken.
func play(t *testing.T, o Options, f func(*Cluster)) {
	t.Helper()
	begin := time.Now()
	failures, trace := Run(t, o, f)
	t.Logf("took %s", time.Since(begin).Round(time.Millisecond))
	if len(failures) > 0 {
		for _, f := range failures {
			t.Error(f)
		}
		t.Logf("%s", trace)
	}
}

func TestSmoke(t *testing.T) {
	play(t, Options{Nodes: 3, VIPs: VIPs(2), Seed: 1}, func(c *Cluster) {
		c.StartAll()
		c.Quiet(10 * time.Second)
		t.Log(c.State())
		v := c.vips[0].Addr
		o := c.Owner(v)
		at := time.Now()
		c.Crash(o)
		c.Quiet(10 * time.Second)
		t.Log(c.State(), c.Gap(v, at))
	})
}
