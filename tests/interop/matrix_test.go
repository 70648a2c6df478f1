package interop_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/interop"
)

// matrixCase is a folder of testdata/matrix.
type matrixCase struct {
	name    string
	routers string // frr, bird, gobgp
	far     bool   // the router is two hops away
	// refused: there must be no session, now and a while later.
	refused bool
	// act does something to the router once it runs.
	act func(t *testing.T, c *interop.Case)
	// dir replaces the folder of that name.
	dir string
	// limit replaces caseLimit, and stays is how long the router keeps the path of
	// a daemon that ended.
	limit, stays time.Duration
}

func matrix() []matrixCase {
	const all = "frr bird gobgp"
	return []matrixCase{
		{name: "ipv4", routers: all},
		{name: "ipv6", routers: all},
		{name: "dual", routers: all},
		{name: "extended-nexthop", routers: all},
		{name: "link-local", routers: "frr bird"},
		{name: "md5", routers: all},
		{name: "md5-wrong", routers: all, refused: true},
		{name: "passive", routers: all},
		{name: "passive-md5", routers: all},
		{name: "peer-passive", routers: all},
		{name: "gtsm", routers: all},
		{name: "gtsm-far", routers: "frr bird", far: true},
		{name: "gtsm-refused", routers: all, refused: true},
		{name: "multihop", routers: all, far: true},
		{name: "communities", routers: all},
		{name: "attributes", routers: all},
		{name: "ibgp", routers: all},
		{name: "graceful", routers: "frr bird", stays: 10 * time.Second},
		{name: "bfd", routers: "frr bird"},
		{name: "bfd-ipv6", routers: "frr bird"},
		{name: "bfd-multihop", routers: "frr bird", far: true},
		{name: "bfd-auth", routers: "bird"},
		{name: "bfd-auth-wrong", routers: "bird", refused: true},
		{name: "bfd-strict", routers: "frr", refused: true},
		{name: "wrong-asn", routers: all, refused: true},
		{name: "admin-shutdown", routers: "frr", refused: true, act: shutdown},
		// lbd tries again after 30 s where it could not keep up.
		{name: "flood", routers: "bird gobgp", act: flood, limit: 60 * time.Second},
		{name: "flood-limit", routers: "bird gobgp", act: flood, refused: true, limit: 60 * time.Second},
	}
}

func (mc *matrixCase) folder() string {
	return cmp.Or(mc.dir, filepath.Join("testdata", "matrix", mc.name))
}

// TestMatrix compares what routers of three makes say of a session with lbd, and
// what lbd says of it, with files.
func TestMatrix(t *testing.T) {
	need(t)
	known := map[string]bool{}
	for _, c := range matrix() {
		known[c.name] = true
		for _, router := range strings.Fields(c.routers) {
			t.Run(c.name+"/"+router, func(t *testing.T) {
				if c.act == nil { // a flood needs a processor
					t.Parallel()
				}
				runCase(t, c, router)
			})
		}
	}
	dirs, err := os.ReadDir("testdata/matrix")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if !known[d.Name()] {
			t.Errorf("testdata/matrix/%s is no case", d.Name())
		}
	}
}

// caseLimit bounds how long a case may take to be as expected. A session is up
// within 2.5 s, but where FRR was slow to learn its own addresses it pauses before
// it takes one, each time twice as long.
const caseLimit = time.Minute

