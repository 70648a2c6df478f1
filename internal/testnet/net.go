package testnet

import (
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

// Add makes a host whose lo is up and whose addresses can be used at once.
func (n *Net) Add(host string) {
	n.t.Helper()
	n.Exec("ip", "netns", "add", n.NS(host))
	n.hosts = append(n.hosts, host)
	n.In(host, func() {
		if err := noDAD(); err != nil {
			n.t.Error(err)
		}
	})
	n.IP(host, "link set lo up")
}

func (n *Net) remove() {
	for _, h := range n.hosts {
		if out, err := exec.Command("ip", "netns", "del", n.NS(h)).CombinedOutput(); err != nil {
			n.t.Errorf("remove %s: %v: %s", h, err, out)
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
	return n.Exec("ip", append([]string{"netns", "exec", n.NS(host)}, args...)...)
}

// IP runs the ip program for a host, with arguments that spaces divide.
func (n *Net) IP(host, args string) string {
	n.t.Helper()
	fields := strings.Fields(args)
	if host != "" {
		fields = append([]string{"-n", n.NS(host)}, fields...)
	}
	return n.Exec("ip", fields...)
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
		if fd, err = unix.Open("/run/netns/"+n.NS(host), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
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
