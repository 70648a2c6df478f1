package sim

import (
	"testing"
	"time"

	"lbd.dev/lbd/internal/wire"
)

// The network of a VIP goes dark on a node while its carrier is up and gossip, which goes
// another way, is well: a VLAN that is missing on one port of a switch.

// darkWithin is how long a VIP stays with a node whose network has gone dark: until that
// one and those who heard it have asked, have been unanswered, and have asked anew.
const darkWithin = wire.Every + 2*time.Second

// TestDarkOwner: it fails over to a node that hears others, and stays there afterwards.
func TestDarkOwner(t *testing.T) {
	t.Parallel()
	var gaps figures
	play(t, Options{Nodes: 3, VIPs: append(VIPs(1), families("a")...)}, 8, func(c *Cluster) {
		vip, owner := settle(c)
		time.Sleep(time.Duration(c.opts.Seed) * 700 * time.Millisecond) // at any moment between two questions
		at := time.Now()
		c.CutWire(owner)
		time.Sleep(darkWithin + time.Second)
		now := c.Owner(vip)
		if now == owner || now == "" {
			c.failf("the VIP is with %q, whose network is dark", now)
		}
		gaps = append(gaps, c.Gap(vip, at))
		c.HealWire()
		c.Quiet(20 * time.Second)
		c.expect(vip, now)
	})
	gaps.judge(t, "client not served by an owner in the dark", darkWithin)
}

// TestDrainAvoidsTheDark: a planned move never goes to a node whose network has gone dark,
// unless that was a moment ago.
func TestDrainAvoidsTheDark(t *testing.T) {
	t.Parallel()
	for _, before := range []time.Duration{200 * time.Millisecond, 700 * time.Millisecond, 3 * time.Second, 20 * time.Second} {
		play(t, Options{Nodes: 3, VIPs: VIPs(1)}, 6, func(c *Cluster) {
			vip, owner := settle(c)
			// Whoever is better ranked would get it.
			dark := c.others(owner)[c.opts.Seed%2]
			time.Sleep(time.Duration(c.opts.Seed) * 900 * time.Millisecond)
			c.CutWire(dark)
			time.Sleep(before)
			at := time.Now()
			c.Drain(owner, true)
			for range 300 {
				time.Sleep(50 * time.Millisecond)
				if c.Owner(vip) == dark {
					c.failf("drained to %s, which had been in the dark for %s", dark, before)
					return
				}
			}
			if now := c.Owner(vip); now == owner {
				c.failf("it is still with %s", owner)
			}
			if gap := c.Gap(vip, at); gap > 0 {
				c.failf("the client was without it for %s", gap)
			}
		})
	}
}

// TestAllDark: with nobody heard at all nothing moves, also after the network is back.
func TestAllDark(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: VIPs(1)}, 6, func(c *Cluster) {
		vip, owner := settle(c)
		c.CutWire("m1")
		c.CutWire("m2")
		for range 600 {
			time.Sleep(50 * time.Millisecond)
			if now := c.Owner(vip); now != owner {
				c.failf("it moved to %q", now)
				return
			}
		}
		c.HealWire()
		c.Quiet(20 * time.Second)
		c.expect(vip, owner)
	})
}

// TestTwoNodesInTheDark: two nodes that do not hear each other cannot tell whose fault it
// is, so the VIP stays; and a drain works as if they did.
func TestTwoNodesInTheDark(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 2, VIPs: VIPs(1)}, 4, func(c *Cluster) {
		vip, owner := settle(c)
		c.CutWire(owner)
		time.Sleep(30 * time.Second)
		c.expect(vip, owner)
		c.Drain(owner, true)
		time.Sleep(5 * time.Second)
		c.expect(vip, c.others(owner)[0])
	})
}