func runCase(t *testing.T, mc matrixCase, router string) {
	c := startCase(t, mc, router)
	ctx := t.Context()
	before, err := mainRoutes(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if mc.act != nil {
		mc.act(t, c)
	}
	check := expectations(t, c, mc.folder(), router)
	if err := interop.Eventually(ctx, cmp.Or(mc.limit, caseLimit), "as expected", check); err != nil {
		t.Fatal(err)
	}
	if mc.refused {
		interop.Pause(ctx, 2*time.Second)
		if err := check(); err != nil {
			t.Errorf("two seconds later: %v", err)
		}
	}
	after, err := mainRoutes(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if before != after {
		t.Errorf("routes of the node changed from\n%s\nto\n%s", before, after)
	}
	leaves(t, c, mc.stays)
}

func startCase(t *testing.T, mc matrixCase, router string) *interop.Case {
	t.Helper()
	shape := interop.NewPair
	if mc.far {
		shape = interop.NewFar
	}
	n, err := shape(t.Context(), bin)
	if err != nil {
		t.Fatal(err)
	}
	level := "debug"
	if strings.HasPrefix(mc.name, "flood") {
		level = "info" // several lines for each route would take longer than the routes
	}
	var c *interop.Case
	t.Cleanup(func() {
		keepLogs(t, n, func(lines int) string {
			if c == nil {
				return n.Logs(lines)
			}
			return c.Logs(lines)
		})
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	if c, err = interop.StartCase(t.Context(), n, mc.folder(), router, level); err != nil {
		t.Fatal(err)
	}
	return c
}

// expectations reads the files of a case: <router>.want for the router, and
// lbd.want or, if that router is special, lbd-<router>.want for the node.
func expectations(t *testing.T, c *interop.Case, dir, router string) func() error {
	t.Helper()
	node, err := interop.ReadExpectation(filepath.Join(dir, "lbd-"+router+".want"))
	if errors.Is(err, os.ErrNotExist) {
		node, err = interop.ReadExpectation(filepath.Join(dir, "lbd.want"))
	}
	if err != nil {
		t.Fatal(err)
	}
	peer, err := interop.ReadExpectation(filepath.Join(dir, router+".want"))
	if err != nil {
		t.Fatal(err)
	}
	return func() error {
		return errors.Join(c.CheckNode(t.Context(), node), c.CheckRouter(t.Context(), peer))
	}
}

// shutdown ends the established session at the router, with a text for the other
// side (RFC 9003).
func shutdown(t *testing.T, c *interop.Case) {
	t.Helper()
	frr := c.Router.(*interop.FRR)
	established, err := interop.ParseExpectation("> show bgp neighbors 10.77.0.11 json\n{\"10.77.0.11\": {\"bgpState\": \"Established\"}}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := interop.Eventually(t.Context(), caseLimit, "session", func() error { return c.CheckRouter(t.Context(), established) }); err != nil {
		t.Fatal(err)
	}
	if err := frr.Configure(t.Context(), "router bgp 64513", "neighbor 10.77.0.11 shutdown message works on rack 7"); err != nil {
		t.Fatal(err)
	}
}

// mainRoutes is what the node's kernel has in its main table, without the routes
// of router advertisements: FRR sends them where extended next hops are on.
func mainRoutes(ctx context.Context, c *interop.Case) (string, error) {
	h := &c.Net.Nodes[0].Host
	v4, err := c.Net.Exec(ctx, h, "ip", "-4", "route", "show")
	if err != nil {
		return "", err
	}
	v6, err := c.Net.Exec(ctx, h, "ip", "-6", "route", "show")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for line := range strings.Lines(v4 + v6) {
		if !strings.Contains(line, " proto ra ") {
			b.WriteString(line)
		}
	}
	return b.String(), nil
}

// leaves ends lbd in order: the router keeps nothing, after a time. The node has no successor,
// so the VIPs stay on lo, for what is left of a lifetime that nobody renews.
func leaves(t *testing.T, c *interop.Case, after time.Duration) {
	t.Helper()
	m := c.Net.Nodes[0]
	if !m.Daemon.Alive() {
		t.Fatal("the daemon has ended")
	}
	if err := m.Terminate(15 * time.Second); err != nil {
		t.Fatalf("after SIGTERM: %v", err)
	}
	err := interop.Eventually(t.Context(), after+5*time.Second, "nothing left", func() error {
		for _, vip := range (&interop.LBD{}).VIPs() {
			hops, err := c.Net.Hops(t.Context(), c.Net.ToRs[0], vip)
			if err != nil {
				return err
			}
			if len(hops) > 0 {
				return fmt.Errorf("the router has %s via %v", vip, hops)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	out, err := c.Net.Exec(t.Context(), &m.Host, "ip", "addr", "show", "dev", "lo", "permanent")
	if err != nil {
		t.Fatal(err)
	}
	for _, vip := range (&interop.LBD{}).VIPs() {
		if strings.Contains(out, vip.String()) {
			t.Errorf("%s is on lo for ever", vip)
		}
	}
}
