package sim

import (
	"strings"
	"testing"
	"time"
)

// TestMissedHeartbeats: heartbeats of a living owner that are late by an interval or two make
// its successor ask the wire. Nothing moves, nobody is told, and it is counted.
func TestMissedHeartbeats(t *testing.T) {
	t.Parallel()
	const times = 50
	suspicions, late := uint64(0), uint64(0)
	failures, trace := Run(t, Options{Nodes: 3, VIPs: VIPs(3)}, func(c *Cluster) {
		_, owner := settle(c)
		c.Quiet(5 * time.Second)
		at, before := time.Now(), c.State()
		for i := range times {
			c.CutGossip(owner)
			time.Sleep(70*time.Millisecond + time.Duration(i)*time.Millisecond)
			c.Heal()
			time.Sleep(430 * time.Millisecond)
		}
		c.Quiet(10 * time.Second)
		c.unmoved(before, at)
		for _, n := range c.others(owner) {
			for _, p := range c.Node(n).gossip.Stats().Peers {
				suspicions += p.Suspicions
				late += p.Late
			}
		}
	})
	for _, f := range failures {
		t.Error(f)
	}
	if suspicions < times/2 || late > times {
		t.Errorf("%d suspicions, %d times late, of %d gaps", suspicions, late, times)
	}
	if n := strings.Count(trace, "msg=vip"); n > 40 {
		t.Errorf("%d changes of reason", n)
	}
}
