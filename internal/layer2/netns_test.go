package layer2

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/testnet"
)

// TestMain runs the tests in namespaces of their own.
func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		os.Exit(helper(os.Getenv(helperEnv)))
	}
	if vips := os.Getenv(respondEnv); vips != "" {
		respondHelper(vips)
	}
	testnet.Main(m)
}

// The hosts of a lab. The driver under test runs on hostA, which is the
// namespace of the test process.
const (
	hostA = ""
	hostB = "b"
	hostC = "c" // the client
	hostS = "s" // the switch
)

var (
	macA = model.MAC{2, 0, 0, 0, 0, 0x0a}
	macB = model.MAC{2, 0, 0, 0, 0, 0x0b}
	macC = model.MAC{2, 0, 0, 0, 0, 0x0c}
)

// lab is three hosts on one switch, each with eth0, 10.0.0.x/24 and fd00::x/64.
type lab struct {
	*testing.T
	*testnet.Net
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t, testnet.New(t)}
	t.Cleanup(l.remove)
	for _, h := range []string{hostS, hostB, hostC} {
		l.Add(h)
	}
	l.IP(hostA, "link set lo up")
	l.IP(hostS, "link add br0 type bridge mcast_snooping 0 forward_delay 0")
	l.IP(hostS, "link set br0 up")
	for ns, h := range map[string]struct {
		mac  model.MAC
		last string
	}{hostA: {macA, "1"}, hostB: {macB, "2"}, hostC: {macC, "9"}} {
		l.plug(ns, h.mac)
		l.IP(ns, "addr add 10.0.0."+h.last+"/24 dev eth0")
		l.IP(ns, "addr add fd00::"+h.last+"/64 dev eth0 nodad")
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
	port := "p" + ns
	l.IP(hostS, fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %s", port, mac, l.NS(ns)))
	l.IP(hostS, "link set "+port+" master br0 up")
	l.IP(ns, "link set eth0 up")
}

func (l *lab) remove() {
	_ = exec.Command("ip", "link", "del", "eth0").Run()
	_ = exec.Command("nft", "flush", "ruleset").Run() // that of this namespace
}

// bind adds a VIP to a host as package address does.
func (l *lab) bind(ns string, a netip.Addr) {
	l.Helper()
	if a.Is4() {
		l.IP(ns, fmt.Sprintf("addr replace %s/32 dev eth0", a))
		return
	}
	l.IP(ns, fmt.Sprintf("addr replace %s/128 dev eth0 nodad noprefixroute preferred_lft 0 valid_lft 1000", a))
}

// neigh is the hardware address that a host has for addr; "" if none.
func (l *lab) neigh(ns string, addr netip.Addr) string {
	l.Helper()
	fields := strings.Fields(l.IP(ns, "neigh show "+addr.String()+" dev eth0"))
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
	l.In(ns, func() {
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
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * ms) {
		if time.Now().After(end) {
			l.Fatalf("%s: not within 30 s", what)
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
	l.In(ns, func() {
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
	raw, err := conn.SyscallConn()
	if err != nil {
		l.Fatal(err)
	}
	// A busy machine may read them late, thousands at once.
	if err := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	}); err != nil {
		l.Fatal(err)
	}
	if err != nil {
		l.Fatal(err)
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
