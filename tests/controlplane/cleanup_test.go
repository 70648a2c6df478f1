package controlplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
)

// helperEnv makes the test binary start a control plane, say so, and wait.
const helperEnv = "LBD_CONTROLPLANE_HELPER"

// made is what the helper started.
type made struct {
	Programs *controlplane.Programs
	Agent    string

	Dir  string
	NS   []string
	PIDs []int
}

func helper() int {
	var m made
	err := json.Unmarshal([]byte(os.Getenv(helperEnv)), &m)
	if err == nil {
		err = m.start(context.Background())
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	time.Sleep(time.Minute)
	return 1
}

func (m *made) start(ctx context.Context) error {
	l, err := lab.New(ctx, &lab.Bin{Agent: m.Agent}, 1)
	if err != nil {
		return err
	}
	c, err := controlplane.Start(ctx, l, m.Programs, controlplane.Options{Controllers: []string{"namespace-controller"}})
	if err != nil {
		return err
	}
	n, err := c.AddNode(ctx, l.Nodes[0], nil)
	if err != nil {
		return err
	}
	pod, err := n.AddPod(ctx)
	if err != nil {
		return err
	}
	if err := n.StartProxy(ctx, "nftables", 0); err != nil {
		return err
	}
	m.Dir, m.NS, m.PIDs = l.Dir, []string{c.Host.NS, n.NS, pod.NS}, []int{pod.Proc.PID()}
	for _, s := range c.Servers() {
		m.PIDs = append(m.PIDs, s.Proc().PID())
	}
	return nil
}

// TestCleanUp ends a process that runs a control plane, as Ctrl-C and as a kill
// do, and looks for what is left.
func TestCleanUp(t *testing.T) {
	t.Parallel() // it measures nothing
	need(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			arg, err := json.Marshal(made{Programs: programs, Agent: bin.Agent})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), helperEnv+"="+string(arg))
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill() }()
			var m made
			line, err := bufio.NewReader(out).ReadBytes('\n')
			if err = errors.Join(err, json.Unmarshal(line, &m)); err != nil {
				t.Fatal(err)
			}
			if n := len(m.all()); n != 9 { // a folder, 3 namespaces, 4 servers and the Pod's
				t.Fatalf("%d things are there before the end, want 9: %v", n, m.all())
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed: what counts is what is left
			err = controlplane.Eventually(t.Context(), 15*time.Second, "everything is gone", func() error {
				if left := m.all(); len(left) > 0 {
					return fmt.Errorf("left: %v", left)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// all is what exists of it.
func (m *made) all() []string {
	var out []string
	if _, err := os.Stat(m.Dir); err == nil {
		out = append(out, m.Dir)
	}
	for _, ns := range m.NS {
		if _, err := os.Stat(filepath.Join("/run/netns", ns)); err == nil {
			out = append(out, ns)
		}
	}
	for _, pid := range m.PIDs {
		// A zombie that init has not reaped yet has no command line.
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(b) > 0 {
			out = append(out, fmt.Sprintf("process %d: %s", pid, strings.SplitN(string(b), "\x00", 2)[0]))
		}
	}
	return out
}
