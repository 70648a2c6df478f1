package model

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// SinkRoute is the driver of the routes to VIPs that other machines have.
const SinkRoute SinkName = "route"

// The marks of routes and next hops. What does not carry RouteProtocol was configured by
// somebody else and is never touched; what carries it and is not wanted was left behind by
// an earlier process.
const (
	// RouteProtocol is the origin that the kernel stores with routes and next hops. It is
	// that of addresses, see AddressProtocol.
	RouteProtocol = AddressProtocol
	// RouteMetric is that of a route by next hops. A route for the same prefix that an
	// operator makes without a metric goes first, for IPv4 with metric 0.
	RouteMetric uint32 = 0x6c62 // "lb"
	// UnreachableMetric is that of the route that answers for a prefix while there is no
	// next hop, so that packets do not follow the default route. Any other one goes first.
	UnreachableMetric uint32 = AddressMetric
)

// MaxWeight is the largest weight of a next hop.
const MaxWeight = 256

// RouteState is what the driver of routes is to make true.
type RouteState struct {
	Routes []Route // in the order of ComparePaths, each prefix once
	// Hearing: next hops that are still there may not have been heard of yet. Routes of an
	// earlier process stay meanwhile, and so do next hops of routes that are taken over.
	Hearing bool
}

// Route asks for the way to a prefix.
type Route struct {
	Prefix netip.Prefix
	// NextHops are sorted by NextHop.Compare, each once, so that all machines that have the
	// same ones spread connections alike. None: the prefix is unreachable.
	NextHops []NextHop
	Spread   Spread
}

// NextHop is a machine that packets may be sent to.
type NextHop struct {
	Gateway   netip.Addr // without a zone; it may be of the other family
	Interface string
	Weight    uint16 // its share, 1 to MaxWeight; 0 counts as 1
}

// Share is the weight within its bounds.
func (h NextHop) Share() uint16 { return min(max(h.Weight, 1), MaxWeight) }

// Compare orders next hops by their gateways.
func (h NextHop) Compare(o NextHop) int {
	return cmp.Or(h.Gateway.Compare(o.Gateway), cmp.Compare(h.Interface, o.Interface), cmp.Compare(h.Weight, o.Weight))
}

// Spread is how connections are spread over next hops.
type Spread struct {
	// Resilient: a table of buckets says which next hop gets a connection. A change moves
	// only the buckets that have to move. Where the kernel has no such table (before Linux
	// 5.13), and without Resilient, a change also moves connections of other next hops.
	Resilient bool
	// The rest is for Resilient. Buckets is the size of the table; 0: 1024.
	Buckets uint16
	// Idle is how long a bucket must have been without packets before it may move to a next
	// hop that has too few; at least 10 ms. It must exceed the time for which clients are silent.
	Idle time.Duration
	// Unbalanced is for how long next hops may have too few before buckets in use move,
	// too; 0: for ever.
	Unbalanced time.Duration
}

// Same compares two states.
func (s *RouteState) Same(o *RouteState) bool {
	return s.Hearing == o.Hearing && slices.EqualFunc(s.Routes, o.Routes, func(a, b Route) bool { return a.Same(&b) })
}

// Same compares two routes.
func (r *Route) Same(o *Route) bool {
	return r.Prefix == o.Prefix && r.Spread == o.Spread && slices.Equal(r.NextHops, o.NextHops)
}

// AppliedRoute is the truth about one route.
type AppliedRoute struct {
	// NextHops are those in use, sorted; none: the prefix is unreachable.
	NextHops []NextHop
	// Resilient: a table of buckets is in use.
	Resilient bool
	Err       string // in words; empty if none
}
