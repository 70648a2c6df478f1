package interop_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lbd.dev/lbd/internal/testnet"
	"lbd.dev/lbd/tests/interop"
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
	var err error
	if bin, err = lab.Build(ctx, true); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer bin.Close()
	stop() // from here on an interrupt ends the tests at once, and the janitor of each lab removes what it made
	return m.Run()
}

// need skips without root or the routing software, but never in CI.
func need(t *testing.T) {
	t.Helper()
	testnet.Require(t, errors.Join(lab.Usable(), interop.Missing()))
}

// fabric makes a running fabric that ends with the test.
func fabric(t *testing.T, s interop.Speaker, o interop.Options, shape func(context.Context, *lab.Bin, int) (*interop.Net, error)) *interop.Fabric {
	t.Helper()
	need(t)
	n, err := shape(t.Context(), bin, 3)
	if err != nil {
		t.Fatal(err)
	}
	f, err := interop.StartFabric(t.Context(), n, s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		keepLogs(t, n, f.Logs)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// keepLogs shows, or keeps, the logs of a test that failed.
func keepLogs(t *testing.T, n *interop.Net, tail func(int) string) {
	t.Helper()
	if !t.Failed() {
		return
	}
	dir := os.Getenv("LBD_LAB_LOGS")
	if dir == "" {
		t.Log(tail(40))
		return
	}
	for _, pattern := range []string{"*/*.log", "*/*.yaml", "*/*.conf", "*/*.toml"} {
		files, _ := filepath.Glob(filepath.Join(n.Dir, pattern)) // the pattern is well formed
		for _, f := range files {
			to := filepath.Join(dir, t.Name(), strings.TrimPrefix(f, n.Dir))
			b, err := os.ReadFile(f)
			if err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o644)); err != nil {
				t.Log(err)
			}
		}
	}
}
