package sim

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSurvivesAlone is one node of many configured ones, and one of one.
func TestSurvivesAlone(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 3} {
		play(t, Options{Nodes: nodes, VIPs: VIPs(2)}, 2, func(c *Cluster) {
			begin := time.Now()
			c.Start("m1")
			c.Quiet(10 * time.Second)
			c.expect(c.vips[0].Addr, "m1")
			limit := 400 * time.Millisecond
			if nodes > 1 {
				limit += 3 * time.Second // it waits for the others
			}
			if took := c.announcedAfter(c.vips[0].Addr, begin); took > limit {
				c.failf("announced %s after the start", took)
			}
			// Drained alone it keeps serving; stopped it leaves them to their lifetime.
			c.Drain("m1", true)
			c.Quiet(10 * time.Second)
			c.expect(c.vips[0].Addr, "m1")
			at := time.Now()
			c.Stop("m1")
			stopped := time.Since(at)
			c.expect(c.vips[0].Addr, "m1")
			if stopped > time.Second {
				c.failf("stopped after %s", stopped)
			}
			time.Sleep(4 * time.Second)
			if h := c.Net.Holders(c.vips[0].Addr); len(h) > 0 {
				c.failf("%v hold it after the lifetime", h)
			}
		})
	}
}

// TestStarts brings nodes up in any order.
func TestStarts(t *testing.T) {
	t.Parallel()
	t.Run("all at once", func(t *testing.T) {
		play(t, Options{Nodes: 5, VIPs: VIPs(20)}, 5, func(c *Cluster) {
			c.StartAll()
			c.Quiet(10 * time.Second)
			byNode := map[string]int{}
			for _, v := range c.vips {
				byNode[c.Owner(v.Addr)]++
				if n := len(c.Net.History(v.Addr)); n > 4 {
					c.failf("%s changed %d times: %v", v.Addr, n, c.Net.History(v.Addr))
				}
			}
			for n, k := range byNode {
				if k > 10 {
					c.failf("%s has %d of 20", n, k)
				}
			}
		})
	})
	t.Run("minutes apart", func(t *testing.T) {
		play(t, Options{Nodes: 5, VIPs: VIPs(5)}, 2, func(c *Cluster) {
			for _, n := range c.all() {
				c.Start(n.Name)
				c.Quiet(3 * time.Minute)
			}
			c.expect(c.vips[0].Addr, "m1")
		})
	})
	t.Run("peers that never come", func(t *testing.T) {
		play(t, Options{Nodes: 5, VIPs: VIPs(5)}, 2, func(c *Cluster) {
			c.Start("m2", "m4")
			c.Quiet(time.Minute)
			c.Crash(c.Owner(c.vips[0].Addr))
			c.Quiet(time.Minute)
		})
	})
}

// TestRollingRestart stops and starts all nodes one after the other: no client is
// ever without a VIP.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: append(VIPs(4), families("cp")...)}, 3, func(c *Cluster) {
		settle(c)
		at := time.Now()
		for _, n := range c.all() {
			c.Stop(n.Name)
			time.Sleep(500 * time.Millisecond)
			c.Start(n.Name)
			c.Quiet(10 * time.Second)
		}
		for _, v := range c.vips {
			if gap := c.Gap(v.Addr, at); gap > 0 {
				c.failf("the client was without %s for %s", v.Addr, gap)
			}
		}
	})
}

// TestFamilies: both addresses of an object are with one node, before and after.
func TestFamilies(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: append(families("a"), VIPs(1)...)}, 3, func(c *Cluster) {
		settle(c)
		together := func() string {
			a, b := c.Owner(netip.MustParseAddr("10.0.0.200")), c.Owner(netip.MustParseAddr("fd00::200"))
			if a != b {
				c.failf("10.0.0.200 is with %s, fd00::200 with %s", a, b)
			}
			return a
		}
		c.Crash(together())
		c.Quiet(10 * time.Second)
		c.Drain(together(), true)
		c.Quiet(13 * time.Second)
		together()
	})
}

// TestForeignHost: a VIP that a stranger has is not taken, and the daemon says so.
func TestForeignHost(t *testing.T) {
	t.Parallel()
	failures, trace := Run(t, Options{Nodes: 3, VIPs: VIPs(2)}, func(c *Cluster) {
		vip := c.vips[0].Addr
		c.Foreign(vip, true)
		c.StartAll()
		time.Sleep(20 * time.Second)
		if h := c.Net.Holders(vip); !slices.Equal(h, []string{"stranger"}) {
			c.failf("%v hold what a stranger has", h)
		}
		c.Foreign(vip, false)
		c.Quiet(10 * time.Second)
		owner := c.Owner(vip)
		// One that comes later is told off, and the VIP stays.
		c.Foreign(vip, true)
		time.Sleep(5 * time.Second)
		if !slices.Contains(c.Net.Holders(vip), owner) {
			c.failf("%s gave the VIP up to a stranger", owner)
		}
		c.Foreign(vip, false)
		c.Quiet(10 * time.Second)
		c.expect(vip, owner)
	})
	for _, f := range failures {
		t.Error(f)
	}
	if !strings.Contains(trace, "reason=Conflict") {
		t.Error("nobody said that a stranger has the address")
	}
}

// TestRemovedByHand: somebody deletes the address; it is back at once.
func TestRemovedByHand(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: VIPs(1)}, 3, func(c *Cluster) {
		vip, owner := settle(c)
		for range 20 {
			time.Sleep(777 * time.Millisecond)
			at := time.Now()
			c.RemoveByHand(vip)
			time.Sleep(100 * time.Millisecond)
			if gap := c.Gap(vip, at); gap > 5*time.Millisecond {
				c.failf("away for %s", gap)
			}
		}
		c.Quiet(10 * time.Second)
		c.expect(vip, owner)
	})
}
