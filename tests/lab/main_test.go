package lab_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/internal/testnet"
	"lbd.dev/lbd/tests/lab"
)

// bin holds the programs; TestMain sets it once, before any test runs.
var bin *lab.Bin

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	if lab.Usable() != nil {
		return m.Run()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if agent := os.Getenv(helperEnv); agent != "" {
		return helper(ctx, agent)
	}
	var err error
	if bin, err = lab.Build(ctx, true); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer bin.Close()
	stop()                                 // from here on an interrupt ends the tests at once, and the janitor of each lab removes what it made
	bin.ProbeEvery = 10 * time.Millisecond // three labs at once
	return m.Run()
}

// need skips without root, but never in CI.
func need(t *testing.T) {
	t.Helper()
	testnet.Require(t, lab.Usable())
}

// cluster makes a running cluster that ends with the test.
func cluster(t *testing.T, s lab.System, nodes int) *lab.Cluster {
	t.Helper()
	need(t)
	c, err := lab.NewCluster(t.Context(), bin, s, nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCluster(t, c) })
	return c
}

// wired is a cluster like that of cluster whose network is changed before it runs.
func wired(t *testing.T, s lab.System, change ...func(*lab.Cluster) error) *lab.Cluster {
	t.Helper()
	need(t)
	c, err := lab.NewIdle(t.Context(), bin, s, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCluster(t, c) })
	for _, f := range change {
		if err := f(c); err != nil {
			t.Fatal(err)
		}
	}
	startAll(t, c)
	if err := c.Stable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// ownerOf waits for a moment: the observer, too, may have stood still.
func ownerOf(t *testing.T, c *lab.Cluster, vip netip.Addr) (owner *lab.Node) {
	t.Helper()
	err := lab.Wait(t.Context(), 5*time.Second, 20*time.Millisecond, "one owner", func() (err error) {
		owner, err = c.Owner(vip)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return owner
}

func closeCluster(t *testing.T, c *lab.Cluster) {
	t.Helper()
	if dir := os.Getenv("LBD_LAB_LOGS"); t.Failed() && dir != "" {
		if err := c.KeepLogs(filepath.Join(dir, t.Name())); err != nil {
			t.Error(err)
		}
	} else if t.Failed() {
		t.Log(c.Logs(40))
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
