package sim

import (
	"net/netip"
	"testing"
	"time"
)

// moves counts how often another node began to hold the VIP after a moment.
func (c *Cluster) moves(vip netip.Addr, after time.Time, owner string) (n int) {
	had := map[string]bool{owner: true}
	for _, s := range c.Net.History(vip) {
		if s.At.Before(after) {
			continue
		}
		now := map[string]bool{}
		for _, h := range s.Holders {
			now[h] = true
			if !had[h] {
				n++
			}
		}
		had = now
	}
	return n
}

// TestDegradedOwner is etcd of the owner that dies: the VIP moves to a node that is up, and
// no client is without it for a moment. It stays there when the other one is well again.
func TestDegradedOwner(t *testing.T) {
	t.Parallel()
	var took, overlap figures
	play(t, Options{Nodes: 3, VIPs: families("cp")}, 5, func(c *Cluster) {
		vip, owner := settle(c)
		at := time.Now()
		c.Degrade(owner, true)
		c.Quiet(12 * time.Second)
		took = append(took, c.announcedAfter(vip, at))
		c.Degrade(owner, false)
		c.Quiet(12 * time.Second)
		for _, v := range c.vips {
			if c.Owner(v.Addr) == owner {
				c.failf("%s is still with %s", v.Addr, owner)
			}
			if gap := c.Gap(v.Addr, at); gap > 0 {
				c.failf("the client was without %s for %s", v.Addr, gap)
			}
			if n := c.moves(v.Addr, at, owner); n != 1 {
				c.failf("%s has moved %d times", v.Addr, n)
			}
			overlap = append(overlap, c.overlap(v.Addr, at))
		}
	})
	took.judge(t, "moved after the check had failed", 700*time.Millisecond)
	overlap.judge(t, "both answer", 100*time.Millisecond)
}

// TestDegradedEverywhere is etcd that loses its quorum: each node notices within half a second
// or so of the others, in any order, and then again that it is back. Nothing moves. Of three
// that notice seconds apart the address moves once at most, and once when they recover, to
// the first that has.
func TestDegradedEverywhere(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		apart time.Duration
		moves int
	}{"at once": {270 * time.Millisecond, 0}, "slowly": {1100 * time.Millisecond, 2}} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{Nodes: 3, VIPs: VIPs(3)}, 6, func(c *Cluster) {
				settle(c)
				owners := map[netip.Addr]string{}
				for _, v := range c.vips {
					owners[v.Addr] = c.Owner(v.Addr)
				}
				at := time.Now()
				for _, on := range []bool{true, false} {
					for _, n := range c.all() {
						c.Degrade(n.Name, on)
						time.Sleep(tt.apart)
					}
					c.Quiet(20 * time.Second)
				}
				for _, v := range c.vips {
					if n := c.moves(v.Addr, at, owners[v.Addr]); n > tt.moves {
						c.failf("%s has moved %d times: %v", v.Addr, n, c.Net.History(v.Addr))
					}
					if gap := c.Gap(v.Addr, at); gap > 0 {
						c.failf("the client was without %s for %s", v.Addr, gap)
					}
				}
			})
		})
	}
}

// TestDegradedFlaps: whatever the preferred check says on whichever node, the address moves
// once in five seconds at most.
func TestDegradedFlaps(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: VIPs(1)}, 3, func(c *Cluster) {
		vip, owner := settle(c)
		at := time.Now()
		for i := range 60 {
			n := c.all()[(i*i+i/3)%3]
			c.Degrade(n.Name, !n.degraded)
			time.Sleep(time.Duration(300+i*37%900) * time.Millisecond)
		}
		took := time.Since(at)
		for _, n := range c.all() {
			c.Degrade(n.Name, false)
		}
		c.Quiet(20 * time.Second)
		if n := c.moves(vip, at, owner); n > int(took/(5*time.Second))+1 {
			c.failf("%d moves in %s", n, took)
		}
		if gap := c.Gap(vip, at); gap > 0 {
			c.failf("the client was without it for %s", gap)
		}
	})
}

// TestDegradedCrash: an owner that dies is succeeded by a node that is up, and by one that is
// degraded if there is no other.
func TestDegradedCrash(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: VIPs(4)}, 3, func(c *Cluster) {
		_, owner := settle(c)
		others := c.others(owner)
		c.Degrade(others[0], true)
		c.Quiet(10 * time.Second)
		for _, v := range c.vips {
			if c.Owner(v.Addr) == others[0] {
				c.failf("%s is with %s, which is degraded", v.Addr, others[0])
			}
		}
		c.Crash(owner)
		c.Quiet(3 * time.Second) // a planned move would come later
		for _, v := range c.vips {
			c.expect(v.Addr, others[1])
		}
		c.Crash(others[1])
		c.Quiet(10 * time.Second)
		for _, v := range c.vips {
			c.expect(v.Addr, others[0])
		}
	})
}
