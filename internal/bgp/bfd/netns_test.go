package bfd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// insideEnv tells the test binary that it runs in namespaces of its own.
const insideEnv = "LBD_BFD_INSIDE"

// TestMain runs the tests of this package in network and mount namespaces of
// their own, so that they touch no interface of the host and leave nothing.
func TestMain(m *testing.M) {
	Child()
	if os.Getenv(peerEnv) != "" {
		os.Exit(peerProcess(os.Getenv(peerEnv)))
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	if os.Getenv(insideEnv) != "" {
		if err := furnish(); err != nil {
			fmt.Fprintln(os.Stderr, "namespace:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // Pdeathsig watches the thread
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "cannot make namespaces:", err)
		os.Exit(m.Run()) // what needs them says so
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// furnish prepares the namespaces: a private /run for `ip netns`.
func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return nil
}

// lab is hosts a and b on one wire, eth0 each, 10.0.0.1 and .2, fd00::1 and ::2,
// fe80::1 and ::2. All sit in namespaces of their own.
type lab struct {
	*testing.T
	hosts []string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := bare(t, "a", "b")
	l.wire("a", "eth0", "b", "eth0")
	for ns, last := range map[string]string{"a": "1", "b": "2"} {
		l.ip(ns, "addr add 10.0.0."+last+"/24 dev eth0")
		l.ip(ns, "addr add fd00::"+last+"/64 dev eth0 nodad")
		l.ip(ns, "addr add fe80::"+last+"/64 dev eth0 nodad")
	}
	return l
}

// bare makes hosts without a wire.
func bare(t *testing.T, hosts ...string) *lab {
	t.Helper()
	if os.Getenv(insideEnv) == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	l := &lab{T: t}
	t.Cleanup(func() {
		for _, ns := range l.hosts {
			_ = exec.Command("ip", "netns", "del", l.ns(ns)).Run()
		}
	})
	for _, ns := range hosts {
		l.hosts = append(l.hosts, ns)
		l.run("ip", "netns", "add", l.ns(ns))
		l.in(ns, func() {
			for name, v := range map[string]string{
				"net/ipv6/conf/default/accept_dad": "0", "net/ipv6/conf/all/accept_dad": "0",
				"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1",
			} {
				if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(v), 0); err != nil {
					t.Fatal(err)
				}
			}
		})
		l.ip(ns, "link set lo up")
	}
	return l
}

// ns is the name of a host's namespace.
func (l *lab) ns(host string) string { return fmt.Sprintf("lbdbfd%d-%s", os.Getpid(), host) }

// wire joins two hosts.
func (l *lab) wire(a, ifa, b, ifb string) {
	l.Helper()
	l.ip(a, fmt.Sprintf("link add %s type veth peer name %s netns %s", ifa, ifb, l.ns(b)))
	l.ip(a, "link set "+ifa+" up")
	l.ip(b, "link set "+ifb+" up")
}

func (l *lab) run(name string, args ...string) string {
	l.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		l.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// ip runs the ip program on a host.
func (l *lab) ip(host, args string) string {
	l.Helper()
	return l.run("ip", append([]string{"-n", l.ns(host)}, strings.Fields(args)...)...)
}

// in runs f on a thread inside the namespace. Sockets and processes stay there.
func (l *lab) in(host string, f func()) {
	l.Helper()
	var wg sync.WaitGroup
	var err error
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var fd int
		if fd, err = unix.Open("/run/netns/"+l.ns(host), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return
		}
		defer func() { _ = unix.Close(fd) }()
		if err = unix.Setns(fd, unix.CLONE_NEWNET); err == nil {
			f()
		}
	})
	wg.Wait()
	if err != nil {
		l.Fatalf("enter %s: %v", host, err)
	}
}

// node is a Watcher on a host, and when it told of changes.
type node struct {
	*lab
	host string
	m    Watcher

	mu      sync.Mutex
	changes []time.Time
}

// node has a Manager.
func (l *lab) node(host string) *node {
	return l.watcher(host, func(log *slog.Logger, changed func()) Watcher { return New(log, changed) })
}

// apart has a Process.
func (l *lab) apart(host string) *node {
	return l.watcher(host, func(log *slog.Logger, changed func()) Watcher { return NewProcess(log, changed) })
}

func (l *lab) watcher(host string, make func(*slog.Logger, func()) Watcher) *node {
	n := &node{lab: l, host: host}
	n.m = make(slog.New(slog.NewTextHandler(l.Output(), nil)), func() {
		n.mu.Lock()
		n.changes = append(n.changes, time.Now())
		n.mu.Unlock()
	})
	l.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 0)
		cancel()
		_ = n.m.Close(ctx)
	})
	return n
}

// apply gives the sessions to the Watcher, on its host.
func (n *node) apply(s ...Session) {
	n.Helper()
	var err error
	n.in(n.host, func() { err = n.m.Apply(s) })
	if err != nil {
		n.Fatalf("%s: %v", n.host, err)
	}
}

// one is the status of the only session.
func (n *node) one() Status {
	n.Helper()
	all := n.m.Status()
	if len(all) != 1 {
		n.Fatalf("%s: %d sessions", n.host, len(all))
	}
	return all[0]
}

// lastChange is when the Watcher told of a change, the last time.
func (n *node) lastChange() (t time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.changes) > 0 {
		t = n.changes[len(n.changes)-1]
	}
	return t
}

func (l *lab) within(d time.Duration, what string, ok func() bool) {
	l.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(ms) {
		if time.Now().After(end) {
			l.Fatalf("%s: not within %v", what, d)
		}
	}
}

// upWith waits until a session is up with what it was configured with.
func (n *node) upWith(s Session) {
	n.Helper()
	n.within(5*time.Second, n.host+" up at full speed", func() bool {
		st := n.one()
		return st.State == Up && st.RemoteState == Up && st.Transmit == s.Transmit && st.Receive == s.Receive
	})
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// session is one with usual times.
func session(local, peer string) Session {
	return Session{Peer: addr(peer), Local: addr(local), Transmit: 50 * ms, Receive: 50 * ms, Multiplier: 3}
}
