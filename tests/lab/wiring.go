package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// CA is the file of the authority that signed the certificate of the services.
func (l *Lab) CA() string { return l.pki.CA }

// AddBridge adds another LAN to the switch.
func (l *Lab) AddBridge(ctx context.Context, name string) error {
	script := fmt.Sprintf(`link add %[1]s type bridge stp_state 0 forward_delay 0 mcast_snooping 0
link set %[1]s up
`, name)
	if _, err := run(ctx, script, "ip", "-n", l.ns("switch"), "-batch", "-"); err != nil {
		return fmt.Errorf("bridge %q: %w", name, err)
	}
	return nil
}

// MTU sets what the LAN and all that is on it take. Nothing puts packets together before they
// are sent, so that the frames on the wire have that size.
func (l *Lab) MTU(ctx context.Context, mtu int) error {
	var ports strings.Builder
	hosts := []*Host{l.Client, l.Watch}
	for _, n := range l.Nodes {
		hosts = append(hosts, &n.Host)
	}
	for _, h := range hosts {
		fmt.Fprintf(&ports, "link set %s mtu %d\n", h.port, mtu)
		if err := l.IP(ctx, h, fmt.Sprintf("link set %s mtu %d gso_max_segs 1", nodeIf, mtu)); err != nil {
			return err
		}
	}
	_, err := run(ctx, ports.String(), "ip", "-n", l.ns("switch"), "-batch", "-")
	return err
}

// OnlyIPv6 takes the IPv4 addresses of the nodes away, and waits until they can ask their
// neighbours by IPv6, as hosts can that have been up for a while.
func (l *Lab) OnlyIPv6(ctx context.Context) error {
	for _, n := range l.Nodes {
		if err := l.IP(ctx, &n.Host, "addr del "+netip.PrefixFrom(n.IP4, 24).String()+" dev "+nodeIf); err != nil {
			return err
		}
	}
	return Wait(ctx, 20*time.Second, 50*time.Millisecond, "link-local addresses", func() error {
		for _, n := range l.Nodes {
			out, err := run(ctx, "", "ip", "-n", n.NS, "-6", "addr", "show", "dev", nodeIf, "scope", "link", "-tentative")
			if err != nil {
				return err
			}
			if !strings.Contains(out, "inet6 fe80:") {
				return fmt.Errorf("%s has none that it may use", n.Name)
			}
		}
		return nil
	})
}

// AddPort gives a host one more interface, on the named bridge.
func (l *Lab) AddPort(ctx context.Context, h *Host, ifname, bridge string, addrs ...netip.Prefix) error {
	port := h.port + "-" + ifname
	script := fmt.Sprintf(`link add %[1]s type veth peer name %[2]s netns %[3]s
link set %[1]s master %[4]s up
`, port, ifname, h.NS, bridge)
	if _, err := run(ctx, script, "ip", "-n", l.ns("switch"), "-batch", "-"); err != nil {
		return fmt.Errorf("host %q: %w", h.Name, err)
	}
	return l.IP(ctx, h, append([]string{"link set " + ifname + " up"}, addrLines(ifname, addrs)...)...)
}

// Move plugs eth0 of a host into another bridge and gives it other addresses.
func (l *Lab) Move(ctx context.Context, h *Host, bridge string, addrs ...netip.Prefix) error {
	if err := l.plug(ctx, bridge, []*Host{h}); err != nil {
		return err
	}
	for _, a := range addrs {
		if a.Addr().Is4() {
			h.IP4 = a.Addr()
		} else {
			h.IP6 = a.Addr()
		}
	}
	flush := []string{"addr flush dev " + nodeIf + " scope global"}
	return l.IP(ctx, h, append(flush, addrLines(nodeIf, addrs)...)...)
}

func addrLines(ifname string, addrs []netip.Prefix) []string {
	var out []string
	for _, a := range addrs {
		line := fmt.Sprintf("addr add %s dev %s", a, ifname)
		if a.Addr().Is6() {
			line += " nodad"
		}
		out = append(out, line)
	}
	return out
}

// IP runs lines of an `ip -batch` script on a host.
func (l *Lab) IP(ctx context.Context, h *Host, lines ...string) error {
	_, err := run(ctx, strings.Join(lines, "\n")+"\n", "ip", "-n", h.NS, "-batch", "-")
	return err
}

// Sysctl writes values under /proc/sys/net on a host.
func (l *Lab) Sysctl(h *Host, values map[string]string) error { return sysctl(h.NS, values) }

// PortDown takes the switch's side of one more interface of a host (see AddPort)
// down, PortUp takes it up.
func (l *Lab) PortDown(ctx context.Context, h *Host, ifname string) error {
	return l.onSwitch(ctx, "ip", "-n", l.ns("switch"), "link", "set", h.port+"-"+ifname, "down")
}

// PortUp undoes PortDown.
func (l *Lab) PortUp(ctx context.Context, h *Host, ifname string) error {
	return l.onSwitch(ctx, "ip", "-n", l.ns("switch"), "link", "set", h.port+"-"+ifname, "up")
}

// Addrs lists the addresses of an interface in the kernel of a host.
func (l *Lab) Addrs(h *Host, ifname string) ([]netip.Addr, error) { return kernelAddrs(h.NS, ifname) }

// Reload has the daemon read its configuration again.
func (n *Node) Reload() error { return n.Daemon.Signal(syscall.SIGHUP) }
