// Package ipam gives addresses of pools to Services. It is pure: it reads no
// clock and does no input or output, and the same calls give the same answers.
//
// Order of choice. Pools: those that a Service names, in its order; else the
// pools with an Allocation that serve the Service, by priority (1 first, 0 last)
// and name, and then the pools without one, by name. Several families come from
// the first pool that has them all, else each from the first pool that has it;
// from pools without an Allocation comes only what those with one have not.
// Addresses: one already shared under the sharing key of the Service, if the
// rules allow it, else the first free one, each in the order in which the pool
// lists its ranges and ascending within a range.
//
// What runs keeps running: an address that a Service holds is never taken away
// by a change of pools or by another Service. Stray tells of such an address, and the
// caller decides.
package ipam

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// Config is what an Allocator works with.
type Config struct {
	Pools []Pool
	// NodeAddresses are never given out.
	NodeAddresses []netip.Addr
	// Quarantine is how long a freed address is not chosen again, so that clients
	// of the old Service do not reach the new one. A Service that asks for the
	// address itself gets it at once.
	Quarantine time.Duration
}

// Allocator holds pools and assignments. It has no lock: one goroutine owns it.
type Allocator struct {
	quarantine time.Duration
	nodes      map[netip.Addr]bool
	pools      map[string]*pool
	refused    map[string]bool // names of pools that exist and were refused
	// parts are the ranges of all pools by Family.index, in order of address.
	parts [2][]part
	// Pools that may be chosen for a Service that names none, each list by rank:
	// those for listed namespaces only, the others with an Allocation, and those
	// without.
	byNamespace      map[string][]*pool
	pinned, defaults []*pool

	owners map[model.Key]*owner
	holds  map[netip.Addr]*hold // never without a user
	shared map[sharedIn]*sharedSet
	resting
}

// New returns an Allocator without assignments. Pools that break a rule are left
// out and reported; see Update.
func New(c Config) (*Allocator, []PoolError) {
	a := &Allocator{
		owners: map[model.Key]*owner{}, holds: map[netip.Addr]*hold{},
		resting: resting{until: map[netip.Addr]time.Time{}, by: map[netip.Addr]model.Key{}},
	}
	errs := a.Update(c)
	return a, errs
}

// Update replaces pools, node addresses and the quarantine time. Assignments stay
// as they are, those too that lie outside every pool now (see Stray), and so do
// addresses in quarantine. The errors are in order of pool name.
func (a *Allocator) Update(c Config) []PoolError {
	a.quarantine = c.Quarantine
	a.nodes = make(map[netip.Addr]bool, len(c.NodeAddresses))
	for _, n := range c.NodeAddresses {
		a.nodes[n.Unmap().WithZone("")] = true
	}
	errs := a.setPools(c.Pools)
	errs = append(errs, a.nodesInPools()...)
	a.choices()
	a.reindex()
	sortPoolErrors(errs)
	return errs
}

// choices prepares the lists of pools for Services that name none.
func (a *Allocator) choices() {
	a.byNamespace, a.pinned, a.defaults = map[string][]*pool{}, nil, nil
	for _, p := range slices.SortedFunc(maps.Values(a.pools), rank) {
		switch s := p.Allocation; {
		case !p.AutoAssign:
		case s == nil:
			a.defaults = append(a.defaults, p)
		case len(s.Namespaces) > 0 && len(s.NamespaceSelectors) == 0:
			for _, ns := range slices.Compact(slices.Sorted(slices.Values(s.Namespaces))) {
				a.byNamespace[ns] = append(a.byNamespace[ns], p)
			}
		default:
			a.pinned = append(a.pinned, p)
		}
	}
}

// reindex computes what follows from pools, assignments and quarantine.
func (a *Allocator) reindex() {
	a.shared = map[sharedIn]*sharedSet{}
	for _, p := range a.pools {
		p.spaces[0].reset()
		p.spaces[1].reset()
	}
	for addr := range a.nodes {
		if at := a.place(addr); at.ok {
			at.space.free.remove(at.index)
		}
	}
	for addr, h := range a.holds {
		a.occupy(addr)
		for _, o := range h.users {
			a.shareIn(o, addr)
		}
	}
	for addr := range a.until {
		if at := a.place(addr); at.ok {
			at.space.free.remove(at.index)
			at.space.quarantined++
		}
	}
}

// place is where an address lies.
type place struct {
	pool  *pool // nil: in no pool
	space *space
	index number
	ok    bool // the pool may give it out
}

func (a *Allocator) place(addr netip.Addr) place {
	x := numberOf(addr)
	f := FamilyOf(addr).index()
	n := after(a.parts[f], x)
	if n == 0 || a.parts[f][n-1].hi.less(x) {
		return place{}
	}
	at := &a.parts[f][n-1]
	index, ok := at.index(x)
	return place{at.pool, &at.pool.spaces[f], index, ok}
}

// after counts the ranges that begin at x or before it.
func after(parts []part, x number) int {
	lo, hi := 0, len(parts)
	for lo < hi {
		mid := (lo + hi) / 2
		if x.less(parts[mid].lo) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// occupy takes an address that got its first user out of its pool.
func (a *Allocator) occupy(addr netip.Addr) {
	if at := a.place(addr); at.ok {
		at.space.free.remove(at.index)
		at.space.assigned++
		if a.lift(addr) {
			at.space.quarantined--
		}
		return
	}
	a.lift(addr)
}

// vacate gives back an address that lost its last user.
func (a *Allocator) vacate(addr netip.Addr, by model.Key, now time.Time) {
	at := a.place(addr)
	if at.ok {
		at.space.assigned--
	}
	switch {
	case a.quarantine > 0:
		a.rest(addr, by, now.Add(a.quarantine))
		if at.ok {
			at.space.quarantined++
		}
	case at.ok && !a.nodes[addr]:
		at.space.free.add(at.index)
	}
}

// Expire ends the quarantines that are over and returns when the next one ends;
// zero without one. Allocate does it too; a caller whose Services wait for an
// address asks again then.
func (a *Allocator) Expire(now time.Time) time.Time {
	for {
		addr, until, ok := a.first()
		if !ok {
			return time.Time{}
		}
		if until.After(now) {
			return until
		}
		a.lift(addr)
		if at := a.place(addr); at.ok {
			at.space.quarantined--
			if !a.nodes[addr] {
				at.space.free.add(at.index)
			}
		}
	}
}
