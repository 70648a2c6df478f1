package v1alpha1

// L2Advertisement announces addresses of pools on the LAN: by ARP and neighbour
// advertisements, each from one node. Field names and meanings are those of
// metallb.io/v1beta1. An address that no advertisement covers is not announced.
type L2Advertisement struct {
	TypeMeta `json:",inline"`
	// Metadata names the object; nothing refers to that name.
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	Spec L2AdvertisementSpec `json:"spec,omitzero"`
}

// L2AdvertisementSpec is what is wanted of an L2Advertisement.
type L2AdvertisementSpec struct {
	// IPAddressPools are names of pools, and IPAddressPoolSelectors match labels of
	// pools; they add up. Default: all pools.
	IPAddressPools         []string   `json:"ipAddressPools,omitempty"`
	IPAddressPoolSelectors []Selector `json:"ipAddressPoolSelectors,omitempty"`
	// NodeSelectors are the nodes that may announce. Default: all.
	NodeSelectors []Selector `json:"nodeSelectors,omitempty"`
	// PreferredNodeSelectors order those nodes: the one with the highest sum of
	// weights that match comes first.
	PreferredNodeSelectors []PreferredNode `json:"preferredNodeSelectors,omitempty"`
	// Interfaces are names of interfaces to announce on. Default: the interface
	// whose subnet holds the address.
	Interfaces []string `json:"interfaces,omitempty"`
	// ServiceSelectors match labels of Services. Default: all.
	ServiceSelectors []Selector `json:"serviceSelectors,omitempty"`
}

// PreferredNode prefers some nodes.
type PreferredNode struct {
	// Weight is added to the rank of the nodes that match: 1 to 100.
	Weight int32 `json:"weight"`
	// Preference matches labels of nodes.
	Preference Selector `json:"preference"`
}

// Default fills in what is unset: nothing.
func (a *L2Advertisement) Default() {}

// BGPAdvertisement advertises addresses of pools to routers. Field names and
// meanings are those of metallb.io/v1beta1. An address that no advertisement
// covers is not announced.
type BGPAdvertisement struct {
	TypeMeta `json:",inline"`
	// Metadata names the object; nothing refers to that name.
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	Spec BGPAdvertisementSpec `json:"spec,omitzero"`
}

// BGPAdvertisementSpec is what is wanted of a BGPAdvertisement.
type BGPAdvertisementSpec struct {
	// AggregationLength is the length of the IPv4 prefixes that stand for the
	// addresses: 1 to 32. Each pool must have room for one. Default: 32.
	AggregationLength *int32 `json:"aggregationLength,omitempty"`
	// AggregationLengthV6 is the same for IPv6: 1 to 128. Default: 128.
	AggregationLengthV6 *int32 `json:"aggregationLengthV6,omitempty"`
	// LocalPref is told to iBGP peers (RFC 4271 section 5.1.5). 0 means the default:
	// 100.
	LocalPref uint32 `json:"localPref,omitempty"`
	// Communities are at most 63, each the name of an entry of a Community object,
	// a well-known name, "a:b" (RFC 1997) or "large:a:b:c" (RFC 8092).
	Communities []string `json:"communities,omitempty"`
	// IPAddressPools are names of pools, and IPAddressPoolSelectors match labels of
	// pools; they add up. Default: all pools.
	IPAddressPools         []string   `json:"ipAddressPools,omitempty"`
	IPAddressPoolSelectors []Selector `json:"ipAddressPoolSelectors,omitempty"`
	// NodeSelectors are the nodes that advertise. Default: all.
	NodeSelectors []Selector `json:"nodeSelectors,omitempty"`
	// Peers are names of BGPPeers. Default: all.
	Peers []string `json:"peers,omitempty"`
	// ServiceSelectors match labels of Services; only without aggregation, since a
	// prefix for several addresses cannot follow one Service. Default: all.
	ServiceSelectors []Selector `json:"serviceSelectors,omitempty"`
}

// The defaults of a BGPAdvertisement: each address by itself.
const (
	DefaultAggregationLength   = 32
	DefaultAggregationLengthV6 = 128
)

// Default fills in what is unset.
func (a *BGPAdvertisement) Default() {
	if a.Spec.AggregationLength == nil {
		a.Spec.AggregationLength = new(int32(DefaultAggregationLength))
	}
	if a.Spec.AggregationLengthV6 == nil {
		a.Spec.AggregationLengthV6 = new(int32(DefaultAggregationLengthV6))
	}
}
