package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lbd.dev/lbd/internal/gossip"
	"lbd.dev/lbd/internal/model"
)

// unboundVIPs are VIPs, of both families, that the daemons answer for themselves.
func unboundVIPs() []model.VIP {
	vips := families("svc")
	for i := range vips {
		vips[i].Unbound = true
	}
	return vips
}

// TestUnbound is what happens to an owner of VIPs that are not bound. Whatever it is,
// nothing is left that answers: a successor has them as after a loss of power, and one
// that thaws answers for nothing before it has asked the wire.
func TestUnbound(t *testing.T) {
	t.Parallel()
	faults := map[string]func(*Cluster, string){
		"power": (*Cluster).Crash, "cable": func(c *Cluster, n string) { c.Plug(n, false) },
		"killed": (*Cluster).Kill, "frozen": (*Cluster).Freeze,
	}
	for _, c := range []struct {
		detection gossip.Detection
		limit     time.Duration
	}{{gossip.DetectionLAN, 250 * time.Millisecond}, {gossip.DetectionFast, 150 * time.Millisecond}} {
		for name, fault := range faults {
			t.Run(fmt.Sprint(c.detection, " ", name), func(t *testing.T) {
				var took, silent figures
				play(t, Options{Nodes: 3, VIPs: unboundVIPs(), Detection: c.detection}, 5, func(cl *Cluster) {
					vip, owner := settle(cl)
					time.Sleep(time.Duration(len(took)) * 7 * time.Millisecond)
					at := time.Now()
					fault(cl, owner)
					time.Sleep(5 * time.Millisecond)
					if h := cl.Net.Holders(vip); slices.Contains(h, owner) {
						cl.failf("%v still answer", h)
					}
					cl.Quiet(5 * time.Second)
					took = append(took, cl.announcedAfter(vip, at))
					for _, s := range cl.Net.History(vip) {
						if len(s.Clashes) > 0 {
							cl.failf("%v answer for it", s.Clashes)
						}
					}
					now := cl.Owner(vip)
					cl.Thaw(owner)
					cl.Plug(owner, true)
					cl.Start(owner)
					cl.Quiet(10 * time.Second)
					cl.expect(vip, now)
					silent = append(silent, cl.overlap(vip, cl.Begin))
				})
				took.judge(t, "first announcement", c.limit)
				silent.judge(t, "both answer", 0)
			})
		}
	}
}

// noticed is after how long an owner that is frozen may be missed with the profile lan:
// heartbeats are late after 160 ms, the last one may be 50 ms old.
const noticed = 110 * time.Millisecond

// TestUnboundThaws is an owner that is frozen for any time: two never answer, and one
// does in the end. It keeps the VIP if nobody can have missed it.
func TestUnboundThaws(t *testing.T) {
	t.Parallel()
	var missed figures
	for away := 10 * time.Millisecond; away < 3*time.Second; away = away * 5 / 4 {
		play(t, Options{Nodes: 3, VIPs: unboundVIPs()}, 2, func(c *Cluster) {
			vip, owner := settle(c)
			at := time.Now()
			c.Freeze(owner)
			time.Sleep(away)
			c.Thaw(owner)
			c.Quiet(10 * time.Second)
			if away < noticed {
				c.expect(vip, owner)
			}
			for _, v := range c.vips {
				if o := c.overlap(v.Addr, at); o > 0 {
					c.failf("away for %s: two answer for %s for %s", away, v.Addr, o)
				}
				missed = append(missed, c.unanswered(v, at))
			}
		})
	}
	missed.judge(t, "nobody answers", 900*time.Millisecond)
}

// TestUnboundThawsUnheard is an owner that was replaced while it was frozen, and that
// gossip does not reach when it thaws: it finds on the wire that it was.
func TestUnboundThawsUnheard(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: unboundVIPs()}, 5, func(c *Cluster) {
		vip, owner := settle(c)
		at := time.Now()
		c.Freeze(owner)
		c.CutGossip(owner)
		time.Sleep(time.Duration(c.opts.Seed) * 200 * time.Millisecond)
		c.Thaw(owner)
		time.Sleep(3 * time.Second)
		if now := c.Owner(vip); c.opts.Seed > 1 && now == owner {
			c.failf("%s is still with %s", vip, now)
		}
		c.Heal()
		c.Quiet(10 * time.Second)
		for _, v := range c.vips {
			if o := c.overlap(v.Addr, at); o > 0 {
				c.failf("two answer for %s for %s", v.Addr, o)
			}
		}
	})
}

// TestUnboundStarved is an owner that stands still again and again, each time for less
// than others need to miss it: it loses nothing, and is silent while it is not sure.
func TestUnboundStarved(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: unboundVIPs()}, 5, func(c *Cluster) {
		vip, first := settle(c)
		c.Drain(first, true)
		c.Quiet(5 * time.Second)
		c.Drain(first, false)
		owner := c.Owner(vip) // another one is better ranked
		before := c.State()
		for i := range 20 {
			c.Freeze(owner)
			time.Sleep(noticed - time.Duration(i)*time.Millisecond)
			c.Thaw(owner)
			for _, v := range c.vips {
				if h := c.Net.Holders(v.Addr); slices.Contains(h, owner) {
					c.failf("%v answer for %s before the wire was asked", h, v.Addr)
				}
			}
			time.Sleep(noticed/2 + time.Duration(i)*20*time.Millisecond)
		}
		c.Quiet(time.Second)
		if now := c.State(); now != before {
			c.failf("moved: was\n%sis\n%s", before, now)
		}
	})
}

