package sim

import (
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/lbdtest"
	"lbd.dev/lbd/internal/model"
)

// mixed are n VIPs announced both ways and as many that only BGP advertises.
func mixed(n int) []model.VIP {
	vips := VIPs(2 * n)
	for i := range vips {
		vips[i].BGP = []model.BGPAdvert{{}}
		vips[i].L2 = i < n
	}
	return vips
}

// TestBGPStart: every node advertises, the owner on the wire too.
func TestBGPStart(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: mixed(2)}, 3, func(c *Cluster) {
		c.StartAll()
		c.Quiet(10 * time.Second)
		for _, v := range c.vips {
			for _, r := range c.routers {
				if got := r.Has(v.Addr); !slices.Equal(got, []string{"m1", "m2", "m3"}) {
					c.failf("%s has paths to %v for %s", r.Name, got, v.Addr)
				}
			}
		}
	})
}

// TestBGPStops: however a node ends, nothing answers from lo and no router sends
// packets in vain, also if all end at once.
func TestBGPStops(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Cluster, string){
		"stop": (*Cluster).StopSoon, "kill": (*Cluster).Kill, "crash": (*Cluster).Crash, "freeze": (*Cluster).Freeze,
		"sick":  func(c *Cluster, n string) { c.Sick(n, true) },
		"drain": func(c *Cluster, n string) { c.Drain(n, true) },
	} {
		for kind, routers := range map[string][]lbdtest.RouterKind{"all kinds": nil, "graceful": {lbdtest.RouterGraceful}} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				play(t, Options{Nodes: 3, VIPs: mixed(1), Routers: routers}, 4, func(c *Cluster) {
					_, owner := settle(c)
					for _, n := range append(c.others(owner), owner) {
						end(c, n)
						if c.opts.Seed%2 == 0 {
							time.Sleep(500 * time.Millisecond)
						}
					}
					c.Quiet(20 * time.Second)
				})
			})
		}
	}
}

// TestBGPMove: the owner on the wire changes, and no router sees anything of it.
func TestBGPMove(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: mixed(1)}, 2, func(c *Cluster) {
		c.StartAll()
		c.Quiet(10 * time.Second)
		vip := c.vips[0]
		owner := c.Owner(vip.Addr)
		others := c.others(owner)
		at := time.Now()
		c.CutGossip(owner) // it is not late on the wire, which it goes on to answer for
		c.Quiet(minorityPatience)
		c.Heal()
		c.Quiet(20 * time.Second)
		c.CutWire(others[0]) // a second owner, which gives the VIP up when they meet
		c.CutGossip(others[0])
		c.Quiet(minorityPatience)
		if h := c.Net.Holders(vip.Addr); len(h) != 2 {
			c.failf("%v hold it on two sides", h)
		}
		c.Heal()
		c.Quiet(20 * time.Second)
		for _, r := range c.routers {
			for _, e := range r.Events() {
				if e.At.After(at) && e.Node != others[0] {
					c.failf("%s: %+v", r.Name, e)
				}
				if e.At.After(c.Net.Healed().Add(4*time.Second)) || e.At.After(c.Net.Healed()) && !e.Path {
					c.failf("%s: %+v", r.Name, e)
				}
			}
		}
	})
}

// prefixed are n VIPs that only BGP advertises, by one prefix and, every other one,
// by itself too.
func prefixed(n int) []model.VIP {
	vips := VIPs(n)
	for i := range vips {
		vips[i].L2, vips[i].BGP = false, []model.BGPAdvert{{Length: 24}}
		if i%2 == 1 {
			vips[i].BGP = append(vips[i].BGP, model.BGPAdvert{})
		}
	}
	return vips
}

// TestBGPPrefixStops: however a node ends, no router has a prefix by way of a node
// that has no address in it.
func TestBGPPrefixStops(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Cluster, string){
		"stop": (*Cluster).StopSoon, "kill": (*Cluster).Kill, "crash": (*Cluster).Crash, "freeze": (*Cluster).Freeze,
		"sick":  func(c *Cluster, n string) { c.Sick(n, true) },
		"drain": func(c *Cluster, n string) { c.Drain(n, true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, Options{Nodes: 2, VIPs: prefixed(3)}, 4, func(c *Cluster) {
				c.StartAll()
				c.Quiet(10 * time.Second)
				for _, r := range c.routers {
					if got := r.Has(c.vips[0].Addr); !slices.Equal(got, []string{"m1", "m2"}) {
						c.failf("%s has paths to %v", r.Name, got)
					}
				}
				for _, n := range []string{"m1", "m2"} {
					end(c, n)
					if c.opts.Seed%2 == 0 {
						time.Sleep(500 * time.Millisecond)
					}
				}
				c.Quiet(20 * time.Second)
			})
		})
	}
}

