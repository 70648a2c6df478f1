package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
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

// lapse is how long a machine may let nobody run and a VIP that no node has bound is still
// answered for: the owner falls silent and asks the wire first if it may have been succeeded.
const lapse = 100 * time.Millisecond

// kept runs a scenario with connections that are open, all of which have to survive it. more are
// other rules that it breaks.
func kept(t *testing.T, c *lab.Cluster, s lab.Scenario, vip netip.Addr, more func(*lab.Outcome) []string) {
	t.Helper()
	s.Conns = held
	errorEach(t, patient(t, func(int) ([]string, bool) {
		o := ran(t, c, s, vip)
		t.Log(describe(o), "survived", o.Conns.Survived(), "of", o.Conns.Open)
		broken := more(o)
		if o.Conns.Open != held || o.Conns.Survived() != held {
			broken = append(broken, fmt.Sprintf("%+v, want %d alive: %s", o.Conns, held, strings.Join(measure.Endings(c.Eyes.ConnEvents(), o.Fault), "; ")))
		}
		return broken, tooBusy(o, lapse)
	}))
}

// noneFails is the rule that no new connection fails before the fault is undone.
func noneFails(o *lab.Outcome) []string {
	if r := o.First.Reach; r.Failed > 0 {
		return []string{fmt.Sprintf("%d of %d new connections failed %v", r.Failed, r.Attempts, r.Errors)}
	}
	return nil
}

func anyMayFail(*lab.Outcome) []string { return nil }

// TestForwardedMove: the owner of a VIP that leads to other machines is drained, and stopped.
func TestForwardedMove(t *testing.T) { // P18
	t.Parallel()
	c := forwarded(t)
	for _, s := range []lab.Scenario{lab.Drain(), lab.Terminate()} {
		kept(t, c, s, lab.VIP4(), noneFails)
		kept(t, c, s, lab.VIP6(), noneFails)
	}
}

// removed has a part of the configuration of the owner go, and come back in the end.
func removed(l *lab.LBD, remove func(*lab.Node) error) lab.Scenario {
	s := lab.Drain()
	s.Name = "removed"
	s.Inject = func(_ context.Context, _ *lab.Cluster, n *lab.Node) error { return remove(n) }
	s.Repair = func(_ context.Context, c *lab.Cluster, n *lab.Node) error {
		return errors.Join(l.WriteConfig(c.Lab, n), n.Reload())
	}
	return s
}

// movesAndNoneFails is noneFails, and the rule that another node has the VIP.
func movesAndNoneFails(o *lab.Outcome) []string {
	if !o.First.Moved {
		return append(noneFails(o), "it did not move")
	}
	return noneFails(o)
}

// TestForwardedRemoved: the LoadBalancer leaves the file of the owner alone. Another node takes its
// addresses, and the open connections go on.
func TestForwardedRemoved(t *testing.T) { // P2, P18
	t.Parallel()
	c := forwarded(t)
	l := c.System.(*lab.LBD)
	s := removed(l, l.WithoutObjects)
	s.Mixed = true // those that only listen would have to be found by the next word of the client
	for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
		kept(t, c, s, vip, movesAndNoneFails)
	}
}

