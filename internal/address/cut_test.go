package address

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The addresses of this host on a0, and of the other one at the end of the cable.
var (
	here4, there4 = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	here6, there6 = netip.MustParseAddr("fd00:9::1"), netip.MustParseAddr("fd00:9::2")
)

// space is another network namespace.
type space struct {
	t  *testing.T
	fd int
}

// beside makes a host at the other end of a cable from the interface of that name.
func beside(t *testing.T, iface string, addrs, peers []string) *space {
	t.Helper()
	s := &space{t: t}
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		var err error
		if s.fd, err = unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	t.Cleanup(func() { _ = unix.Close(s.fd) })
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: iface}, PeerName: "e0", PeerNamespace: netlink.NsFd(s.fd)}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	furnish(t, iface, addrs)
	s.in(func() { setUp(t, "lo", true); furnish(t, "e0", peers) })
	return s
}

// furnish brings an interface up with addresses that can be used at once.
func furnish(t *testing.T, iface string, prefixes []string) {
	setUp(t, iface, true)
	for _, p := range prefixes {
		more := []string{}
		if strings.Contains(p, ":") {
			more = append(more, "nodad")
		}
		run(t, append([]string{"ip", "addr", "add", p, "dev", iface}, more...)...)
	}
}

func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Errorf("%v: %v: %s", args, err, out)
	}
}

// in runs f inside. Sockets that f makes stay there.
func (s *space) in(f func()) {
	s.t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread()
		if err := unix.Setns(s.fd, unix.CLONE_NEWNET); err != nil {
			s.t.Error(err)
			return
		}
		f()
	})
	wg.Wait()
}

// neighbour is the usual one.
func neighbour(t *testing.T) *space {
	return beside(t, "a0", []string{here4.String() + "/24", here6.String() + "/64"}, []string{there4.String() + "/24", there6.String() + "/64"})
}

// route leads the VIPs of this side to it.
func (s *space) route() {
	s.in(func() {
		run(s.t, "ip", "route", "add", v4.String(), "via", here4.String())
		run(s.t, "ip", "route", "add", v6.String(), "via", here6.String())
	})
}

// holding returns a driver that has both VIPs on a0, and the neighbour behind it.
func holding(t *testing.T) (d *Driver, other *space) {
	t.Helper()
	other = neighbour(t)
	other.route()
	d = start(t, idle)
	apply(t, d, want(on("a0", 1)...))
	return d, other
}

// serving is holding with the port of a server that echoes.
func serving(t *testing.T) (d *Driver, other *space, port int) {
	t.Helper()
	d, other = holding(t)
	return d, other, listen(t, "tcp", "[::]:0")
}

// open connects, from an address if one is given, and waits until the other end has taken
// it.
func open(t *testing.T, from, to netip.Addr, port int) net.Conn {
	t.Helper()
	conn := dial(t, from, to, port)
	if err := echo(conn); err != nil {
		t.Errorf("%s to %s: %v", conn.LocalAddr(), to, err)
	}
	return conn
}

// echo sends something and waits for it.
func echo(conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(patience))
	defer func() { _ = conn.SetDeadline(time.Time{}) }()
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

// ends waits for the end of a connection that says nothing by itself.
func ends(t *testing.T, conn net.Conn) {
	t.Helper()
	begin := time.Now()
	_ = conn.SetReadDeadline(begin.Add(4 * time.Second)) // before the hosts ask each other by themselves
	_, err := conn.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
		t.Errorf("%s to %s goes on: %v", conn.LocalAddr(), conn.RemoteAddr(), err)
		return
	}
	t.Logf("%s to %s ended after %s: %v", conn.LocalAddr(), conn.RemoteAddr(), time.Since(begin).Round(time.Millisecond), err)
}

// Connections of a host with itself are no reason to keep an address.
func TestOwnConnectionsDoNotCount(t *testing.T) {
	if !isolated(t) {
		return
	}
	d, other, port := serving(t)
	var outside []net.Conn
	for _, c := range []struct{ vip, here, there netip.Addr }{{v4, here4, there4}, {v6, here6, there6}} {
		open(t, netip.Addr{}, c.vip, port)
		open(t, c.here, c.vip, port)
		open(t, c.vip, c.vip, port)
		other.in(func() { outside = append(outside, open(t, c.there, c.vip, port)) })
	}
	linger := lingering("a0", 1)
	vips := apply(t, d, want(linger...))
	for _, vip := range []netip.Addr{v4, v6} {
		if got := vips[vip]; got.Sockets != 1 || got.Own != 5 {
			t.Errorf("%s: %d connections and %d sockets of its own, want 1 and 5", vip, got.Sockets, got.Own)
		}
	}
	for _, conn := range outside {
		_ = conn.Close()
	}
	eventually(t, "none is left", func() bool {
		vips := apply(t, d, want(linger...))
		return vips[v4].Sockets == 0 && vips[v6].Sockets == 0
	})
}

