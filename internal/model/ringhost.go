package model

import (
	"net/netip"
	"slices"
)

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
}

// Same compares what two of them say.
func (h *RingHost) Same(o *RingHost) bool {
	return h == o || h != nil && o != nil && h.Kernel == o.Kernel && h.Drops == o.Drops && slices.Equal(h.Listeners, o.Listeners) &&
		slices.Equal(h.Tracked, o.Tracked) && h.Untold == o.Untold
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
