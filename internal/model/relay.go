package model

import "net/netip"

// SinkRelay is the driver that relays stray packets.
const SinkRelay SinkName = "relay"

// Relay asks for packets of TCP connections to a VIP that no socket of this node
// can place to be sent on to the node that has the connection: the owner before a
// planned move. It answers the client by itself.
type Relay struct {
	Addr      netip.Addr
	Interface string // where the packets come in and leave again
	// To is an address of the other node on a subnet of the interface, of the
	// family of Addr.
	To netip.Addr
	// Peers are the hardware addresses of the other nodes, sorted: what comes from
	// them has been relayed already and is not relayed again.
	Peers []MAC
}
