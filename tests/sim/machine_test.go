package sim

import (
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// manages has a node read a management API, or not any more, that says that the
// Machines of these nodes are going away.
func (c *Cluster) manages(name string, reads bool, drains ...string) {
	m := model.Machines{Manager: reads}
	for _, d := range drains {
		m.Drains = append(m.Drains, model.MachineDrain{Machine: "default/" + d, Node: model.NodeName(d), Reason: "Deleting"})
	}
	c.touch(append(drains, name)...)
	if reads {
		for _, n := range c.all() {
			n.draining = false
		}
	}
	for _, d := range drains {
		c.Node(d).draining = true
	}
	c.Node(name).machines.Set(func(v *model.View) { v.Machines = m })
}

// preempted is one VIP that goes back to the best node as soon as that may have it.
func preempted() []model.VIP {
	vips := VIPs(1)
	vips[0].Preempt = true
	return vips
}

// away fails the scenario if the VIP is with the node, or with nobody.
func (c *Cluster) away(from, when string) {
	if now := c.Owner(c.vips[0].Addr); now == from || now == "" {
		c.failf("%s: it is with %q", when, now)
	}
}

// TestMachineDrain is a node that is told by another one that its Machine goes away: a
// planned move like any, over gossip.
func TestMachineDrain(t *testing.T) {
	t.Parallel()
	var took, overlap figures
	play(t, Options{Nodes: 4, VIPs: families("cp")}, 5, func(c *Cluster) {
		vip, owner := settle(c)
		at := time.Now()
		c.manages(c.others(owner)[0], true, owner)
		time.Sleep(2 * time.Second)
		took = append(took, c.announcedAfter(vip, at))
		c.Quiet(13 * time.Second)
		for _, v := range c.vips {
			if c.Owner(v.Addr) == owner {
				c.failf("%s is still with %s", v.Addr, owner)
			}
			if gap := c.Gap(v.Addr, at); gap > 0 {
				c.failf("the client was without %s for %s", v.Addr, gap)
			}
			overlap = append(overlap, c.overlap(v.Addr, at))
		}
	})
	took.judge(t, "successor announced", 100*time.Millisecond)
	overlap.judge(t, "both answer", 100*time.Millisecond)
}

// TestMachineDrainStays: that the management API or the one that told is gone changes
// nothing, and neither does a new life of the node; who reads the API ends it.
func TestMachineDrainStays(t *testing.T) {
	t.Parallel()
	for name, loss := range map[string]func(c *Cluster, teller, drained string){
		"API":    func(c *Cluster, teller, drained string) { c.manages(teller, false, drained) },
		"teller": func(c *Cluster, teller, _ string) { c.Crash(teller) },
		"frozen": func(c *Cluster, teller, _ string) { c.Freeze(teller) },
		"gossip": func(c *Cluster, teller, _ string) { c.CutGossip(teller) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Options{Nodes: 4, VIPs: preempted()}, 2, func(c *Cluster) {
				_, best := settle(c)
				teller, other := c.others(best)[0], c.others(best)[1]
				c.manages(teller, true, best)
				c.Quiet(15 * time.Second)
				c.away(best, "told")
				loss(c, teller, best)
				c.Quiet(30 * time.Second)
				c.away(best, "after the loss")
				c.Heal()
				c.manages(other, true)
				if name == "gossip" {
					c.manages(teller, true)
				}
				c.Quiet(15 * time.Second)
				c.expect(c.vips[0].Addr, best)
			})
		})
	}
}

// TestMachineDrainRestart: a node that starts again while its Machine goes away is
// told so, and stays away.
func TestMachineDrainRestart(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: preempted()}, 3, func(c *Cluster) {
		_, best := settle(c)
		teller := c.others(best)[0]
		c.manages(teller, true, best)
		c.Quiet(15 * time.Second)
		c.Kill(best)
		time.Sleep(5 * time.Second)
		c.Start(best)
		c.Node(best).draining = true
		c.Quiet(20 * time.Second)
		c.away(best, "after a restart")
	})
}
