package relay

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/testnet"
)

// TestMain runs the tests in namespaces of their own.
func TestMain(m *testing.M) { testnet.Main(m) }

// The hosts of a lab; the switch is the namespace of the test process.
const (
	hostA = "a" // the old owner
	hostB = "b" // the new one
	hostC = "c" // the client
)

// nodes are the hosts of a larger ring, in its order.
var nodes = []string{hostA, hostB, "d", "e", "f", "g"}

var (
	macs = map[string]model.MAC{
		hostA: {2, 0, 0, 0, 0, 0x0a}, hostB: {2, 0, 0, 0, 0, 0x0b}, hostC: {2, 0, 0, 0, 0, 0x0c},
		"d": {2, 0, 0, 0, 0, 0x0d}, "e": {2, 0, 0, 0, 0, 0x0e}, "f": {2, 0, 0, 0, 0, 0x0f}, "g": {2, 0, 0, 0, 0, 0x10},
	}
	last = map[string]string{hostA: "1", hostB: "2", "d": "3", "e": "4", "f": "5", "g": "6", hostC: "9"}

	vip4 = netip.MustParseAddr("10.0.0.100")
	vip6 = netip.MustParseAddr("fd00::100")
)

// nodeAddr is the address of a host in the family of vip.
func nodeAddr(host string, vip netip.Addr) netip.Addr {
	if vip.Is4() {
		return netip.MustParseAddr("10.0.0." + last[host])
	}
	return netip.MustParseAddr("fd00::" + last[host])
}

const port = 6443

// lab is a client and some hosts on one switch. All but the client have the VIPs and
// a server that tells its name; where the client's packets go is set by hand.
type lab struct {
	testing.TB
	*testnet.Net
	hosts     []string
	listeners map[string]net.Listener
}

// newLab has the hosts A and B.
func newLab(t testing.TB) *lab {
	t.Helper()
	return newLabOf(t, nodes[:2])
}

func newLabOf(t testing.TB, hosts []string) *lab {
	t.Helper()
	l := &lab{t, testnet.New(t), slices.Concat(hosts, []string{hostC}), make(map[string]net.Listener)}
	t.Cleanup(l.remove)
	l.Exec("ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0", "forward_delay", "0")
	l.Exec("ip", "link", "set", "br0", "up")
	for _, h := range l.hosts {
		l.Add(h)
		l.Exec("ip", "link", "add", "p"+h, "type", "veth", "peer", "name", "eth0", "address", macs[h].String(), "netns", l.NS(h))
		l.Exec("ip", "link", "set", "p"+h, "master", "br0", "up")
		l.IP(h, "link set eth0 up")
		for _, vip := range []netip.Addr{vip4, vip6} {
			l.IP(h, fmt.Sprintf("addr add %s/%d dev eth0 nodad", nodeAddr(h, vip), subnet(vip)))
			if h != hostC {
				l.IP(h, fmt.Sprintf("addr add %s/%d dev eth0 nodad", vip, vip.BitLen()))
			}
		}
		if h != hostC {
			l.serve(h)
		}
	}
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, h := range hosts { // the neighbours that traffic would have resolved
			for _, o := range l.hosts {
				if o != h {
					l.neigh(h, nodeAddr(o, vip), o)
				}
			}
		}
		l.steer(vip, hostA)
	}
	return l
}

func subnet(a netip.Addr) int {
	if a.Is4() {
		return 24
	}
	return 64
}

func (l *lab) remove() {
	for _, h := range l.hosts {
		_ = exec.Command("ip", "link", "del", "p"+h).Run()
	}
	_ = exec.Command("ip", "link", "del", "br0").Run()
	_ = exec.Command("nft", "flush", "ruleset").Run() // that of the switch
}

// nft runs the nft program on a host.
func (l *lab) nft(host, args string) string {
	l.Helper()
	return l.ExecOn(host, "nft", args)
}

func (l *lab) neigh(host string, addr netip.Addr, to string) {
	l.Helper()
	l.IP(host, fmt.Sprintf("neigh replace %s lladdr %s dev eth0 nud permanent", addr, macs[to]))
}

// steer sends what the client sends to the VIP to a host.
func (l *lab) steer(vip netip.Addr, to string) {
	l.Helper()
	l.neigh(hostC, vip, to)
}

// serve answers every line with the name of the host.
func (l *lab) serve(host string) { l.serveAt(host, fmt.Sprintf(":%d", port)) }

func (l *lab) serveAt(host, address string) {
	l.Helper()
	ln := l.listen(host, address)
	l.listeners[host] = ln
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if _, err := fmt.Fprintln(c, host); err != nil {
						return
					}
				}
			}()
		}
	}()
}

// listen is a server that does nothing.
func (l *lab) listen(host, at string) (ln net.Listener) {
	l.Helper()
	var err error
	l.In(host, func() { ln, err = net.Listen("tcp", at) })
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = ln.Close() })
	return ln
}

