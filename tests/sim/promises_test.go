package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/gossip"
	"lbd.dev/lbd/internal/model"
)

// TestP1 is the loss of power and of the cable of an owner.
func TestP1(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		detection gossip.Detection
		limit     time.Duration
	}{{gossip.DetectionLAN, 120 * time.Millisecond}, {gossip.DetectionFast, 80 * time.Millisecond}} {
		for name, fault := range map[string]func(*Cluster, string){
			"power": (*Cluster).Crash, "cable": func(c *Cluster, n string) { c.Plug(n, false) },
		} {
			t.Run(fmt.Sprint(c.detection, " ", name), func(t *testing.T) {
				var took, gaps figures
				play(t, Options{Nodes: 3, VIPs: VIPs(1), Detection: c.detection}, 10, func(cl *Cluster) {
					vip, owner := settle(cl)
					time.Sleep(time.Duration(len(took)) * 7 * time.Millisecond) // at any time between two heartbeats
					at := time.Now()
					fault(cl, owner)
					cl.Quiet(10 * time.Second)
					took = append(took, cl.announcedAfter(vip, at))
					gaps = append(gaps, cl.Gap(vip, at))
				})
				took.judge(t, "first announcement", c.limit)
				gaps.judge(t, "client not served", c.limit+time.Millisecond)
			})
		}
	}
}

// TestP2 is everything planned: no client is without the VIP for a moment, and
// two announce it for a bounded time.
func TestP2(t *testing.T) {
	t.Parallel()
	moves := map[string]func(c *Cluster, owner string){
		"drain": func(c *Cluster, owner string) { c.Drain(owner, true) },
		"stop":  (*Cluster).StopSoon,
		"select": func(c *Cluster, owner string) { // a label of the owner changes
			c.touch(owner)
			c.Node(owner).config.Set(c.labelled(owner))
		},
	}
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
			var took, overlap figures
			play(t, Options{Nodes: 3, VIPs: families("cp")}, 5, func(c *Cluster) {
				vip, owner := settle(c)
				at := time.Now()
				move(c, owner)
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
				}
				for _, v := range c.vips {
					overlap = append(overlap, c.overlap(v.Addr, at))
				}
			})
			took.judge(t, "successor announced", 50*time.Millisecond)
			overlap.judge(t, "both answer", 100*time.Millisecond)
		})
	}
}

// TestP2HeardOnTheWire: an owner that is to yield hears its successor by ARP and neighbour
// discovery. If gossip is slow it does not wait for the claim, but asks the wire.
func TestP2HeardOnTheWire(t *testing.T) {
	t.Parallel()
	var overlap figures
	play(t, Options{Nodes: 3, VIPs: families("cp"), Latency: 200 * time.Millisecond}, 5, func(c *Cluster) {
		_, owner := settle(c)
		at := time.Now()
		c.Drain(owner, true)
		c.Quiet(15 * time.Second)
		for _, v := range c.vips {
			overlap = append(overlap, c.overlap(v.Addr, at))
			if gap := c.Gap(v.Addr, at); gap > 0 {
				c.failf("the client was without %s for %s", v.Addr, gap)
			}
		}
	})
	overlap.judge(t, "both answer", election.ClaimFollows+20*time.Millisecond)
}

// families is one object with an address of each family.
func families(name string) []model.VIP {
	return []model.VIP{
		{Addr: netip.MustParseAddr("10.0.0.200"), Name: name, Kind: "VirtualIP", L2: true, Check: Check},
		{Addr: netip.MustParseAddr("fd00::200"), Name: name, Kind: "VirtualIP", L2: true, Check: Check},
	}
}

// TestP3 is a daemon that was killed or frozen: its kernel drops the VIP by
// itself, and a successor has it soon after.
func TestP3(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*Cluster, string){"killed": (*Cluster).Kill, "frozen": (*Cluster).Freeze} {
		t.Run(name, func(t *testing.T) {
			var gone, after figures
			play(t, Options{Nodes: 3, VIPs: VIPs(1)}, 10, func(c *Cluster) {
				vip, owner := settle(c)
				time.Sleep(time.Duration(len(gone)) * 110 * time.Millisecond)
				at := time.Now()
				fault(c, owner)
				c.Quiet(10 * time.Second)
				var dropped time.Time
				for _, s := range c.Net.History(vip) {
					if s.At.After(at) && dropped.IsZero() && !slices.Contains(s.Holders, owner) {
						dropped = s.At
					}
					if len(s.Clashes) > 0 {
						c.failf("%v answer for it", s.Clashes)
					}
				}
				gone = append(gone, dropped.Sub(at))
				after = append(after, c.announcedAfter(vip, at)-dropped.Sub(at))
				c.Thaw(owner)
				c.Quiet(10 * time.Second)
			})
			gone.judge(t, "gone from the kernel", 4*time.Second)
			after.judge(t, "successor after that", 150*time.Millisecond)
		})
	}
}

