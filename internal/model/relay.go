package model

import (
	"net/netip"
	"slices"
	"time"
)

// SinkRelay is the driver that relays stray packets.
const SinkRelay SinkName = "relay"

// MaxRing is how many nodes a ring may have: the hop count is one of the 14 DSCP
// values 0x31 to 0x3e.
const MaxRing = 14

// Relay asks for TCP packets to a VIP that no socket of this node can place to be
// sent on to the next node of a ring, until the one that has the connection takes
// them. It answers the client by itself.
type Relay struct {
	Addr      netip.Addr
	Interface string // where the packets come in and leave again
	Ring      *Ring  // never changed; VIPs with the same ring may share one
	// Tracked: the VIP is that of a Service. Its connections are those that connection
	// tracking knows, for kube-proxy translates them, and not sockets.
	Tracked bool
	// Repliers are servers whose answers to clients come by this node, since they see the
	// addresses of clients. What they say in a connection that this node does not know is sent
	// on, too. nil: none; never changed.
	Repliers *Repliers
}

// Repliers are servers and the ports of TCP at which they serve, both sorted. Of each address
// each port counts.
type Repliers struct {
	Addrs []netip.Addr
	Ports []uint16
}

// Same compares two sets of servers.
func (r *Repliers) Same(o *Repliers) bool {
	return r == o || r != nil && o != nil && slices.Equal(r.Addrs, o.Addrs) && slices.Equal(r.Ports, o.Ports)
}

// Ring is what one node knows of the nodes that may have connections to a VIP.
// They stand in the same order everywhere, and the last leads to the first.
type Ring struct {
	// Nodes is how many they are, this one included: a packet that has been relayed
	// so often is back where it came in, and is left to the stack there.
	Nodes int
	// Next is an address of the next node on a subnet of the interface, of the family
	// of the VIP.
	Next netip.Addr
	// Peers are the hardware addresses of the other nodes of the group, sorted: only
	// from them a hop count is believed, and what they send without one has not come
	// from a client.
	Peers []MAC
	// Origins are the frames of connections that other nodes of the group opened by
	// themselves, sorted: they begin a tour, although they come from a peer.
	Origins []Origin
	// Ends are addresses of this node and of the next one, sorted. A packet from one
	// of them ends its tour here, since a host takes no packet with its own source.
	Ends []netip.Addr
	// Unwell: the server of this node fails its check, though it may still listen. What
	// opens a connection goes on round the ring, too, and is taken here if it comes back.
	Unwell bool
	// Beside are other interfaces of this node on the same LAN on which its kernel answers
	// for the VIP, too, sorted: packets come in there as well.
	Beside []string
	// Lifetime is how long the kernel goes on after the last refresh; 0: that of the
	// driver.
	Lifetime time.Duration
	// Shared: the VIP is Balanced, so that its owner may have sent a packet here before it
	// went round.
	Shared bool
	// Spread are the nodes of the ring over which this one, as the owner of a Balanced
	// VIP, spreads new connections, sorted by Node; empty: it takes them itself.
	Spread []Backend
}

// Backend is a node that gets a share of the new connections.
type Backend struct {
	Node   NodeName
	Weight int // as Member.Weight
	// Addr is what Ring.Next is, of this node; zero for the node itself.
	Addr netip.Addr
}

// RingProbe is what the wire says of a node of a ring whose heartbeats are overdue, or
// whose daemon has ended.
type RingProbe struct {
	Node      NodeName
	Interface string    // of this node, on which it is asked for
	Late      time.Time // Member.Late, or Memory.Left
	Series    uint64    // the newest probe series
	Asked     time.Time // when it was begun
	// Silent: the last series that has ended was not answered. Answers: it was. Neither:
	// none has ended.
	Silent, Answers bool
	// Gone: the daemon has ended and the host was silent since. It stays out of rings until
	// the daemon is back: a host that answers again has not got the addresses any more.
	Gone bool
}

// Origin is the source of a frame of a node's own connections.
type Origin struct {
	MAC  MAC
	Addr netip.Addr
}

// Compare orders origins.
func (o Origin) Compare(p Origin) int {
	if c := o.MAC.Compare(p.MAC); c != 0 {
		return c
	}
	return o.Addr.Compare(p.Addr)
}

// Same compares what two rings say.
func (r *Ring) Same(o *Ring) bool {
	return r == o || r != nil && o != nil && r.Nodes == o.Nodes && r.Next == o.Next && r.Lifetime == o.Lifetime && r.Unwell == o.Unwell && r.Shared == o.Shared &&
		slices.Equal(r.Peers, o.Peers) && slices.Equal(r.Origins, o.Origins) && slices.Equal(r.Ends, o.Ends) &&
		slices.Equal(r.Spread, o.Spread) && slices.Equal(r.Beside, o.Beside)
}

