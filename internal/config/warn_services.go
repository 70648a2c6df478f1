package config

import (
	"fmt"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/agree"
)

// coverage is what advertisements are for.
type coverage struct {
	all       bool // some are for every pool
	names     map[string]bool
	selectors []v1alpha1.Selector
}

// coverageOf collects what all advertisements are for.
func coverageOf(objects []*object) *coverage {
	c := &coverage{names: make(map[string]bool)}
	for _, o := range objects {
		switch b := o.body.(type) {
		case *v1alpha1.L2Advertisement:
			c.add(b.Spec.IPAddressPools, b.Spec.IPAddressPoolSelectors)
		case *v1alpha1.BGPAdvertisement:
			c.add(b.Spec.IPAddressPools, b.Spec.IPAddressPoolSelectors)
		}
	}
	return c
}

func (c *coverage) add(names []string, selectors []v1alpha1.Selector) {
	c.all = c.all || len(names) == 0 && len(selectors) == 0
	for _, n := range names {
		c.names[n] = true
	}
	c.selectors = append(c.selectors, selectors...)
}

// warnPool warns about a pool that is for nothing.
func warnPool(p *v1alpha1.IPAddressPool, c *coverage, warn func(path, text string)) {
	if c.all || c.names[p.Metadata.Name] || len(c.selectors) > 0 && agree.Covers(nil, c.selectors, p) {
		return
	}
	warn("metadata.name", "no L2Advertisement or BGPAdvertisement is for this pool: its addresses are given out, and nobody announces them")
}

// warnSelectors warns about selectors of pools that select none.
func warnSelectors(list []v1alpha1.Selector, names *named, warn func(path, text string)) {
	for i, s := range list {
		if !matchesAny(s, names.pools) {
			warn(fmt.Sprintf("spec.ipAddressPoolSelectors[%d]", i), "matches the labels of no IPAddressPool")
		}
	}
}

// matchesAny tells whether a selector matches the labels of a pool.
func matchesAny(s v1alpha1.Selector, pools map[string]*v1alpha1.IPAddressPool) bool {
	for _, p := range pools {
		if s.Matches(p.Metadata.Labels) {
			return true
		}
	}
	return false
}

// warnAdvertisement warns about a BGPAdvertisement as about that part of a
// VirtualIP.
func warnAdvertisement(s *v1alpha1.BGPAdvertisementSpec, names *named, warn func(path, text string)) {
	warnSelectors(s.IPAddressPoolSelectors, names, warn)
	a := &v1alpha1.BGPAdvertise{Peers: s.Peers, Communities: s.Communities}
	if s.LocalPref != 0 {
		a.LocalPref = &s.LocalPref
	}
	warnBGP(a, names, func(path, text string) {
		warn("spec"+strings.TrimPrefix(path, "spec.advertise.bgp"), text)
	})
}
