package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// Daemon is the routing software of one host.
type Daemon interface {
	// Show runs a command of its command line and returns what it prints.
	Show(ctx context.Context, command string) (string, error)
	// Stop ends it in order, which is bounded in time.
	Stop() error
	// Tail returns the last lines of its logs.
	Tail(lines int) string
}

// frrDir is where Debian's package frr has its daemons.
const frrDir = "/usr/lib/frr/"

// Missing tells which routing software is not installed; nil: all of it is.
func Missing() error {
	var errs []error
	for prog, pkg := range map[string]string{
		frrDir + "bgpd": "frr", frrDir + "zebra": "frr", frrDir + "bfdd": "frr", "vtysh": "frr",
		"bird": "bird2", "birdc": "bird2", "gobgpd": "gobgpd", "gobgp": "gobgpd",
	} {
		if _, err := exec.LookPath(prog); err != nil {
			errs = append(errs, fmt.Errorf("%s is missing: apt-get install %s", prog, pkg))
		}
	}
	return errors.Join(errs...)
}

// stopLimit is how long a routing daemon may take to end.
const stopLimit = 5 * time.Second

// end asks a process to end and kills it if it does not.
func end(p *lab.Proc) error {
	if !p.Alive() {
		return nil
	}
	if p.Signal(syscall.SIGTERM) == nil && !errors.Is(p.Wait(stopLimit), lab.ErrTimeout) {
		return nil
	}
	return p.Kill()
}

// patience is how many times as long as on an idle machine everything may take. What is
// promised is measured, not waited for.
const patience = 4

// Eventually polls check until it succeeds, ctx ends or limit, which is that of an idle
// machine, is over for long; the error is then the last one of check.
func Eventually(ctx context.Context, limit time.Duration, what string, check func() error) error {
	return poll(ctx, limit, 50*time.Millisecond, what, check)
}

func poll(ctx context.Context, limit, every time.Duration, what string, check func() error) error {
	deadline := time.Now().Add(patience * limit)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %v: %w", what, patience*limit, errors.Join(err, ctx.Err()))
		}
		Pause(ctx, every)
	}
}

// Pause sleeps, but not longer than ctx lives.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// there waits until a file, such as a socket, exists while the process lives.
func there(ctx context.Context, p *lab.Proc, file string) error {
	err := poll(ctx, 10*time.Second, 20*time.Millisecond, p.Name, func() error {
		if !p.Alive() {
			return nil
		}
		_, err := os.Stat(file)
		return err
	})
	if err == nil && !p.Alive() {
		err = fmt.Errorf("%s: it ended: %s", p.Name, p.Tail(5))
	}
	return err
}
