package sockdiag_test

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/sockdiag"
	"lbd.dev/lbd/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// privileged gives the thread no capability but these, for as long as f runs.
func privileged(t *testing.T, capabilities uint32, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had, has [2]unix.CapUserData
	if err := unix.Capget(&header, &had[0]); err != nil {
		t.Fatal(err)
	}
	has = had
	has[0].Effective, has[1].Effective = capabilities, 0
	if err := unix.Capset(&header, &has[0]); err != nil {
		t.Fatal(err)
	}
	f()
	if err := unix.Capset(&header, &had[0]); err != nil {
		t.Fatal(err)
	}
}

// CAP_NET_ADMIN is all that it needs to destroy a connection.
func TestDestroyNeedsNetAdmin(t *testing.T) {
	testnet.Need(t)
	n := testnet.New(t)
	n.Add("host")
	n.In("host", func() {
		if why := sockdiag.Undestroyable(); why != "" {
			t.Errorf("this kernel cannot: %s", why)
		}
		for _, a := range []string{"127.0.0.1:0", "[::1]:0"} {
			privileged(t, 0, func() { destroys(t, a, false) })
			privileged(t, 1<<unix.CAP_NET_ADMIN, func() { destroys(t, a, true) })
		}
	})
}

// TestDestroysMany: all of more connections than go into one call to the kernel.
func TestDestroysMany(t *testing.T) {
	testnet.Need(t)
	n := testnet.New(t)
	n.Add("host")
	n.In("host", func() {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = l.Close() }()
		const many = 100
		for range many {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
		}
		clients := func() (found []sockdiag.Socket) {
			if err := sockdiag.TCP(sockdiag.Open, false, func(s sockdiag.Socket) {
				if s.Remote.String() == l.Addr().String() {
					found = append(found, s)
				}
			}); err != nil {
				t.Error(err)
			}
			return found
		}
		all := clients()
		if n, err := sockdiag.Destroy(all, time.Now()); n != 0 || err != nil {
			t.Errorf("when the time was over: %d, %v", n, err)
		}
		if n, err := sockdiag.Destroy(all, time.Now().Add(time.Minute)); len(all) != many || n != many || err != nil || len(clients()) > 0 {
			t.Errorf("destroyed %d of %d, and %d are left: %v", n, len(all), len(clients()), err)
		}
	})
}

// destroys opens a connection and destroys the socket of the client, if it may.
func destroys(t *testing.T, address string, may bool) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = l.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	local := c.LocalAddr().(*net.TCPAddr).AddrPort()
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	var found []sockdiag.Socket
	if err := sockdiag.TCP(sockdiag.Connections, false, func(s sockdiag.Socket) {
		if s.Local == local {
			found = append(found, s)
		}
	}); err != nil || len(found) != 1 {
		t.Errorf("found %v, %v", found, err)
		return
	}
	if !may {
		if _, err := sockdiag.Destroy(found, time.Now().Add(time.Minute)); !errors.Is(err, unix.EPERM) {
			t.Errorf("without a capability: %v", err)
		}
		return
	}
	for range 2 { // the second time it is not there any more
		if n, err := sockdiag.Destroy(found, time.Now().Add(time.Minute)); err != nil || n != 1 {
			t.Error(n, err)
		}
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "abort") {
		t.Errorf("the client reads: %v", err)
	}
}
