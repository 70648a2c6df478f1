package ipam

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"lbd.dev/lbd/internal/model"
)

// Policy is the ipFamilyPolicy of a Service.
type Policy uint8

// The policies.
const (
	SingleStack      Policy = iota // the first family
	PreferDualStack                // both, or else the first that can be had
	RequireDualStack               // both
)

// Port is a port of a Service. Protocol is TCP, UDP or SCTP.
type Port struct {
	Protocol string
	Number   uint16
}

// String returns "TCP/80".
func (p Port) String() string { return p.Protocol + "/" + strconv.Itoa(int(p.Number)) }

// Sharing is what decides whether Services may have the same address: both have
// the same key, no port in common, and either both externalTrafficPolicy Cluster
// or both Local with the same selector.
type Sharing struct {
	Key   string // "": not shared
	Ports []Port
	// Local: externalTrafficPolicy Local. Selector is that of the Service and counts
	// only then.
	Local    bool
	Selector map[string]string
}

// Request is what one Service asks for.
type Request struct {
	Owner           model.Key
	Created         time.Time
	NamespaceLabels map[string]string
	Labels          map[string]string
	Sharing         Sharing
	// Families are those of the Service in its order, one or two.
	Families []Family
	Policy   Policy
	// Count is the number of addresses of each family; 0: one. At most MaxCount.
	Count int
	// Pools are asked for by name, in this order; several if the families come from
	// different ones. AutoAssign does not count then.
	Pools []string
	// Addresses are asked for themselves; Count does not count then.
	Addresses []netip.Addr
	// LeaveStrays gives up held addresses that are outside every pool, if the
	// request can be met without them.
	LeaveStrays bool
	// Rested: an address that is asked for is not given before it has left quarantine, so that nobody
	// can wait for that of somebody else to become free for a moment.
	Rested bool
	// Shown: the Service shows the addresses that are asked for already, so a closed pool leaves them to it.
	Shown bool
}

// MaxCount bounds Request.Count and the length of Request.Addresses.
const MaxCount = 64

// Address is an address of an Assignment.
type Address struct {
	Addr netip.Addr
	Pool string // "": in no pool
}

// Assignment is what one Service holds.
type Assignment struct {
	Owner     model.Key
	Created   time.Time
	Sharing   Sharing
	Addresses []Address
}

// check refuses requests that mean nothing and brings others into one form.
func (r *Request) check() error {
	bad := func(words string) error { return &Error{Rule: BadRequest, words: words} }
	switch {
	case r.Owner.Name == "":
		return bad("the request names no Service")
	case len(r.Families) == 0 || len(r.Families) > 2 || len(r.Families) == 2 && r.Families[0] == r.Families[1]:
		return bad("a Service has one or two address families, each once")
	case slices.ContainsFunc(r.Families, func(f Family) bool { return f != IPv4 && f != IPv6 }):
		return bad("an address family is IPv4 or IPv6")
	case r.Policy > RequireDualStack:
		return bad("the policy is SingleStack, PreferDualStack or RequireDualStack")
	case r.Policy == RequireDualStack && len(r.Families) < 2:
		return bad("RequireDualStack needs both families, but the Service has only " + r.Families[0].String())
	case r.Count < 0 || r.Count > MaxCount || len(r.Addresses) > MaxCount:
		return bad("a Service has at most " + strconv.Itoa(MaxCount) + " addresses of a family")
	}
	if r.Policy == SingleStack {
		r.Families = r.Families[:1]
	}
	r.Count = max(r.Count, 1)
	for i, addr := range r.Addresses {
		switch {
		case !addr.IsValid():
			return bad("an address that is asked for is not an IP address")
		case addr.Is4In6() || addr.Zone() != "":
			return bad(addr.String() + " is a 4-in-6 address or has a zone")
		case slices.Contains(r.Addresses[:i], addr):
			return bad(addr.String() + " is asked for twice")
		}
	}
	r.Sharing = r.Sharing.normal()
	return nil
}

// normal is a copy in one form: ports once and in order.
func (s Sharing) normal() Sharing {
	s.Ports = slices.SortedFunc(slices.Values(s.Ports), func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Number, b.Number))
	})
	s.Ports = slices.Compact(s.Ports)
	s.Selector = maps.Clone(s.Selector)
	return s
}

// sameBackends tells whether every node that serves one Service serves the other.
func (s *Sharing) sameBackends(t *Sharing) bool {
	return s.Local == t.Local && (!s.Local || maps.Equal(s.Selector, t.Selector))
}
