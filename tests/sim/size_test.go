package sim

import (
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// How large TestSize is; docs/benchmarks.md has its figures for thousands of VIPs.
var (
	sizeNodes = flag.Int("nodes", 8, "nodes of TestSize")
	sizeVIPs  = flag.Int("vips", 160, "VIPs of TestSize")
)

// TestSize: a node that is cut off had its share of many VIPs, and others have all of them soon.
func TestSize(t *testing.T) {
	var vips []model.VIP
	for i := range *sizeVIPs {
		a := netip.AddrFrom4([4]byte{10, 0, byte(1 + i>>8), byte(i)})
		vips = append(vips, model.VIP{Addr: a, Name: fmt.Sprintf("v%d", i), Kind: "VirtualIP", L2: true, Check: Check})
	}
	play(t, Options{Nodes: *sizeNodes, VIPs: vips}, 1, func(c *Cluster) {
		began, cpu := time.Now(), used()
		said := func(what string) {
			t.Logf("%s: %v of simulated time, %v of processor time", what, time.Since(began), used()-cpu)
			began, cpu = time.Now(), used()
		}
		c.StartAll()
		for slices.ContainsFunc(vips, func(v model.VIP) bool { return len(c.Net.Holders(v.Addr)) != 1 }) {
			if time.Sleep(10 * time.Millisecond); time.Since(began) > 5*time.Minute {
				t.Fatal("not each VIP has an owner")
			}
		}
		said("all start: each VIP has an owner")
		time.Sleep(5 * time.Second)
		said("idle")
		c.lost(t, vips, "m2")
		said("a node is cut off")
	})
}

// lost cuts a node off, and says how long its VIPs were away.
func (c *Cluster) lost(t *testing.T, vips []model.VIP, node string) {
	vips = slices.DeleteFunc(slices.Clone(vips), func(v model.VIP) bool { return c.Owner(v.Addr) != node })
	if len(vips) == 0 {
		t.Fatal("the node has no VIP")
	}
	from := time.Now()
	c.Plug(node, false)
	time.Sleep(5 * time.Second)
	var gaps []time.Duration
	for _, v := range vips {
		if c.Owner(v.Addr) == node {
			t.Errorf("%s is where it was", v.Addr)
		}
		gaps = append(gaps, c.Gap(v.Addr, from))
	}
	slices.Sort(gaps)
	t.Logf("%d of %d VIPs were away for %v (min), %v (median), %v (max)", len(vips), len(c.vips), gaps[0], gaps[len(gaps)/2], gaps[len(gaps)-1])
	if gaps[0] == 0 || gaps[len(gaps)-1] > 2*time.Second {
		t.Errorf("VIPs were away for %v to %v", gaps[0], gaps[len(gaps)-1])
	}
}

// used is the processor time of this process so far.
func used() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r) // fails for no process that asks about itself
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
