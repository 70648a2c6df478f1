package route

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

func TestAudiences(t *testing.T) {
	to := func(addrs ...string) (out []target) {
		for _, a := range addrs {
			out = append(out, target{netip.MustParseAddr(a), 3})
		}
		return out
	}
	of := netip.MustParsePrefix
	ways := map[netip.Prefix][]target{
		of("203.0.113.2/32"):  to("10.0.0.2", "10.0.0.1"),
		of("203.0.113.1/32"):  to("10.0.0.1", "10.0.0.2", "10.0.0.2"),
		of("198.51.100.0/24"): to("10.0.0.1", "10.0.0.2", "10.0.0.3"),
		of("203.0.113.3/32"):  to("10.0.0.1"),
		of("203.0.113.4/32"):  to("10.0.0.1", "fd00::1"),
		of("203.0.113.5/32"):  nil,
		of("fd01::1/128"):     to("fd00::1", "fd00::2"),
	}
	for is4, want := range map[bool][]audience{
		true: {
			{prefixes: []netip.Prefix{of("203.0.113.1/32"), of("203.0.113.2/32")}, hops: to("10.0.0.1", "10.0.0.2"), rate: 2500},
			{prefixes: []netip.Prefix{of("198.51.100.0/24")}, hops: to("10.0.0.1", "10.0.0.2", "10.0.0.3"), rate: 1666},
		},
		false: {{prefixes: []netip.Prefix{of("fd01::1/128")}, hops: to("fd00::1", "fd00::2"), rate: 5000}},
	} {
		if got := audiences(ways, is4); !slices.EqualFunc(got, want, audience.equal) {
			t.Errorf("IPv4 %v: %+v", is4, got)
		}
	}
	many := make(map[netip.Prefix][]target)
	for i := range byte(64) {
		hops := to("10.1.0." + strconv.Itoa(int(i)))
		for j := range byte(255) {
			hops = append(hops, target{netip.AddrFrom4([4]byte{10, 0, 0, j}), 3})
		}
		many[netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, i}), 32)] = hops
	}
	if got := audiences(many, true); len(got) != 64 || got[0].rate != 1 {
		t.Errorf("%d audiences, %d messages in a second", len(got), got[0].rate)
	}
}

// far is a host behind the client, which routes.
const (
	far      = "f"
	bulkPort = 444
	bulk     = 100 << 10
)

// froms are addresses of the far host, of both families. A machine notes a path by such an address.
var froms = [2][2]netip.Addr{
	{netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("fd03::2")},
	{netip.MustParseAddr("198.51.100.3"), netip.MustParseAddr("fd03::3")},
}

// distant is the lab with the far host. Machines answer at bulkPort with much.
func distant(t *testing.T) *lab {
	l := newLab(t)
	l.Add(far)
	l.IP(client, "link add far0 type veth peer name eth0 netns "+l.NS(far))
	l.IP(client, "link set far0 up")
	l.IP(far, "link set eth0 up")
	l.IP(client, "addr add 198.51.100.1/24 dev far0")
	l.IP(client, "addr add fd03::1/64 dev far0 nodad")
	for _, from := range slices.Concat(froms[0][:], froms[1][:]) {
		l.IP(far, fmt.Sprintf("addr add %s/%d dev eth0 nodad", from, map[bool]int{true: 24, false: 64}[from.Is4()]))
	}
	l.IP(far, "route add default via 198.51.100.1")
	l.IP(far, "route add default via fd03::1")
	l.IP(box, "route add 198.51.100.0/24 via 192.0.2.2")
	l.IP(box, "route add fd03::/64 via fd02::2")
	l.ExecOn(client, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	for _, s := range machines {
		l.IP(s, "route add 198.51.100.0/24 via 10.0.0.10")
		l.IP(s, "route add fd03::/64 via fd00::10")
		l.In(s, func() { l.pour(s) })
	}
	return l
}

// pour answers each connection with the name of the host, and much more.
func (l *lab) pour(host string) {
	l.Helper()
	ln, err := net.Listen("tcp", fmt.Sprintf(":%d", bulkPort))
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = c.Write(append([]byte(host), make([]byte, bulk-len(host))...))
				_ = c.Close()
			}()
		}
	}()
}