// TestBGPDrain is what routers see of a drain: asked to leave, then withdrawn after
// the delay, and the address stays for a second at least.
func TestBGPDrain(t *testing.T) {
	t.Parallel()
	play(t, Options{Nodes: 3, VIPs: mixed(1)}, 5, func(c *Cluster) {
		_, owner := settle(c)
		name := append(c.others(owner), owner)[c.opts.Seed%3]
		n := c.Node(name)
		for _, v := range c.vips {
			n.Host.SetConnections(v.Addr, 1)
		}
		at := time.Now()
		c.Drain(name, true)
		time.Sleep(9 * time.Second)
		for _, v := range c.vips {
			for _, r := range c.routers {
				var seen []lbdtest.RouterEvent
				for _, e := range r.Events() {
					if e.At.After(at) && e.Node == name && e.Prefix.Contains(v.Addr) {
						seen = append(seen, e)
					}
				}
				if len(seen) != 2 || !seen[0].Shutdown || seen[1].Path {
					c.failf("%s was told %+v of %s", r.Name, seen, v.Addr)
				} else if d := seen[1].At.Sub(seen[0].At); d < shutdownDelay-routerLag || d > shutdownDelay+routerLag {
					c.failf("%s was asked to leave for %s", r.Name, d)
				}
			}
			if !slices.Contains(n.Host.Loopback(), v.Addr) && !slices.Contains(n.Host.Addresses(), v.Addr) {
				c.failf("%s is gone although it has connections", v.Addr)
			}
		}
		c.Quiet(10 * time.Second)
		c.Drain(name, false)
		c.Quiet(10 * time.Second)
	})
}

// routerLag is how late routers see what drivers do.
const routerLag = 20 * time.Millisecond

// TestBGPRestartKeeps: with graceful restart no router loses a path of a daemon
// that comes back in time, however it ended.
func TestBGPRestartKeeps(t *testing.T) {
	t.Parallel()
	vips := mixed(1)[1:]
	for name, end := range map[string]func(*Cluster, string){"kill": (*Cluster).Kill, "stop": (*Cluster).Stop} {
		for _, away := range []time.Duration{0, time.Second, 7 * time.Second} {
			play(t, Options{Nodes: 3, VIPs: vips, Routers: []lbdtest.RouterKind{lbdtest.RouterGraceful}}, 3, func(c *Cluster) {
				c.StartAll()
				c.Quiet(10 * time.Second)
				at := time.Now()
				end(c, "m2")
				time.Sleep(away)
				c.Start("m2")
				c.Quiet(20 * time.Second)
				for _, e := range c.routers[0].Events() {
					if e.At.After(at) {
						c.failf("%s, away for %s: %+v", name, away, e)
					}
				}
			})
		}
	}
}

// TestBGPHarnessSees is the test of these tests.
func TestBGPHarnessSees(t *testing.T) {
	t.Parallel()
	for what, f := range map[string]func(*Cluster, string){
		"an address on lo that answers": func(c *Cluster, n string) {
			c.Crash(n)
			c.Node(n).Host.Power(true)
			c.Node(n).Host.Seize("lo", c.vips[0].Addr)
		},
		"a leftover on lo": func(c *Cluster, n string) { c.Kill(n); c.Node(n).Host.Seize("lo", c.vips[1].Addr) },
		"a path without address": func(c *Cluster, n string) {
			c.Freeze(n)
			c.Node(n).Host.RemoveLoopback(c.vips[1].Addr)
		},
	} {
		failures, _ := Run(t, Options{Nodes: 3, VIPs: mixed(1), Seed: 1}, func(c *Cluster) {
			_, owner := settle(c)
			f(c, c.others(owner)[0])
			c.Quiet(model.LoopbackLifetime + 10*time.Second)
		})
		if len(failures) == 0 {
			t.Errorf("%s was not noticed", what)
		}
	}
}
