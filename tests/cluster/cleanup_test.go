package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
)

// helperEnv makes the test binary run a machine, say so, and wait.
const helperEnv = "LBD_CLUSTER_HELPER"

func helper() int {
	ctx := context.Background()
	c, err := cluster.New(ctx, parts, 1)
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(c.Prefix())
	time.Sleep(5 * time.Minute)
	return 1
}

// TestCleanUp ends a process that runs a machine, as Ctrl-C and as a kill do, and looks
// for what is left. If its supervisor is killed too, the next cluster sweeps.
func TestCleanUp(t *testing.T) {
	need(t)
	for _, x := range []struct {
		name  string
		kill  func(t *testing.T, pid int, prefix string)
		sweep bool
	}{
		{"interrupt", func(t *testing.T, pid int, _ string) { must(t, syscall.Kill(pid, syscall.SIGINT)) }, false},
		{"kill", func(t *testing.T, pid int, _ string) { must(t, syscall.Kill(pid, syscall.SIGKILL)) }, false},
		{"kill of the supervisor too", func(t *testing.T, pid int, prefix string) {
			must(t, syscall.Kill(supervisorOf(t, prefix), syscall.SIGKILL))
			must(t, syscall.Kill(pid, syscall.SIGKILL))
		}, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), helperEnv+"=1")
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			defer func() { _ = cmd.Process.Kill() }()
			line, err := bufio.NewReader(out).ReadString('\n')
			must(t, err)
			prefix := strings.TrimSpace(line)
			t.Cleanup(func() { must(t, cluster.Remove(context.Background(), prefix)) })
			left, err := cluster.Left(prefix)
			must(t, err)
			if len(left) < 10 { // folders, groups, three namespaces, the processes of systemd
				t.Fatalf("only %d things are there before the end: %v", len(left), left)
			}
			x.kill(t, cmd.Process.Pid, prefix)
			_ = cmd.Wait() // killed: what counts is what is left
			if x.sweep {
				time.Sleep(time.Second)
				if left, err := cluster.Left(prefix); err != nil || len(left) == 0 {
					t.Fatalf("without a supervisor all is gone by itself: %v", err)
				}
				must(t, cluster.Sweep(t.Context()))
			}
			deadline := time.Now().Add(30 * time.Second)
			for {
				left, err := cluster.Left(prefix)
				must(t, err)
				if len(left) == 0 {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("left: %v", left)
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
}

// supervisorOf finds the process that cares for a cluster.
func supervisorOf(t *testing.T, prefix string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	must(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && bytes.Contains(b, []byte("LBD_CLUSTER_SUPERVISOR="+prefix+"\x00")) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			must(t, err)
			return pid
		}
	}
	t.Fatalf("no supervisor of %s", prefix)
	return 0
}