// dial opens a connection from the client to the VIP.
func (l *lab) dial(vip netip.Addr) (c net.Conn, err error) {
	l.Helper()
	l.In(hostC, func() {
		c, err = net.DialTimeout("tcp", netip.AddrPortFrom(vip, port).String(), 2*time.Second)
	})
	if err == nil {
		l.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func (l *lab) mustDial(vip netip.Addr) net.Conn {
	l.Helper()
	c, err := l.dial(vip)
	if err != nil {
		l.Fatal(err)
	}
	return c
}

// ask returns who serves a connection.
func ask(c net.Conn) (string, error) {
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := fmt.Fprintln(c, "who"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

func (l *lab) servedBy(c net.Conn, host string) {
	l.Helper()
	if got, err := ask(c); err != nil || got != host {
		l.Fatalf("served by %q, %v; want %s", got, err, host)
	}
}

func (l *lab) reset(c net.Conn) {
	l.Helper()
	if got, err := ask(c); !errors.Is(err, unix.ECONNRESET) {
		l.Fatalf("served by %q, %v; want a reset", got, err)
	}
}

// harness drives a driver on one host.
type harness struct {
	*lab
	host string
	d    *Driver
	// powerless takes the rights of the driver away.
	powerless bool
	// rings is that of the Desired, hears its Hearing.
	rings, hears bool
}

func (l *lab) driver(host string, log *slog.Logger) *harness {
	h := &harness{lab: l, host: host, d: New(Options{Logger: log})}
	l.Cleanup(func() { _ = h.d.Close(l.Context()) })
	return h
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// dropRights takes all rights from a thread that ends with the call of In.
func dropRights(t testing.TB) {
	none := [2]unix.CapUserData{}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		t.Fatal(err)
	}
}

func (h *harness) apply(want ...model.Relay) (got model.Applied) {
	h.Helper()
	h.In(h.host, func() {
		if h.powerless {
			dropRights(h)
		}
		var err error
		if got, err = h.d.Apply(h.Context(), &model.Desired{Rings: h.rings, Hearing: h.hears, Relay: want, Synced: true, Memory: model.Memory{Membership: model.Membership{Settled: true}}}); err != nil {
			h.Error(err)
		}
	})
	return got
}

// relay applies until all is relayed. Only the kernel may make it wait: on a busy machine
// it answers too late for the driver, which is asked again as the daemon would do it.
func (h *harness) relay(want ...model.Relay) {
	h.Helper()
	h.eventually("all is relayed", func() bool {
		got := h.apply(want...)
		for _, w := range want {
			v := got.VIPs[w.Addr]
			if strings.Contains(v.Err, "i/o timeout") {
				return false
			}
			if !v.Relaying || v.Err != "" {
				h.Fatalf("%s is not relayed: %+v", w.Addr, v)
			}
		}
		return true
	})
}

// toward is a ring of two that leads to a host.
func toward(vip netip.Addr, host string) model.Relay {
	return model.Relay{Addr: vip, Interface: "eth0", Ring: &model.Ring{
		Nodes: 2, Next: nodeAddr(host, vip), Peers: []model.MAC{macs[host]},
	}}
}

// script runs a script of nft on a host.
func (l *lab) script(host, text string) {
	l.Helper()
	cmd := exec.Command("ip", "netns", "exec", l.NS(host), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		l.Fatalf("nft: %v\n%s", err, out)
	}
}

func counterTable(vip netip.Addr) (family, name string) {
	return familyOf(vip).String(), "count-" + strings.Map(func(r rune) rune {
		if r == '.' || r == ':' {
			return '-'
		}
		return r
	}, vip.String())
}

// count begins to count the packets to vip that arrive at a host.
func (l *lab) count(host string, vip netip.Addr) {
	l.Helper()
	family, name := counterTable(vip)
	l.script(host, fmt.Sprintf(`table %[1]s %[2]s
		delete table %[1]s %[2]s
		table %[1]s %[2]s {
			chain in {
				type filter hook prerouting priority -500
				iifname eth0 %[1]s daddr %[3]s counter
			}
		}`, family, name, vip))
}

// counted returns how many packets have arrived since count.
func (l *lab) counted(host string, vip netip.Addr) (n int) {
	l.Helper()
	family, name := counterTable(vip)
	text := l.nft(host, "list table "+family+" "+name)
	_, after, ok := strings.Cut(text, "counter packets ")
	if _, err := fmt.Sscan(after, &n); !ok || err != nil {
		l.Fatalf("no counter in %s", text)
	}
	return n
}

// stray sends ACKs of connections that nobody has from the client.
func (l *lab) stray(vip netip.Addr, n int) {
	l.Helper()
	l.segments(vip, n, ack)
}

// segments sends segments with these flags from as many ports of the client.
func (l *lab) segments(vip netip.Addr, n int, flags byte) {
	l.Helper()
	l.sending(vip, func(send func([]byte) bool) {
		for i := range n {
			if !send(l.segmentFrom(vip, uint16(20000+i), flags)) {
				return
			}
		}
	})
}

// checksum is that of a TCP segment (RFC 9293 section 3.1).
func checksum(from, to netip.Addr, segment []byte) uint16 {
	sum := uint32(unix.IPPROTO_TCP + len(segment))
	for _, b := range [][]byte{from.AsSlice(), to.AsSlice(), segment} {
		for i := 0; i < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func (l *lab) eventually(what string, ok func() bool) {
	l.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			l.Fatalf("%s: not within 30 s", what)
		}
	}
}

// counter counts the lines of a log above Debug.
type counter struct{ warnings, others int }

func (c *counter) logger() *slog.Logger { return slog.New(c) }

// Enabled is of slog.Handler.
func (c *counter) Enabled(_ context.Context, l slog.Level) bool { return l > slog.LevelDebug }

// Handle counts.
func (c *counter) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		c.warnings++
	} else {
		c.others++
	}
	return nil
}

// WithAttrs is of slog.Handler.
func (c *counter) WithAttrs([]slog.Attr) slog.Handler { return c }

// WithGroup is of slog.Handler.
func (c *counter) WithGroup(string) slog.Handler { return c }

// tables lists the tables on a host.
func (l *lab) tables(host string) string {
	l.Helper()
	return strings.TrimSpace(l.nft(host, "list tables"))
}
