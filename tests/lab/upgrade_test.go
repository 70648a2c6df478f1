package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
	"lbd.dev/lbd/tests/previous"
)

// upgrade is a group whose nodes have the previous version or this one. Its configuration
// files are written once, before the first daemon starts.
type upgrade struct {
	*lab.Cluster
	lbd      *lab.LBD
	old, new string // programs
	oldName  string // that the old one says of itself
	files    map[string][]byte
}

func newUpgrade(t *testing.T, s *lab.LBD) *upgrade {
	t.Helper()
	need(t)
	v := previous.For(t)
	old, err := v.LBD(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := lab.NewIdle(t.Context(), bin, s, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCluster(t, c) })
	u := &upgrade{Cluster: c, lbd: s, old: old, new: bin.LBD, oldName: v.Name, files: map[string][]byte{}}
	for _, n := range u.Nodes {
		n.LBD = old
	}
	startAll(t, c)
	if err := u.Stable(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range u.Nodes {
		if u.files[n.Name], err = os.ReadFile(s.Config(n)); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// check wants each node to run the program that it has, to know the versions of the others,
// and all to agree on one owner of each VIP, who is the only one on the wire.
func (u *upgrade) check(t *testing.T) {
	t.Helper()
	if err := u.Stable(t.Context()); err != nil {
		t.Fatal(err)
	}
	owners := map[netip.Addr]string{}
	for _, n := range u.Nodes {
		st, err := u.lbd.Status(t.Context(), u.Lab, n)
		if err != nil {
			t.Fatal(err)
		}
		if old := st.Version == u.oldName; old != (n.LBD == u.old) {
			t.Errorf("%s runs version %q, its program is %s", n.Name, st.Version, n.LBD)
		}
		for _, m := range st.Members {
			if other := u.Node(m.Name); other == nil || (m.Version == u.oldName) != (other.LBD == u.old) {
				t.Errorf("%s says that %s has version %q", n.Name, m.Name, m.Version)
			}
		}
		for _, v := range st.VIPs {
			owner := ownerOf(t, u.Cluster, v.Address)
			owners[v.Address] = owner.Name
			if v.Owner != owner.Name {
				t.Errorf("%s says that %s is with %s, it is with %s", n.Name, v.Address, v.Owner, owner.Name)
			}
		}
		if now, err := os.ReadFile(u.lbd.Config(n)); err != nil || !bytes.Equal(now, u.files[n.Name]) {
			t.Errorf("the configuration of %s has changed: %v", n.Name, err)
		}
	}
	t.Logf("owners %v", owners)
}

// give lets the nodes have these programs, in their order, outside of what is measured.
func (u *upgrade) give(t *testing.T, programs ...string) {
	t.Helper()
	for i, n := range u.Nodes {
		if n.LBD != programs[i] {
			if err := u.lbd.Replace(t.Context(), u.Lab, n, programs[i], false); err != nil {
				t.Fatal(err)
			}
		}
	}
	u.check(t)
}

// rolling replaces the program of all nodes, one after the other, with connections open to
// a VIP: none is lost, no new one to any VIP fails.
func (u *upgrade) rolling(t *testing.T, from, to string, drain bool, vip netip.Addr) {
	t.Helper()
	s := u.lbd.ReplaceAll(to, drain)
	s.Conns = held
	errorEach(t, patient(t, func(attempt int) ([]string, bool) {
		if attempt > 1 {
			u.give(t, from, from, from)
		}
		o := ran(t, u.Cluster, s, vip)
		t.Log(describe(o), "survived", o.Conns.Survived(), "of", o.Conns.Open)
		broken := lab.PromiseFor(s.Name, false).Broken([]*lab.Outcome{o}, slack)
		if o.Conns.Open != held || o.Conns.Survived() != held {
			broken = append(broken, fmt.Sprintf("long-lived connections: %+v, want %d alive; %s", o.Conns, held,
				strings.Join(measure.Endings(u.Eyes.ConnEvents(), o.Fault), "; ")))
		}
		for _, v := range u.Eyes.VIPs {
			if r := u.Eyes.Reach(v, o.Fault, measure.Now()); r.Failed > 0 || r.Attempts < 500 {
				broken = append(broken, fmt.Sprintf("%s: %d of %d attempts failed %v", v, r.Failed, r.Attempts, r.Errors))
			}
		}
		u.Eyes.CloseConns()
		return broken, tooBusy(o, standstill)
	}))
	u.check(t)
}

// odd has one node of another version than the others lose the VIPs to them: its link goes,
// its server dies, it is drained.
func (u *upgrade) odd(t *testing.T, n *lab.Node) {
	t.Helper()
	for i, s := range []lab.Scenario{lab.LinkDown(), lab.ServiceDeath(), lab.Drain(), lab.Kill()} {
		vip := u.Eyes.VIPs[i%len(u.Eyes.VIPs)]
		if err := u.Stable(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := u.lbd.MoveTo(t.Context(), u.Cluster, vip, n); err != nil {
			t.Fatal(err)
		}
		o := repeat(t, u.Cluster, s, vip, 1)[0]
		if o.Owner != n.Name || !o.First.Moved {
			t.Errorf("%s of %s: owner was %s, moved %v; want it to move from %s", s.Name, vip, o.Owner, o.First.Moved, n.Name)
		}
	}
	u.check(t)
}

// commands has the program of the other version ask the daemon of a node.
func (u *upgrade) commands(t *testing.T, n *lab.Node) {
	t.Helper()
	other := u.old
	if n.LBD == u.old {
		other = u.new
	}
	for _, args := range [][]string{{"status"}, {"status", "-o", "json"}, {"explain", "control-plane"}, {"drain"}, {"undrain"}} {
		args = append(args, "--socket", u.lbd.Socket(n))
		out, err := u.Exec(t.Context(), &n.Host, append([]string{other}, args...)...)
		if err != nil {
			t.Errorf("%s, which has the program %s: %v", n.Name, n.LBD, err)
		}
		if args[0] == "status" || args[0] == "explain" {
			for _, p := range u.Nodes {
				if !strings.Contains(out, p.Name) {
					t.Errorf("%v on %s does not tell of %s:\n%s", args, n.Name, p.Name, out)
				}
			}
		}
	}
}

// TestUpgrade replaces the previous version by this one on all nodes and goes back, by a
// restart and with a drain before it, and lets a group of both bear faults. The
// configuration stays as it was.
func TestUpgrade(t *testing.T) { // P1, P2, P3, P4, P13 with mixed versions
	t.Parallel()
	for name, s := range map[string]*lab.LBD{"active-backup": {}, "balanced": {Balanced: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUpgrade(t, s)
			u.rolling(t, u.old, u.new, s.Balanced, lab.VIP4())
			u.rolling(t, u.new, u.old, !s.Balanced, lab.VIP6())
			u.give(t, u.new, u.old, u.old)
			u.odd(t, u.Nodes[0])
			u.commands(t, u.Nodes[0])
			u.commands(t, u.Nodes[1])
			u.give(t, u.new, u.new, u.old)
			u.odd(t, u.Nodes[2])
		})
	}
}

// TestRestartAsPrevious puts the previous version in the place of the program of each node
// and has `lbd restart` begin it. The other way is for when the previous version has that
// command.
func TestRestartAsPrevious(t *testing.T) { // P3, P13
	t.Parallel()
	need(t)
	v := previous.For(t)
	old, err := v.LBD(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &lab.LBD{}
	c, err := lab.NewIdle(t.Context(), bin, s, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCluster(t, c) })
	put := func(ctx context.Context, n *lab.Node, program string) error {
		n.LBD = filepath.Join(n.Dir, "lbd")
		_, err := c.Exec(ctx, &n.Host, "install", "-m", "0755", program, n.LBD)
		return err
	}
	restart := lab.Scenario{
		Name: "respawn", Hold: 3 * time.Second, Limit: 10 * time.Second, Conns: held,
		Inject: func(ctx context.Context, c *lab.Cluster, owner *lab.Node) error {
			for _, n := range append([]*lab.Node{owner}, c.Others(owner)...) {
				if err := put(ctx, n, old); err != nil {
					return err
				}
				out, err := c.Exec(ctx, &n.Host, bin.LBD, "restart", "--socket", s.Socket(n))
				if err == nil && !strings.Contains(out, v.Name) {
					err = errors.New(out)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", n.Name, err)
				}
			}
			return nil
		},
	}
	errorEach(t, patient(t, func(int) ([]string, bool) {
		for _, n := range c.Nodes {
			if n.Daemon.Alive() {
				_ = n.Terminate(30 * time.Second) // whatever its end says, another run begins
			}
			if err := errors.Join(put(t.Context(), n, bin.LBD), s.Start(t.Context(), c.Lab, n)); err != nil {
				t.Fatal(err)
			}
		}
		o := ran(t, c, restart, lab.VIP4())
		t.Log(describe(o), "survived", o.Conns.Survived(), "of", o.Conns.Open)
		broken := lab.PromiseFor(restart.Name, false).Broken([]*lab.Outcome{o}, slack)
		if o.Conns.Open != held || o.Conns.Survived() != held {
			broken = append(broken, fmt.Sprintf("long-lived connections: %+v, want %d alive", o.Conns, held))
		}
		c.Eyes.CloseConns()
		return broken, tooBusy(o, standstill)
	}))
	if err := c.Stable(t.Context()); err != nil {
		t.Fatal(err)
	}
}
