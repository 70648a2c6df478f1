package sim

import (
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestQuorumOfReplacedHosts: the hosts of a control plane are replaced one after the other
// within an hour, each without a goodbye. Those that are there have a majority of those
// that should be.
func TestQuorumOfReplacedHosts(t *testing.T) {
	t.Parallel()
	vips := VIPs(1)
	vips[0].Partition = model.PartitionQuorum
	play(t, Options{Nodes: 3, VIPs: vips}, 2, func(c *Cluster) {
		vip, _ := settle(c)
		for i, old := range []string{"m1", "m2", "m3"} {
			c.Replace([]string{old}, 4+i)
			c.Quiet(2 * time.Minute)
			if h := c.Net.Holders(vip); len(h) != 1 {
				c.failf("%v hold it after %s was replaced", h, old)
			}
		}
	})
}

// TestQuorumAfterScalingDown: an autoscaler removes more than half of the workers.
func TestQuorumAfterScalingDown(t *testing.T) {
	t.Parallel()
	vips := VIPs(1)
	vips[0].Partition = model.PartitionQuorum
	play(t, Options{Nodes: 9, VIPs: vips}, 2, func(c *Cluster) {
		vip, owner := settle(c)
		c.Replace(append([]string{owner}, c.others(owner)[:4]...))
		c.Quiet(time.Minute)
		if h := c.Net.Holders(vip); len(h) != 1 {
			c.failf("%v hold it after five of nine were removed", h)
		}
		// What is left is a group of four, of which two are none.
		left := c.others("")
		for _, n := range left[:2] {
			c.Crash(n)
		}
		c.Quiet(minorityPatience + time.Second)
		if h := c.Net.Holders(vip); len(h) != 0 {
			c.failf("%v hold it although two of four are left", h)
		}
	})
}
