package layer2

import (
	"bytes"
	"errors"
	"fmt"
	"net"
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

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// insideEnv tells the test binary that it runs in namespaces of its own.
const insideEnv = "LBD_LAYER2_INSIDE"

// TestMain runs the tests of this package in network and mount namespaces of
// their own, so that they touch no interface of the host and leave nothing.
func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		os.Exit(helper(os.Getenv(helperEnv)))
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

// furnish prepares the namespaces: a private /run for `ip netns`, and addresses
// that are usable at once.
func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	// A name for the own namespace: the main thread, whose namespace /proc/PID
	// shows, may end up in another one, see lab.in.
	if out, err := exec.Command("ip", "netns", "attach", self, fmt.Sprint(os.Getpid())).CombinedOutput(); err != nil {
		return fmt.Errorf("name the namespace: %w: %s", err, out)
	}
	return sysctls()
}

// sysctls switch off duplicate address detection in the present namespace.
func sysctls() error {
	for name, v := range map[string]string{
		"net/ipv6/conf/default/accept_dad": "0", "net/ipv6/conf/default/dad_transmits": "0",
		"net/ipv6/conf/all/accept_dad": "0",
	} {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(v), 0); err != nil {
			return err
		}
	}
	return nil
}

// The hosts of a lab. The driver under test runs on hostA, which is the
// namespace of the test process.
const (
	hostA = ""
	hostB = "lbdl2-b"
	hostC = "lbdl2-c" // the client
	hostS = "lbdl2-s" // the switch

	self = "lbdl2-a" // what hostA is called by `ip netns`
)

var (
	macA = model.MAC{2, 0, 0, 0, 0, 0x0a}
	macB = model.MAC{2, 0, 0, 0, 0, 0x0b}
	macC = model.MAC{2, 0, 0, 0, 0, 0x0c}
)

// lab is three hosts on one switch, each with eth0, 10.0.0.x/24 and fd00::x/64.
type lab struct{ *testing.T }

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getenv(insideEnv) == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	l := &lab{t}
	t.Cleanup(l.remove)
	for _, ns := range []string{hostS, hostB, hostC} {
		l.run("ip", "netns", "add", ns)
		l.in(ns, func() {
			if err := sysctls(); err != nil {
				t.Fatal(err)
			}
		})
	}
	l.ip(hostS, "link add br0 type bridge mcast_snooping 0 forward_delay 0")
	l.ip(hostS, "link set br0 up")
	for ns, h := range map[string]struct {
		mac  model.MAC
		last string
	}{hostA: {macA, "1"}, hostB: {macB, "2"}, hostC: {macC, "9"}} {
		l.plug(ns, h.mac)
		l.ip(ns, "link set lo up")
		l.ip(ns, "addr add 10.0.0."+h.last+"/24 dev eth0")
		l.ip(ns, "addr add fd00::"+h.last+"/64 dev eth0 nodad")
	}
	l.eventually("forwarding", func() bool {
		return exec.Command("ping", "-c1", "-W1", "10.0.0.9").Run() == nil || l.reachable()
	})
	return l
}

// reachable sends to the client and looks whether it was resolved.
func (l *lab) reachable() bool {
	c, err := net.Dial("udp", "10.0.0.9:9")
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Write([]byte("x"))
	time.Sleep(5 * ms)
	return l.neigh(hostA, netip.MustParseAddr("10.0.0.9")) == macC.String()
}