// unanswered is the longest time since the moment in which nobody answered.
func (c *Cluster) unanswered(v model.VIP, from time.Time) time.Duration {
	var longest time.Duration
	since := time.Time{}
	for _, s := range c.Net.History(v.Addr) {
		switch {
		case len(s.Holders) == 0 && since.IsZero() && !s.At.Before(from):
			since = s.At
		case len(s.Holders) > 0 && !since.IsZero():
			longest = max(longest, s.At.Sub(since))
			since = time.Time{}
		}
	}
	if !since.IsZero() {
		longest = max(longest, time.Since(since))
	}
	return longest
}

// TestUnboundMoves is everything planned: there is never nobody that answers.
func TestUnboundMoves(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(c *Cluster, owner string){
		"drain": func(c *Cluster, owner string) { c.Drain(owner, true) },
		"stop":  (*Cluster).StopSoon,
		"sick":  func(c *Cluster, owner string) { c.Sick(owner, true) },
		"excluded": func(c *Cluster, owner string) {
			c.touch(owner)
			vips := slices.Clone(c.vips)
			for i := range vips {
				vips[i].Barred = model.ReasonNodeExcluded
			}
			c.Node(owner).config.Set(func(v *model.View) { v.VIPs, v.DrainTimeout = vips, c.opts.Drain })
		},
	} {
		t.Run(name, func(t *testing.T) {
			var took, overlap, silent figures
			play(t, Options{Nodes: 3, VIPs: unboundVIPs()}, 5, func(c *Cluster) {
				vip, owner := settle(c)
				at := time.Now()
				move(c, owner)
				time.Sleep(time.Second)
				took = append(took, c.announcedAfter(vip, at))
				c.Quiet(10 * time.Second)
				for _, v := range c.vips {
					if c.Owner(v.Addr) == owner {
						c.failf("%s is still with %s", v.Addr, owner)
					}
					overlap = append(overlap, c.overlap(v.Addr, at))
					silent = append(silent, c.unanswered(v, at))
				}
			})
			took.judge(t, "successor announced", 50*time.Millisecond)
			overlap.judge(t, "both answer", 100*time.Millisecond)
			silent.judge(t, "nobody answers", 0)
		})
	}
}

// TestUnboundWithoutEndpoint: a node without endpoints hands over; the last one lets
// go.
func TestUnboundWithoutEndpoint(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: unboundVIPs()}, 3, func(c *Cluster) {
		vip, owner := settle(c)
		at := time.Now()
		bar := func(name string, why model.Reason) {
			vips := slices.Clone(c.vips)
			for i := range vips {
				vips[i].Barred = why
			}
			c.touch(name)
			c.Node(name).config.Set(func(v *model.View) { v.VIPs, v.DrainTimeout = vips, c.opts.Drain })
		}
		bar(owner, model.ReasonNoEndpoint)
		time.Sleep(time.Second)
		if now := c.Owner(vip); now == owner || now == "" {
			c.failf("it is with %q", now)
		}
		if gap := c.unanswered(c.vips[0], at); gap > 0 {
			c.failf("nobody answered for %s", gap)
		}
		for _, n := range c.all() {
			bar(n.Name, model.ReasonNoEndpoint)
		}
		time.Sleep(2 * time.Second)
		if h := c.Net.Holders(vip); len(h) > 0 {
			c.failf("%v answer without an endpoint", h)
		}
		bar(owner, model.ReasonOwner)
		c.Quiet(5 * time.Second)
		c.expect(vip, owner)
	})
}

// drawUnbound makes a scenario in which most VIPs are not bound, some of them with BGP, of which one only
// its owner advertises.
func drawUnbound(t *rapid.T) *Scenario {
	s := &Scenario{Options: Options{
		Nodes: 3, VIPs: VIPs(6), Seed: rapid.Uint64Range(1, 1000).Draw(t, "seed"),
		Loss: rapid.SampledFrom([]float64{0, 0, 0.01}).Draw(t, "loss"),
	}}
	for i := range s.Options.VIPs {
		v := &s.Options.VIPs[i]
		v.Unbound = i > 0
		v.Preempt = i == 2
		if i == 3 {
			v.Partition = model.PartitionQuorum
		}
		if i >= 4 {
			v.BGP, v.L2 = []model.BGPAdvert{{}}, i == 4
			if i == 4 {
				v.Kind = model.KindLoadBalancer
			}
		}
		if i == 1 {
			v.Check = ""
		}
	}
	all := []string{"m1", "m2", "m3"}
	s.add(0, "start", all...)
	s.add(0, "quiet", "10s")
	s.steps(t, all, []string{
		"start", "crash", "kill", "stop", "freeze", "freeze", "thaw", "thaw", "drain", "undrain", "sick", "well", "unplug", "plug",
		"cut-gossip", "cut", "heal", "unconfigure", "configure", "quiet", "start", "thaw",
	})
	return s
}

// TestRandomUnbound is TestRandom with VIPs that are not bound.
func TestRandomUnbound(t *testing.T) { search(t, drawUnbound, 18) }
