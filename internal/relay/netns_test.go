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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
	"lbd.dev/lbd/internal/testnet"
)

// TestMain runs the tests in namespaces of their own.
func TestMain(m *testing.M) { testnet.Main(m) }

// The hosts of a lab.
const (
	hostS = "s" // the switch
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
	counts    map[string]func() int // by host and VIP
	tallies   map[string]bool       // the tables that count
}

// newLab has the hosts A and B.
func newLab(t testing.TB) *lab {
	t.Helper()
	return newLabOf(t, nodes[:2])
}

// newLabOf has these hosts, for a test beside others.
func newLabOf(t testing.TB, hosts []string) *lab {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
	return quietLabOf(t, hosts)
}

// quietLabOf is for a test that measures, or for a part of one.
func quietLabOf(t testing.TB, hosts []string) *lab {
	t.Helper()
	l := &lab{t, testnet.New(t), slices.Concat(hosts, []string{hostC}), make(map[string]net.Listener), make(map[string]func() int), make(map[string]bool)}
	l.Switch(hostS)
	for _, h := range l.hosts {
		l.Add(h)
		l.Plug(h, hostS, macs[h].String())
		lines := []string{"link set eth0 up"}
		for _, vip := range []netip.Addr{vip4, vip6} {
			lines = append(lines, fmt.Sprintf("addr add %s/%d dev eth0 nodad", nodeAddr(h, vip), subnet(vip)))
			if h != hostC {
				lines = append(lines, fmt.Sprintf("addr add %s/%d dev eth0 nodad", vip, vip.BitLen()))
			}
		}
		l.IP(h, lines...)
		if h != hostC {
			l.neighbours(h)
			l.serve(h)
		}
	}
	for _, vip := range []netip.Addr{vip4, vip6} {
		l.steer(vip, hostA)
	}
	return l
}

// neighbours tells a host the neighbours that traffic would have resolved.
func (l *lab) neighbours(host string) {
	l.Helper()
	of := make(map[netip.Addr]string)
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, o := range l.hosts {
			if o != host {
				of[nodeAddr(o, vip)] = macs[o].String()
			}
		}
	}
	l.Neigh(host, "eth0", of)
}

func subnet(a netip.Addr) int {
	if a.Is4() {
		return 24
	}
	return 64
}

// nft runs the nft program on a host.
func (l *lab) nft(host, args string) string {
	l.Helper()
	return l.ExecOn(host, "nft", args)
}

func (l *lab) neigh(host string, addr netip.Addr, to string) {
	l.Helper()
	l.Neigh(host, "eth0", map[netip.Addr]string{addr: macs[to].String()})
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

// stop ends the server of a host at once. Another test may be starting a program, which has the
// socket, too, until it runs: to close it alone would end the server only then.
func (l *lab) stop(host string) {
	l.Helper()
	raw, err := l.listeners[host].(*net.TCPListener).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) })
	}
	if err != nil {
		l.Error(err)
	}
	_ = l.listeners[host].Close()
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
		c, err = net.DialTimeout("tcp", netip.AddrPortFrom(vip, port).String(), 30*time.Second)
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

// driver is one that waits for a machine that stands still, and whose rules outlast that.
func (l *lab) driver(host string, log *slog.Logger) *harness {
	h := &harness{lab: l, host: host, d: New(Options{Logger: log, Lifetime: time.Minute})}
	h.d.session = nft.New(30 * time.Second)
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
	l.Feed(host, text+"\n", "nft", "-f", "-")
}

// count begins to count the packets to vip that arrive at a host.
func (l *lab) count(host string, vip netip.Addr) {
	l.Helper()
	f := familyOf(vip)
	name := "count-" + strings.NewReplacer(".", "-", ":", "-").Replace(vip.String())
	l.counts[host+vip.String()] = l.tally(host, f, name, fmt.Sprintf("iifname eth0 %s daddr %s", f, vip))
}

// counted returns how many packets have arrived since count.
func (l *lab) counted(host string, vip netip.Addr) int {
	l.Helper()
	return l.counts[host+vip.String()]()
}

// tally counts from now on the packets that come in at a host and match, in a table of that name.
func (l *lab) tally(host string, f family, name, match string) func() int {
	l.Helper()
	before, at := 0, fmt.Sprint(host, f, name)
	if l.tallies[at] {
		before = l.counter(host, f, name)
	} else {
		l.script(host, fmt.Sprintf(`table %[1]s %[2]s {
			chain in {
				type filter hook prerouting priority -500
				%[3]s counter
			}
		}`, f, name, match))
		l.tallies[at] = true
	}
	return func() int { return l.counter(host, f, name) - before }
}

// counter is that of the chain in of a table. It is read again and again, for which to start a
// program takes too long.
func (l *lab) counter(host string, f family, name string) (n int) {
	l.Helper()
	var err error
	l.In(host, func() {
		s := nft.New(30 * time.Second)
		defer func() { _ = s.Close() }()
		err = s.Do(func(c *nftables.Conn) error {
			t := &nftables.Table{Name: name, Family: f.table().Family}
			rules, err := c.GetRules(t, &nftables.Chain{Name: "in", Table: t})
			if err != nil {
				return err
			}
			for _, r := range rules {
				for _, e := range r.Exprs {
					if c, ok := e.(*expr.Counter); ok {
						n = int(c.Packets)
						return nil
					}
				}
			}
			return errors.New("no counter")
		})
	})
	if err != nil {
		l.Fatalf("%s: table %s: %v", host, name, err)
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
