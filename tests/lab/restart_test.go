package lab_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// TestRestart: `lbd restart` on the owner, twice, with a setting that a reload refuses.
// The address stays, no connection fails, open ones go on, and it is the same process.
func TestRestart(t *testing.T) { // P3
	t.Parallel()
	s := &lab.LBD{}
	c := cluster(t, s, 3)
	scenario, took := lab.Restart(s)
	scenario.Conns = 20
	owner := ownerOf(t, c, lab.VIP4())
	pid, open := owner.Daemon.PID(), -1
	for i, pprof := range []string{"pprof: true", "pprof: false"} {
		edit(t, s.Config(owner), "address: 127.0.0.1:7477", "address: 127.0.0.1:7477, "+pprof)
		if _, err := c.Exec(t.Context(), &owner.Host, c.Bin.LBD, "reload", "--socket", s.Socket(owner)); i == 0 && (err == nil || !strings.Contains(err.Error(), "http.pprof: true cannot change while lbd runs")) {
			t.Errorf("lbd reload: %v, want it to fail with the reason", err)
		}
		for _, o := range repeat(t, c, scenario, lab.VIP4(), 1) {
			if o.Owner != owner.Name || o.Conns.Open != 20 || o.Conns.Survived() != 20 {
				t.Errorf("owner %s; long-lived connections: %+v, want 20 alive at %s", o.Owner, o.Conns, owner.Name)
			}
		}
		t.Logf("the command took %v", *took)
		if *took > slack*3*time.Second {
			t.Errorf("the command took %v, promised are 3 s", *took)
		}
		if !owner.Daemon.Alive() || owner.Daemon.PID() != pid {
			t.Errorf("pid %d, before it was %d", owner.Daemon.PID(), pid)
		}
		if out, err := c.Exec(t.Context(), &owner.Host, "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:7477/debug/pprof/cmdline"); i == 0 && (err != nil || out != "200") {
			t.Errorf("the new setting is not in force: %q, %v", out, err)
		}
		n := descriptors(t, pid)
		if open >= 0 && n > open+5 {
			t.Errorf("%d open files after the second restart, %d after the first", n, open)
		}
		open = n
		edit(t, s.Config(owner), ", "+pprof, "")
	}

	// A configuration that the new process would refuse changes nothing.
	edit(t, s.Config(owner), "kind: NodeConfiguration", "kind: NodeConfiguration\nnode: m1")
	_, err := c.Exec(t.Context(), &owner.Host, c.Bin.LBD, "restart", "--socket", s.Socket(owner))
	if err == nil || !strings.Contains(err.Error(), "node: is not a known field") {
		t.Errorf("lbd restart: %v, want it to fail with the reason", err)
	}
	if err := c.Stable(t.Context()); err != nil {
		t.Error(err)
	}
}

// edit replaces a part of a file.
func edit(t *testing.T, file, old, text string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil && strings.Count(string(b), old) != 1 {
		err = fmt.Errorf("%q is not once in %s", old, file)
	}
	if err := errors.Join(err, os.WriteFile(file, []byte(strings.Replace(string(b), old, text, 1)), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// descriptors counts the open files of a process.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(all) == 0 {
		t.Fatalf("open files of %d: %v", pid, err)
	}
	return len(all)
}