// plug gives a host its eth0.
func (l *lab) plug(ns string, mac model.MAC) {
	l.Helper()
	port := "p" + strings.TrimPrefix(ns, "lbdl2-")
	l.ip(hostS, fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %s", port, mac, l.nsArg(ns)))
	l.ip(hostS, "link set "+port+" master br0 up")
	l.ip(ns, "link set eth0 up")
}

func (l *lab) nsArg(ns string) string {
	if ns == hostA {
		return self
	}
	return ns
}

func (l *lab) remove() {
	_ = exec.Command("ip", "link", "del", "eth0").Run()
	for _, ns := range []string{hostS, hostB, hostC} {
		_ = exec.Command("ip", "netns", "del", ns).Run()
	}
	_ = exec.Command("nft", "flush", "ruleset").Run() // that of this namespace
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
func (l *lab) ip(ns, args string) string {
	l.Helper()
	fields := strings.Fields(args)
	if ns != hostA {
		fields = append([]string{"-n", ns}, fields...)
	}
	return l.run("ip", fields...)
}

// bind adds a VIP to a host as package address does.
func (l *lab) bind(ns string, a netip.Addr) {
	l.Helper()
	if a.Is4() {
		l.ip(ns, fmt.Sprintf("addr replace %s/32 dev eth0", a))
		return
	}
	l.ip(ns, fmt.Sprintf("addr replace %s/128 dev eth0 nodad noprefixroute preferred_lft 0 valid_lft 1000", a))
}

// in runs f on a thread inside the namespace. Sockets stay there.
func (l *lab) in(ns string, f func()) {
	l.Helper()
	if ns == hostA {
		f()
		return
	}
	var wg sync.WaitGroup
	var err error
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var fd int
		if fd, err = unix.Open("/run/netns/"+ns, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return
		}
		defer func() { _ = unix.Close(fd) }()
		if err = unix.Setns(fd, unix.CLONE_NEWNET); err == nil {
			f()
		}
	})
	wg.Wait()
	if err != nil {
		l.Fatalf("enter %s: %v", ns, err)
	}
}

// neigh is the hardware address that a host has for addr; "" if none.
func (l *lab) neigh(ns string, addr netip.Addr) string {
	l.Helper()
	fields := strings.Fields(l.ip(ns, "neigh show "+addr.String()+" dev eth0"))
	for i, f := range fields {
		if f == "lladdr" {
			return fields[i+1]
		}
	}
	return ""
}

// touch makes a host resolve addr by sending to it, from source if valid.
func (l *lab) touch(ns string, addr, source netip.Addr) {
	l.Helper()
	l.in(ns, func() {
		var from *net.UDPAddr
		if source.IsValid() {
			from = net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
		}
		c, err := net.DialUDP("udp", from, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 9)))
		if err != nil {
			l.Errorf("dial %s from %s: %v", addr, source, err)
			return
		}
		_, _ = c.Write([]byte("x"))
		_ = c.Close()
	})
}

func (l *lab) eventually(what string, ok func() bool) {
	l.Helper()
	for end := time.Now().Add(3 * time.Second); !ok(); time.Sleep(2 * ms) {
		if time.Now().After(end) {
			l.Fatalf("%s: not within 3 s", what)
		}
	}
}

// driver starts a driver on hostA.
func (l *lab) driver(o Options) *harness {
	o.Logger = discard()
	h := &harness{T: l.T, d: New(o), valid: time.Minute}
	l.Cleanup(h.close)
	return h
}

// capture records the frames that reach a host.
type capture struct {
	mu     sync.Mutex
	frames []captured
}

type captured struct {
	at    time.Time
	frame []byte
}

// sniff captures frames of one ether type on a host until the test ends.
func (l *lab) sniff(ns string, etherType int) *capture {
	l.Helper()
	conn := l.socket(ns, etherType)
	c := &capture{}
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, _, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			c.mu.Lock()
			c.frames = append(c.frames, captured{time.Now(), bytes.Clone(buf[:n])})
			c.mu.Unlock()
		}
	})
	l.Cleanup(func() {
		_ = conn.Close()
		wg.Wait()
	})
	return c
}

func (l *lab) socket(ns string, etherType int) (conn *packet.Conn) {
	l.Helper()
	l.in(ns, func() {
		ifi, err := net.InterfaceByName("eth0")
		if err == nil {
			conn, err = packet.Listen(ifi, packet.Raw, etherType, nil)
		}
		if err != nil {
			l.Errorf("packet socket on %s: %v", ns, err)
		}
	})
	if conn == nil {
		l.FailNow()
	}
	return conn
}

// injector returns a function that sends frames from a host.
func (l *lab) injector(ns string) func(frame []byte) {
	l.Helper()
	conn := l.socket(ns, 0x88b5) // receives nothing
	l.Cleanup(func() { _ = conn.Close() })
	return func(frame []byte) {
		if _, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
			l.Fatalf("inject: %v", err)
		}
	}
}

// that are the captured frames that satisfy ok.
func (c *capture) that(ok func(frame []byte) bool) []captured {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []captured
	for _, x := range c.frames {
		if ok(x.frame) {
			out = append(out, x)
		}
	}
	return out
}

func is(want []byte) func([]byte) bool {
	return func(frame []byte) bool { return len(frame) >= len(want) && bytes.Equal(frame[:len(want)], want) }
}
