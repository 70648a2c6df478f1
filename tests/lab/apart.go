package lab

import (
	"context"
	"fmt"
	"net/netip"
)

// Apart gives the nodes a network of their own beside the LAN, with 10.78.0.n, so that the
// LAN may fail without the gossip of an LBD that is Apart.
func (l *Lab) Apart(ctx context.Context) error {
	script := "link add br2 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\nlink set br2 up\n"
	for _, n := range l.Nodes {
		script += fmt.Sprintf("link add g-%s type veth peer name gossip0 netns %s\nlink set g-%[1]s master br2 up\n", n.Name, n.NS)
	}
	if _, err := run(ctx, script, "ip", "-n", l.ns("switch"), "-batch", "-"); err != nil {
		return fmt.Errorf("lab: network of gossip: %w", err)
	}
	for _, n := range l.Nodes {
		own := fmt.Sprintf("link set gossip0 up\naddr add %s/24 dev gossip0\n", apart(n))
		if _, err := run(ctx, own, "ip", "-n", n.NS, "-batch", "-"); err != nil {
			return fmt.Errorf("lab: network of gossip: %w", err)
		}
	}
	return nil
}

func apart(n *Node) netip.Addr {
	b := n.IP4.As4()
	b[1]++
	return netip.AddrFrom4(b)
}

// gossips is the address that the node gossips from.
func (s *LBD) gossips(n *Node) netip.Addr {
	switch {
	case s.Apart:
		return apart(n)
	case s.IPv6:
		return n.IP6
	}
	return n.IP4
}
