package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/internal/testnet"
	"lbd.dev/lbd/tests/cluster"
)

// parts are what machines are made of; TestMain sets it once, before any test runs.
var parts *cluster.Parts

func TestMain(m *testing.M) {
	cluster.Main()
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if cluster.Usable() != nil {
		return m.Run()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	parts, err = cluster.Build(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getenv(helperEnv) != "" {
		return helper()
	}
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// need skips where no cluster can run, but never in CI.
func need(t *testing.T) {
	t.Helper()
	testnet.Require(t, cluster.Usable())
}

// sharedEnds is done by the first test with a cluster of its own.
var sharedEnds sync.Once

// newCluster makes machines that are on, and end with the test. Such tests run one after the other,
// when all that use the shared cluster have ended.
func newCluster(t *testing.T, machines int) *cluster.Cluster {
	t.Helper()
	return started(t, machines, cluster.New)
}

// started is newCluster for one that create makes.
func started(t *testing.T, machines int, create func(context.Context, *cluster.Parts, int) (*cluster.Cluster, error)) *cluster.Cluster {
	t.Helper()
	need(t)
	t.Parallel()
	sharedEnds.Do(func() {
		if err := closeShared(); err != nil {
			t.Error(err)
		}
	})
	from := time.Now()
	c, err := create(t.Context(), parts, machines)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		keepLogs(t, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d machines are on after %v", len(c.Machines), since(from))
	return c
}

// keepLogs keeps the logs of a test that failed, below LBD_CLUSTER_LOGS or in a folder
// for temporary files.
func keepLogs(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if !t.Failed() {
		return
	}
	dir, err := os.MkdirTemp("", "lbd-cluster-logs-")
	if to := os.Getenv("LBD_CLUSTER_LOGS"); to != "" {
		dir, err = filepath.Join(to, strings.ReplaceAll(t.Name(), "/", "-")), nil
	}
	if err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.KeepLogs(ctx, dir); err != nil {
		t.Error(err)
	}
	t.Logf("logs of all machines: %s", dir)
}

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

// must ends the test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls until check succeeds; the test ends if it does not within limit.
func eventually(t *testing.T, limit time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		pause(t, 100*time.Millisecond)
	}
}

// pause sleeps, but not longer than the test may run.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	case <-time.After(d):
	}
}
