package v1alpha1

import (
	"errors"
	"fmt"
)

// Validate returns every rule that the object breaks, in the order of its
// fields.
func (a *L2Advertisement) Validate() []FieldError {
	var k checker
	k.typeMeta(a.TypeMeta, KindL2Advertisement)
	k.objectMeta(a.Metadata)
	s := &a.Spec
	k.names("spec.ipAddressPools", s.IPAddressPools)
	k.selectors("spec.ipAddressPoolSelectors", s.IPAddressPoolSelectors)
	k.selectors("spec.nodeSelectors", s.NodeSelectors)
	k.atMost("spec.preferredNodeSelectors", len(s.PreferredNodeSelectors), maxSelectors)
	for i, p := range s.PreferredNodeSelectors {
		path := fmt.Sprintf("spec.preferredNodeSelectors[%d]", i)
		between(&k, path+".weight", p.Weight, 1, 100)
		k.selector(path+".preference", p.Preference)
	}
	k.interfaces("spec.interfaces", s.Interfaces)
	k.selectors("spec.serviceSelectors", s.ServiceSelectors)
	return k.errs
}

// Validate returns every rule that the defaulted object breaks, in the order of
// its fields. Whether names exist is for others to say.
func (a *BGPAdvertisement) Validate() []FieldError {
	var k checker
	k.typeMeta(a.TypeMeta, KindBGPAdvertisement)
	k.objectMeta(a.Metadata)
	s := &a.Spec
	between(&k, "spec.aggregationLength", *s.AggregationLength, 1, 32)
	between(&k, "spec.aggregationLengthV6", *s.AggregationLengthV6, 1, 128)
	k.eachOnce("spec.communities", s.Communities, func(at, text string) {
		if _, err := ParseCommunity(text); err != nil && !errors.Is(err, ErrCommunityName) {
			k.bad(at, text, "%v", err)
		}
	})
	k.atMost("spec.communities", len(s.Communities), maxCommunities)
	k.names("spec.ipAddressPools", s.IPAddressPools)
	k.selectors("spec.ipAddressPoolSelectors", s.IPAddressPoolSelectors)
	k.selectors("spec.nodeSelectors", s.NodeSelectors)
	k.names("spec.peers", s.Peers)
	k.selectors("spec.serviceSelectors", s.ServiceSelectors)
	if len(s.ServiceSelectors) > 0 && (*s.AggregationLength != DefaultAggregationLength || *s.AggregationLengthV6 != DefaultAggregationLengthV6) {
		k.bad("spec.serviceSelectors", nil, "and aggregation exclude each other: a prefix for several addresses cannot follow one Service; "+
			"remove aggregationLength and aggregationLengthV6")
	}
	return k.errs
}

// names checks names of objects.
func (k *checker) names(path string, names []string) {
	k.eachOnce(path, names, func(at, name string) {
		k.want(isSubdomain(name), at, name, ruleSubdomain)
	})
}
