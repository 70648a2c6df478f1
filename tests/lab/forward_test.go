package lab_test

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// forwarded is a cluster whose VIPs lead to three machines without lbd.
func forwarded(t *testing.T) *lab.Cluster {
	t.Helper()
	return wired(t, &lab.LBD{Forwarded: true}, func(c *lab.Cluster) error { return c.AddBackends(t.Context(), 3) })
}

// held are connections that are open while something happens.
const held = 60

// kept runs a scenario with connections that are open. A run in which the machine stood still is
// done again.
func kept(t *testing.T, c *lab.Cluster, s lab.Scenario, vip netip.Addr) *lab.Outcome {
	t.Helper()
	s.Conns = held
	for again := 3; ; again-- {
		o, err := c.Run(t.Context(), s, vip)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(describe(o), "survived", o.Conns.Survived(), "of", o.Conns.Open)
		if o.Conns.Open == held && o.Conns.Survived() == held || again == 0 || o.Stood < standstill {
			return o
		}
		t.Log("the run does not count, since the machine stood still")
	}
}

// TestForwardedMove: the owner of a VIP that leads to other machines is drained, and stopped.
func TestForwardedMove(t *testing.T) { // P18
	t.Parallel()
	c := forwarded(t)
	for _, s := range []lab.Scenario{lab.Drain(), lab.Terminate()} {
		for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
			o := kept(t, c, s, vip)
			if o.Conns.Open != held || o.Conns.Survived() != held {
				t.Errorf("%s %s: %+v, want %d alive", s.Name, vip, o.Conns, held)
			}
			if f := o.First.Reach.Failed; f > 0 {
				t.Errorf("%s %s: %d of %d new connections failed %v", s.Name, vip, f, o.First.Reach.Attempts, o.First.Reach.Errors)
			}
		}
	}
}

// TestForwardedCrash: the owner loses its link. The other node has never heard of the
// connections, and sends them to the servers where they are.
func TestForwardedCrash(t *testing.T) { // P18
	t.Parallel()
	c := forwarded(t)
	p := lab.PromiseFor("linkdown", false)
	for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
		o := kept(t, c, lab.LinkDown(), vip)
		if o.Conns.Open != held || o.Conns.Survived() != held {
			t.Errorf("%s: %+v, want %d alive", vip, o.Conns, held)
		}
		for _, b := range p.Broken([]*lab.Outcome{o}, slack) {
			t.Errorf("%s: %s", vip, b)
		}
	}
}

// TestForwardedDaemon: the daemon of the owner is restarted, frozen and killed, and those of all
// nodes are replaced one by one. The rules stay, and the kernel goes on to forward.
func TestForwardedDaemon(t *testing.T) { // P2, P3, P18
	t.Parallel()
	c := forwarded(t)
	restart, _ := lab.Restart(c.System.(*lab.LBD))
	for _, s := range []lab.Scenario{restart, lab.Freeze(), lab.Kill(), lab.Rolling()} {
		o := kept(t, c, s, lab.VIP4())
		if o.Conns.Open != held || o.Conns.Survived() != held {
			t.Errorf("%s: %+v, want %d alive", s.Name, o.Conns, held)
		}
		if s.Name == "rolling" && o.First.Reach.Failed > 0 {
			t.Errorf("%s: %d of %d new connections failed %v", s.Name, o.First.Reach.Failed, o.First.Reach.Attempts, o.First.Reach.Errors)
		}
	}
}

// TestBackendDies: a server ends, and its port refuses until the check knows. Then no new
// connection goes there.
func TestBackendDies(t *testing.T) { // P18
	t.Parallel()
	c := forwarded(t)
	from := measure.Now()
	if err := c.Backends[0].Service.Kill(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	known := measure.Now()
	time.Sleep(2 * time.Second)
	for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
		at := c.Eyes.Reach(vip, from, known)
		t.Logf("%s: %d of %d failed %v, outage %v", vip, at.Failed, at.Attempts, at.Errors, at.Outage)
		if at.Failed == 0 {
			t.Errorf("%s: the server was never missed", vip)
		}
		if later := c.Eyes.Reach(vip, known, measure.Now()); later.Failed > 0 {
			t.Errorf("%s: %d of %d failed after 3 s %v", vip, later.Failed, later.Attempts, later.Errors)
		}
	}
}
