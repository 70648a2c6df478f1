package ipam

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/shortlist"
)

// PoolRule is the rule that a pool breaks.
type PoolRule uint8

// The rules for pools. A pool that breaks one is left out, except for
// PoolHoldsNode, where only the addresses of the nodes are.
const (
	PoolName      PoolRule = iota + 1 // has no name, or that of another pool
	PoolEmpty                         // has no addresses
	PoolRange                         // has an entry that is not a range; see v1alpha1.ParseAddressRange
	PoolOverlap                       // overlaps another pool, or itself
	PoolHoldsNode                     // contains addresses of nodes
)

// PoolError says which rule a pool breaks.
type PoolError struct {
	Pool string
	// Other is the pool that it overlaps; Pool itself if two of its ranges do.
	Other   string
	Rule    PoolRule
	Refused bool   // the pool is left out
	Path    string // of the field, such as spec.addresses[2]
	Value   string // of the field
	words   string
}

// Error returns a sentence that names pool, path, value and rule.
func (e PoolError) Error() string {
	s := fmt.Sprintf("IPAddressPool %q: ", e.Pool)
	if e.Path != "" {
		s += e.Path + ": "
	}
	if e.Value != "" {
		s += fmt.Sprintf("%q ", e.Value)
	}
	return s + e.words
}

func sortPoolErrors(errs []PoolError) {
	slices.SortStableFunc(errs, func(a, b PoolError) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Rule, b.Rule))
	})
}

// setPools takes the pools in order of age and name, so that of two that overlap
// the one stays that was there first.
func (a *Allocator) setPools(pools []Pool) (errs []PoolError) {
	a.pools, a.refused, a.parts = make(map[string]*pool, len(pools)), map[string]bool{}, [2][]part{}
	sorted := slices.SortedStableFunc(slices.Values(pools), func(x, y Pool) int {
		return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.Name, y.Name))
	})
	for _, c := range sorted {
		p, parts, bad := a.build(c)
		if len(bad) > 0 {
			errs = append(errs, bad...)
			if a.pools[c.Name] == nil {
				a.refused[c.Name] = true
			}
			continue
		}
		a.pools[c.Name] = p
		for f := range parts {
			for _, x := range parts[f] {
				a.parts[f] = slices.Insert(a.parts[f], after(a.parts[f], x.lo), x)
			}
		}
	}
	return errs
}

// build checks one pool against the rules and those that were taken before it.
func (a *Allocator) build(c Pool) (*pool, [2][]part, []PoolError) {
	refuse := func(rule PoolRule, words string) []PoolError {
		return []PoolError{{Pool: c.Name, Rule: rule, Refused: true, words: words}}
	}
	switch {
	case c.Name == "":
		return nil, [2][]part{}, refuse(PoolName, "has no name")
	case a.pools[c.Name] != nil:
		return nil, [2][]part{}, refuse(PoolName, "has the name of another pool")
	case len(c.Addresses) == 0:
		return nil, [2][]part{}, refuse(PoolEmpty, "spec.addresses must have at least one range")
	}
	var errs []PoolError
	ranges := make([]v1alpha1.AddressRange, 0, len(c.Addresses))
	for i, text := range c.Addresses {
		r, err := v1alpha1.ParseAddressRange(text)
		if err != nil {
			errs = append(errs, PoolError{Pool: c.Name, Rule: PoolRange, Refused: true,
				Path: fmt.Sprintf("spec.addresses[%d]", i), Value: text, words: err.Error()})
			continue
		}
		for _, other := range a.overlapping(r) {
			if !slices.ContainsFunc(errs, func(e PoolError) bool { return e.Other == other }) {
				errs = append(errs, PoolError{Pool: c.Name, Other: other, Rule: PoolOverlap, Refused: true,
					Path: fmt.Sprintf("spec.addresses[%d]", i), Value: text, words: fmt.Sprintf("overlaps pool %q, which is older or sorts first", other)})
			}
		}
		ranges = append(ranges, r)
	}
	if len(errs) > 0 {
		return nil, [2][]part{}, errs
	}
	p, parts := compile(c, ranges)
	for f := range parts {
		for i := 1; i < len(parts[f]); i++ {
			if !parts[f][i-1].hi.less(parts[f][i].lo) {
				fam := [...]Family{IPv4, IPv6}[f]
				return nil, parts, []PoolError{{Pool: c.Name, Other: c.Name, Rule: PoolOverlap, Refused: true, Path: "spec.addresses",
					words: fmt.Sprintf("lists %s more than once", parts[f][i].lo.addr(fam))}}
			}
		}
	}
	return p, parts, nil
}

// overlapping returns the pools that have addresses of the range.
func (a *Allocator) overlapping(r v1alpha1.AddressRange) (names []string) {
	parts := a.parts[FamilyOf(r.First).index()]
	for n := after(parts, numberOf(r.Last)); n > 0 && !parts[n-1].hi.less(numberOf(r.First)); n-- {
		names = append(names, parts[n-1].pool.Name)
	}
	return names
}

// nodesInPools reports pools that contain addresses of nodes.
func (a *Allocator) nodesInPools() (errs []PoolError) {
	found := map[string][]string{}
	for _, addr := range slices.SortedFunc(maps.Keys(a.nodes), netip.Addr.Compare) {
		if at := a.place(addr); at.pool != nil {
			found[at.pool.Name] = append(found[at.pool.Name], addr.String())
		}
	}
	for name, list := range found {
		errs = append(errs, PoolError{Pool: name, Rule: PoolHoldsNode, Path: "spec.addresses",
			words: "contain the addresses of nodes " + some(list) + ", which are not given out"})
	}
	return errs
}

// some joins names, and only counts those beyond the first few.
func some(names []string) string { return shortlist.Join(names, 5) }