// fetch has the far host get all that a machine has to say, and returns who it was.
func (l *lab) fetch(from netip.Addr, vip netip.Prefix) (string, error) {
	var c net.Conn
	var err error
	l.In(far, func() {
		d := net.Dialer{Timeout: patience, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
		c, err = d.Dial("tcp", netip.AddrPortFrom(vip.Addr(), bulkPort).String())
	})
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	got, err := io.ReadAll(c)
	if err == nil && len(got) != bulk {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", fmt.Errorf("after %d of %d bytes: %w", len(got), bulk, err)
	}
	return string(got[:2]), nil
}

// TestNarrowPath: a link on the way to a client takes smaller packets than all others. What its router
// says of larger ones has to reach the machine that sent them, whether the router is the box or not.
func TestNarrowPath(t *testing.T) {
	l := distant(t)
	r := l.router()
	r.has(wanted(resilient, machines...))
	for i, narrow := range [][2]string{{client, "far0"}, {box, "eth1"}} {
		l.IP(narrow[0], "link set "+narrow[1]+" mtu 1300")
		for j, vip := range both {
			_, before := l.copied(vip)
			var mu sync.Mutex
			served, begin := make(map[string]int), time.Now()
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					by, err := l.fetch(froms[i][j], vip)
					if err != nil {
						t.Errorf("%v, %s: %v", narrow, vip, err)
						return
					}
					mu.Lock()
					served[by]++
					mu.Unlock()
				})
			}
			all.Wait()
			t.Logf("%v, %s: %v in %v", narrow, vip, served, time.Since(begin))
			if _, after := l.copied(vip); len(served) < 2 || after == before {
				t.Errorf("%v, %s: served by %v, %d messages copied", narrow, vip, served, after-before)
			}
		}
		l.IP(narrow[0], "link set "+narrow[1]+" mtu 1500")
	}
}

// tooBig has the client say so many times that a packet of the VIP was too big.
func (l *lab) tooBig(vip netip.Prefix, times int) time.Duration {
	l.Helper()
	message, network := []byte{3, 4, 0, 0, 0, 0, 1300 >> 8, 1300 & 0xff}, "ip4:icmp"
	if vip.Addr().Is6() {
		message, network = []byte{2, 0, 0, 0, 0, 0, 1300 >> 8, 1300 & 0xff}, "ip6:ipv6-icmp" // the kernel adds the checksum
	}
	message = append(message, make([]byte, 48)...)
	if vip.Addr().Is4() {
		sum := uint32(0)
		for i := 0; i < len(message); i += 2 {
			sum += uint32(message[i])<<8 | uint32(message[i+1])
		}
		sum = ^(sum>>16 + sum&0xffff)
		message[2], message[3] = byte(sum>>8), byte(sum)
	}
	var c net.Conn
	var err error
	l.In(client, func() { c, err = net.Dial(network, vip.Addr().String()) })
	if err != nil {
		l.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	begin := time.Now()
	for range times {
		_, _ = c.Write(message) // ENOBUFS of a full queue
	}
	return time.Since(begin)
}

// heard is how many such messages a machine has had.
func (l *lab) heard(machine string, vip netip.Prefix) int {
	l.Helper()
	file, name := "/proc/net/snmp", "InType3"
	if vip.Addr().Is6() {
		file, name = "/proc/net/snmp6", "Icmp6InType2"
	}
	var names []string
	for line := range strings.Lines(l.ExecOn(machine, "cat", file)) {
		f := strings.Fields(line)
		if i := slices.Index(f, name); i == 0 {
			n, _ := strconv.Atoi(f[1])
			return n
		} else if at := slices.Index(names, name); at > 0 && f[0] == names[0] {
			n, _ := strconv.Atoi(f[at])
			return n
		}
		names = f
	}
	return 0
}

// TestCopies in one lab.
func TestCopies(t *testing.T) {
	l := newLab(t)
	r := l.router()
	r.has(wanted(resilient, machines...))
	t.Run("bounded", func(t *testing.T) { r.bounded(t) })
	t.Run("tables", func(t *testing.T) { r.follow(t) })
	t.Run("end", func(t *testing.T) { r.end(t) })
}

// end: a machine that has given the VIP up and sends copies back makes no more of them.
func (r *router) end(t *testing.T) {
	l := r.lab
	l.ExecOn("s1", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	l.IP("s1", "addr del 203.0.113.1/32 dev lo")
	l.IP("s1", "addr del fd01::1/128 dev lo")
	l.IP("s1", "route add default via 10.0.0.10")
	l.IP("s1", "route add default via fd00::10")
	r.has(wanted(resilient, machines...))
	for _, vip := range both {
		had := map[string]int{"s2": l.heard("s2", vip), "s3": l.heard("s3", vip)}
		heard := func(s string) int { return l.heard(s, vip) - had[s] }
		l.tooBig(vip, 1)
		for end := time.Now().Add(patience); heard("s2") == 0 || heard("s3") == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: s2 heard of it %d times, s3 %d times", vip, heard("s2"), heard("s3"))
			}
		}
		time.Sleep(200 * time.Millisecond) // what goes round is not over at once
		// What s1 sends back goes to one of them.
		if n := heard("s2") + heard("s3"); n > 3 {
			t.Errorf("%s: s2 and s3 heard of it %d times", vip, n)
		}
	}
}

