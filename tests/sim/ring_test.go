package sim

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/ring"
)

// settleBGP is settle; the VIP is one that only BGP advertises, so that nobody owns it.
func settleBGP(c *Cluster) netip.Addr {
	settle(c)
	return c.vips[1].Addr
}

// leads fails the scenario unless the ring of each of the nodes has so many nodes.
func (c *Cluster) leads(vip netip.Addr, nodes int, names ...string) {
	for _, n := range names {
		if r, _ := c.nodes[n].rings.of(vip); r.Nodes != nodes {
			c.failf("the ring of %s has %d nodes and leads to %s, want %d", n, r.Nodes, r.Next, nodes)
		}
	}
}

// TestRingWithoutTheDead: a node whose host is gone is out of the rings of the others long
// before the group gives it up, and back when it is heard. Of three each has heartbeats of
// both others.
func TestRingWithoutTheDead(t *testing.T) {
	t.Parallel()
	// The last heartbeat may be an interval old, and the end of a series takes 15 ms.
	const limit = 160*time.Millisecond + ring.Probe + 30*time.Millisecond
	for name, fault := range map[string]func(*Cluster, string){
		"power": (*Cluster).Crash, "cable": func(c *Cluster, n string) { c.Plug(n, false) },
	} {
		t.Run(name, func(t *testing.T) {
			var took figures
			play(t, Options{Nodes: 3, VIPs: mixed(1), Rings: true}, 3, func(c *Cluster) {
				vip := settleBGP(c)
				c.leads(vip, 3, "m1", "m2", "m3")
				time.Sleep(time.Duration(len(took)) * 7 * time.Millisecond)
				dead := c.all()[len(took)%3].Name
				at := time.Now()
				fault(c, dead)
				time.Sleep(time.Second)
				c.leads(vip, 2, c.others(dead)...)
				var last time.Duration
				for _, n := range c.others(dead) {
					_, since := c.nodes[n].rings.of(vip)
					last = max(last, since.Sub(at))
				}
				took = append(took, last)
				c.Plug(dead, true)
				c.Start(dead)
				c.Quiet(10 * time.Second)
				c.leads(vip, 3, "m1", "m2", "m3")
			})
			took.judge(t, "ring without the dead node", limit)
		})
	}
}

// TestRingWithoutNeighbours: of five two die that come after each other. The one before
// them has heartbeats of both.
func TestRingWithoutNeighbours(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 5, VIPs: mixed(1), Rings: true}, 1, func(c *Cluster) {
		vip := settleBGP(c)
		c.Crash("m3")
		c.Crash("m4")
		time.Sleep(time.Second)
		if r, _ := c.nodes["m2"].rings.of(vip); r.Nodes != 3 || r.Next != c.nodes["m5"].addr {
			c.failf("the ring of m2 has %d nodes and leads to %s", r.Nodes, r.Next)
		}
		c.Quiet(20 * time.Second)
		c.leads(vip, 3, "m1", "m2", "m5")
	})
}

// TestRingKeepsTheFrozen: the kernel of a node whose daemon is frozen, or was killed, goes
// on to relay and to serve, so it stays in the rings while the group believes in it.
func TestRingKeepsTheFrozen(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*Cluster, string){
		"frozen": (*Cluster).Freeze, "killed": (*Cluster).Kill,
		"gossip": func(c *Cluster, n string) { c.CutGossip(n) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{Nodes: 3, VIPs: mixed(1), Rings: true}, 1, func(c *Cluster) {
				vip := settleBGP(c)
				fault(c, "m2")
				for range 30 {
					time.Sleep(100 * time.Millisecond)
					c.leads(vip, 3, "m1", "m3")
				}
				c.Thaw("m2")
				c.Heal()
				c.Start("m2")
				c.Quiet(20 * time.Second)
				c.leads(vip, 3, "m1", "m2", "m3")
			})
		})
	}
}

// TestRingOfACutOffNode: a node that hears none of the others keeps its ring for as long
// as the group would take to decide. The others leave it out.
func TestRingOfACutOffNode(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: mixed(1), Rings: true}, 1, func(c *Cluster) {
		vip := settleBGP(c)
		c.CutWire("m1")
		c.CutGossip("m1")
		time.Sleep(time.Second)
		c.leads(vip, 3, "m1")
		c.leads(vip, 2, "m2", "m3")
		c.Heal()
		time.Sleep(time.Second)
		c.leads(vip, 3, "m1", "m2", "m3")
		c.Quiet(20 * time.Second)
	})
}

// TestRingsAfterAllWereKilled: all daemons are killed at the same moment and come back one
// after the other. None of them makes a ring without a node whose kernel still has the
// connections, whether BGP announces the VIP or all nodes have it silently.
func TestRingsAfterAllWereKilled(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"bgp": {Nodes: 3, VIPs: mixed(1), Rings: true}, "balanced": {Nodes: 3, VIPs: balanced(2), Rings: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, o, 5, func(c *Cluster) {
				vip := settleBGP(c)
				c.leads(vip, 3, "m1", "m2", "m3")
				for _, n := range c.all() {
					c.Kill(n.Name)
				}
				for i, n := range c.all() {
					time.Sleep(time.Duration(i) * time.Duration(c.opts.Seed) * 150 * time.Millisecond)
					c.Start(n.Name)
				}
				c.Quiet(20 * time.Second)
				c.leads(vip, 3, "m1", "m2", "m3")
				for _, n := range c.all() {
					if least := n.rings.smallest(vip); least != 3 {
						c.failf("%s made a ring of %d nodes", n.Name, least)
					}
				}
			})
		})
	}
}

// TestConnectionsOutliveTheNextOwner: a node that is well keeps the connections to a VIP that it
// has handed over. The new owner crashes: they go on with whoever has the VIP next.
func TestConnectionsOutliveTheNextOwner(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: VIPs(1), Rings: true}, 4, func(c *Cluster) {
		vip, owner := settle(c)
		const open = 3
		host := c.Node(owner).Host
		host.SetConnections(vip, open)
		c.Drain(owner, true)
		time.Sleep(time.Second)
		c.Drain(owner, false)
		time.Sleep(2 * time.Second)
		c.Crash(c.Owner(vip))
		time.Sleep(10 * time.Second)
		if n := host.Connections(vip); n != open {
			c.failf("%s has %d connections left of %d, and %s has the VIP", owner, n, open, c.Owner(vip))
		}
		host.SetConnections(vip, 0)
		c.Quiet(10 * time.Second)
	})
}