// TestP3ComesBackInTime is a daemon that restarts, or thaws, before its lifetime
// ends: it keeps the VIP and no client notices.
func TestP3ComesBackInTime(t *testing.T) {
	t.Parallel()
	for _, away := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, time.Second, 1500 * time.Millisecond, 1800 * time.Millisecond} {
		for _, frozen := range []bool{false, true} {
			play(t, Options{Nodes: 3, VIPs: families("cp")}, 3, func(c *Cluster) {
				vip, owner := settle(c)
				at := time.Now()
				if frozen {
					c.Freeze(owner)
					time.Sleep(away)
					c.Thaw(owner)
				} else {
					c.Kill(owner)
					time.Sleep(away)
					c.Start(owner)
				}
				c.Quiet(10 * time.Second)
				c.expect(vip, owner)
				if gap := c.Gap(vip, at); gap > 0 {
					c.failf("frozen %v, away for %s: the client was without it for %s", frozen, away, gap)
				}
			})
		}
	}
}

// TestP3ComesBackLate is one that comes back after that: nothing moves again.
func TestP3ComesBackLate(t *testing.T) {
	t.Parallel()
	for _, away := range []time.Duration{2800 * time.Millisecond, 3050 * time.Millisecond, 3300 * time.Millisecond, 4 * time.Second, 20 * time.Second} {
		for _, frozen := range []bool{false, true} {
			play(t, Options{Nodes: 3, VIPs: VIPs(3)}, 3, func(c *Cluster) {
				_, owner := settle(c)
				if frozen {
					c.Freeze(owner)
					time.Sleep(away)
					c.Thaw(owner)
				} else {
					c.Kill(owner)
					time.Sleep(away)
					c.Start(owner)
				}
				c.Quiet(10 * time.Second)
			})
		}
	}
}

// TestP4 is the service that dies on the owner; the time that the check takes to
// notice is not part of it.
func TestP4(t *testing.T) {
	t.Parallel()
	var took figures
	play(t, Options{Nodes: 3, VIPs: VIPs(1)}, 5, func(c *Cluster) {
		vip, owner := settle(c)
		at := time.Now()
		c.Sick(owner, true)
		c.Quiet(12 * time.Second)
		took = append(took, c.announcedAfter(vip, at))
		// The last healthy node: a dead service is not announced, by anybody.
		for _, n := range c.all() {
			c.Sick(n.Name, true)
		}
		time.Sleep(12 * time.Second)
		if h := c.Net.Holders(vip); len(h) > 0 {
			c.failf("%v hold it although the service is dead everywhere", h)
		}
		at = time.Now()
		c.Sick(owner, false)
		c.Quiet(10 * time.Second)
		c.expect(vip, owner)
		if back := c.announcedAfter(vip, at); back > 500*time.Millisecond {
			c.failf("announced again after %s", back)
		}
	})
	took.judge(t, "moved after the check had failed", 50*time.Millisecond)
}

// TestP5 is blocked gossip while the wire works: the same one claimant.
func TestP5(t *testing.T) {
	t.Parallel()
	for _, minority := range []bool{false, true} {
		o := Options{Nodes: 3, VIPs: VIPs(3)}
		failures, trace := Run(t, o, func(c *Cluster) {
			vip, owner := settle(c)
			side := []string{owner}
			if minority {
				side = c.others(owner)[:1]
			}
			at := time.Now()
			c.CutGossip(side...)
			c.Quiet(30 * time.Second)
			c.expect(vip, owner)
			c.Heal()
			c.Quiet(20 * time.Second)
			c.expect(vip, owner)
			for _, v := range c.vips {
				if gap := c.Gap(v.Addr, at); gap > 0 {
					c.failf("the client was without it for %s", gap)
				}
			}
		})
		for _, f := range failures {
			t.Error(f)
		}
		if n := strings.Count(trace, "msg=vip"); n > 100 {
			t.Errorf("%d changes of reason; waiting is one state", n)
		}
	}
}

// TestP6 is a node that comes back: after a crash, and with its cable.
func TestP6(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: VIPs(5)}, 5, func(c *Cluster) {
		vip, owner := settle(c)
		c.Crash(owner)
		c.Quiet(10 * time.Second)
		next := c.Owner(vip)
		at := time.Now()
		c.Start(owner)
		c.Quiet(20 * time.Second)
		c.expect(vip, next)
		c.Plug(owner, false)
		c.Quiet(10 * time.Second)
		c.Plug(owner, true)
		c.Quiet(20 * time.Second)
		c.expect(vip, next)
		if gap := c.Gap(vip, at); gap > 0 {
			c.failf("the client was without it for %s", gap)
		}
		for _, s := range c.Net.History(vip) {
			if s.At.After(at) && len(s.Clashes) > 0 {
				c.failf("%v both answer", s.Clashes)
			}
		}
	})
}

