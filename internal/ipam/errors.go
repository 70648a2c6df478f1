package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Rule says why a Service does not get an address.
type Rule uint8

// The rules.
const (
	BadRequest     Rule = iota + 1 // the request contradicts itself
	Exhausted                      // every address of the pools is in use or in quarantine
	NoPool                         // no pool assigns to the Service of itself
	UnknownPool                    // a pool of that name does not exist, or was refused
	NotSelected                    // the pool is for other namespaces or Services
	PoolClosed                     // the pool gives out nothing for now
	WrongPool                      // address and pool that are asked for do not fit
	FamilyMissing                  // the pools have no range of a family, or no address of it is asked for
	FamilyMismatch                 // the address is of a family that the Service does not have
	NotInPool                      // the address is in no pool
	Avoided                        // the address ends in .0 or .255 and the pool has avoidBuggyIPs
	NodeAddress                    // the address is that of a node
	InUse                          // another Service has the address and one of them does not share
	SharingKey                     // another Service shares the address under another key
	SharingBackend                 // the traffic policies or selectors forbid sharing
	PortInUse                      // another Service has the port of the address
	DuplicateOwner                 // the Service was restored already (Restore only)
)

var ruleNames = [...]string{"", "BadRequest", "Exhausted", "NoPool", "UnknownPool", "NotSelected", "PoolClosed", "WrongPool", "FamilyMissing",
	"FamilyMismatch", "NotInPool", "Avoided", "NodeAddress", "InUse", "SharingKey", "SharingBackend", "PortInUse", "DuplicateOwner"}

// String returns the name of the rule, for events and metrics.
func (r Rule) String() string {
	if int(r) < len(ruleNames) {
		return ruleNames[r]
	}
	return "Unknown"
}

// Error says why a Service does not get an address.
type Error struct {
	Rule   Rule
	Addr   netip.Addr // if the rule is about one
	Family Family     // if the rule is about one; else 0
	Pools  []string   // that were looked at
	By     []string   // Services that are in the way, in order
	// Retry is when an address leaves quarantine; zero if none is in it.
	Retry time.Time
	words string
}

// Error returns the rule in words.
func (e *Error) Error() string { return e.words }

// quoted lists pools in words.
func quoted(pools []string) string {
	q := make([]string, len(pools))
	for i, p := range pools {
		q[i] = fmt.Sprintf("%q", p)
	}
	if len(q) == 1 {
		return "pool " + q[0]
	}
	return "pools " + some(q)
}

func errInUse(addr netip.Addr, by []string) *Error {
	return &Error{Rule: InUse, Addr: addr, By: by,
		words: fmt.Sprintf("%s is in use by %s; to share it, each Service needs the same sharing key", addr, some(by))}
}

func errSharingKey(addr netip.Addr, by []string, theirs, mine string) *Error {
	return &Error{Rule: SharingKey, Addr: addr, By: by,
		words: fmt.Sprintf("%s is shared by %s under the key %q, which is not %q", addr, some(by), theirs, mine)}
}

func errSharingBackend(addr netip.Addr, by []string) *Error {
	return &Error{Rule: SharingBackend, Addr: addr, By: by,
		words: fmt.Sprintf("%s is shared by %s: sharing needs externalTrafficPolicy Cluster on each Service, or Local and the same selector on each", addr, some(by))}
}

func errPortInUse(addr netip.Addr, port Port, by string) *Error {
	return &Error{Rule: PortInUse, Addr: addr, By: []string{by},
		words: fmt.Sprintf("port %s of %s is in use by %s", port, addr, by)}
}

func errNotSelected(pool string) *Error {
	return &Error{Rule: NotSelected, Pools: []string{pool},
		words: fmt.Sprintf("pool %q is for other Services: serviceAllocation names neither the namespace nor the labels of this one", pool)}
}

func errClosed(p *pool) *Error {
	return &Error{Rule: PoolClosed, Pools: []string{p.Name}, words: fmt.Sprintf("pool %q gives out nothing for now: %s", p.Name, p.Closed)}
}

// Stray says why no pool would give out the address now: NotInPool, Avoided or
// NodeAddress; nil: one would.
func (a *Allocator) Stray(addr netip.Addr) *Error {
	at := a.place(addr)
	switch {
	case at.pool == nil:
		return &Error{Rule: NotInPool, Addr: addr, words: fmt.Sprintf("%s is in no pool", addr)}
	case !at.ok:
		return &Error{Rule: Avoided, Addr: addr, Pools: []string{at.pool.Name},
			words: fmt.Sprintf("%s ends in .0 or .255, which pool %q avoids (avoidBuggyIPs)", addr, at.pool.Name)}
	case a.nodes[addr]:
		return &Error{Rule: NodeAddress, Addr: addr, Pools: []string{at.pool.Name},
			words: fmt.Sprintf("%s is the address of a node", addr)}
	}
	return nil
}

// errNone says why the pools have too few addresses of a family.
func (a *Allocator) errNone(pools []*pool, f Family, count int) *Error {
	e := &Error{Rule: FamilyMissing, Family: f}
	resting := uint64(0)
	for _, p := range pools {
		e.Pools = append(e.Pools, p.Name)
		s := &p.spaces[f.index()]
		resting += s.quarantined
		if s.size != (number{}) {
			e.Rule = Exhausted
		}
	}
	if e.Rule == FamilyMissing {
		e.words = fmt.Sprintf("no %s range in %s", f, quoted(e.Pools))
		return e
	}
	var b strings.Builder
	if count == 1 {
		fmt.Fprintf(&b, "no free %s address in %s", f, quoted(e.Pools))
	} else {
		fmt.Fprintf(&b, "fewer than %d free %s addresses in %s", count, f, quoted(e.Pools))
	}
	if resting > 0 {
		_, e.Retry, _ = a.first()
		fmt.Fprintf(&b, "; %d in quarantine", resting)
	}
	e.words = b.String()
	return e
}
