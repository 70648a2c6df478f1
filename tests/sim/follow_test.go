package sim

import (
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/lbdtest"
	"lbd.dev/lbd/internal/loopback"
	"lbd.dev/lbd/internal/model"
)

// following is a VIP that only its owner at layer 2 advertises.
func following(preempt bool) []model.VIP {
	vips := VIPs(1)
	v := &vips[0]
	v.Kind, v.Unbound, v.Check, v.BGP, v.Preempt = model.KindLoadBalancer, true, "", []model.BGPAdvert{{}}, preempt
	return vips
}

// byBFD is one router, which notices the loss of a session at once.
var byBFD = []lbdtest.RouterKind{lbdtest.RouterBFD}

// refuse has the router end its session with a node, and begin none, or begin one again at once.
func (c *Cluster) refuse(name string, on bool) {
	c.touch(name)
	c.routers[0].Refuse(name, on)
}

// led is the longest time from the moment on for which the router had no path to the VIP.
func (c *Cluster) led(v model.VIP, from time.Time) (without time.Duration) {
	paths, since := map[string]bool{}, time.Time{}
	for _, e := range c.routers[0].Events() {
		if !e.Prefix.Contains(v.Addr) {
			continue
		}
		paths[e.Node] = e.Path
		any := slices.Contains(values(paths), true)
		switch {
		case !any && since.IsZero():
			since = e.At
		case any && !since.IsZero():
			if e.At.After(from) {
				without = max(without, e.At.Sub(maxTime(since, from)))
			}
			since = time.Time{}
		}
	}
	if !since.IsZero() {
		without = max(without, time.Since(maxTime(since, from)))
	}
	return without
}

func values(m map[string]bool) (out []bool) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// TestFollowsSession: a VIP that its owner alone advertises leaves an owner that loses its session with
// the router, and does not come back with it. Without any session it stays.
func TestFollowsSession(t *testing.T) {
	t.Parallel()
	var took, without figures
	play(t, Options{Nodes: 3, VIPs: following(false), Routers: byBFD}, 5, func(c *Cluster) {
		vip, owner := settle(c)
		at := time.Now()
		c.refuse(owner, true)
		c.Quiet(5 * time.Second)
		took = append(took, c.announcedAfter(vip, at))
		without = append(without, c.led(c.vips[0], at))
		next := c.Owner(vip)
		if got := c.routers[0].Has(vip); next == owner || !slices.Equal(got, []string{next}) {
			c.failf("%s has it, the router leads to %v", next, got)
		}
		c.refuse(owner, false)
		c.Quiet(20 * time.Second)
		c.expect(vip, next)
		at = time.Now()
		for _, n := range c.all() {
			c.refuse(n.Name, true)
		}
		time.Sleep(20 * time.Second)
		for _, n := range c.all() {
			c.refuse(n.Name, false)
		}
		c.Quiet(20 * time.Second)
		c.expect(vip, next)
		if n := c.moves(vip, at, next); n > 0 {
			c.failf("it has moved %d times without a session anywhere", n)
		}
	})
	took.judge(t, "moved after the session was lost", 700*time.Millisecond)
	without.judge(t, "the router had no path", 800*time.Millisecond)
}

// TestFollowsFlaps: a session that comes and goes moves the VIP once, and as soon as one that stays away.
// The best node gets it back when its session has stayed for a while.
func TestFollowsFlaps(t *testing.T) {
	t.Parallel()
	for name, preempt := range map[string]bool{"stays": false, "comes back": true} {
		t.Run(name, func(t *testing.T) {
			var took figures
			play(t, Options{Nodes: 3, VIPs: following(preempt), Routers: byBFD}, 5, func(c *Cluster) {
				vip, owner := settle(c)
				at := time.Now()
				for range 10 {
					c.refuse(owner, true)
					time.Sleep(time.Second)
					c.refuse(owner, false)
					time.Sleep(time.Second)
				}
				took = append(took, c.announcedAfter(vip, at))
				time.Sleep(loopback.FlapWithin - 3*time.Second) // it was lost 2 s ago
				if n := c.moves(vip, at, owner); n != 1 || c.Owner(vip) == owner {
					c.failf("it has moved %d times, and %s has it", n, c.Owner(vip))
				}
				c.Quiet(10 * time.Second)
				if back := c.Owner(vip) == owner; back != preempt {
					c.failf("%s has it, the best node is %s", c.Owner(vip), owner)
				}
			})
			took.judge(t, "moved after the session was lost", 700*time.Millisecond)
		})
	}
}

// TestFollowsFlapsEverywhere: sessions of all nodes come and go, in any order. The VIP moves no more than
// once for each time that it had to, and has a path in the end.
func TestFollowsFlapsEverywhere(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: following(true), Routers: byBFD}, 5, func(c *Cluster) {
		vip, owner := settle(c)
		at := time.Now()
		for i := range 60 {
			n := c.all()[(i*i+i/3)%3]
			c.refuse(n.Name, i%2 == 0)
			time.Sleep(time.Duration(300+i*37%900) * time.Millisecond)
		}
		for _, n := range c.all() {
			c.refuse(n.Name, false)
		}
		if n := c.moves(vip, at, owner); n > 2 {
			c.failf("%d moves", n)
		}
		c.Quiet(loopback.FlapWithin + 10*time.Second)
		if got := c.routers[0].Has(vip); !slices.Equal(got, []string{c.Owner(vip)}) {
			c.failf("the router leads to %v", got)
		}
	})
}

// TestFollowsUnheardSuccessor: a node that has handed the VIP over advertises it for as long as no router
// hears the new owner.
func TestFollowsUnheardSuccessor(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(c *Cluster, owner string){
		"drained": func(c *Cluster, owner string) { c.Drain(owner, true); time.Sleep(100 * time.Millisecond) },
		"its session was away": func(c *Cluster, owner string) {
			c.refuse(owner, true)
			time.Sleep(800 * time.Millisecond)
			c.refuse(owner, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{Nodes: 3, VIPs: following(false), Routers: byBFD}, 5, func(c *Cluster) {
				vip, owner := settle(c)
				leave(c, owner)
				next := c.Owner(vip)
				if next == owner {
					c.failf("%s still has it", owner)
				}
				time.Sleep(50 * time.Millisecond)
				at := time.Now()
				c.refuse(next, true)
				time.Sleep(20 * time.Second)
				last := c.Owner(vip)
				if got := c.routers[0].Has(vip); last == next || !slices.Equal(got, []string{last}) {
					c.failf("%s has it, the router leads to %v", last, got)
				}
				if gap := c.led(c.vips[0], at); gap > routerLag {
					c.failf("the router had no path for %s", gap)
				}
				if n := c.moves(vip, at, next); n != 1 {
					c.failf("it has moved %d times", n)
				}
			})
		})
	}
}
