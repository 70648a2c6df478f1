package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"lbd.dev/lbd/tests/lab"
)

// Autonomous systems of the labs (RFC 6996).
const (
	NodeASN = 64512
	ToRASN  = 64513 // of tor1; tor2 has the next one
	CoreASN = 64515
)

// VIP4 and VIP6 lie in no subnet of the lab.
func VIP4() netip.Addr { return netip.AddrFrom4([4]byte{10, 99, 0, 200}) }

// VIP6 is the IPv6 one.
func VIP6() netip.Addr { return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x99, 14: 0x02}) }

// Net is a lab with routers. The nodes are on 10.77.0.0/24 and fd77::/64.
type Net struct {
	*lab.Lab
	// ToRs are routers on the nodes' LAN: 10.77.0.1 and, if there are two, .2.
	ToRs []*lab.Host
	// Core is the router behind two ToRs; nil with one.
	Core *lab.Host
}

// Edge is the router whose kernel spreads the client's connections.
func (n *Net) Edge() *lab.Host {
	if n.Core != nil {
		return n.Core
	}
	return n.ToRs[0]
}

func v4(lan, host byte) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, lan, 0, host}), 24)
}

// v6 has the host's number as digits, so that 10.78.0.100 goes with fd78::100.
func v6(lan byte, host uint16) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("fd%d::%d/64", lan, host))
}

func build(ctx context.Context, bin *lab.Bin, nodes int, wire func(*Net) error) (*Net, error) {
	l, err := lab.New(ctx, bin, nodes)
	if err != nil {
		return nil, err
	}
	n := &Net{Lab: l}
	if err := wire(n); err != nil {
		return nil, errors.Join(fmt.Errorf("interop: %w", err), l.Close())
	}
	return n, nil
}

// NewPair is one node and one router on one LAN.
func NewPair(ctx context.Context, bin *lab.Bin) (*Net, error) {
	return build(ctx, bin, 1, func(n *Net) error {
		_, err := n.addToR(ctx)
		return err
	})
}

// NewFar is one node and a router two hops away: 10.79.0.2 and fd79::2, behind
// 10.77.0.254.
func NewFar(ctx context.Context, bin *lab.Bin) (*Net, error) {
	return build(ctx, bin, 1, func(n *Net) error {
		if err := n.AddBridge(ctx, "br3"); err != nil {
			return err
		}
		tor, err := n.addToR(ctx)
		if err != nil {
			return err
		}
		mid, err := n.addRouter(ctx, "mid", 254)
		if err != nil {
			return err
		}
		return errors.Join(
			n.Move(ctx, tor, "br3", v4(79, 2), v6(79, 2)),
			n.AddPort(ctx, mid, "eth1", "br3", v4(79, 254), v6(79, 254)),
			n.IP(ctx, tor, "route add 10.77.0.0/24 via 10.79.0.254", "route add fd77::/64 via fd79::254"),
			defaultRoute(ctx, n, &n.Nodes[0].Host, mid.IP4.String(), mid.IP6.String()),
		)
	})
}

// NewToR is a top-of-rack router between the nodes and the client.
func NewToR(ctx context.Context, bin *lab.Bin, nodes int) (*Net, error) {
	return build(ctx, bin, nodes, func(n *Net) error { return n.divide(ctx) })
}

// Divide is NewToR for a lab that is there.
func Divide(ctx context.Context, l *lab.Lab) (*Net, error) {
	n := &Net{Lab: l}
	if err := n.divide(ctx); err != nil {
		return nil, fmt.Errorf("interop: %w", err)
	}
	return n, nil
}

func (n *Net) divide(ctx context.Context) error {
	if err := n.AddBridge(ctx, "br2"); err != nil {
		return err
	}
	tor, err := n.addToR(ctx)
	if err != nil {
		return err
	}
	return errors.Join(n.AddPort(ctx, tor, "eth1", "br2", v4(78, 1), v6(78, 1)), n.placeClient(ctx, tor))
}

