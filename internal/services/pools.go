package services

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
)

// poolIndex finds the pool of an address.
type poolIndex struct {
	ranges []poolRange // by First
}

// poolRange is one entry of a pool.
type poolRange struct {
	v1alpha1.AddressRange
	pool int
	// reach is the highest Last of this range and those before it, of the family.
	reach netip.Addr
}

func newPoolIndex(pools []*v1alpha1.IPAddressPool) poolIndex {
	var x poolIndex
	for i, p := range pools {
		for _, text := range p.Spec.Addresses {
			if r, err := v1alpha1.ParseAddressRange(text); err == nil {
				x.ranges = append(x.ranges, poolRange{AddressRange: r, pool: i})
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

// find returns the number of the pool that has the address, -1 for none. Of two
// that overlap, which the controller reports, it is the first by name.
func (x *poolIndex) find(a netip.Addr) int {
	i, _ := slices.BinarySearchFunc(x.ranges, a, func(r poolRange, a netip.Addr) int {
		if r.First.Compare(a) <= 0 {
			return -1
		}
		return 1
	})
	found := -1
	for i--; i >= 0 && !x.ranges[i].reach.Less(a); i-- {
		if r := &x.ranges[i]; r.Contains(a) && (found < 0 || r.pool < found) {
			found = r.pool
		}
	}
	return found
}