// TestHeal is a wire that was cut without loss of carrier: two owners that meet.
func TestHeal(t *testing.T) {
	t.Parallel()
	for _, g := range []struct {
		nodes, vips int
		seeds       uint64
	}{{3, 1, 30}, {5, 20, 6}} {
		t.Run(fmt.Sprint(g.nodes, " nodes"), func(t *testing.T) {
			var took figures
			play(t, Options{Nodes: g.nodes, VIPs: VIPs(g.vips)}, g.seeds, func(c *Cluster) {
				vip, owner := settle(c)
				c.CutWire(owner)
				c.CutGossip(owner)
				c.Quiet(minorityPatience + time.Duration(c.opts.Seed)*170*time.Millisecond)
				if h := c.Net.Holders(vip); len(h) != 2 {
					c.failf("%v hold it on two sides", h)
				}
				at := time.Now()
				c.Heal()
				c.Quiet(10 * time.Second)
				for _, v := range c.vips {
					took = append(took, c.overlap(v.Addr, at))
				}
			})
			took.judge(t, fmt.Sprintf("two owners after a heal (promised %s)", promisedHeal), promisedHeal)
		})
	}
}

// TestQuorum: without a majority the VIP is given up, and only then.
func TestQuorum(t *testing.T) {
	t.Parallel()
	vips := VIPs(2)
	vips[0].Partition = model.PartitionQuorum
	play(t, Options{Nodes: 3, VIPs: vips}, 3, func(c *Cluster) {
		vip, owner := settle(c)
		c.CutWire(owner)
		c.CutGossip(owner)
		c.Quiet(minorityPatience + time.Second)
		if h := c.Net.Holders(vip); len(h) != 1 || h[0] == owner {
			c.failf("%v hold it although %s is alone", h, owner)
		}
		c.Heal()
		c.Quiet(20 * time.Second)
		for _, n := range c.others(c.Owner(vip)) {
			c.Crash(n)
		}
		c.Quiet(minorityPatience + time.Second)
		if h := c.Net.Holders(vip); len(h) != 0 {
			c.failf("%v hold it although one of three is left", h)
		}
		if len(c.Net.Holders(c.vips[1].Addr)) != 1 {
			c.failf("the other VIP needs no majority")
		}
	})
}

// TestP7 is a drain that ends: the VIPs do not come back by themselves.
func TestP7(t *testing.T) {
	t.Parallel()
	var took figures
	play(t, Options{Nodes: 5, VIPs: VIPs(20)}, 3, func(c *Cluster) {
		settle(c)
		for _, name := range []string{"m1", "m2", "m3"} {
			at := time.Now()
			c.Drain(name, true)
			time.Sleep(time.Second)
			for _, v := range c.vips {
				if slices.Contains(c.Net.Holders(v.Addr), name) {
					c.failf("%s still answers for %s after a second", name, v.Addr)
				}
				for _, s := range c.Net.History(v.Addr) {
					if s.At.After(at) {
						took = append(took, s.At.Sub(at))
					}
				}
				if gap := c.Gap(v.Addr, at); gap > 0 {
					c.failf("the client was without %s for %s", v.Addr, gap)
				}
			}
			c.Quiet(12 * time.Second)
			before := c.State()
			c.Drain(name, false)
			c.Quiet(10 * time.Second)
			if after := c.State(); after != before {
				c.failf("the end of the drain of %s moved VIPs:\n%s\n%s", name, before, after)
			}
		}
	})
	took.judge(t, "last change", time.Second)
}

// TestP9 is leftovers: whatever a crashed daemon has left is gone when the group
// has decided otherwise, or when the VIP is not configured any more.
func TestP9(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: VIPs(6)}, 3, func(c *Cluster) {
		_, owner := settle(c)
		c.Kill(owner)
		for _, v := range slices.Clone(c.vips)[:3] {
			c.RemoveVIP(v.Name)
		}
		time.Sleep(time.Second)
		c.Start(owner)
		c.Quiet(5 * time.Second)
		for _, v := range c.opts.VIPs[:3] {
			if h := c.Net.Holders(v.Addr); len(h) > 0 {
				c.failf("%v still hold %s", h, v.Addr)
			}
		}
	})
}

// TestHarnessSees is the test of the tests: a kernel that keeps what a killed
// daemon has bound, and a driver that binds on an old silence, must be noticed.
func TestHarnessSees(t *testing.T) {
	t.Parallel()
	failures, _ := Run(t, Options{Nodes: 3, VIPs: VIPs(1), Seed: 1}, func(c *Cluster) {
		vip, owner := settle(c)
		second := c.Node(c.others(owner)[0])
		second.proc.Freeze() // or it removes at once what it did not bind
		second.Host.Seize("eth0", vip)
		c.Quiet(10 * time.Second)
	})
	if !slices.ContainsFunc(failures, func(f string) bool { return strings.Contains(f, "both answer") }) {
		t.Errorf("two owners were not noticed: %v", failures)
	}
	failures, _ = Run(t, Options{Nodes: 3, VIPs: VIPs(1), Seed: 1}, func(c *Cluster) {
		_, owner := settle(c)
		c.Node(owner).Host.Power(false) // without telling the cluster
		for _, n := range c.others(owner) {
			c.Node(n).proc.Freeze()
		}
		c.Quiet(10 * time.Second)
	})
	if len(failures) == 0 {
		t.Error("a VIP without owner was not noticed")
	}
}
