package convert

import (
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
)

func ipAddressPool(o *object, meta v1alpha1.ObjectMeta, f *fields) {
	p := &v1alpha1.IPAddressPool{TypeMeta: typeMeta(v1alpha1.KindIPAddressPool), Metadata: meta}
	p.Spec = v1alpha1.IPAddressPoolSpec{
		Addresses:     f.texts("addresses"),
		AutoAssign:    f.flag("autoAssign"),
		AvoidBuggyIPs: f.isSet("avoidBuggyIPs"),
	}
	for i, text := range p.Spec.Addresses {
		// MetalLB reads 10.0.0.5/24 as 10.0.0.0/24.
		if prefix, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil && prefix != prefix.Masked() {
			p.Spec.Addresses[i] = prefix.Masked().String()
			o.keep(entry("spec.addresses", i), text, "is written as %s, which MetalLB takes it for", prefix.Masked())
		}
	}
	if n := f.take("serviceAllocation"); n != nil {
		a := o.mapping(n, "spec.serviceAllocation")
		p.Spec.ServiceAllocation = &v1alpha1.ServiceAllocation{
			Priority:           orZero(number[int32](a, "priority")),
			Namespaces:         a.texts("namespaces"),
			NamespaceSelectors: a.selectors("namespaceSelectors"),
			ServiceSelectors:   a.selectors("serviceSelectors"),
		}
		a.done()
	}
	o.body = p
}

func l2Advertisement(o *object, meta v1alpha1.ObjectMeta, f *fields) {
	a := &v1alpha1.L2Advertisement{TypeMeta: typeMeta(v1alpha1.KindL2Advertisement), Metadata: meta}
	a.Spec = v1alpha1.L2AdvertisementSpec{
		IPAddressPools:         f.texts("ipAddressPools"),
		IPAddressPoolSelectors: f.selectors("ipAddressPoolSelectors"),
		NodeSelectors:          f.selectors("nodeSelectors"),
		Interfaces:             f.texts("interfaces"),
		ServiceSelectors:       f.selectors("serviceSelectors"),
	}
	for i, n := range f.items("preferredNodeSelectors") {
		p := o.mapping(n, entry("spec.preferredNodeSelectors", i))
		preferred := v1alpha1.PreferredNode{Weight: orZero(number[int32](p, "weight"))}
		if n := p.take("preference"); n != nil {
			preferred.Preference = o.selector(n, p.at("preference"))
		}
		p.done()
		a.Spec.PreferredNodeSelectors = append(a.Spec.PreferredNodeSelectors, preferred)
	}
	o.body = a
}

func bgpAdvertisement(o *object, meta v1alpha1.ObjectMeta, f *fields) {
	a := &v1alpha1.BGPAdvertisement{TypeMeta: typeMeta(v1alpha1.KindBGPAdvertisement), Metadata: meta}
	a.Spec = v1alpha1.BGPAdvertisementSpec{
		AggregationLength:      number[int32](f, "aggregationLength"),
		AggregationLengthV6:    number[int32](f, "aggregationLengthV6"),
		LocalPref:              orZero(number[uint32](f, "localPref")),
		Communities:            f.texts("communities"),
		IPAddressPools:         f.texts("ipAddressPools"),
		IPAddressPoolSelectors: f.selectors("ipAddressPoolSelectors"),
		NodeSelectors:          f.selectors("nodeSelectors"),
		Peers:                  f.texts("peers"),
		ServiceSelectors:       f.selectors("serviceSelectors"),
	}
	o.body = a
	o.finish = func() {
		a.Spec.Communities = o.communities("spec.communities", a.Spec.Communities)
		o.remainingPeers(&a.Spec)
	}
}

// remainingPeers takes out peers that were left out. An advertisement to none but
// those must not become one to all.
func (o *object) remainingPeers(s *v1alpha1.BGPAdvertisementSpec) {
	kept := slices.DeleteFunc(slices.Clone(s.Peers), func(name string) bool { return o.c.gone[name] })
	if len(kept) == len(s.Peers) {
		return
	}
	for i, name := range s.Peers {
		if o.c.gone[name] {
			o.note(entry("spec.peers", i), name, "is a BGPPeer that is left out; it is taken out here")
		}
	}
	if len(kept) == 0 {
		o.note("spec.peers", nil, "has no peer that is left; the advertisement is left out")
		o.leaveOut()
		return
	}
	s.Peers = kept
}
