package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// slack is how much worse than promised times may be here: machines that run
// tests are busy. The bench holds the promises themselves.
const slack = 3

// repeat runs a scenario some times and holds lbd to its promise.
func repeat(t *testing.T, c *lab.Cluster, s lab.Scenario, vip netip.Addr, times int) []*lab.Outcome {
	t.Helper()
	var runs []*lab.Outcome
	p := lab.PromiseFor(s.Name, c.System.Name() == "lbd-fast")
	for range times {
		runs = append(runs, once(t, c, s, vip, p))
	}
	for _, b := range p.Broken(runs, slack) {
		t.Errorf("%s: %s", p.ID, b)
	}
	return runs
}

// ran runs a scenario.
func ran(t *testing.T, c *lab.Cluster, s lab.Scenario, vip netip.Addr) *lab.Outcome {
	t.Helper()
	o, err := c.Run(t.Context(), s, vip)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// once runs a scenario, and again if it breaks the promise while the machine stood still.
func once(t *testing.T, c *lab.Cluster, s lab.Scenario, vip netip.Addr, p lab.Promise) (o *lab.Outcome) {
	t.Helper()
	patient(t, func(int) ([]string, bool) {
		o = ran(t, c, s, vip)
		t.Log(describe(o))
		return p.Broken([]*lab.Outcome{o}, slack), o.Stood >= standstill
	})
	return o
}

func describe(o *lab.Outcome) string {
	s := fmt.Sprintf("%s %s owner %s: outage %v, %d of %d failed %v, takeover %v, gone %v, dual %v, then %v, load %.0f %%, stood still for %v", o.Scenario, o.VIP, o.Owner,
		o.First.Reach.Outage, o.First.Reach.Failed, o.First.Reach.Attempts, o.First.Reach.Errors, o.First.Takeover, o.Gone, o.First.Dual, o.First.Claimants, 100*o.Load, o.Stood)
	if o.Undone != 0 {
		s += fmt.Sprintf("; undone: moved %v, %d failed, outage %v, dual %v, %v", o.Second.Moved, o.Second.Reach.Failed, o.Second.Reach.Outage, o.Second.Dual, o.Second.Claimants)
	}
	return s
}

func TestCrash(t *testing.T) { // P1, both families
	t.Parallel()
	c := cluster(t, &lab.LBD{}, 3)
	repeat(t, c, lab.LinkDown(), lab.VIP4(), 5)
	repeat(t, c, lab.LinkDown(), lab.VIP6(), 2)
}

func TestCrashFast(t *testing.T) { // P1 with detection: fast
	t.Parallel()
	c := cluster(t, &lab.LBD{Detection: "fast"}, 3)
	repeat(t, c, lab.LinkDown(), lab.VIP4(), 5)
}

func TestPlannedMove(t *testing.T) { // P2
	t.Parallel()
	c := cluster(t, &lab.LBD{}, 3)
	for _, s := range []lab.Scenario{lab.Drain(), lab.Terminate()} {
		repeat(t, c, s, lab.VIP4(), 2)
		repeat(t, c, s, lab.VIP6(), 1)
	}
}

func TestDaemonKilled(t *testing.T) { // P3
	t.Parallel()
	c := cluster(t, &lab.LBD{}, 3)
	repeat(t, c, lab.Kill(), lab.VIP4(), 2)
	repeat(t, c, lab.Kill(), lab.VIP6(), 1)
}

func TestDaemonFrozen(t *testing.T) { // P3
	t.Parallel()
	c := cluster(t, &lab.LBD{}, 3)
	repeat(t, c, lab.Freeze(), lab.VIP4(), 2)
}

func TestDaemonRestarted(t *testing.T) { // P3: sooner than the address ends
	t.Parallel()
	c := cluster(t, &lab.LBD{}, 3)
	s := lab.Respawn()
	s.Conns = 20
	for _, o := range repeat(t, c, s, lab.VIP4(), 2) {
		if o.Conns.Open != 20 || o.Conns.Survived() != 20 {
			t.Errorf("long-lived connections: %+v, want 20 alive", o.Conns)
		}
	}
}

// TestConnectionsSurvive keeps connections open through planned moves.
func TestConnectionsSurvive(t *testing.T) { // P13
	t.Parallel()
	c := cluster(t, &lab.LBD{}, 3)
	for _, s := range []lab.Scenario{lab.Drain(), lab.Terminate(), lab.Rolling()} {
		for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
			kept(t, c, s, vip, anyMayFail)
		}
	}
}

