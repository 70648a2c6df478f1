package bfd

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/internal/testnet"
)

// daemon starts a program on host b until the test ends. If it is not installed
// the test is skipped, but in CI it fails.
func (l *lab) daemon(path string, args ...string) {
	l.Helper()
	cmd := exec.Command(path, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	l.In("b", func() { err = cmd.Start() })
	if err != nil {
		l.Fatal(err)
	}
	// The tests may run niced, but it is no answer that the daemon did not run.
	_ = syscall.Setpriority(syscall.PRIO_PGRP, cmd.Process.Pid, -5)
	l.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if l.Failed() {
			l.Logf("%s: %s", path, out.String())
		}
	})
}

// need finds a program that may be missing on the desk of a developer.
func need(t *testing.T, name string, folders ...string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, f := range folders {
		if path := filepath.Join(f, name); exec.Command("test", "-x", path).Run() == nil {
			return path
		}
	}
	testnet.Require(t, fmt.Errorf("%s is not installed", name))
	return ""
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// both are sessions over IPv4 and IPv6 from a to b.
func both(auth *Auth) []Session {
	v4, v6 := session("10.0.0.1", "10.0.0.2"), session("fd00::1", "fd00::2")
	v4.Auth, v6.Auth = auth, auth
	v4.Multiplier, v6.Multiplier = 10, 10
	return []Session{v4, v6}
}

// meets is what has to work with any daemon: both sessions up, changed intervals
// without a flap, and Down for the right reason when the peer stops, freezes, or
// is left. peer returns what the daemon says about each session.
func (a *node) meets(s []Session, peer func() string, up string) {
	a.Helper()
	a.apply(s...)
	a.each("up at full speed", func(st Status) bool {
		return st.State == Up && st.Transmit == 50*ms && st.Receive == 50*ms && st.Detection == 500*ms
	})
	a.within("the daemon says up", func() bool { return strings.Count(peer(), up) == len(s) })
	slow := make([]Session, len(s))
	for i := range s {
		slow[i] = s[i]
		slow[i].Transmit, slow[i].Receive = 200*ms, 300*ms
	}
	a.apply(slow...)
	a.each("slower", func(st Status) bool {
		return st.Transmit == 200*ms && st.Receive == 300*ms && st.Detection == 3*time.Second
	})
	time.Sleep(time.Second)
	a.apply(s...)
	a.each("fast again", func(st Status) bool { return st.Transmit == 50*ms && st.Receive == 50*ms })
	time.Sleep(time.Second)
	for _, st := range a.m.Status() {
		if st.Transitions != 1 || st.Dropped.Sum() != 0 {
			a.Errorf("%s: %d transitions, dropped %v", st.Key, st.Transitions, st.Dropped)
		}
	}
}

func (a *node) each(what string, ok func(Status) bool) {
	a.Helper()
	end := time.Now().Add(30 * time.Second)
	for ; ; time.Sleep(ms) {
		all := a.m.Status()
		good := 0
		for _, st := range all {
			if ok(st) {
				good++
			}
		}
		if good == len(all) && good > 0 {
			return
		}
		if time.Now().After(end) {
			a.Fatalf("%s: not within 30 s: %+v", what, all)
		}
	}
}

// leaves: a removed session is AdminDown for the daemon, and comes back.
func (a *node) leaves(s []Session, peer func() string, down, up string) {
	a.Helper()
	a.apply(s[1:]...)
	a.within("the daemon says down", func() bool { return strings.Contains(peer(), down) })
	a.apply(s...)
	a.each("up again", func(st Status) bool { return st.State == Up })
	a.within("the daemon says up", func() bool { return strings.Count(peer(), up) == len(s) })
}

func TestBIRD(t *testing.T) {
	bird, birdc := need(t, "bird", "/usr/sbin"), need(t, "birdc", "/usr/sbin")
	for name, c := range map[string]struct {
		auth *Auth
		conf string
	}{
		"without authentication": {},
		"keyed SHA1":             {&Auth{KeyedSHA1, 7, []byte("secret")}, "authentication keyed sha1; password \"secret\" { id 7; };"},
		"meticulous keyed SHA1":  {&Auth{MeticulousKeyedSHA1, 1, []byte("very secret indeed")}, "authentication meticulous keyed sha1; password \"very secret indeed\" { id 1; };"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			dir := t.TempDir()
			conf, ctl := filepath.Join(dir, "bird.conf"), filepath.Join(dir, "ctl")
			write(t, conf, fmt.Sprintf(`router id 10.0.0.2;
log stderr all;
protocol device {}
protocol bfd {
	interface "eth0" { min rx interval 50 ms; min tx interval 50 ms; idle tx interval 1 s; multiplier 10; %s };
	neighbor 10.0.0.1 dev "eth0" local 10.0.0.2;
	neighbor fd00::1 dev "eth0" local fd00::2;
}
`, c.conf))
			l.daemon(bird, "-f", "-c", conf, "-s", ctl, "-P", filepath.Join(dir, "pid"))
			peer := func() string {
				out, _ := exec.Command(birdc, "-s", ctl, "show", "bfd", "sessions").CombinedOutput()
				return string(out)
			}
			a := l.node("a")
			a.meets(both(c.auth), peer, " Up ")
			a.leaves(both(c.auth), peer, " Down ", " Up ")
			if c.auth != nil {
				wrong := *c.auth
				wrong.Key = []byte("wrong")
				a.apply(both(&wrong)...)
				a.each("refused", func(st Status) bool { return st.State == Down && st.Dropped[DropAuth] > 0 })
				a.apply(both(c.auth)...)
				a.each("up again", func(st Status) bool { return st.State == Up })
			}
		})
	}
}

func TestFRR(t *testing.T) {
	bfdd, zebra, vtysh := need(t, "bfdd", "/usr/lib/frr"), need(t, "zebra", "/usr/lib/frr"), need(t, "vtysh")
	l := newLab(t)
	dir, err := os.MkdirTemp("/run", "frr") // short: a path of a socket has room for 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	conf := filepath.Join(dir, "bfdd.conf")
	write(t, conf, `bfd
 peer 10.0.0.1 local-address 10.0.0.2 interface eth0
  transmit-interval 50
  receive-interval 50
  detect-multiplier 10
 !
 peer fd00::1 local-address fd00::2 interface eth0
  transmit-interval 50
  receive-interval 50
  detect-multiplier 10
 !
!
`)
	write(t, filepath.Join(dir, "zebra.conf"), "")
	common := func(name string) []string {
		return []string{"-u", "root", "-g", "frrvty", "--vty_socket", dir, "-z", filepath.Join(dir, "zserv"),
			"-i", filepath.Join(dir, name+".pid"), "-f", filepath.Join(dir, name+".conf"), "-P", "0", "--log", "stdout"}
	}
	l.daemon(zebra, common("zebra")...)
	l.within("zebra", func() bool { _, err := os.Stat(filepath.Join(dir, "zserv")); return err == nil })
	l.daemon(bfdd, append(common("bfdd"), "--bfdctl", filepath.Join(dir, "bfdctl"))...)
	peer := func() string {
		out, _ := exec.Command(vtysh, "--vty_socket", dir, "-c", "show bfd peers").CombinedOutput()
		return string(out)
	}
	a := l.node("a")
	a.meets(both(nil), peer, "Status: up")
	a.leaves(both(nil), peer, "Status: down", "Status: up")
}
