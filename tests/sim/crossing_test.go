package sim

import (
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestCrossing is a wire that heals while gossip stays cut: two owners meet that hear of
// each other by ARP and neighbour discovery only. One of them yields, and waits while the
// other one answers; it takes the VIP when that one is gone, and nothing moves when gossip
// heals.
func TestCrossing(t *testing.T) {
	t.Parallel()
	for _, unbound := range []bool{false, true} {
		t.Run(fmt.Sprint("unbound ", unbound), func(t *testing.T) {
			var took, gaps, again figures
			play(t, Options{Nodes: 3, VIPs: meeting(unbound), Drain: 2 * time.Second}, 4, func(c *Cluster) {
				settle(c)
				alone := c.all()[c.opts.Seed%3].Name // of each rank among hardware addresses
				c.CutWire(alone)
				c.CutGossip(alone)
				c.Quiet(minorityPatience)
				at := time.Now()
				c.HealWire()
				c.Quiet(disputeOverlap + time.Second)
				before := c.State()
				for _, v := range c.vips {
					took = append(took, c.overlap(v.Addr, at))
					gaps = append(gaps, c.Gap(v.Addr, at))
				}
				at = time.Now()
				c.Quiet(60 * time.Second)
				c.unmoved(before, at)
				if c.opts.Seed%2 == 0 {
					at = time.Now()
					c.HealGossip()
					c.Quiet(20 * time.Second)
					c.unmoved(before, at)
					return
				}
				owner := c.Owner(c.vips[0].Addr)
				c.Crash(owner)
				at = time.Now()
				c.Quiet(10 * time.Second)
				for _, v := range c.vips {
					again = append(again, c.Gap(v.Addr, at))
				}
			})
			took.judge(t, "two owners on one wire without gossip", disputeOverlap)
			gaps.judge(t, "client not served meanwhile", time.Second)
			again.judge(t, "the other one takes over again", 3*time.Second)
		})
	}
}

// meeting are some VIPs of both families.
func meeting(unbound bool) []model.VIP {
	all := append(VIPs(4), families("cp")...)
	for i := range all {
		all[i].Unbound = unbound
	}
	return all
}

// unmoved fails the scenario if anything has moved, or any two have answered, since.
func (c *Cluster) unmoved(before string, at time.Time) {
	if after := c.State(); after != before {
		c.failf("VIPs have moved:\n%s\n%s", before, after)
	}
	for _, v := range c.vips {
		if two := c.overlap(v.Addr, at); two > 0 {
			c.failf("two answer for %s again, for %s", v.Addr, two)
		}
		if gap := c.Gap(v.Addr, at); gap > 0 {
			c.failf("the client was without %s for %s", v.Addr, gap)
		}
	}
}
