package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

// firstBackend is the number of the first backend on the LAN.
const firstBackend = 31

// AddBackends adds machines with the service, and lets the nodes forward to them.
func (l *Lab) AddBackends(ctx context.Context, count int) error {
	for i := range count {
		h, err := l.AddHost(ctx, fmt.Sprintf("s%d", i+1), firstBackend+i)
		if err != nil {
			return err
		}
		n := &Node{Host: *h}
		if err := l.StartService(ctx, n); err != nil {
			return err
		}
		l.Backends = append(l.Backends, n)
	}
	// What docs/load-balancer.md says a balancer needs. Without the last one a connection stalls if
	// its client has had the port before, by a balancer that gets the address back.
	needs := map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv4/conf/all/send_redirects": "0", "ipv4/conf/eth0/send_redirects": "0",
		"netfilter/nf_conntrack_tcp_be_liberal": "1",
	}
	for _, n := range l.Nodes {
		if err := l.Sysctl(&n.Host, needs); err != nil {
			return err
		}
	}
	return nil
}

// farBridge is the network of the client after ClientBeyond.
const farBridge = "far"

// ClientBeyond moves the client to another network, behind a router. The backends reach it by
// their gateway, which is the VIP.
func (l *Lab) ClientBeyond(ctx context.Context) error {
	if err := l.AddBridge(ctx, farBridge); err != nil {
		return err
	}
	r, err := l.AddHost(ctx, "router", 99)
	if err != nil {
		return err
	}
	far := func(text string) netip.Prefix { return netip.MustParsePrefix(text) }
	err = errors.Join(
		l.Sysctl(r, map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"}),
		l.AddPort(ctx, r, "eth1", farBridge, far("10.78.0.1/24"), far("fd78::1/64")),
		l.Move(ctx, l.Client, farBridge, far("10.78.0.100/24"), far("fd78::100/64")),
		l.IP(ctx, l.Client, "route add default via 10.78.0.1", "route add default via fd78::1"),
	)
	for _, n := range l.Nodes {
		err = errors.Join(err, l.IP(ctx, &n.Host, "route add 10.78.0.0/24 via "+r.IP4.String(), "route add fd78::/64 via "+r.IP6.String()))
	}
	for _, b := range l.Backends {
		err = errors.Join(err, l.IP(ctx, &b.Host, "route add default via "+VIP4().String(), "route add default via "+VIP6().String()))
	}
	return err
}
