package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestOwnerCrashesDuringRollingRename: two nodes have an address under different names when its
// owner crashes, so that both may rank first by their own, or neither. One of them takes it, and
// no other one has it for a moment.
func TestOwnerCrashesDuringRollingRename(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		name := fmt.Sprintf("api%d", i)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, odd := range []int{0, 1} {
				var gaps figures
				play(t, Options{Nodes: 3, VIPs: VIPs(1)}, 1, func(c *Cluster) {
					vip, owner := settle(c)
					renamed := slices.Clone(c.vips)
					renamed[0].Name = name
					n := c.others(owner)[odd]
					c.Node(n).config.Set(func(v *model.View) { v.VIPs, v.DrainTimeout = renamed, c.opts.Drain })
					c.Quiet(5 * time.Second)
					c.expect(vip, owner)
					at := time.Now()
					c.Crash(owner)
					c.Quiet(10 * time.Second)
					if two := c.overlap(vip, at); two > 0 {
						c.failf("two answer, for %s", two)
					}
					c.Owner(vip)
					gaps = append(gaps, c.Gap(vip, at))
				})
				gaps.judge(t, fmt.Sprintf("node %d renamed: client not served", odd+1), 600*time.Millisecond)
			}
		})
	}
}