// NewTwin is two top-of-rack routers on the nodes' LAN and a core router behind
// them, with the client behind the core. What the nodes answer goes to the core
// at once, as through a gateway that both ToRs share.
func NewTwin(ctx context.Context, bin *lab.Bin, nodes int) (*Net, error) {
	return build(ctx, bin, nodes, func(n *Net) error {
		if err := errors.Join(n.AddBridge(ctx, "br2"), n.AddBridge(ctx, "br3")); err != nil {
			return err
		}
		core, err := n.addRouter(ctx, "core", 254)
		if err != nil {
			return err
		}
		n.Core = core
		err = errors.Join(n.otherHash(core), n.AddPort(ctx, core, "eth1", "br2", v4(78, 1), v6(78, 1)),
			n.AddPort(ctx, core, "eth2", "br3", v4(79, 254), v6(79, 254)), n.placeClient(ctx, core))
		for i := range 2 {
			tor, e := n.addToR(ctx)
			if err = errors.Join(err, e); err != nil {
				return err
			}
			err = errors.Join(n.AddPort(ctx, tor, "eth1", "br3", v4(79, byte(1+i)), v6(79, uint16(1+i))),
				n.IP(ctx, tor, "route add 10.78.0.0/24 via 10.79.0.254", "route add fd78::/64 via fd79::254"))
		}
		return err
	})
}

func (n *Net) addToR(ctx context.Context) (*lab.Host, error) {
	i := len(n.ToRs) + 1
	h, err := n.addRouter(ctx, fmt.Sprintf("tor%d", i), i)
	if err == nil {
		n.ToRs = append(n.ToRs, h)
	}
	return h, err
}

// addRouter adds a host that forwards and spreads packets by their addresses and
// ports.
func (n *Net) addRouter(ctx context.Context, name string, num int) (*lab.Host, error) {
	h, err := n.AddHost(ctx, name, num)
	if err != nil {
		return nil, err
	}
	err = n.Sysctl(h, map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
		"ipv4/fib_multipath_hash_policy": "1", "ipv6/fib_multipath_hash_policy": "1",
		"ipv6/conf/default/dad_transmits": "0", "ipv6/conf/eth0/dad_transmits": "0",
	})
	// A router whose link-local addresses are tentative when FRR starts may never
	// learn of them. Up again, they need no probing.
	return h, errors.Join(err, n.IP(ctx, h, "link set eth0 down", "link set eth0 up",
		fmt.Sprintf("addr replace %s/64 dev eth0 nodad", h.IP6)))
}

// otherHash makes a router hash by the source port alone. All routers of the lab
// have one kernel and one seed: with the same hash the second of two would get
// only flows whose hash is alike, and spread them badly.
func (n *Net) otherHash(h *lab.Host) error {
	const custom, sourcePort = "3", "0x10"
	return errors.Join(
		n.Sysctl(h, map[string]string{"ipv4/fib_multipath_hash_fields": sourcePort, "ipv6/fib_multipath_hash_fields": sourcePort}),
		n.Sysctl(h, map[string]string{"ipv4/fib_multipath_hash_policy": custom, "ipv6/fib_multipath_hash_policy": custom}),
	)
}

// placeClient puts the client behind a router, which is also the way back for
// the nodes.
func (n *Net) placeClient(ctx context.Context, gw *lab.Host) error {
	errs := []error{
		n.Move(ctx, n.Client, "br2", v4(78, 100), v6(78, 100)),
		defaultRoute(ctx, n, n.Client, "10.78.0.1", "fd78::1"),
	}
	for _, m := range n.Nodes {
		errs = append(errs, defaultRoute(ctx, n, &m.Host, gw.IP4.String(), gw.IP6.String()))
	}
	return errors.Join(errs...)
}

func defaultRoute(ctx context.Context, n *Net, h *lab.Host, via4, via6 string) error {
	return n.IP(ctx, h, "route replace default via "+via4, "route replace ::/0 via "+via6)
}
