package health

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestExec(t *testing.T) {
	dir := t.TempDir()
	notExecutable := filepath.Join(dir, "data")
	if err := os.WriteFile(notExecutable, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		command []string
		want    string
	}{
		{name: "pass", command: []string{"true"}, want: "pass"},
		{name: "pass with output", command: []string{"echo", "hello"}, want: "pass"},
		{name: "no shell", command: []string{"/bin/echo", "$HOME;", "false"}, want: "pass"},
		{name: "fail", command: []string{"false"}, want: "exec false: exit status 1"},
		{name: "output of both streams", command: []string{"sh", "-c", "echo one; echo two >&2; exit 3"}, want: "exec sh: exit status 3: one two"},
		{name: "tail of the output", command: []string{"sh", "-c", "yes | head -n 100000; echo why; exit 1"},
			want: "exec sh: exit status 1: " + strings.Repeat("y ", 98) + "why"},
		{name: "signal", command: []string{"sh", "-c", "kill -SEGV $$"}, want: "exec sh: signal: segmentation fault"},
		{name: "not found", command: []string{"lbd-no-such-program"}, want: "exec lbd-no-such-program: not found in PATH"},
		{name: "no such file", command: []string{dir + "/none"}, want: "exec " + dir + "/none: no such file or directory"},
		{name: "not executable", command: []string{notExecutable}, want: "exec " + notExecutable + ": permission denied"},
		{name: "input is empty", command: []string{"sh", "-c", "read x || exit 0; exit 1"}, want: "pass"},
		{name: "directory", command: []string{"sh", "-c", `test "$(pwd)" = /`}, want: "pass"},
		{name: "nothing", want: "exec: the command is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := probeTwice(t, execProber{command: tt.command}, long); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestExecKillsTheGroup has a program that does not end, with a child that holds
// its output.
func TestExecKillsTheGroup(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	p := execProber{command: []string{"sh", "-c", "sleep 300 & echo $! > " + pidFile + "; echo busy; wait"}}
	const want = "exec sh: did not end in time and was killed: busy"
	for timeout := 300 * time.Millisecond; ; timeout *= 4 { // on a busy machine it may not come that far
		got := probeOnce(t, p, timeout)
		if got == want {
			break
		}
		if timeout > 30*time.Second {
			t.Fatalf("probe = %q, want %q", got, want)
		}
	}
	wantGone(t, pidFile)
}

// TestExecLeavesNoChildren has a program that ends well but leaves a child.
func TestExecLeavesNoChildren(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	p := execProber{command: []string{"sh", "-c", "sleep 300 & echo $! > " + pidFile}}
	began := time.Now()
	if got := probeOnce(t, p, long); got != "pass" {
		t.Errorf("probe = %q, want pass", got)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the probe waited %v for the child", took)
	}
	wantGone(t, pidFile)
}

func wantGone(t *testing.T, pidFile string) {
	t.Helper()
	content, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); !gone(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("child %d is alive", pid)
		}
	}
}

// gone tells that a process has ended, whether or not somebody reaps it.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}
