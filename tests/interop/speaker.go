package interop

import (
	"context"
	"net/netip"

	"lbd.dev/lbd/tests/lab"
)

// Speaker is what announces the VIPs on the nodes.
type Speaker interface {
	// Name is what reports call it; Configuration is one line for them.
	Name() string
	Configuration() string
	// VIPs are the addresses that it keeps.
	VIPs() []netip.Addr
	// BFD tells whether it has BFD sessions with the routers.
	BFD() bool
	// Start starts it on a node.
	Start(ctx context.Context, n *Net, m *lab.Node) error
	// Drain moves everything off the node and returns when it has; Undrain undoes
	// it.
	Drain(ctx context.Context, n *Net, m *lab.Node) error
	Undrain(ctx context.Context, n *Net, m *lab.Node) error
	// Clean removes what a daemon that ended has left on a node, if the system
	// leaves that to others.
	Clean(ctx context.Context, n *Net, m *lab.Node) error
}
