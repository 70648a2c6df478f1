package v1alpha1

// L2Advertisement announces addresses of pools on the LAN: by ARP and neighbour
// advertisements, each from one node. Field names and meanings are those of
// metallb.io/v1beta1. An address that no advertisement covers is not announced.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=lbd,shortName=l2adv
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.spec.ipAddressPools`,description="The pools by name; empty means all, or those that selectors match"
// +kubebuilder:printcolumn:name="Pool Selectors",type=string,JSONPath=`.spec.ipAddressPoolSelectors`,description="The pools by label",priority=1
// +kubebuilder:printcolumn:name="Interfaces",type=string,JSONPath=`.spec.interfaces`,description="Where the addresses are announced; empty means where their subnet is"
// +kubebuilder:printcolumn:name="Node Selectors",type=string,JSONPath=`.spec.nodeSelectors`,description="The nodes that may announce",priority=1
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the object is in use as it is written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,description="Why it is accepted, or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type L2Advertisement struct {
	TypeMeta `json:",inline"`
	// Metadata names the object; nothing refers to that name.
	// +optional
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	// +kubebuilder:default={}
	// +optional
	Spec L2AdvertisementSpec `json:"spec,omitzero"`
	// Status is what the controller found; files have none.
	Status *ObjectStatus `json:"status,omitempty"`
}

// L2AdvertisementSpec is what is wanted of an L2Advertisement.
type L2AdvertisementSpec struct {
	// IPAddressPools are names of pools; those that IPAddressPoolSelectors match are
	// added. Default: all pools.
	// +optional
	// +listType=set
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	IPAddressPools []string `json:"ipAddressPools,omitempty"`
	// IPAddressPoolSelectors match labels of pools, at most 64; those that
	// IPAddressPools names are added. Default: all pools.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	IPAddressPoolSelectors []Selector `json:"ipAddressPoolSelectors,omitempty"`
	// NodeSelectors are the nodes that may announce, at most 64. Default: all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	NodeSelectors []Selector `json:"nodeSelectors,omitempty"`
	// PreferredNodeSelectors order those nodes, at most 64: the one with the highest
	// sum of weights that match comes first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	PreferredNodeSelectors []PreferredNode `json:"preferredNodeSelectors,omitempty"`
	// Interfaces are names of interfaces to announce on. Default: the interface
	// whose subnet holds the address.
	// +optional
	// +listType=set
	// +kubebuilder:validation:items:MaxLength=15
	// +kubebuilder:validation:items:Pattern=`^(\.*[^./: \t\n\v\f\r\x00][^/: \t\n\v\f\r\x00]*|\.{3,})$`
	Interfaces []string `json:"interfaces,omitempty"`
	// ServiceSelectors match labels of Services, at most 64. Default: all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ServiceSelectors []Selector `json:"serviceSelectors,omitempty"`
}

// PreferredNode prefers some nodes.
type PreferredNode struct {
	// Weight is added to the rank of the nodes that match: 1 to 100.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`
	// Preference matches labels of nodes. Default: all nodes.
	// +optional
	Preference Selector `json:"preference"`
}

// Default fills in what is unset: nothing.
func (a *L2Advertisement) Default() {}

