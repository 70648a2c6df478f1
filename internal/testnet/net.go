package testnet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Net is the hosts of a test, each a network namespace. The host "" is the
// namespace of the test process.
type Net struct {
	t      testing.TB
	number int32
	hosts  []string
}

// nets counts the Nets of this process.
var nets atomic.Int32

// New returns a Net without hosts. What is added to it is removed at the end of
// the test. It needs the namespaces of Main.
func New(t testing.TB) *Net {
	t.Helper()
	Need(t)
	n := &Net{t: t, number: nets.Add(1)}
	t.Cleanup(n.remove)
	return n
}

// For returns the same Net for a subtest: what fails, fails t.
func (n *Net) For(t testing.TB) *Net {
	return &Net{t: t, number: n.number, hosts: slices.Clone(n.hosts)}
}

// Add makes a host whose lo is up and whose addresses can be used at once. `ip netns` knows it.
func (n *Net) Add(host string) {
	n.t.Helper()
	var wg sync.WaitGroup
	var err error
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err = unshare(n.file(host))
	})
	wg.Wait()
	n.hosts = append(n.hosts, host)
	if err != nil {
		n.t.Fatalf("add %s: %v", host, err)
	}
}

// file is where `ip netns` has the namespace of a host.
func (n *Net) file(host string) string { return "/run/netns/" + n.NS(host) }

// unshare takes the thread to a namespace of its own, which stays at file.
func unshare(file string) error {
	if err := os.WriteFile(file, nil, 0o444); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/net", file, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return err
	}
	return noDAD()
}

// Switch makes a host that hosts are plugged into. Tests whose switch is none of theirs cannot
// run beside each other.
func (n *Net) Switch(host string) {
	n.t.Helper()
	n.Add(host)
	n.IP(host, "link add br0 type bridge mcast_snooping 0 forward_delay 0", "link set br0 up")
}

// Plug connects the new eth0 of a host, with this hardware address if there is one and not up yet, to
// a switch, whose end has the name of the host behind a p.
func (n *Net) Plug(host, to, mac string) {
	n.t.Helper()
	if mac != "" {
		mac = "address " + mac
	}
	n.IP(to, fmt.Sprintf("link add p%s type veth peer name eth0 %s netns %s", host, mac, n.NS(host)),
		"link set p"+host+" master br0 up")
}

func (n *Net) remove() {
	for _, h := range n.hosts {
		if err := errors.Join(unix.Unmount(n.file(h), unix.MNT_DETACH), os.Remove(n.file(h))); err != nil {
			n.t.Errorf("remove %s: %v", h, err)
		}
	}
}

// NS is what `ip netns` calls the namespace of a host. No other test, of this run
// or another, has the same name.
func (n *Net) NS(host string) string {
	if host == "" {
		return self
	}
	return fmt.Sprintf("lbdtest%d-%d-%s", os.Getpid(), n.number, host)
}

// Exec runs a program in the namespace of the test process and returns what it
// prints.
func (n *Net) Exec(name string, args ...string) string {
	n.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// ExecOn runs a program on a host.
func (n *Net) ExecOn(host string, args ...string) string {
	n.t.Helper()
	return n.Feed(host, "", args...)
}

// Feed runs a program on a host, which reads text. Its mounts are those of the test process, for `ip
// netns exec` takes as long to change them as most programs run.
func (n *Net) Feed(host, text string, args ...string) string {
	n.t.Helper()
	var out []byte
	var err error
	n.In(host, func() {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdin = strings.NewReader(text)
		out, err = cmd.CombinedOutput()
	})
	if err != nil {
		n.t.Fatalf("on %s: %s: %v\n%s%s", host, strings.Join(args, " "), err, out, text)
	}
	return string(out)
}

// IP runs the ip program on a host, with arguments that spaces divide: once for all lines.
func (n *Net) IP(host string, lines ...string) string {
	n.t.Helper()
	if len(lines) == 1 {
		return n.ExecOn(host, append([]string{"ip"}, strings.Fields(lines[0])...)...)
	}
	return n.Feed(host, strings.Join(lines, "\n")+"\n", "ip", "-batch", "-")
}

// In runs f on a thread inside the namespace of a host. Sockets and processes that
// f makes stay there. For the host "" it is the calling thread.
func (n *Net) In(host string, f func()) {
	n.t.Helper()
	if host == "" {
		f()
		return
	}
	var wg sync.WaitGroup
	var err error
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var fd int
		if fd, err = unix.Open(n.file(host), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return
		}
		defer func() { _ = unix.Close(fd) }()
		if err = unix.Setns(fd, unix.CLONE_NEWNET); err == nil {
			f()
		}
	})
	wg.Wait()
	if err != nil {
		n.t.Fatalf("enter %s: %v", host, err)
	}
}
