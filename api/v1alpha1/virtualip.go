package v1alpha1

// VirtualIP is a fixed address, or one for each family, that the group keeps
// reachable: by layer 2 on one healthy node at a time, by BGP on every healthy
// node.
type VirtualIP struct {
	TypeMeta `json:",inline"`
	// Metadata names the object.
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	Spec VirtualIPSpec `json:"spec"`
}

// VirtualIPSpec is what is wanted of a VirtualIP.
type VirtualIPSpec struct {
	// Addresses are IPv4 and IPv6 addresses without a prefix length, at least one.
	// Each is placed on its own; they share all that follows.
	Addresses []string `json:"addresses"`
	// HealthCheck decides on each node whether it may own the addresses. Without
	// it every node may.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// Advertise is how the addresses are announced. Default: layer 2 on the
	// interface whose subnet holds the address.
	Advertise *Advertise `json:"advertise,omitempty"`
	// NodeSelector limits the nodes that may own the addresses. Default: all.
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`
	// Preempt lets a better ranked node take an address back from its owner as
	// soon as it can. Default: the owner keeps it.
	Preempt bool `json:"preempt,omitempty"`
	// Partition is what happens when the nodes no longer see each other. Default:
	// available.
	Partition PartitionPolicy `json:"partition,omitempty"`
}

// PartitionPolicy is what an owner does that sees few other nodes.
type PartitionPolicy string

// The policies for partitions.
const (
	// PartitionAvailable keeps the address on every side.
	PartitionAvailable PartitionPolicy = "available"
	// PartitionQuorum keeps it only where a majority of gossip.peers is seen.
	PartitionQuorum PartitionPolicy = "quorum"
)

// Advertise is how addresses are announced: L2, BGP or both.
type Advertise struct {
	// L2 announces by ARP and by neighbour advertisements.
	L2 *L2Advertise `json:"l2,omitempty"`
	// BGP advertises to routers. Every node that may own the address does.
	BGP *BGPAdvertise `json:"bgp,omitempty"`
}

// BGPAdvertise is how addresses are advertised by BGP: as /32 and /128.
type BGPAdvertise struct {
	// Peers are names of BGPPeers. Default: all that the node has.
	Peers []string `json:"peers,omitempty"`
	// Communities are at most 63, each the name of an entry of a Community object,
	// a well-known name (no-export, no-advertise, no-export-subconfed or local-as,
	// no-peer), "a:b" (RFC 1997) or "large:a:b:c" (RFC 8092).
	Communities []string `json:"communities,omitempty"`
	// LargeCommunities are at most 63, each "a:b:c" (RFC 8092); a is not 4294967295.
	LargeCommunities []string `json:"largeCommunities,omitempty"`
	// LocalPref is told to iBGP peers (RFC 4271 section 5.1.5): 1 to 4294967295.
	// Default: 100.
	LocalPref *uint32 `json:"localPref,omitempty"`
	// MED is the MULTI_EXIT_DISC (RFC 4271 section 5.1.4): 0 to 4294967295.
	// Default: none is sent.
	MED *uint32 `json:"med,omitempty"`
	// ASPathPrepend is how many more times than needed MyASN is put in front of
	// AS_PATH towards eBGP peers: 0 to 10. Default: 0.
	ASPathPrepend int32 `json:"asPathPrepend,omitempty"`
}

// L2Advertise is how addresses are announced on the LAN.
type L2Advertise struct {
	// Interfaces are names, in order of preference. Default: the interface whose
	// subnet holds the address.
	Interfaces []string `json:"interfaces,omitempty"`
}

// LabelSelector matches nodes by their labels.
type LabelSelector struct {
	// MatchLabels must all be present with these values; empty matches all.
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// Default fills in what is unset.
func (v *VirtualIP) Default() {
	if v.Spec.HealthCheck != nil {
		v.Spec.HealthCheck.Default()
	}
	if v.Spec.Advertise == nil {
		v.Spec.Advertise = &Advertise{L2: &L2Advertise{}}
	}
	setDefault(&v.Spec.Partition, PartitionAvailable)
}
