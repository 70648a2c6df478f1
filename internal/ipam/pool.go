package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
)

// Pool is an IPAddressPool as a value.
type Pool struct {
	Name string
	// Created is when the object was made; zero for one from a file. Of two pools
	// that overlap the older one counts, then the one whose name sorts first.
	Created time.Time
	// Addresses are CIDRs and ranges as users write them; see v1alpha1.ParseAddressRange. Addresses
	// are given out in this order.
	Addresses []string
	// AutoAssign: also for Services that ask for neither the pool nor an address.
	AutoAssign bool
	// AvoidBuggyIPs takes IPv4 addresses that end in .0 and .255 out of the pool.
	AvoidBuggyIPs bool
	// Allocation limits the pool to some Services; nil: all. Such a pool is tried before
	// those without.
	Allocation *v1alpha1.ServiceAllocation
	// Closed is why no Service gets an address that it has not yet; empty: the pool is open.
	Closed string
}

func (p *Pool) serves(r *Request) bool {
	s := p.Allocation
	if s == nil {
		return true
	}
	if len(s.Namespaces)+len(s.NamespaceSelectors) > 0 &&
		!slices.Contains(s.Namespaces, r.Owner.Namespace) && !anyMatches(s.NamespaceSelectors, r.NamespaceLabels) {
		return false
	}
	return len(s.ServiceSelectors) == 0 || anyMatches(s.ServiceSelectors, r.Labels)
}

// anyMatches tells whether one of the selectors matches.
func anyMatches(list []v1alpha1.Selector, labels map[string]string) bool {
	return slices.ContainsFunc(list, func(s v1alpha1.Selector) bool { return s.Matches(labels) })
}

// pool is a Pool at work.
type pool struct {
	Pool
	spaces [2]space // by Family.index
}

// space is one family of a pool. Its addresses are numbered without a gap from 0
// in the order in which they are given out, so that ranges in any order and the
// addresses that are avoided cost no search.
type space struct {
	parts                 []part // by off; none is empty
	size                  number
	free                  set // indexes that may be given out
	assigned, quarantined uint64
}

// part is one range of a pool.
type part struct {
	pool   *pool
	lo, hi number // addresses
	off    number // index of the first address that may be given out
	count  number // of those
	avoid  bool   // some are avoided
}

// avoided tells whether an address ends in .0 or .255.
func avoided(x number) bool { return x.lo&255 == 0 || x.lo&255 == 255 }

// goodBelow counts the IPv4 addresses below x that end in neither .0 nor .255.
func goodBelow(x number) uint64 {
	return x.lo>>8*254 + min(max(x.lo&255, 1)-1, 254)
}

// newPart numbers the addresses of a range from off.
func newPart(p *pool, r v1alpha1.AddressRange, off number) part {
	x := part{pool: p, lo: numberOf(r.First), hi: numberOf(r.Last), off: off}
	if x.avoid = p.AvoidBuggyIPs && FamilyOf(r.First) == IPv4; x.avoid {
		x.count = small(goodBelow(x.hi.next()) - goodBelow(x.lo))
	} else {
		x.count = x.hi.minus(x.lo).next()
	}
	return x
}

// index numbers an address of the part; false: it is avoided.
func (x *part) index(addr number) (number, bool) {
	if !x.avoid {
		return x.off.plus(addr.minus(x.lo)), true
	}
	return x.off.plus(small(goodBelow(addr) - goodBelow(x.lo))), !avoided(addr)
}

// at returns the address with an index of the part.
func (x *part) at(i number) number {
	n := i.minus(x.off)
	if !x.avoid {
		return x.lo.plus(n)
	}
	good := goodBelow(x.lo) + n.lo
	return small(good/254<<8 + good%254 + 1)
}

// at returns the address with this index.
func (s *space) at(i number, f Family) netip.Addr {
	n := sort.Search(len(s.parts), func(k int) bool { return i.less(s.parts[k].off) })
	return s.parts[n-1].at(i).addr(f)
}

// compile turns ranges into a pool with all of its addresses free; parts are
// all ranges, also those in which everything is avoided.
func compile(c Pool, ranges []v1alpha1.AddressRange) (p *pool, parts [2][]part) {
	p = &pool{Pool: c}
	for _, r := range ranges {
		f := FamilyOf(r.First).index()
		s := &p.spaces[f]
		x := newPart(p, r, s.size)
		parts[f] = append(parts[f], x)
		if x.count != (number{}) {
			s.parts = append(s.parts, x)
			s.size = s.size.plus(x.count)
		}
	}
	for f := range p.spaces {
		p.spaces[f].reset()
		slices.SortFunc(parts[f], func(a, b part) int { return compare(a.lo, b.lo) })
	}
	return p, parts
}

// reset makes every address free.
func (s *space) reset() {
	s.free, s.assigned, s.quarantined = full(s.size), 0, 0
}

func compare(a, b number) int {
	return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo))
}

// rank orders pools for one Service: priority 1 first and 0 last, then by name.
func rank(a, b *pool) int {
	priority := func(p *pool) uint {
		if p.Allocation == nil {
			return ^uint(0)
		}
		return uint(p.Allocation.Priority) - 1 // 0 becomes the largest
	}
	return cmp.Or(cmp.Compare(priority(a), priority(b)), cmp.Compare(a.Name, b.Name))
}
