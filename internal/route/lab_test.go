package route

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/testnet"
)

// TestMain runs the tests in namespaces of their own.
func TestMain(m *testing.M) { testnet.Main(m) }

// The hosts of a lab: a client, a box that routes, and the machines that have the VIPs. The
// switch between the box and them is the namespace of the test process.
const (
	client = "c"
	box    = "b"
)

var (
	machines = []string{"s1", "s2", "s3"}
	vip4     = netip.MustParsePrefix("203.0.113.1/32")
	vip6     = netip.MustParsePrefix("fd01::1/128")
	both     = []netip.Prefix{vip4, vip6}
)

// patience is how long something may take on a busy machine.
const patience = 30 * time.Second

type lab struct {
	testing.TB
	*testnet.Net
}

func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{t, testnet.New(t)}
	t.Cleanup(l.remove)
	l.Exec("ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0", "forward_delay", "0")
	l.Exec("ip", "link", "set", "br0", "up")
	for n, h := range append([]string{box}, machines...) {
		l.Add(h)
		l.Exec("ip", "link", "add", "p"+h, "type", "veth", "peer", "name", "eth0", "netns", l.NS(h))
		l.Exec("ip", "link", "set", "p"+h, "master", "br0", "up")
		l.IP(h, "link set eth0 up")
		l.IP(h, fmt.Sprintf("addr add 10.0.0.%d/24 dev eth0", 10+n))
		l.IP(h, fmt.Sprintf("addr add fd00::%d/64 dev eth0 nodad", 10+n))
		if h != box {
			l.IP(h, "addr add 203.0.113.1/32 dev lo")
			l.IP(h, "addr add fd01::1/128 dev lo nodad")
			l.IP(h, "route add 192.0.2.0/24 via 10.0.0.10")
			l.IP(h, "route add fd02::/64 via fd00::10")
			l.serve(h)
		}
	}
	l.Add(client)
	l.IP(box, "link add eth1 type veth peer name eth0 netns "+l.NS(client))
	l.IP(box, "link set eth1 up")
	l.IP(client, "link set eth0 up")
	l.IP(box, "addr add 192.0.2.1/24 dev eth1")
	l.IP(box, "addr add fd02::1/64 dev eth1 nodad")
	l.IP(client, "addr add 192.0.2.2/24 dev eth0")
	l.IP(client, "addr add fd02::2/64 dev eth0 nodad")
	l.IP(client, "route add default via 192.0.2.1")
	l.IP(client, "route add default via fd02::1")
	l.ExecOn(box, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv4.fib_multipath_hash_policy=1", "net.ipv6.fib_multipath_hash_policy=1")
	return l
}

func (l *lab) remove() {
	for _, h := range append([]string{box}, machines...) {
		_ = exec.Command("ip", "link", "del", "p"+h).Run()
	}
	_ = exec.Command("ip", "link", "del", "br0").Run()
}

// serve answers each line with the name of the host.
func (l *lab) serve(host string) {
	l.Helper()
	var ln net.Listener
	var err error
	l.In(host, func() { ln, err = net.Listen("tcp", ":443") })
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
				defer func() { _ = c.Close() }()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if _, err := c.Write([]byte(host + "\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
}

// conn is a connection of the client, and who serves it.
type conn struct {
	net.Conn
	by string
}

// open opens connections to a VIP.
func (l *lab) open(n int, vip netip.Prefix) (out []conn) {
	l.Helper()
	for range n {
		var c net.Conn
		var err error
		l.In(client, func() { c, err = net.DialTimeout("tcp", netip.AddrPortFrom(vip.Addr(), 443).String(), patience) })
		if err != nil {
			l.Fatal(err)
		}
		l.Cleanup(func() { _ = c.Close() })
		by, err := ask(c)
		if err != nil {
			l.Fatal(err)
		}
		out = append(out, conn{c, by})
	}
	return out
}

// ask returns who serves a connection.
func ask(c net.Conn) (string, error) {
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("who\n")); err != nil {
		return "", err
	}
	buf := make([]byte, 10)
	n, err := c.Read(buf)
	return strings.TrimSpace(string(buf[:n])), err
}

// lost counts connections that have ended: those that a machine had, and those of others.
func lost(all []conn, machine string) (had, own, others int) {
	for _, c := range all {
		by, err := ask(c)
		if c.by == machine {
			had++
		}
		switch {
		case err == nil && by == c.by:
		case c.by == machine:
			own++
		default:
			others++
		}
	}
	return had, own, others
}

// gateway is the address of a machine of the family of a prefix.
func gateway(machine string, vip netip.Prefix) netip.Addr {
	if vip.Addr().Is4() {
		return netip.MustParseAddr("10.0.0.1" + machine[1:])
	}
	return netip.MustParseAddr("fd00::1" + machine[1:])
}

// wanted are the routes to both VIPs by machines.
func wanted(spread model.Spread, by ...string) []model.Route {
	var out []model.Route
	for _, vip := range both {
		r := model.Route{Prefix: vip, Spread: spread}
		for _, s := range by {
			r.NextHops = append(r.NextHops, model.NextHop{Gateway: gateway(s, vip), Interface: "eth0", Weight: 1})
		}
		out = append(out, r)
	}
	return out
}

// resilient is how the tests spread connections, unless they say something else.
var resilient = model.Spread{Resilient: true, Buckets: 64, Idle: 2 * time.Minute}

// router is a driver on the box.
type router struct {
	*lab
	*Driver
}

func (l *lab) router() *router {
	r := &router{l, New(Options{Logger: slog.New(slog.DiscardHandler)})}
	l.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			l.Error(err)
		}
	})
	return r
}