var counted = regexp.MustCompile(`counter packets (\d+)`)

// copied are how many messages were not copied, and how many were.
func (l *lab) copied(vip netip.Prefix) (beyond, copied int) {
	l.Helper()
	family := map[bool]string{true: "ip", false: "ip6"}[vip.Addr().Is4()]
	found := counted.FindAllStringSubmatch(l.ExecOn(box, "nft", "list", "table", family, TableName), -1)
	if len(found) != 2 {
		l.Fatalf("%d counters", len(found))
	}
	beyond, _ = strconv.Atoi(found[0][1])
	copied, _ = strconv.Atoi(found[1][1])
	return beyond, copied
}

// bounded: a flood of such messages is not multiplied, and messages about other addresses are let alone.
func (r *router) bounded(t *testing.T) {
	const flood = 30_000
	l := r.lab
	l.IP(box, "route add 203.0.113.77/32 via 10.0.0.12")
	l.IP(box, "-6 route add fd01::77/128 via fd00::12")
	for i, vip := range both {
		l.tooBig([]netip.Prefix{netip.MustParsePrefix("203.0.113.77/32"), netip.MustParsePrefix("fd01::77/128")}[i], 10)
		if beyond, copied := l.copied(vip); beyond+copied > 0 {
			t.Errorf("%s: copied what is for another address", vip)
		}
		took := l.tooBig(vip, flood)
		beyond, copied := l.copied(vip)
		most := int(copyRate / 3 * (took.Seconds() + 1.1))
		t.Logf("%s: %d messages in %v, %d of %d copied", vip, flood, took, copied, beyond+copied)
		if copied == 0 || copied > most || beyond == 0 {
			t.Errorf("%s: %d of %d copied, want up to %d", vip, copied, beyond+copied, most)
		}
	}
}

// follow: the tables are those for the routes, are put back and are removed.
func (r *router) follow(t *testing.T) {
	l := r.lab
	tables := func() string { return l.ExecOn(box, "nft", "list", "ruleset") }
	l.ExecOn(box, "nft", "add table ip others")
	// is waits until copies go to the next hops of some machines alone.
	is := func(by ...string) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			r.has(wanted(resilient, by...))
			out, want := tables(), 2*len(by)
			if len(by) < 2 {
				want = 0
			}
			if strings.Count(out, "dup to") == want && (want == 0 || !slices.ContainsFunc(by, func(s string) bool {
				return !strings.Contains(out, "dup to "+gateway(s, vip4).String()+" ") || !strings.Contains(out, "dup to "+gateway(s, vip6).String()+" ")
			})) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%v: %s", by, out)
			}
		}
	}
	for _, by := range [][]string{{"s1"}, {"s1", "s2"}, machines, {"s3", "s2"}, {"s2"}, machines} {
		is(by...)
	}
	l.ExecOn(box, "nft", "delete table ip "+TableName)
	select {
	case <-r.Changed():
	case <-time.After(patience):
		t.Error("nobody noticed that the table is gone")
	}
	is(machines...)
	var removed []string
	var err error
	l.In(box, func() { removed, err = Cleanup(context.Background()) })
	if err != nil || !slices.Contains(removed, "table ip "+TableName) || !slices.Contains(removed, "table ip6 "+TableName) || strings.Contains(tables(), TableName) {
		t.Errorf("cleanup: %v, %v", removed, err)
	}
	is(machines...)
	next := &router{l, New(Options{Logger: slog.New(slog.DiscardHandler)})}
	if _, err := next.want(nil, func(d *model.Desired) { d.Routes.Hearing = true }); err != nil || strings.Count(tables(), "dup to") != 6 {
		t.Errorf("%v; a process that begins has %s", err, tables())
	}
	for end := time.Now().Add(patience); strings.Contains(tables(), TableName); time.Sleep(10 * time.Millisecond) {
		if _, err := next.want(nil); err != nil || time.Now().After(end) {
			t.Fatalf("%v; in the end there is %s", err, tables())
		}
	}
	if !strings.Contains(tables(), "others") || !next.none {
		t.Errorf("that of others is gone, or %v that there is nothing to do: %s", next.none, tables())
	}
	if err := next.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
