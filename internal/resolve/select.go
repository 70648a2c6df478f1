package resolve

import (
	"slices"

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

// Meet tells whether one node could match both lists of selectors. An empty list
// matches every node.
func Meet(a, b []v1alpha1.LabelSelector) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	for _, x := range a {
		for _, y := range b {
			if compatible(x.MatchLabels, y.MatchLabels) {
				return true
			}
		}
	}
	return false
}

// compatible tells whether no label has two values.
func compatible(a, b map[string]string) bool {
	for key, value := range a {
		if other, ok := b[key]; ok && other != value {
			return false
		}
	}
	return true
}

// TooWide finds the first entry of a pool that an advertisement covers and that
// does not hold a whole prefix of the length: routers would be told of addresses
// that are not in it. It returns the places of the pool and of the entry.
func TooWide(s *v1alpha1.BGPAdvertisementSpec, pools []*v1alpha1.IPAddressPool, length int32, v6 bool) (pool, entry int, found bool) {
	for i, p := range pools {
		if !Covers(s.IPAddressPools, s.IPAddressPoolSelectors, p) {
			continue
		}
		for j, text := range p.Spec.Addresses {
			r, err := v1alpha1.ParseAddressRange(text)
			if err == nil && r.First.Is6() == v6 && !r.HoldsPrefix(int(length)) {
				return i, j, true
			}
		}
	}
	return 0, 0, false
}