// PerFamily is a text for IPv4 and one for IPv6.
type PerFamily [2]string

// Of returns the text for the family of an address.
func (p PerFamily) Of(a netip.Addr) string {
	if a.Is4() {
		return p[0]
	}
	return p[1]
}

// RingHost is what the relay driver has found out about its host: whether rings would
// work there. It is never changed once it is reported.
type RingHost struct {
	// Kernel is why the kernel cannot relay at all; empty if it can, or was not asked.
	Kernel PerFamily
	// Drops names a chain of the firewall that drops all that is relayed, for it is not
	// tracked; empty if none is known to.
	Drops PerFamily
	// Listeners are the TCP servers that are bound to one address and not to the
	// wildcard, without those of the loopback interface, sorted.
	Listeners []netip.AddrPort
	// Tracked are the addresses to which the host has TCP connections whose destination it
	// translates, sorted; nil if that was not asked for, see Desired.Track.
	Tracked []netip.Addr
	// Untold is why they cannot be listed; empty if they can.
	Untold string
	// Untracked is why the kernel cannot look for tracked connections in its rules, although it
	// may relay otherwise; empty if it can, or was not asked.
	Untracked PerFamily
	// Proxy says which rules of kube-proxy the host has.
	Proxy Proxy
}

// Same compares what two of them say.
func (h *RingHost) Same(o *RingHost) bool {
	return h == o || h != nil && o != nil && h.Kernel == o.Kernel && h.Drops == o.Drops && slices.Equal(h.Listeners, o.Listeners) &&
		slices.Equal(h.Tracked, o.Tracked) && h.Untold == o.Untold && h.Untracked == o.Untracked && h.Proxy == o.Proxy
}

// Tracks tells whether the host translates connections to the address.
func (h *RingHost) Tracks(a netip.Addr) bool {
	_, is := slices.BinarySearchFunc(h.Tracked, a, netip.Addr.Compare)
	return is
}

// ListensOn returns the port of a server that is bound to the address itself.
func (h *RingHost) ListensOn(a netip.Addr) (port uint16, ok bool) {
	i, _ := slices.BinarySearchFunc(h.Listeners, netip.AddrPortFrom(a, 0), netip.AddrPort.Compare)
	if i == len(h.Listeners) || h.Listeners[i].Addr() != a {
		return 0, false
	}
	return h.Listeners[i].Port(), true
}

// ServiceConnections is what a node is to do with open connections to Services.
type ServiceConnections uint8

// The settings.
const (
	ServicesReset ServiceConnections = iota
	// ServicesAuto keeps them where that can work. That it cannot is no problem.
	ServicesAuto
	// ServicesKeep keeps them. That it cannot work is a problem.
	ServicesKeep
)

// Proxy is the mode of kube-proxy, by its rules.
type Proxy uint8

// The modes. IPVS is known by IPVSInterface.
const (
	ProxyUnknown Proxy = iota // nobody has looked
	ProxyNone                 // there are no rules
	ProxyHidden               // none that this user may read: iptables-legacy may have some
	ProxyNFTables
	ProxyIPTables
)

// Tracks tells whether it is a mode whose connections are tracked where rings look for them.
func (p Proxy) Tracks() bool { return p >= ProxyNFTables }

// ProxyMemory is what a decision remembers of kube-proxy.
type ProxyMemory struct {
	// Mode is the one that counts: that of its rules, or of those that were there a moment ago.
	Mode Proxy
	// Gone is since when those rules have been away; zero if they are there.
	Gone time.Time
}

// Services is what becomes of open connections to Services when their VIPs move.
type Services struct {
	// Asked: they are to be kept if that can work, and there are such VIPs or may be soon. The
	// relay driver is to look for what that depends on.
	Asked bool
	// Known: the driver has looked. Until then it is taken for granted that it works.
	Known bool
	// Kept: this node is to take part in their rings, and Works that it can in one at least.
	Kept, Works bool
	// NoProxy says why it cannot work with what translates their packets here, and Unfit what else
	// is in the way of some of them; empty if nothing is.
	NoProxy, Unfit string
}

// Why says why connections to Services may be reset although they are to be kept; empty if nothing
// is known to be in the way.
func (s *Services) Why() string {
	if s.NoProxy != "" {
		return s.NoProxy
	}
	return s.Unfit
}
