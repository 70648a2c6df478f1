package lab_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// apart is a cluster whose gossip goes by a network of its own, and the VIP that is looked at.
func apart(t *testing.T, l *lab.LBD) (*lab.Cluster, netip.Addr) {
	t.Helper()
	l.Apart = true
	split := func(c *lab.Cluster) error { return c.Apart(t.Context()) }
	if !l.IPv6 {
		return wired(t, l, split), lab.VIP4()
	}
	return wired(t, l, split, func(c *lab.Cluster) error { return c.OnlyIPv6(t.Context()) }), lab.VIP6()
}

// TestOwnerInTheDark: the switch passes nothing any more between the owner's port and the
// others, while its carrier is up and gossip is well. Another node takes the VIP, and keeps
// it when the port is back.
func TestOwnerInTheDark(t *testing.T) { // P23
	t.Parallel()
	for name, l := range map[string]*lab.LBD{"IPv4": {}, "IPv6": {IPv6: true}, "balanced": {Balanced: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ownerInTheDark(t, l)
		})
	}
}

func ownerInTheDark(t *testing.T, l *lab.LBD) {
	c, vip := apart(t, l)
	owner := ownerOf(t, c, vip)
	if err := c.WireCut(t.Context(), &owner.Host); err != nil {
		t.Fatal(err)
	}
	from := measure.Now()
	var now *lab.Node
	for range 40 {
		time.Sleep(500 * time.Millisecond)
		if now, _ = c.Owner(vip); now != nil && now != owner {
			break
		}
	}
	if now == nil || now == owner {
		t.Fatalf("nobody else has it after 20 s: %v", c.Eyes.Claimants(vip, time.Second))
	}
	time.Sleep(2 * time.Second)
	r := c.Eyes.Reach(vip, from, measure.Now())
	t.Logf("outage %v, %d of %d failed", r.Outage, r.Failed, r.Attempts)
	if r.Outage > 12*time.Second {
		t.Errorf("outage %v", r.Outage)
	}
	if st, err := l.Status(t.Context(), c.Lab, owner); err != nil || st.VIPs[0].Reason != "WireDark" && st.VIPs[0].Reason != "Releasing" {
		t.Errorf("%v %+v", err, st)
	}
	if err := c.WireHeal(t.Context(), &owner.Host); err != nil {
		t.Fatal(err)
	}
	if err := c.Stable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := ownerOf(t, c, vip); again != now {
		t.Errorf("it went from %s to %s when the port was back", now.Name, again.Name)
	}
}

// TestDrainWithASuccessorInTheDark: a planned move goes to the node that hears the owner, at
// once after the other one has stopped to.
func TestDrainWithASuccessorInTheDark(t *testing.T) { // P2, P23
	t.Parallel()
	for name, l := range map[string]*lab.LBD{"IPv4": {}, "IPv6": {IPv6: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drainBesideTheDark(t, l)
		})
	}
}

func drainBesideTheDark(t *testing.T, l *lab.LBD) {
	c, vip := apart(t, l)
	for i := range 2 { // each of the others in turn: one of them is better ranked
		owner := ownerOf(t, c, vip)
		dark := c.Others(owner)[i%2]
		if err := c.WireCut(t.Context(), &dark.Host); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		from := measure.Now()
		if err := l.Drain(t.Context(), c.Lab, owner); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if now := ownerOf(t, c, vip); now == dark || now == owner {
			t.Errorf("drained from %s to %s, with %s in the dark", owner.Name, now.Name, dark.Name)
		}
		if r := c.Eyes.Reach(vip, from, measure.Now()); r.Failed > 0 {
			t.Errorf("%d of %d failed %v, outage %v", r.Failed, r.Attempts, r.Errors, r.Outage)
		}
		heal(t, c, l, owner, dark)
	}
}

func heal(t *testing.T, c *lab.Cluster, l *lab.LBD, drained, dark *lab.Node) {
	t.Helper()
	for _, err := range []error{c.WireHeal(t.Context(), &dark.Host), l.Undrain(t.Context(), c.Lab, drained), c.Stable(t.Context())} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestAllInTheDark: no node hears another one, and the VIP stays where it is.
func TestAllInTheDark(t *testing.T) { // P23
	t.Parallel()
	l := &lab.LBD{}
	c, vip := apart(t, l)
	owner := ownerOf(t, c, vip)
	each := func(f func(context.Context, *lab.Host) error) {
		for _, n := range c.Nodes {
			if err := f(t.Context(), &n.Host); err != nil {
				t.Fatal(err)
			}
		}
	}
	each(c.WireCut)
	looked := 0
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && looked < 90; time.Sleep(500 * time.Millisecond) {
		for _, n := range c.Nodes {
			st, err := l.Status(t.Context(), c.Lab, n)
			if err != nil {
				t.Log(err) // a busy machine
				continue
			}
			looked++
			if got := st.VIPs[0].Owner; got != owner.Name {
				t.Fatalf("%s says that %q owns it, want %s", n.Name, got, owner.Name)
			}
		}
	}
	if looked == 0 {
		t.Fatal("no node said anything")
	}
	each(c.WireHeal)
	if err := c.Stable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := ownerOf(t, c, vip); now != owner {
		t.Errorf("it went from %s to %s", owner.Name, now.Name)
	}
}

// TestSilentNodeInTheDark: of a balanced VIP a node that does not own it hears nobody. It gets no
// new connections once that is known, and no connection of another node is lost, also when the
// VIP goes to a node before it in the ring.
func TestSilentNodeInTheDark(t *testing.T) { // P13, P23
	t.Parallel()
	const conns = 30
	l := &lab.LBD{Balanced: true}
	c, vip := apart(t, l)
	ctx := t.Context()
	if err := l.MoveTo(ctx, c, vip, c.Nodes[2]); err != nil {
		t.Fatal(err)
	}
	if err := c.Stable(ctx); err != nil {
		t.Fatal(err)
	}
	dark := c.Nodes[1]
	if err := c.Eyes.OpenConns(ctx, vip, conns); err != nil {
		t.Fatal(err)
	}
	own := serving(t, c, dark, vip)
	from := measure.Now()
	if err := c.WireCut(ctx, &dark.Host); err != nil {
		t.Fatal(err)
	}
	time.Sleep(8 * time.Second) // by then it is known
	if err := lab.Wait(ctx, 20*time.Second, 500*time.Millisecond, "no connection for "+dark.Name, func() error { return c.Quiet(2 * time.Second) }); err != nil {
		t.Error(err)
	}
	if err := l.DrainFor(ctx, c.Lab, c.Nodes[2], time.Second); err != nil {
		t.Log(err) // connections are left
	}
	time.Sleep(3 * time.Second)
	if now := ownerOf(t, c, vip); now != c.Nodes[0] {
		t.Errorf("drained to %s", now.Name)
	}
	if lost := conns - c.Eyes.Conns(from, measure.Now()).Survived(); lost > own || own == 0 || own == conns {
		t.Errorf("%d of %d were lost, of which %d were in the dark", lost, conns, own)
	}
	from, stood := measure.Now(), measure.Standstill()
	heal(t, c, l, c.Nodes[2], dark)
	time.Sleep(2 * time.Second)
	r, still := c.Eyes.Reach(vip, from, measure.Now()), stood()
	t.Logf("back: %d of %d failed %v, the machine stood still for %v", r.Failed, r.Attempts, r.Errors, still)
	if r.Failed > 0 && still < standstill {
		t.Errorf("%d of %d failed when it was back: %v", r.Failed, r.Attempts, r.Errors)
	}
}