// When an address goes, so do the connections of this host with itself, at once: their
// clients reach its new owner.
func TestUnbindCutsOwnConnections(t *testing.T) {
	if !isolated(t) {
		return
	}
	other := neighbour(t)
	other.route()
	for _, iface := range []string{"a0", "lo"} {
		d := start(t, idle)
		bind := on(iface, 1)
		apply(t, d, want(bind...))
		port := listen(t, "tcp", "[::]:0")
		var own []net.Conn
		for _, c := range []struct{ vip, here netip.Addr }{{v4, here4}, {v6, here6}} {
			own = append(own, open(t, netip.Addr{}, c.vip, port), open(t, c.here, c.vip, port))
		}
		still := open(t, here4, here4, port)
		var outside net.Conn
		other.in(func() { outside = open(t, there4, v4, port) })
		apply(t, d, want())
		for _, conn := range own {
			ends(t, conn)
		}
		if err := echo(still); err != nil {
			t.Errorf("one to another address of this host: %v", err)
		}
		// What comes from elsewhere may find its connection once the address is back.
		apply(t, d, want(on(iface, 2)...))
		if err := echo(outside); err != nil {
			t.Errorf("from outside: %v", err)
		}
		apply(t, d, want())
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// An address that only changes its interface takes nothing with it.
func TestMoveToLoopbackCutsNothing(t *testing.T) {
	if !isolated(t) {
		return
	}
	neighbour(t)
	d := start(t, idle)
	apply(t, d, want(on("a0", 1)...))
	port := listen(t, "tcp", "[::]:0")
	conns := []net.Conn{open(t, netip.Addr{}, v4, port), open(t, here4, v4, port), open(t, here6, v6, port)}
	both := append(on("a0", 1), on("lo", 1)...)
	apply(t, d, want(both...))
	apply(t, d, want(on("lo", 1)...))
	if err := d.Close(t.Context()); err != nil { // with all that it had to do
		t.Error(err)
	}
	for _, conn := range conns {
		if err := echo(conn); err != nil {
			t.Errorf("%s to %s: %v", conn.LocalAddr(), conn.RemoteAddr(), err)
		}
	}
}

// What this host has open to an address elsewhere is reset once it is bound here: its
// packets would not leave the host any more.
func TestBindCutsWhatItParts(t *testing.T) {
	if !isolated(t) {
		return
	}
	other := neighbour(t)
	port := 0
	other.in(func() {
		port = listen(t, "tcp", "[::]:0")
		furnish(t, "e0", []string{v4.String() + "/32", v6.String() + "/128"})
	})
	run(t, "ip", "route", "add", v4.String(), "via", there4.String())
	run(t, "ip", "route", "add", v6.String(), "via", there6.String(), "src", here6.String())
	for _, iface := range []string{"a0", "lo"} {
		parted := []net.Conn{open(t, netip.Addr{}, v4, port), open(t, netip.Addr{}, v6, port)}
		still := []net.Conn{open(t, here4, there4, port), open(t, here6, there6, port)}
		bindCuts(t, iface, parted, still)
	}
}

// bindCuts binds the VIPs and lets them go, which ends the connections of parted alone.
func bindCuts(t *testing.T, iface string, parted, still []net.Conn) {
	t.Helper()
	d := start(t, idle)
	apply(t, d, want(on(iface, 1)...))
	for _, conn := range parted {
		ends(t, conn)
	}
	for _, conn := range still {
		if err := echo(conn); err != nil {
			t.Errorf("to another address: %v", err)
		}
	}
	apply(t, d, want())
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A connection that this host translates goes elsewhere, whoever has the address.
func TestBindLeavesWhatIsTranslated(t *testing.T) {
	if !isolated(t) {
		return
	}
	other := neighbour(t)
	port := 0
	other.in(func() { port = listen(t, "tcp4", "0.0.0.0:0") })
	run(t, "ip", "route", "add", v4.String(), "via", there4.String())
	run(t, "nft", "table ip t { chain o { type nat hook output priority -100; ip daddr "+v4.String()+" dnat to "+there4.String()+"; } ; }")
	conn := open(t, netip.Addr{}, v4, port)
	d := start(t, idle)
	apply(t, d, want(on("a0", 1)...))
	if err := d.Close(t.Context()); err != nil { // with all that it had to do
		t.Error(err)
	}
	if err := echo(conn); err != nil {
		t.Error(err)
	}
}

// A client in a namespace behind this host, such as a Pod, has the same fate: its packets
// end here once the address is bound. With and without masquerading.
func TestBindResetsClientsBehindTheHost(t *testing.T) {
	if !isolated(t) {
		return
	}
	other := neighbour(t)
	pod := beside(t, "p0", []string{"10.8.0.1/24", "fd00:8::1/64"}, []string{"10.8.0.2/24", "fd00:8::2/64"})
	pod.in(func() {
		run(t, "ip", "route", "add", "default", "via", "10.8.0.1")
		run(t, "ip", "route", "add", "default", "via", "fd00:8::1")
	})
	for _, f := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		if err := os.WriteFile(f, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	port := 0
	other.in(func() {
		port = listen(t, "tcp", "[::]:0")
		furnish(t, "e0", []string{v4.String() + "/32", v6.String() + "/128"})
		run(t, "ip", "route", "add", "10.8.0.0/24", "via", here4.String())
		run(t, "ip", "route", "add", "fd00:8::/64", "via", here6.String())
	})
	run(t, "ip", "route", "add", v4.String(), "via", there4.String())
	run(t, "ip", "route", "add", v6.String(), "via", there6.String(), "src", here6.String())
	for _, rules := range []string{
		"table inet t { chain p { type filter hook prerouting priority 0; ct state invalid counter; } ; }",
		"table inet u { chain p { type nat hook postrouting priority 100; oifname a0 masquerade; } ; }",
	} {
		run(t, "nft", rules)
		var parted, still []net.Conn
		pod.in(func() {
			parted = append(parted, open(t, netip.Addr{}, v4, port), open(t, netip.Addr{}, v6, port))
			still = append(still, open(t, netip.Addr{}, there4, port))
		})
		bindCuts(t, "a0", parted, still)
	}
}

// The half of a connection that is left here when its client's host has taken the address
// is not kept, and keeps nothing.
func TestWhatIsElsewhereIsCut(t *testing.T) {
	if !isolated(t) {
		return
	}
	d, other, port := serving(t)
	var parted []net.Conn
	other.in(func() {
		parted = append(parted, open(t, there4, v4, port), open(t, there6, v6, port))
		furnish(t, "e0", []string{"10.9.0.3/24"})
	})
	var third net.Conn
	other.in(func() { third = open(t, netip.MustParseAddr("10.9.0.3"), v4, port) })
	linger := lingering("a0", 1)
	vips := apply(t, d, want(linger...))
	if vips[v4].Sockets != 2 || vips[v6].Sockets != 1 {
		t.Errorf("nobody else has it: %+v", vips)
	}
	with := want(linger...)
	with.Elsewhere = map[netip.Addr][]netip.Addr{v4: {there4}, v6: {there6}}
	eventually(t, "one is left", func() bool {
		vips = apply(t, d, with)
		return vips[v4].Sockets == 1 && vips[v6].Sockets == 0
	})
	for _, conn := range parted {
		ends(t, conn)
	}
	if err := echo(third); err != nil {
		t.Errorf("of another host: %v", err)
	}
}

// A peer that answers nothing any more keeps no address.
func TestUnansweredConnectionsDoNotCount(t *testing.T) {
	if !isolated(t) {
		return
	}
	d, other := holding(t)
	port, taken := 0, make(chan net.Conn, 2)
	l, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port = l.Addr().(*net.TCPAddr).Port
	other.in(func() {
		for _, vip := range []netip.Addr{v4, v6} {
			conn, err := connect(netip.Addr{}, vip, port)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
	})
	for range 2 {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		taken <- conn
	}
	linger := lingering("a0", 1)
	if vips := apply(t, d, want(linger...)); vips[v4].Sockets != 1 || vips[v6].Sockets != 1 {
		t.Errorf("they are open: %+v", vips)
	}
	other.in(func() {
		run(t, "nft", "table inet t { chain i { type filter hook input priority 0; drop; } ; }")
	})
	close(taken)
	begin := time.Now()
	for conn := range taken {
		if _, err := conn.Write(make([]byte, 100)); err != nil {
			t.Error(err)
		}
	}
	if vips := apply(t, d, want(linger...)); vips[v4].Sockets != 1 || vips[v6].Sockets != 1 {
		t.Errorf("one moment is not long: %+v", vips)
	}
	eventually(t, "none counts", func() bool {
		vips := apply(t, d, want(linger...))
		return vips[v4].Sockets == 0 && vips[v6].Sockets == 0
	})
	t.Logf("they counted for %s", time.Since(begin).Round(time.Millisecond))
}

// An address whose lifetime ended, since nobody renewed it, is gone like any other.
func TestExpiryCutsOwnConnections(t *testing.T) {
	if !isolated(t) {
		return
	}
	neighbour(t)
	d := start(t, Lifetime)
	w := want(on("a0", 1)...)
	w.ValidUntil = time.Now().Add(Lifetime/3 - 100*time.Millisecond) // before the first renewal
	apply(t, d, w)
	port := listen(t, "tcp", "[::]:0")
	own := []net.Conn{open(t, netip.Addr{}, v4, port), open(t, here6, v6, port)}
	eventually(t, "gone", func() bool { return len(find(t, v4))+len(find(t, v6)) == 0 })
	for _, conn := range own {
		ends(t, conn)
	}
}
