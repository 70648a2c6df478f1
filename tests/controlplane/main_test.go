package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/internal/testnet"
	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
)

// The programs; TestMain sets them once, before any test runs.
var (
	bin      *lab.Bin
	programs *controlplane.Programs
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	if usable() != nil {
		return m.Run()
	}
	if os.Getenv(helperEnv) != "" {
		return helper()
	}
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer bin.Close()
	return m.Run()
}

// build ends in order at Ctrl-C. The tests need not: what they leave is removed
// by the janitor of the lab.
func build() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if programs, err = controlplane.Build(ctx); err != nil {
		return err
	}
	bin, err = lab.Build(ctx, true)
	return err
}

// usable tells what is missing of a lab with kube-proxy.
func usable() error {
	err := lab.Usable()
	if _, e := exec.LookPath("iptables"); e != nil {
		err = errors.Join(err, errors.New(`"iptables" is missing: apt-get install iptables`))
	}
	return err
}

// need skips without root or a program, but never in CI.
func need(t *testing.T) {
	t.Helper()
	testnet.Require(t, usable())
}

// newLab makes a lab that ends with the test and shows, or keeps, its logs if
// the test failed.
func newLab(t *testing.T, nodes int) *lab.Lab {
	t.Helper()
	need(t)
	l, err := lab.New(t.Context(), bin, nodes)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, l)
	return l
}

// closing ends a lab with the test, and shows, or keeps, its logs if the test failed.
func closing(t *testing.T, l *lab.Lab) {
	t.Helper()
	t.Cleanup(func() {
		if dir := os.Getenv("LBD_LAB_LOGS"); t.Failed() && dir != "" {
			if err := controlplane.KeepLogs(l, filepath.Join(dir, t.Name())); err != nil {
				t.Error(err)
			}
		} else if t.Failed() {
			t.Log(tails(l, 25))
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// tails are the last lines of every log in the lab.
func tails(l *lab.Lab, lines int) string {
	files, _ := filepath.Glob(filepath.Join(l.Dir, "*", "*.log")) // the pattern is well formed
	var b strings.Builder
	for _, f := range files {
		p := lab.Proc{Log: f}
		fmt.Fprintf(&b, "--- %s\n%s\n", strings.TrimPrefix(f, l.Dir), p.Tail(lines))
	}
	return b.String()
}

// start starts a control plane in the lab.
func start(t *testing.T, l *lab.Lab, o controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	from := time.Now()
	c, err := controlplane.Start(t.Context(), l, programs, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("control plane of %d kube-apiservers: ready after %v", len(c.APIServers), time.Since(from).Round(10*time.Millisecond))
	return c
}
