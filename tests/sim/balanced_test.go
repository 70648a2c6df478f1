package sim

import (
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// balanced are n VIPs that every node has bound.
func balanced(n int) []model.VIP {
	vips := VIPs(n)
	for i := range vips {
		vips[i].Balanced = true
	}
	return vips
}

// TestBalanced: all nodes have it, and one answers. A crash of the owner costs clients
// no more than without, a planned move nothing.
func TestBalanced(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Cluster, string){
		"crash": (*Cluster).Crash, "drain": func(c *Cluster, n string) { c.Drain(n, true) }, "stop": (*Cluster).StopSoon,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var gaps figures
			play(t, Options{Nodes: 3, VIPs: balanced(2)}, 5, func(c *Cluster) {
				vip, owner := settle(c)
				for _, n := range c.others(owner) {
					if !slices.Contains(c.Node(n).Host.Loopback(), vip) {
						c.failf("%s does not have it on lo", n)
					}
				}
				at := time.Now()
				end(c, owner)
				c.Quiet(20 * time.Second)
				if c.Owner(vip) == owner {
					c.failf("it is still with %s", owner)
				}
				gaps = append(gaps, c.Gap(vip, at))
			})
			limit := time.Duration(0)
			if name == "crash" {
				limit = 251 * time.Millisecond
			}
			gaps.judge(t, "client not served", limit)
		})
	}
}

// TestBalancedStops: however nodes end, nothing answers from lo, and nothing stays there.
func TestBalancedStops(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Cluster, string){
		"stop": (*Cluster).StopSoon, "kill": (*Cluster).Kill, "crash": (*Cluster).Crash, "freeze": (*Cluster).Freeze,
		"sick":  func(c *Cluster, n string) { c.Sick(n, true) },
		"drain": func(c *Cluster, n string) { c.Drain(n, true) },
		"cable": func(c *Cluster, n string) { c.Plug(n, false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, Options{Nodes: 3, VIPs: balanced(1)}, 3, func(c *Cluster) {
				_, owner := settle(c)
				for _, n := range append(c.others(owner), owner) {
					end(c, n)
					if c.opts.Seed%2 == 0 {
						time.Sleep(500 * time.Millisecond)
					}
				}
				c.Quiet(40 * time.Second)
			})
		})
	}
}
