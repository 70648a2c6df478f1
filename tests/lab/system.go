package lab

import (
	"context"
	"errors"
	"net/netip"
)

// System is a failover daemon under test.
type System interface {
	// Name is what reports call it.
	Name() string
	// Configuration is one line for reports.
	Configuration() string
	// VIPs are the addresses that it keeps.
	VIPs() []netip.Addr
	// Start starts the daemon on a node.
	Start(ctx context.Context, l *Lab, n *Node) error
	// Ready says whether the daemon on the node runs and could take a VIP over; a
	// nil error means yes.
	Ready(ctx context.Context, l *Lab, n *Node) error
	// Drain moves everything off the node and returns when it has; Undrain lets it
	// own again. ErrUnsupported if there is no such thing.
	Drain(ctx context.Context, l *Lab, n *Node) error
	Undrain(ctx context.Context, l *Lab, n *Node) error
	// Election describes, as nftables matches, what the daemons say to each other.
	Election() []string
}

// ErrUnsupported says that a system cannot do what was asked.
var ErrUnsupported = errors.New("not supported by this system")

// Systems are those that the bench compares, all of them with one IPv4 address.
func Systems() []System {
	return []System{
		&LBD{NoIPv6: true}, &LBD{Detection: "fast", NoIPv6: true}, &LBD{NoIPv6: true, Reset: true},
		&Keepalived{Advert: "1"}, &Keepalived{Advert: "0.1"},
	}
}
