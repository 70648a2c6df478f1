package address

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// client is a host of its own, in a namespace of its own, that reaches the VIPs
// through the node like behind a router.
type client struct {
	t    *testing.T
	work chan func()
}

// behind makes a client at the other end of a pair of interfaces. The node is
// 192.0.2.1 and fd01::1 on iface.
func behind(t *testing.T, iface, peer string) *client {
	t.Helper()
	veth(t, iface, peer)
	c := &client{t: t, work: make(chan func())}
	namespace := make(chan int)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
		}
		namespace <- fd
		for f := range c.work {
			f()
		}
	}()
	t.Cleanup(func() { close(c.work) })
	fd := <-namespace
	defer func() { _ = unix.Close(fd) }()
	link, err := netlink.LinkByName(peer)
	if err == nil {
		err = netlink.LinkSetNsFd(link, fd)
	}
	if err != nil {
		t.Fatal(err)
	}
	give(t, iface, "192.0.2.1/24", "fd01::1/64")
	c.do(func() error {
		setUp(t, peer, true)
		give(t, peer, "192.0.2.2/24", "fd01::2/64")
		for vip, via := range map[netip.Addr]string{v4: "192.0.2.1", v6: "fd01::1"} {
			dst := &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(vip.BitLen(), vip.BitLen())}
			if err := netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}); err != nil {
				return fmt.Errorf("route to %s: %w", vip, err)
			}
		}
		return nil
	})
	return c
}

// give configures addresses that are fit for use at once.
func give(t *testing.T, iface string, prefixes ...string) {
	t.Helper()
	link, err := netlink.LinkByName(iface)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prefixes {
		addr, err := netlink.ParseAddr(p)
		if err != nil {
			t.Fatal(err)
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, addr); err != nil {
			t.Fatal(err)
		}
	}
}

// do runs f in the namespace of the client.
func (c *client) do(f func() error) {
	c.t.Helper()
	result := make(chan error)
	c.work <- func() { result <- f() }
	if err := <-result; err != nil {
		c.t.Fatal(err)
	}
}

// dial connects to a VIP.
func (c *client) dial(vip netip.Addr, port int) net.Conn {
	c.t.Helper()
	var conn net.Conn
	c.do(func() (err error) {
		conn, err = connect(netip.Addr{}, vip, port)
		return err
	})
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// talks tells whether the echo answers.
func talks(conn net.Conn) error {
	buf := []byte{1}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := conn.Write(buf); err != nil {
		return err
	}
	_, err := conn.Read(buf)
	return err
}