// BGPAdvertisement advertises addresses of pools to routers. Field names and
// meanings are those of metallb.io/v1beta1. An address that no advertisement
// covers is not announced.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=lbd,shortName=bgpadv
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.spec.ipAddressPools`,description="The pools by name; empty means all, or those that selectors match"
// +kubebuilder:printcolumn:name="Pool Selectors",type=string,JSONPath=`.spec.ipAddressPoolSelectors`,description="The pools by label",priority=1
// +kubebuilder:printcolumn:name="Peers",type=string,JSONPath=`.spec.peers`,description="The BGP peers that are told; empty means all"
// +kubebuilder:printcolumn:name="Communities",type=string,JSONPath=`.spec.communities`,description="The communities of the paths",priority=1
// +kubebuilder:printcolumn:name="Node Selectors",type=string,JSONPath=`.spec.nodeSelectors`,description="The nodes that advertise",priority=1
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the object is in use as it is written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,description="Why it is accepted, or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type BGPAdvertisement struct {
	TypeMeta `json:",inline"`
	// Metadata names the object; nothing refers to that name.
	// +optional
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	// +kubebuilder:default={}
	// +optional
	Spec BGPAdvertisementSpec `json:"spec,omitzero"`
	// Status is what the controller found; files have none.
	Status *ObjectStatus `json:"status,omitempty"`
}

// BGPAdvertisementSpec is what is wanted of a BGPAdvertisement.
//
// +kubebuilder:validation:XValidation:rule="!has(self.serviceSelectors) || self.serviceSelectors.size() == 0 || self.aggregationLength == 32 && self.aggregationLengthV6 == 128",message="serviceSelectors and aggregation exclude each other: a prefix for several addresses cannot follow one Service; remove aggregationLength and aggregationLengthV6",fieldPath=".serviceSelectors"
type BGPAdvertisementSpec struct {
	// AggregationLength is the length of the IPv4 prefixes that stand for the
	// addresses: 1 to 32. Each pool must have room for one. Default: 32.
	// +kubebuilder:default=32
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	AggregationLength *int32 `json:"aggregationLength,omitempty"`
	// AggregationLengthV6 is the same for IPv6: 1 to 128. Default: 128.
	// +kubebuilder:default=128
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	AggregationLengthV6 *int32 `json:"aggregationLengthV6,omitempty"`
	// LocalPref is told to iBGP peers (RFC 4271 section 5.1.5). 0 means the default:
	// 100.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:Format=int64
	LocalPref uint32 `json:"localPref,omitempty"`
	// Communities are at most 63, each the name of an entry of a Community object,
	// a well-known name, "a:b" (RFC 1997) or "large:a:b:c" (RFC 8092).
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=63
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^(0|[1-9][0-9]{0,4}):(0|[1-9][0-9]{0,4})$') ? self.split(':').all(n, int(n) <= 65535) : self.matches('^large(:(0|[1-9][0-9]{0,9})){3}$') ? self.substring(6).split(':').all(n, int(n) <= 4294967295) : self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="must be a name, a:b, each from 0 to 65535, or large:a:b:c, each from 0 to 4294967295"
	// +kubebuilder:validation:items:XValidation:rule="self != '65535:0' && self != 'graceful-shutdown'",message="is GRACEFUL_SHUTDOWN, which lbd sends by itself in a drain"
	// +kubebuilder:validation:items:XValidation:rule="!self.startsWith('large:4294967295:')",message="begins with 4294967295, which is reserved (RFC 8092 section 5): lbd marks its own paths with it"
	Communities []string `json:"communities,omitempty"`
	// IPAddressPools are names of pools; those that IPAddressPoolSelectors match are
	// added. Default: all pools.
	// +optional
	// +listType=set
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	IPAddressPools []string `json:"ipAddressPools,omitempty"`
	// IPAddressPoolSelectors match labels of pools, at most 64; those that
	// IPAddressPools names are added. Default: all pools.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	IPAddressPoolSelectors []Selector `json:"ipAddressPoolSelectors,omitempty"`
	// NodeSelectors are the nodes that advertise, at most 64. Default: all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	NodeSelectors []Selector `json:"nodeSelectors,omitempty"`
	// Peers are names of BGPPeers. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Peers []string `json:"peers,omitempty"`
	// ServiceSelectors match labels of Services, at most 64; only without
	// aggregation, since a prefix for several addresses cannot follow one Service.
	// Default: all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ServiceSelectors []Selector `json:"serviceSelectors,omitempty"`
}

// The defaults of a BGPAdvertisement: each address by itself.
const (
	DefaultAggregationLength   = 32
	DefaultAggregationLengthV6 = 128
)

// Default fills in what is unset.
func (a *BGPAdvertisement) Default() {
	setDefault(&a.Spec.AggregationLength, new(int32(DefaultAggregationLength)))
	setDefault(&a.Spec.AggregationLengthV6, new(int32(DefaultAggregationLengthV6)))
}
