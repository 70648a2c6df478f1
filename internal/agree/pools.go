package agree

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
)

// Covers tells whether an advertisement with these names and selectors is for a
// pool; without any it is for all.
func Covers(names []string, selectors []v1alpha1.Selector, p *v1alpha1.IPAddressPool) bool {
	if len(names) == 0 && len(selectors) == 0 || slices.Contains(names, p.Metadata.Name) {
		return true
	}
	return slices.ContainsFunc(selectors, func(s v1alpha1.Selector) bool { return s.Matches(p.Metadata.Labels) })
}

// PoolIndex finds the pool of an address.
type PoolIndex struct {
	ranges []poolRange // by First, then in the order of the pools
}

// poolRange is one entry of a pool.
type poolRange struct {
	v1alpha1.AddressRange
	pool, entry int
	// reach is the highest Last of this range and those before it, of the family.
	reach netip.Addr
}

// NewPoolIndex reads the entries of pools; one that is none is left out.
func NewPoolIndex(pools []*v1alpha1.IPAddressPool) PoolIndex {
	var x PoolIndex
	for i, p := range pools {
		for n, text := range p.Spec.Addresses {
			if r, err := v1alpha1.ParseAddressRange(text); err == nil {
				x.ranges = append(x.ranges, poolRange{AddressRange: r, pool: i, entry: n})
			}
		}
	}
	slices.SortStableFunc(x.ranges, func(a, b poolRange) int { return a.First.Compare(b.First) })
	for i := range x.ranges {
		r := &x.ranges[i]
		r.reach = r.Last
		if i > 0 && r.reach.Less(x.ranges[i-1].reach) {
			r.reach = x.ranges[i-1].reach
		}
	}
	return x
}

// Find returns the places of the pool that has the address and of its entry, -1 for
// none. Of two pools that overlap it is the first.
func (x *PoolIndex) Find(a netip.Addr) (pool, entry int) {
	i, _ := slices.BinarySearchFunc(x.ranges, a, func(r poolRange, a netip.Addr) int {
		if r.First.Compare(a) <= 0 {
			return -1
		}
		return 1
	})
	pool, entry = -1, -1
	for i--; i >= 0 && !x.ranges[i].reach.Less(a); i-- {
		if r := &x.ranges[i]; r.Contains(a) && (pool < 0 || r.pool < pool) {
			pool, entry = r.pool, r.entry
		}
	}
	return pool, entry
}

func (j *Judge) entry(pool, n int) Field {
	o := j.Pools[pool]
	return Field{v1alpha1.KindIPAddressPool, o.Metadata.Name, pool, fmt.Sprintf("spec.addresses[%d]", n), strings.TrimSpace(o.Spec.Addresses[n])}
}

// pools judges the pools, and what may be in none.
func (j *Judge) pools() {
	if j.Node != nil {
		j.besideServices()
	}
	j.uniqueRanges()
	j.eachAddress(func(at Field, addr netip.Addr) { j.inPool(AddressInPool, at, addr) })
	j.eachPlace(j.peerAddress, func(_ int, at Field, p place) { j.inPool(PeerInPool, at, p.addr) })
}

// besideServices reports objects for Services, which a node does not serve from files.
func (j *Judge) besideServices() {
	report := func(kind, name string, i int) {
		j.find(PoolBesideNode, Field{kind, name, i, "kind", kind}, j.node("kind", nil))
	}
	for i, o := range j.Pools {
		report(v1alpha1.KindIPAddressPool, o.Metadata.Name, i)
	}
	for i, o := range j.L2Advertisements {
		report(v1alpha1.KindL2Advertisement, o.Metadata.Name, i)
	}
	for i, o := range j.BGPAdvertisements {
		report(v1alpha1.KindBGPAdvertisement, o.Metadata.Name, i)
	}
}

func (j *Judge) inPool(rule Rule, at Field, addr netip.Addr) {
	if pool, n := j.index.ranges.Find(addr); pool >= 0 {
		j.find(rule, at, j.entry(pool, n))
	}
}

// uniqueRanges finds entries that overlap one of another pool; the later one is at fault.
// The pool itself is judged by its own rules.
func (j *Judge) uniqueRanges() {
	far := 0 // of the entries so far, the one that reaches furthest
	for i := 1; i < len(j.index.ranges.ranges); i++ {
		first, second := &j.index.ranges.ranges[far], &j.index.ranges.ranges[i]
		if first.Last.Less(second.Last) {
			far = i
		}
		if first.pool == second.pool || !first.Overlaps(second.AddressRange) {
			continue
		}
		if first.pool > second.pool {
			first, second = second, first
		}
		if at := j.entry(second.pool, second.entry); !j.broken(at) {
			at.Value = j.Pools[second.pool].Spec.Addresses[second.entry]
			j.find(PoolsOverlap, at, j.entry(first.pool, first.entry))
		}
	}
}

// roomForPrefixes finds aggregation to prefixes that are larger than an entry of a pool.
func (j *Judge) roomForPrefixes(at func(path string) Field, s *v1alpha1.BGPAdvertisementSpec) {
	check := func(path string, length, single int32, v6 bool) {
		f := at(path)
		f.Value = length
		if length == single || j.broken(f) {
			return
		}
		if pool, n := j.tooWide(s, length, v6); pool >= 0 {
			j.find(PrefixTooWide, f, j.entry(pool, n))
		}
	}
	check("spec.aggregationLength", *s.AggregationLength, v1alpha1.DefaultAggregationLength, false)
	check("spec.aggregationLengthV6", *s.AggregationLengthV6, v1alpha1.DefaultAggregationLengthV6, true)
}

// tooWide finds the first entry of a pool that an advertisement covers and that does not
// hold a whole prefix of the length; -1 if there is none.
func (j *Judge) tooWide(s *v1alpha1.BGPAdvertisementSpec, length int32, v6 bool) (pool, entry int) {
	for i, p := range j.Pools {
		if !Covers(s.IPAddressPools, s.IPAddressPoolSelectors, p) {
			continue
		}
		for n, text := range p.Spec.Addresses {
			if r, err := v1alpha1.ParseAddressRange(text); err == nil && r.First.Is6() == v6 && !r.HoldsPrefix(int(length)) {
				return i, n
			}
		}
	}
	return -1, -1
}
