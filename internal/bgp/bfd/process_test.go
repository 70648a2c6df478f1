package bfd

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// children are the processes of a process: their ids.
func children(t *testing.T, pid int) (ids []int) {
	t.Helper()
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		for _, s := range strings.Fields(string(b)) {
			id, err := strconv.Atoi(s)
			if err != nil {
				t.Fatal(err)
			}
			if cmd, _ := os.ReadFile("/proc/" + s + "/cmdline"); strings.HasPrefix(string(cmd), "lbd-bfd\x00") {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// TestProcess: the same as a Manager, from another process.
func TestProcess(t *testing.T) {
	l := newLab(t)
	s := calm(families()["IPv4"])
	s[0].Auth = &Auth{MeticulousKeyedSHA1, 1, []byte("k")}
	s[1].Auth = s[0].Auth
	a, b := l.apart("a"), l.node("b")
	a.apply()
	if len(children(t, os.Getpid())) != 0 {
		t.Error("a process for nothing")
	}
	if err := a.m.Apply([]Session{{}}); err == nil {
		t.Error("accepted nonsense")
	}
	l.In("a", func() {
		if err := a.m.Apply([]Session{{}, s[0]}); err == nil {
			t.Error("accepted nonsense beside a session")
		}
	})
	b.apply(s[1])
	a.upWith(s[0])
	a.apply(s[0])
	fast := s[0]
	fast.Transmit = 20 * ms
	a.apply(fast)
	b.within("other intervals", func() bool { return b.one().Detection == time.Second && a.one().Out > 20 })
	l.ExecOn("b", "nft", "add table inet cut; add chain inet cut out { type filter hook output priority 0; policy drop; }")
	a.within("down", func() bool { return a.lastChange().After(a.one().Since) && a.one().State == Down })
	st := a.one()
	t.Logf("the callback came %v after the change", a.lastChange().Sub(st.Since))
	if late := a.lastChange().Sub(st.Since); late > 5*time.Second {
		t.Errorf("the callback came %v after the change", late)
	}
	if st.Diag != DiagTimeExpired || !st.PathFailed() || st.Transitions != 2 {
		t.Errorf("%+v", st)
	}
	l.ExecOn("b", "nft", "delete table inet cut")
	a.upWith(s[0])
	if err := a.m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	b.each("AdminDown after Close", func(st Status) bool { return st.RemoteState == AdminDown && !st.PathFailed() })
	if ids := children(t, os.Getpid()); len(ids) != 0 {
		t.Errorf("left behind: %v", ids)
	}
}

// TestProcessStartsAgain: a child that dies is replaced. That it died says
// nothing about the path.
func TestProcessStartsAgain(t *testing.T) {
	// The second child is started on any thread, so the namespace of the test is
	// host a here.
	l := bare(t, "b")
	l.Exec("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", l.NS("b"))
	t.Cleanup(func() { l.Exec("ip", "link", "del", "eth0") })
	l.Exec("ip", "link", "set", "eth0", "up")
	l.IP("b", "link set eth0 up")
	l.Exec("ip", "addr", "add", "10.0.0.1/24", "dev", "eth0")
	l.IP("b", "addr add 10.0.0.2/24 dev eth0")
	s := calm(families()["IPv4"])
	b := l.node("b")
	b.apply(s[1])
	a := l.apart("")
	if err := a.m.Apply(s[:1]); err != nil {
		t.Fatal(err)
	}
	a.upWith(s[0])
	before := a.lastChange()
	ids := children(t, os.Getpid())
	if len(ids) != 1 {
		t.Fatalf("children %v", ids)
	}
	_ = syscall.Kill(ids[0], syscall.SIGKILL)
	l.within("told", func() bool { return a.lastChange().After(before) })
	st := a.one()
	// On a busy machine the next one may run by now.
	if gone := len(children(t, os.Getpid())) == 0; gone && (st.State != Down || st.PathFailed() || st.LastError == "") {
		t.Errorf("while it is gone: %+v", st)
	}
	a.upWith(s[0])
	if st := a.one(); st.LastError != "" || st.Transitions != 1 {
		t.Errorf("%+v", st)
	}
}

// TestProcessEndsWithItsParent: who is killed is silent at once, who is frozen
// after the lease, and comes back when it runs again.
func TestProcessEndsWithItsParent(t *testing.T) {
	l := newLab(t)
	s := families()["IPv4"]
	b := l.node("b")
	b.apply(s[1])
	p := l.peer("a", []string{apartEnv + "=1"}, s[0])
	b.upWith(s[1])
	stop := time.Now()
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	b.within("down after the parent froze", func() bool { return b.one().State == Down })
	if took := b.lastChange().Sub(stop); took < 200*ms {
		t.Errorf("down %v after the freeze: the child did not bridge it", took)
	}
	if st := b.one(); !st.PathFailed() {
		t.Errorf("%+v", st)
	}
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait()

	p = l.peer("a", []string{apartEnv + "=1"}, s[0])
	b.upWith(s[1])
	kill := time.Now()
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	b.within("down after the parent was killed", func() bool { return b.one().State == Down })
	t.Logf("down %v after the kill", b.lastChange().Sub(kill))
	// A child that went on for its lease would be missed a Detection Time later.
	if took := b.lastChange().Sub(kill); took > lease+200*ms {
		t.Errorf("down %v after the kill", took)
	}
}
