package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/testnet"
)

// netnsDir is where iproute2 keeps named namespaces.
const netnsDir = "/run/netns"

// inNetns runs f on a thread that is in the named network namespace. f must not
// start processes or goroutines: those would be elsewhere.
func inNetns(name string, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("netns: open own: %w", err)
	}
	defer own.Close()
	other, err := os.Open(filepath.Join(netnsDir, name))
	if err != nil {
		return fmt.Errorf("netns: open: %w", err)
	}
	defer other.Close()
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("netns: enter %q: %w", name, err)
	}
	err = f()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread is in the wrong place; keep it from ever running anything else.
		runtime.LockOSThread()
		return errors.Join(err, fmt.Errorf("netns: leave %q: %w", name, back))
	}
	return err
}

// kernelAddrs lists the addresses of the interface in the namespace.
func kernelAddrs(ns, ifname string) ([]netip.Addr, error) {
	var out []netip.Addr
	err := inNetns(ns, func() error {
		ifi, err := net.InterfaceByName(ifname)
		if err != nil {
			return err
		}
		nets, err := ifi.Addrs()
		if err != nil {
			return err
		}
		for _, n := range nets {
			if p, err := netip.ParsePrefix(n.String()); err == nil {
				out = append(out, p.Addr())
			}
		}
		return nil
	})
	return out, err
}

// sysctl writes values under /proc/sys/net in the namespace.
func sysctl(ns string, values map[string]string) error {
	return inNetns(ns, func() error {
		for k, v := range values {
			err := os.WriteFile("/proc/sys/net/"+k, []byte(v), 0)
			if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(k, "bridge/") {
				continue // the kernel's bridge has no such hook
			}
			if err != nil {
				return fmt.Errorf("sysctl: %w", err)
			}
		}
		return nil
	})
}

// canConnect tells whether a TCP port answers in the namespace.
func canConnect(ns, target string) error {
	return inNetns(ns, func() error {
		// A literal address and no fallback: the dialler stays on this thread.
		d := net.Dialer{Timeout: 200 * time.Millisecond, FallbackDelay: -1}
		c, err := d.Dial("tcp", target)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// Flood sends, from the client, the first packets of so many connections of each of some strangers to
// a VIP. Nobody goes on with them.
func (l *Lab) Flood(vip netip.Addr, strangers, each int) error {
	return inNetns(l.Client.NS, func() error { return testnet.Flood(netip.AddrPortFrom(vip, httpsPort), 0, strangers, each) })
}

// Listen opens a TCP socket in the namespace of a machine, to be served from the
// test itself.
func (h *Host) Listen(address string) (net.Listener, error) {
	var l net.Listener
	err := inNetns(h.NS, func() error {
		var err error
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}