func TestServiceDies(t *testing.T) { // P4
	t.Parallel()
	c := cluster(t, &lab.LBD{}, 3)
	repeat(t, c, lab.ServiceDeath(), lab.VIP4(), 2)
	s := lab.ServiceHang()
	repeat(t, c, s, lab.VIP4(), 1)
}

func TestGossipBlocked(t *testing.T) { // P5
	t.Parallel()
	c := cluster(t, &lab.LBD{}, 3)
	repeat(t, c, lab.Partition(), lab.VIP4(), 1)
}

func TestNodeComesBack(t *testing.T) { // P6
	t.Parallel()
	c := cluster(t, &lab.LBD{}, 3)
	repeat(t, c, lab.Rejoin(), lab.VIP4(), 1)
	repeat(t, c, lab.WireCut(), lab.VIP4(), 1)
}

// TestSplit cuts the LAN in two, the owner alone on one side: both sides own the
// VIP, which gossip cannot prevent, and one of them after the heal.
func TestSplit(t *testing.T) {
	t.Parallel()
	c := cluster(t, &lab.LBD{}, 3)
	split := lab.Scenario{
		Name: "split", Moves: true, Hold: 2 * time.Second, Limit: 10 * time.Second, After: 4 * time.Second,
		Inject: func(ctx context.Context, c *lab.Cluster, n *lab.Node) error { return c.Split(ctx, &n.Host) },
		Undo:   func(ctx context.Context, c *lab.Cluster, n *lab.Node) error { return c.Join(ctx, &n.Host) },
	}
	p := lab.PromiseFor("wirecut", false)
	o := once(t, c, split, lab.VIP4(), p)
	for _, b := range p.Broken([]*lab.Outcome{o}, slack) {
		t.Error(b)
	}
}

// TestAddressRemovedByHand: the owner puts it back before a client notices.
func TestAddressRemovedByHand(t *testing.T) {
	t.Parallel()
	c := cluster(t, &lab.LBD{}, 3)
	for _, vip := range c.Eyes.VIPs {
		owner := ownerOf(t, c, vip)
		from := measure.Now()
		cidr := netip.PrefixFrom(vip, vip.BitLen()).String()
		if err := c.RemoveAddr(t.Context(), &owner.Host, cidr); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		r := c.Eyes.Reach(vip, from.Add(-100*time.Millisecond), measure.Now())
		if r.Outage > 300*time.Millisecond {
			t.Errorf("%s: outage %v, %d failed", vip, r.Outage, r.Failed)
		}
		if names := c.Eyes.Claimants(vip, time.Second); len(names) != 1 || names[0] != owner.Name {
			t.Errorf("%s: claimed by %v, want %s", vip, names, owner.Name)
		}
	}
}

// TestForeignHost: a host that is no member has the address. While nobody of lbd
// owns it nobody takes it; when it appears later the owner defends it.
func TestForeignHost(t *testing.T) {
	t.Parallel()
	need(t)
	ctx := t.Context()
	c, err := lab.NewIdle(ctx, bin, &lab.LBD{}, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCluster(t, c) })
	foreign, err := c.AddHost(ctx, "foreign", 66)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddAddr(ctx, foreign, lab.VIP4()); err != nil {
		t.Fatal(err)
	}
	startAll(t, c)
	time.Sleep(6 * time.Second)
	if names := c.Eyes.Claimants(lab.VIP4(), time.Second); len(names) != 1 || names[0] != foreign.MAC {
		t.Fatalf("claimed by %v, want only the foreign host", names)
	}
	// It goes away: the group takes the address.
	if err := c.RemoveAddr(ctx, foreign, lab.VIP4().String()+"/32"); err != nil {
		t.Fatal(err)
	}
	if err := c.Stable(ctx); err != nil {
		t.Fatal(err)
	}
	owner := ownerOf(t, c, lab.VIP4())
	// It comes back: the owner keeps and defends it.
	if err := c.AddAddr(ctx, foreign, lab.VIP4()); err != nil {
		t.Fatal(err)
	}
	from := measure.Now()
	stop, err := c.Announce(foreign, lab.VIP4())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	defences := 0
	for _, f := range c.Eyes.Frames() {
		if f.At >= from && f.Kind == measure.Announce && f.VIP == lab.VIP4().String() && f.MAC == owner.MAC {
			defences++
		}
	}
	if defences < 1 || defences > 6 {
		t.Errorf("the owner defended %d times in 3 s, want once a second", defences)
	}
	if err := errors.Join(stop(), c.RemoveAddr(ctx, foreign, lab.VIP4().String()+"/32")); err != nil {
		t.Fatal(err)
	}
	if err := c.Stable(ctx); err != nil {
		t.Fatal(err)
	}
	if now := ownerOf(t, c, lab.VIP4()); now != owner {
		t.Errorf("owner after the conflict: %s, want %s", now.Name, owner.Name)
	}
}

