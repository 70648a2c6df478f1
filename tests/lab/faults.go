package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// cutTable is the nftables table that blocks traffic in a node.
const cutTable = "labcut"

// RandomMoment waits a random time of up to two seconds, so that faults do not
// keep step with the timers of daemons.
func RandomMoment(ctx context.Context) {
	Pause(ctx, time.Duration(rand.Int64N(int64(2*time.Second))))
}

func (l *Lab) onSwitch(ctx context.Context, argv ...string) error {
	_, err := run(ctx, "", argv...)
	return err
}

// LinkDown takes the switch's side of the link down; the host loses carrier.
func (l *Lab) LinkDown(ctx context.Context, h *Host) error {
	return l.onSwitch(ctx, "ip", "-n", l.ns("switch"), "link", "set", h.port, "down")
}

// LinkUp undoes LinkDown.
func (l *Lab) LinkUp(ctx context.Context, h *Host) error {
	return l.onSwitch(ctx, "ip", "-n", l.ns("switch"), "link", "set", h.port, "up")
}

// WireCut makes the switch drop everything from and to the host, which keeps its
// carrier: the port goes into the state "disabled".
func (l *Lab) WireCut(ctx context.Context, h *Host) error {
	return l.onSwitch(ctx, "bridge", "-n", l.ns("switch"), "link", "set", "dev", h.port, "state", "0")
}

// WireHeal undoes WireCut: the port forwards again.
func (l *Lab) WireHeal(ctx context.Context, h *Host) error {
	return l.onSwitch(ctx, "bridge", "-n", l.ns("switch"), "link", "set", "dev", h.port, "state", "3")
}

// WireSpeed lets the host send no faster than so many Gbit/s; 0 takes the limit away.
// The burst is what offload puts together, a dozen times.
func (l *Lab) WireSpeed(ctx context.Context, h *Host, gigabits int) error {
	if gigabits == 0 {
		return l.onSwitch(ctx, "tc", "-n", h.NS, "qdisc", "replace", "dev", nodeIf, "root", "noqueue")
	}
	return l.onSwitch(ctx, "tc", "-n", h.NS, "qdisc", "replace", "dev", nodeIf, "root", "tbf", "rate", fmt.Sprintf("%dgbit", gigabits), "burst", "800kb", "latency", "5ms")
}

// Split moves the hosts to a LAN of their own; nobody loses carrier.
func (l *Lab) Split(ctx context.Context, hosts ...*Host) error { return l.plug(ctx, "br1", hosts) }

// Join undoes Split.
func (l *Lab) Join(ctx context.Context, hosts ...*Host) error { return l.plug(ctx, "br0", hosts) }

func (l *Lab) plug(ctx context.Context, bridge string, hosts []*Host) error {
	var script strings.Builder
	for _, h := range hosts {
		fmt.Fprintf(&script, "link set %s master %s\n", h.port, bridge)
	}
	_, err := run(ctx, script.String(), "ip", "-n", l.ns("switch"), "-batch", "-")
	return err
}

// Block drops the traffic that the nftables matches describe, in and out of the
// host; ARP and ND pass.
func (l *Lab) Block(ctx context.Context, h *Host, matches ...string) error {
	return l.drop(ctx, h, []string{"input", "output"}, matches)
}

// Mute is Block of what the host sends: it hears the others, and its own system calls fail.
func (l *Lab) Mute(ctx context.Context, h *Host, matches ...string) error {
	return l.drop(ctx, h, []string{"output"}, matches)
}

func (l *Lab) drop(ctx context.Context, h *Host, hooks, matches []string) error {
	var script strings.Builder
	fmt.Fprintf(&script, "table inet %s {\n", cutTable)
	for _, hook := range hooks {
		fmt.Fprintf(&script, "chain %s { type filter hook %s priority -300;\n", hook, hook)
		for _, m := range matches {
			fmt.Fprintf(&script, "%s drop\n", m)
		}
		script.WriteString("}\n")
	}
	script.WriteString("}\n")
	_, err := run(ctx, script.String(), "ip", "netns", "exec", h.NS, "nft", "-f", "-")
	return err
}

// Unblock undoes Block and Mute.
func (l *Lab) Unblock(ctx context.Context, h *Host) error {
	_, err := l.Exec(ctx, h, "nft", "delete", "table", "inet", cutTable)
	return err
}

// RemoveAddr deletes an address by hand, as an operator or a network manager may.
func (l *Lab) RemoveAddr(ctx context.Context, h *Host, cidr string) error {
	_, err := run(ctx, "", "ip", "-n", h.NS, "addr", "del", cidr, "dev", nodeIf)
	return err
}

// StartService starts the service behind the VIP on a node.
func (l *Lab) StartService(ctx context.Context, n *Node) error {
	p, err := l.Start(&n.Host, "service", nil, l.Bin.Agent, "serve", "-name", n.Name, "-cert", l.pki.Cert, "-key", l.pki.Key)
	if err != nil {
		return err
	}
	n.Service = p
	return Wait(ctx, 5*time.Second, 10*time.Millisecond, "service", func() error {
		if !p.Alive() {
			return fmt.Errorf("it ended: %s", p.Tail(3))
		}
		return canConnect(n.NS, "127.0.0.1:6443")
	})
}

// FreezeService stops the service without ending it: it accepts and hangs.
func (n *Node) FreezeService() error { return n.Service.Signal(syscall.SIGSTOP) }

// ThawService undoes FreezeService.
func (n *Node) ThawService() error { return n.Service.Signal(syscall.SIGCONT) }

// AddAddr gives a host an address without asking anybody.
func (l *Lab) AddAddr(ctx context.Context, h *Host, addr netip.Addr) error {
	cidr := netip.PrefixFrom(addr, addr.BitLen()).String()
	argv := []string{"ip", "-n", h.NS, "addr", "add", cidr, "dev", nodeIf}
	if addr.Is6() {
		argv = append(argv, "nodad")
	}
	_, err := run(ctx, "", argv...)
	return err
}

// Announce makes a host announce an address each second until stop is called.
func (l *Lab) Announce(h *Host, addr netip.Addr) (stop func() error, err error) {
	p, err := l.Start(h, "announce", nil, l.Bin.Agent, "announce", "-vip", addr.String())
	if err != nil {
		return nil, err
	}
	return p.Kill, nil
}