// want asks for routes, all sources having been heard unless change says otherwise.
func (r *router) want(routes []model.Route, change ...func(*model.Desired)) (got model.Applied, err error) {
	r.Helper()
	d := &model.Desired{Synced: true, Routes: model.RouteState{Routes: routes}}
	for _, c := range change {
		c(d)
	}
	r.In(box, func() { got, err = r.Apply(context.Background(), d) })
	return got, err
}

// has is want, for routes that have to work.
func (r *router) has(routes []model.Route, change ...func(*model.Desired)) model.Applied {
	r.Helper()
	got, err := r.want(routes, change...)
	if err != nil {
		r.Fatal(err)
	}
	for _, w := range routes {
		if is, there := got.Routes[w.Prefix]; !there || is.Err != "" || len(is.NextHops) != len(w.NextHops) {
			r.Fatalf("%s: %+v, want %+v", w.Prefix, is, w.NextHops)
		}
	}
	return got
}

// settles waits until nothing is to be done. The kernel tells of changes by others a moment later.
func (r *router) settles() {
	r.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		r.has(nil)
		time.Sleep(50 * time.Millisecond) // for what this pass itself may have caused
		if r.Extend(time.Now()) {
			return
		}
	}
	r.Fatal("something is to be done without end")
}

// ours is what the box has of one origin, in words; "" if nothing.
func (l *lab) ours() string {
	l.Helper()
	var all []string
	for _, of := range []string{"nexthop show proto 108", "-4 route show proto 108", "-6 route show proto 108"} {
		if out := strings.TrimSpace(l.IP(box, of)); out != "" {
			all = append(all, out)
		}
	}
	return strings.Join(all, "\n")
}

// tables are the buckets of the groups of the box: which of them each next hop has.
func (l *lab) tables() map[string]string {
	l.Helper()
	out := make(map[string]string)
	for _, line := range strings.Split(strings.TrimSpace(l.IP(box, "nexthop bucket show")), "\n") {
		f := strings.Fields(line) // id 1 index 0 idle_time 0.1 nhid 2
		for i := 0; i+1 < len(f); i++ {
			if f[i] == "nhid" {
				out[f[1]+" "+f[3]] = f[i+1]
			}
		}
	}
	return out
}

// TestNothingCostsNothing: a machine that learns of no master looks at the kernel once.
func TestNothingCostsNothing(t *testing.T) {
	testnet.Need(t)
	d := New(Options{Logger: slog.New(slog.DiscardHandler)})
	for _, synced := range []bool{false, false, true} { // what an earlier process left may be wanted yet
		d.looked, d.image = time.Time{}, nil
		if _, err := d.Apply(t.Context(), &model.Desired{Synced: synced}); err != nil || d.looked.IsZero() {
			t.Fatalf("synced %v: not looked, %v", synced, err)
		}
	}
	d.looked = time.Time{}
	if _, err := d.Apply(t.Context(), &model.Desired{Synced: true}); err != nil || !d.looked.IsZero() || !d.Extend(time.Time{}) {
		t.Errorf("looked again at %v, %v", d.looked, err)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