// TestForwardedStandsAside: the LoadBalancer leaves the file of the owner, which forwards for the
// connections that it has, and then has no rule of it.
func TestForwardedStandsAside(t *testing.T) { // P9, P18
	t.Parallel()
	c := forwarded(t)
	l := c.System.(*lab.LBD)
	owner := ownerOf(t, c, lab.VIP4())
	w, err := c.Eyes.OpenStream(t.Context(), lab.VIP4())
	if err != nil {
		t.Fatal(err)
	}
	server := w.Read().Node
	if err := l.WithoutObjects(owner); err != nil {
		t.Fatal(err)
	}
	rules := func() string {
		out, _ := c.Exec(t.Context(), &owner.Host, "nft", "list", "tables")
		return out
	}
	time.Sleep(5 * time.Second)
	if now, err := w.More(t.Context(), 5); err != nil || now.Node != server || !strings.Contains(rules(), "lbd-forward") {
		t.Errorf("after the handover the client hears %s, before that %s, %v; tables:\n%s", now.Node, server, err, rules())
	}
	err = lab.Wait(t.Context(), 3*time.Minute, time.Second, "the rules to go", func() error {
		if out := rules(); strings.Contains(out, "lbd-forward") {
			return errors.New(out)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if now := ownerOf(t, c, lab.VIP4()); now.Name == owner.Name {
		t.Errorf("%s owns it again", now.Name)
	}
}

// TestForwardedSources: backends see several addresses as clients, and nothing else is otherwise when
// the owner is drained, dies, or gives one of the addresses away.
func TestForwardedSources(t *testing.T) { // P18
	t.Parallel()
	l := &lab.LBD{Forwarded: true, Sourced: true}
	c := wired(t, l, func(c *lab.Cluster) error { return c.AddBackends(t.Context(), 3) })
	for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
		kept(t, c, lab.Drain(), vip, noneFails)
		kept(t, c, lab.LinkDown(), vip, anyMayFail)
		kept(t, c, removed(l, func(n *lab.Node) error { return l.Without(n, vip) }), vip, movesAndNoneFails)
	}
}

// TestForwardedWatch: a client that only listens hears its server on while the owner is drained.
// What the server says to the new owner goes round the ring to the node that knows the connection.
func TestForwardedWatch(t *testing.T) { // P18
	t.Parallel()
	c := forwarded(t)
	l := c.System.(*lab.LBD)
	for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
		w, err := c.Eyes.OpenStream(t.Context(), vip)
		if err != nil {
			t.Fatal(err)
		}
		owner, server := ownerOf(t, c, vip), w.Read().Node
		stood, from := measure.Standstill(), measure.Now()
		if err := l.Drain(t.Context(), c.Lab, owner); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		silent, still := w.Silence(from), stood()
		now, err := w.More(t.Context(), 5)
		t.Logf("%s: silent for %v, the machine stood still for %v", vip, silent, still)
		if err != nil || now.Node != server || silent > slack*time.Second+still {
			t.Errorf("%s: silent for %v, from %s and then %s, %v", vip, silent, server, now.Node, err)
		}
		if err := l.Undrain(t.Context(), c.Lab, owner); err != nil {
			t.Fatal(err)
		}
		if err := c.Stable(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForwardedCrash: the owner loses its link. The other node has never heard of the
// connections, and sends them to the servers where they are.
func TestForwardedCrash(t *testing.T) { // P18
	t.Parallel()
	c := forwarded(t)
	promise := lab.PromiseFor("linkdown", false)
	broken := func(o *lab.Outcome) []string { return promise.Broken([]*lab.Outcome{o}, slack) }
	kept(t, c, lab.LinkDown(), lab.VIP4(), broken)
	kept(t, c, lab.LinkDown(), lab.VIP6(), broken)
}

// TestForwardedDaemon: the daemon of the owner is restarted, frozen and killed, and those of all
// nodes are replaced one by one. The rules stay, and the kernel goes on to forward.
func TestForwardedDaemon(t *testing.T) { // P2, P3, P18
	t.Parallel()
	c := forwarded(t)
	restart, _ := lab.Restart(c.System.(*lab.LBD))
	for _, s := range []lab.Scenario{restart, lab.Freeze(), lab.Kill()} {
		kept(t, c, s, lab.VIP4(), anyMayFail)
	}
	kept(t, c, lab.Rolling(), lab.VIP4(), noneFails)
}

// TestBackendHostDies: the host of a server loses its link. Who opens a connection in that moment
// waits until the first packet is sent again, after a second, and no longer.
func TestBackendHostDies(t *testing.T) { // P18
	t.Parallel()
	c := forwarded(t)
	for i, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
		errorEach(t, patient(t, func(int) ([]string, bool) { return hostDies(t, c, &c.Backends[i].Host, vip) }))
	}
}

// hostDies takes the link of a backend away for a while, while connections are opened.
func hostDies(t *testing.T, c *lab.Cluster, backend *lab.Host, vip netip.Addr) (broken []string, tooBusy bool) {
	t.Helper()
	dials, err := c.Eyes.Dial(vip)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	machine, from := measure.Busy(), measure.Now()
	if err := c.LinkDown(t.Context(), backend); err != nil {
		t.Fatal(err)
	}
	time.Sleep(6 * time.Second)
	still, load := machine()
	failed, waited, all, worst := 0, 0, 0, time.Duration(0)
	for _, a := range dials() {
		if a.Start < from {
			continue
		}
		all++
		took := a.End.Sub(a.Start)
		worst = max(worst, took)
		if !a.OK() {
			failed++
		}
		if took > time.Second {
			waited++
		}
	}
	said := fmt.Sprintf("%s: %d of %d failed, %d waited for a second, the longest for %v; the machine stood still for %v, load %.0f %%", vip, failed, all, waited, worst, still, 100*load)
	t.Log(said)
	if failed > 0 || waited == 0 || worst > slack*1100*time.Millisecond/2+still {
		broken = append(broken, said)
	}
	if err := c.LinkUp(t.Context(), backend); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	return broken, still >= lapse || load > starved
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestBackendDies: a server ends, and its port refuses until the check knows. Then no new
// connection goes there.
func TestBackendDies(t *testing.T) { // P18
	t.Parallel()
	c := forwarded(t)
	stood, from := measure.Standstill(), measure.Now()
	if err := c.Backends[0].Service.Kill(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	known := measure.Now()
	time.Sleep(2 * time.Second)
	still := stood()
	for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
		at, later := c.Eyes.Reach(vip, from, known), c.Eyes.Reach(vip, known, measure.Now())
		t.Logf("%s: %d of %d failed %v, outage %v, then %d of %d", vip, at.Failed, at.Attempts, at.Errors, at.Outage, later.Failed, later.Attempts)
		before, after := 0, 0
		for _, a := range c.Eyes.Attempts(vip) {
			if a.OK() && a.Node == c.Backends[0].Name {
				before += btoi(a.End < from)
				after += btoi(a.Start >= known)
			}
		}
		if before == 0 || after > 0 {
			t.Errorf("%s: the server had %d connections before, and %d after 3 s", vip, before, after)
		}
		// A machine that stood still may have had nobody answer for the VIP; but the port of
		// the server refuses no more.
		if later.Errors["refused"] > 0 || later.Failed > 0 && still < lapse {
			t.Errorf("%s: %d of %d failed after 3 s %v", vip, later.Failed, later.Attempts, later.Errors)
		}
	}
}