// TestQuietDuplicate: a host that is no member has been given the addresses by hand and
// announces nothing. It answers some clients; every node marks it until it has let go, and
// the owner stays. That all nodes have an address which is balanced is no duplicate.
func TestQuietDuplicate(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]*lab.LBD{"active-backup": {}, "balanced": {Balanced: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			var foreign *lab.Host
			c := wired(t, l, func(c *lab.Cluster) (err error) {
				foreign, err = c.AddHost(ctx, "foreign", 66)
				return err
			})
			owner := ownerOf(t, c, lab.VIP4())
			each := func(mac string, f func(netip.Addr) error) {
				for _, vip := range l.VIPs() {
					if err := f(vip); err != nil {
						t.Fatal(err)
					}
				}
				for _, vip := range l.VIPs() {
					marked(t, c, l, vip, mac)
				}
			}
			each(foreign.MAC, func(vip netip.Addr) error { return c.AddAddr(ctx, foreign, vip) })
			each("", func(vip netip.Addr) error {
				return c.RemoveAddr(ctx, foreign, netip.PrefixFrom(vip, vip.BitLen()).String())
			})
			if now := ownerOf(t, c, lab.VIP4()); now != owner {
				t.Errorf("owner after it: %s, want %s", now.Name, owner.Name)
			}
		})
	}
}

// marked waits until every node says of an address who answers beside its owner.
func marked(t *testing.T, c *lab.Cluster, l *lab.LBD, vip netip.Addr, want string) {
	t.Helper()
	var said []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		said = nil
		for _, n := range c.Nodes {
			st, err := l.Status(t.Context(), c.Lab, n)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range st.VIPs {
				if v.Address == vip && v.Duplicate != want {
					said = append(said, n.Name+": "+v.Duplicate)
				}
			}
		}
		if len(said) == 0 {
			return
		}
	}
	t.Fatalf("of %s: %q, want %q on every node", vip, said, want)
}

func startAll(t *testing.T, c *lab.Cluster) {
	t.Helper()
	for _, n := range c.Nodes {
		if err := c.System.Start(t.Context(), c.Lab, n); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStart starts nodes together and one by one: never two claimants.
func TestStart(t *testing.T) {
	t.Parallel()
	need(t)
	for _, gap := range []time.Duration{0, 1500 * time.Millisecond} {
		t.Run(fmt.Sprintf("gap %v", gap), func(t *testing.T) {
			c, err := lab.NewIdle(t.Context(), bin, &lab.LBD{}, 3)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeCluster(t, c) })
			from := measure.Now()
			for _, n := range c.Nodes {
				if err := c.System.Start(t.Context(), c.Lab, n); err != nil {
					t.Fatal(err)
				}
				time.Sleep(gap)
			}
			if err := c.Stable(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, v := range c.Eyes.VIPs {
				if d := c.Eyes.Dual(v, from, measure.Now()); d > 0 {
					t.Errorf("%s: two claimants for %v", v, d)
				}
				if first, ok := measure.Takeover(c.Eyes.Frames(), v.String(), "", from); ok {
					t.Logf("%s: first claimed after %v", v, first.Sub(from))
				}
			}
		})
	}
}
