package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// services are VIPs that are not bound, as many as a node has where Services are many.
func services(n int) []model.VIP {
	vips := VIPs(n)
	for i := range vips {
		vips[i].Unbound = true
		vips[i].Addr = netip.MustParseAddr(fmt.Sprintf("fd00::1:%x", 0x1000+i))
	}
	return vips
}

// TestDrainOfMany is a planned move of hundreds of addresses at once: each is announced by the
// new owner before the old one falls silent.
func TestDrainOfMany(t *testing.T) {
	t.Parallel()
	for _, n := range []int{100, 700} {
		play(t, Options{Nodes: 2, VIPs: services(n)}, 1, func(c *Cluster) {
			c.Start("m1")
			time.Sleep(30 * time.Second)
			c.Start("m2")
			time.Sleep(15 * time.Second)
			at := time.Now()
			c.Drain("m1", true)
			time.Sleep(8 * time.Second)
			moved := 0
			for _, v := range c.vips {
				for _, s := range c.Net.History(v.Addr) {
					if s.At.Before(at) || len(s.Holders) != 1 || s.Holders[0] != "m2" {
						continue
					}
					moved++
					if said := at.Add(c.announcedAfter(v.Addr, at)); said.After(s.At) {
						c.failf("%s: m2 announces it %v after m1 fell silent", v.Addr, said.Sub(s.At))
					}
					break
				}
			}
			if moved < n/2 {
				c.failf("%d of %d moved", moved, n)
			}
		})
	}
}

// bar keeps a node from the first n addresses.
func bar(c *Cluster, name string, n int) {
	vips := slices.Clone(c.vips)
	for i := range vips[:n] {
		vips[i].NodeSelector = map[string]string{"role": "control-plane"}
	}
	c.touch(name)
	c.Node(name).config.Set(func(v *model.View) { v.VIPs, v.DrainTimeout = vips, c.opts.Drain })
}

// TestCrashOfManyWhileOneThaws: an owner of many dies while one of those that may have its
// addresses stands still, and that one thaws when the other, which may not have all of them, takes
// them: two never have one.
func TestCrashOfManyWhileOneThaws(t *testing.T) {
	t.Parallel()
	for away := 300 * time.Millisecond; away < 700*time.Millisecond; away += 50 * time.Millisecond {
		play(t, Options{Nodes: 3, VIPs: services(60), Latency: 50 * time.Millisecond}, 2, func(c *Cluster) {
			c.Start("m1")
			time.Sleep(15 * time.Second)
			c.Start(c.others("m1")...)
			bar(c, "m2", 20)
			time.Sleep(15 * time.Second)
			at := time.Now()
			c.Freeze("m3")
			c.Crash("m1")
			time.Sleep(away)
			c.Thaw("m3")
			time.Sleep(5 * time.Second)
			for _, v := range c.vips {
				if both := c.overlap(v.Addr, at); both > 0 {
					c.failf("%s: two answer for it for %v", v.Addr, both)
				}
			}
		})
	}
}
