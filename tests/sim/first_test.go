package sim

import (
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
)

// TestFirstOwners: what nobody ever owned goes to the nodes that the hash says, however
// far apart they hear of it and however long they take to ask the wire for it all.
func TestFirstOwners(t *testing.T) {
	t.Parallel()
	t.Run("started soon after each other", func(t *testing.T) {
		play(t, Options{Nodes: 4, VIPs: VIPs(20)}, 5, func(c *Cluster) {
			for i := range 3 { // the fourth never comes
				time.Sleep(time.Duration(uint64(i)*c.opts.Seed) * 40 * time.Millisecond)
				c.Start(c.all()[i].Name)
			}
			c.Quiet(10 * time.Second)
			c.ranked()
		})
	})
	t.Run("told one after the other", func(t *testing.T) {
		play(t, Options{Nodes: 3}, 5, func(c *Cluster) {
			c.StartAll()
			c.Quiet(10 * time.Second)
			c.vips = VIPs(20)
			for _, n := range c.all() {
				time.Sleep(time.Duration(c.opts.Seed) * 40 * time.Millisecond)
				n.config.Set(c.configured())
			}
			c.Quiet(10 * time.Second)
			c.ranked()
		})
	})
	t.Run("healthy one after the other", func(t *testing.T) {
		play(t, Options{Nodes: 3, VIPs: VIPs(20)}, 5, func(c *Cluster) {
			for _, n := range c.all() {
				n.unchecked = true
			}
			c.StartAll()
			time.Sleep(5 * time.Second)
			for _, n := range c.all() {
				time.Sleep(time.Duration(c.opts.Seed) * 40 * time.Millisecond)
				n.unchecked = false
				n.health.Set(n.checked())
			}
			c.Quiet(10 * time.Second)
			c.ranked()
		})
	})
	for _, n := range []int{20, 100} {
		t.Run(fmt.Sprintf("asked slowly for %d", n), func(t *testing.T) {
			play(t, Options{Nodes: 3, VIPs: VIPs(n), Pace: 20 * time.Millisecond}, 2, func(c *Cluster) {
				c.StartAll()
				c.Quiet(20 * time.Second)
				c.ranked()
			})
		})
	}
}

// TestFirstOwnersSoon: a node whose peers are not there does not wait for their word,
// and one that is there but says nothing is waited for shortly.
func TestFirstOwnersSoon(t *testing.T) {
	t.Parallel()
	var alone, silent figures
	play(t, Options{Nodes: 3}, 3, func(c *Cluster) {
		c.Start("m1")
		c.Quiet(10 * time.Second)
		alone = append(alone, c.firstOwners("m1"))
	})
	alone.judge(t, "alone", 100*time.Millisecond)
	play(t, Options{Nodes: 3}, 3, func(c *Cluster) {
		c.StartAll()
		c.Quiet(10 * time.Second)
		silent = append(silent, c.firstOwners("m1"))
	})
	silent.judge(t, "others say nothing", election.FirstWord+100*time.Millisecond)
}

// firstOwners tells one node alone of some VIPs, and returns when the last of them was
// announced.
func (c *Cluster) firstOwners(name string) time.Duration {
	at := time.Now()
	c.vips = VIPs(5)
	c.nodes[name].config.Set(c.configured())
	c.Quiet(5 * time.Second)
	var last time.Duration
	for _, v := range c.vips {
		c.expect(v.Addr, name)
		last = max(last, c.announcedAfter(v.Addr, at))
	}
	return last
}

// ranked checks that each VIP is with the node that the hash says.
func (c *Cluster) ranked() {
	for _, v := range c.vips {
		var best string
		for _, n := range c.all() {
			if n.running() && (best == "" || election.Better(v.Name, election.Candidate{Node: model.NodeName(n.Name)}, election.Candidate{Node: model.NodeName(best)})) {
				best = n.Name
			}
		}
		c.expect(v.Addr, best)
	}
}
