package lab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// helperEnv makes the test binary build a lab, say so, and wait.
const helperEnv = "LBD_LAB_HELPER"

func helper(ctx context.Context, agent string) int {
	l, err := lab.New(ctx, &lab.Bin{Agent: agent}, 1)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := l.StartService(ctx, l.Nodes[0]); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Println(l.Nodes[0].NS, l.Dir, l.Nodes[0].Service.PID())
	<-ctx.Done()
	if err := l.Close(); err != nil {
		return 1
	}
	return 0
}

// TestCleanUp ends a lab in every way there is and looks for what is left.
func TestCleanUp(t *testing.T) {
	need(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd, ns, dir, pid := startHelper(t)
			if _, err := os.Stat(filepath.Join("/run/netns", ns)); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed or not: what counts is what is left
			deadline := time.Now().Add(10 * time.Second)
			for left(ns, dir, pid) != nil && time.Now().Before(deadline) {
				time.Sleep(20 * time.Millisecond)
			}
			if err := left(ns, dir, pid); err != nil {
				t.Error(err)
			}
		})
	}
}

func startHelper(t *testing.T) (cmd *exec.Cmd, ns, dir string, pid int) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+bin.Agent)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(line, &ns, &dir, &pid); err != nil {
		t.Fatal(err)
	}
	return cmd, ns, dir, pid
}

func left(ns, dir string, pid int) error {
	var errs []error
	if _, err := os.Stat(filepath.Join("/run/netns", ns)); err == nil {
		errs = append(errs, fmt.Errorf("namespace %s is left", ns))
	}
	if _, err := os.Stat(dir); err == nil {
		errs = append(errs, fmt.Errorf("directory %s is left", dir))
	}
	// A zombie that init has not reaped yet has no command line.
	if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(cmdline) > 0 {
		errs = append(errs, fmt.Errorf("process %d is left: %s", pid, strings.ReplaceAll(string(cmdline), "\x00", " ")))
	}
	return errors.Join(errs...)
}

// TestSweep: leftovers of the dead go, those of the living stay.
func TestSweep(t *testing.T) {
	need(t)
	l, err := lab.New(t.Context(), bin, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	// The maker of this one has this test's pid but began at another time.
	dead := fmt.Sprintf("lbdlab-%d-1-abc-m1", os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", dead).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := lab.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join("/run/netns", dead)); err == nil {
		t.Error("the leftover of a dead lab was not swept")
	}
	if _, err := os.Stat(filepath.Join("/run/netns", l.Nodes[0].NS)); err != nil {
		t.Errorf("a living lab was swept: %v", err)
	}
	for _, bad := range []string{"", "lbdlab-", "lbdlab-1-2", "other-1-2-3", "lbdlab-1-2-3-m1"} {
		if lab.Remove(t.Context(), bad) == nil {
			t.Errorf("Remove(%q) went ahead", bad)
		}
	}
}
