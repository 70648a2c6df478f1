package v1alpha1

import (
	"fmt"
	"slices"
)

// Validate returns every rule that the defaulted object breaks, in the order of
// its fields.
func (p *IPAddressPool) Validate() []FieldError {
	var k checker
	k.typeMeta(p.TypeMeta, KindIPAddressPool)
	k.objectMeta(p.Metadata)
	k.ranges("spec.addresses", p.Spec.Addresses)
	if a := p.Spec.ServiceAllocation; a != nil {
		k.allocation("spec.serviceAllocation", a)
	}
	return k.errs
}

// ranges checks the addresses of one pool.
func (k *checker) ranges(path string, texts []string) {
	if len(texts) == 0 {
		k.bad(path, nil, "must have at least one CIDR or range")
	}
	k.atMost(path, len(texts), maxPoolAddresses)
	type entry struct {
		index int
		AddressRange
	}
	var good []entry
	for i, text := range texts {
		r, err := ParseAddressRange(text)
		if err != nil {
			k.bad(fmt.Sprintf("%s[%d]", path, i), text, "%v", err)
			continue
		}
		good = append(good, entry{i, r})
	}
	// In order of their first address, one that overlaps any before it overlaps the
	// one of those that reaches furthest.
	slices.SortStableFunc(good, func(a, b entry) int { return a.First.Compare(b.First) })
	var bad []FieldError
	far := 0
	for i := 1; i < len(good); i++ {
		if good[far].Overlaps(good[i].AddressRange) {
			at, other := max(good[far].index, good[i].index), min(good[far].index, good[i].index)
			bad = append(bad, FieldError{fmt.Sprintf("%s[%d]", path, at), texts[at], fmt.Sprintf("overlaps %s[%d]", path, other)})
		}
		if good[far].Last.Less(good[i].Last) {
			far = i
		}
	}
	k.errs = append(k.errs, bad...)
}

// allocation checks for which Services a pool is.
func (k *checker) allocation(path string, a *ServiceAllocation) {
	k.want(a.Priority >= 0, path+".priority", a.Priority, "must not be negative")
	k.eachOnce(path+".namespaces", a.Namespaces, func(at, name string) {
		k.want(isDNSLabel(name), at, name, ruleDNSLabel)
	})
	k.selectors(path+".namespaceSelectors", a.NamespaceSelectors)
	k.selectors(path+".serviceSelectors", a.ServiceSelectors)
}
