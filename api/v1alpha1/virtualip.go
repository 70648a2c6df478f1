package v1alpha1

// VirtualIP is a fixed address, or one for each family, that the group keeps
// reachable: by layer 2 on one healthy node at a time, by BGP on every healthy
// node.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=lbd,shortName=vip
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`,description="The addresses that are kept reachable"
// +kubebuilder:printcolumn:name="BGP",type=string,JSONPath=`.spec.advertise.bgp.peers`,description="The BGP peers that are told, if they are named",priority=1
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the object is in use as it is written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,description="Why it is accepted, or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type VirtualIP struct {
	TypeMeta `json:",inline"`
	// Metadata names the object.
	// +optional
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	Spec VirtualIPSpec `json:"spec"`
	// Status is what the controller found; files have none.
	Status *ObjectStatus `json:"status,omitempty"`
}

// VirtualIPSpec is what is wanted of a VirtualIP.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.healthCheck) && has(self.healthCheck.https) && has(self.healthCheck.https.host) && isIP(self.healthCheck.https.host)) || !self.addresses.exists(a, isIP(a) && ip(a) == ip(self.healthCheck.https.host))",message="the host of https is an address of this object; ask the service on the node itself, such as 127.0.0.1",fieldPath=".healthCheck.https.host"
// +kubebuilder:validation:XValidation:rule="!(has(self.healthCheck) && has(self.healthCheck.http) && has(self.healthCheck.http.host) && isIP(self.healthCheck.http.host)) || !self.addresses.exists(a, isIP(a) && ip(a) == ip(self.healthCheck.http.host))",message="the host of http is an address of this object; ask the service on the node itself, such as 127.0.0.1",fieldPath=".healthCheck.http.host"
// +kubebuilder:validation:XValidation:rule="!(has(self.healthCheck) && has(self.healthCheck.tcp) && has(self.healthCheck.tcp.host) && isIP(self.healthCheck.tcp.host)) || !self.addresses.exists(a, isIP(a) && ip(a) == ip(self.healthCheck.tcp.host))",message="the host of tcp is an address of this object; ask the service on the node itself, such as 127.0.0.1",fieldPath=".healthCheck.tcp.host"
// +kubebuilder:validation:XValidation:rule="!(has(self.healthCheck) && has(self.healthCheck.exec))",message="exec is for files only: an object of a cluster cannot run programs on hosts",fieldPath=".healthCheck.exec"
type VirtualIPSpec struct {
	// Addresses are IPv4 and IPv6 addresses without a prefix length, 1 to 64. Each is placed on its own; they share all that follows.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) && !ip(self).isUnspecified() && !ip(self).isLoopback() && !(cidr('224.0.0.0/4').containsIP(self) || cidr('ff00::/8').containsIP(self)) && self != '255.255.255.255' && !(ip(self).family() == 6 && ip(self).isLinkLocalUnicast())",message="must be an IP address of one host, without prefix length, zone and IPv6 form of IPv4; not unspecified, loopback, multicast, broadcast or IPv6 link-local"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !isIP(a) || self.exists_one(b, isIP(b) && ip(a) == ip(b)))",message="has an address twice"
	Addresses []string `json:"addresses"`
	// HealthCheck decides on each node whether it may own the addresses. Without
	// it every node may.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// Advertise is how the addresses are announced. Default: layer 2 on the
	// interface whose subnet holds the address.
	// +kubebuilder:default={l2: {}}
	Advertise *Advertise `json:"advertise,omitempty"`
	// NodeSelector limits the nodes that may own the addresses. Default: all.
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`
	// Preempt lets a better ranked node take an address back from its owner as
	// soon as it can. Default: the owner keeps it.
	Preempt bool `json:"preempt,omitempty"`
	// Partition is what happens when the nodes no longer see each other. Default:
	// available.
	// +kubebuilder:default=available
	Partition PartitionPolicy `json:"partition,omitempty"`
}

// PartitionPolicy is what an owner does that sees few other nodes.
//
// +kubebuilder:validation:Enum=available;quorum
type PartitionPolicy string

// The policies for partitions.
const (
	// PartitionAvailable keeps the address on every side.
	PartitionAvailable PartitionPolicy = "available"
	// PartitionQuorum keeps it only where a majority of gossip.peers is seen.
	PartitionQuorum PartitionPolicy = "quorum"
)

// Advertise is how addresses are announced: L2, BGP or both.
//
// +kubebuilder:validation:XValidation:rule="has(self.l2) || has(self.bgp)",message="must have l2, bgp or both; leave advertise out for the default"
type Advertise struct {
	// L2 announces by ARP and by neighbour advertisements.
	L2 *L2Advertise `json:"l2,omitempty"`
	// BGP advertises to routers. Every node that may own the address does.
	BGP *BGPAdvertise `json:"bgp,omitempty"`
}

// BGPAdvertise is how addresses are advertised by BGP: as /32 and /128.
type BGPAdvertise struct {
	// Peers are names of BGPPeers. Default: all that the node has.
	// +optional
	// +listType=set
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Peers []string `json:"peers,omitempty"`
	// Communities are at most 63, each the name of an entry of a Community object,
	// a well-known name (no-export, no-advertise, no-export-subconfed or local-as,
	// no-peer), "a:b" (RFC 1997) or "large:a:b:c" (RFC 8092).
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=63
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^(0|[1-9][0-9]{0,4}):(0|[1-9][0-9]{0,4})$') ? self.split(':').all(n, int(n) <= 65535) : self.matches('^large(:(0|[1-9][0-9]{0,9})){3}$') ? self.substring(6).split(':').all(n, int(n) <= 4294967295) : self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="must be a name, a:b, each from 0 to 65535, or large:a:b:c, each from 0 to 4294967295"
	// +kubebuilder:validation:items:XValidation:rule="self != '65535:0' && self != 'graceful-shutdown'",message="is GRACEFUL_SHUTDOWN, which lbd sends by itself in a drain"
	// +kubebuilder:validation:items:XValidation:rule="!self.startsWith('large:4294967295:')",message="begins with 4294967295, which is reserved (RFC 8092 section 5): lbd marks its own paths with it"
	Communities []string `json:"communities,omitempty"`
	// LargeCommunities are at most 63, each "a:b:c" (RFC 8092); a is not 4294967295.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=63
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^(0|[1-9][0-9]{0,9})(:(0|[1-9][0-9]{0,9})){2}$') && self.split(':').all(n, int(n) <= 4294967295)",message="must be a:b:c, each from 0 to 4294967295"
	// +kubebuilder:validation:items:XValidation:rule="!self.startsWith('4294967295:')",message="begins with 4294967295, which is reserved (RFC 8092 section 5): lbd marks its own paths with it"
	LargeCommunities []string `json:"largeCommunities,omitempty"`
	// LocalPref is told to iBGP peers (RFC 4271 section 5.1.5): 1 to 4294967295.
	// Default: 100.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:Format=int64
	LocalPref *uint32 `json:"localPref,omitempty"`
	// MED is the MULTI_EXIT_DISC (RFC 4271 section 5.1.4): 0 to 4294967295.
	// Default: none is sent.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:Format=int64
	MED *uint32 `json:"med,omitempty"`
	// ASPathPrepend is how many more times than needed MyASN is put in front of
	// AS_PATH towards eBGP peers: 0 to 10. Default: 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	ASPathPrepend int32 `json:"asPathPrepend,omitempty"`
}

// L2Advertise is how addresses are announced on the LAN.
type L2Advertise struct {
	// Interfaces are names, in order of preference. Default: the interface whose
	// subnet holds the address.
	// +optional
	// +listType=set
	// +kubebuilder:validation:items:MaxLength=15
	// +kubebuilder:validation:items:Pattern=`^(\.*[^./: \t\n\v\f\r\x00][^/: \t\n\v\f\r\x00]*|\.{3,})$`
	Interfaces []string `json:"interfaces,omitempty"`
	// Mode is which nodes serve the addresses. Default: active-backup.
	// +kubebuilder:default=active-backup
	Mode L2Mode `json:"mode,omitempty"`
}

// L2Mode is which nodes serve an address on the LAN. One alone answers for it.
//
// +kubebuilder:validation:Enum=active-backup;balanced
type L2Mode string

// The modes of layer 2.
const (
	// L2ActiveBackup lets the owner serve it alone.
	L2ActiveBackup L2Mode = "active-backup"
	// L2Balanced lets the owner spread new connections over all nodes that may own it.
	L2Balanced L2Mode = "balanced"
)

// LabelSelector matches nodes by their labels.
type LabelSelector struct {
	// MatchLabels must all be present with these values; empty matches all.
	// +optional
	// +lbd:values:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// Default fills in what is unset.
func (v *VirtualIP) Default() {
	if v.Spec.HealthCheck != nil {
		v.Spec.HealthCheck.Default()
	}
	defaultAdvertise(&v.Spec.Advertise)
	setDefault(&v.Spec.Partition, PartitionAvailable)
}

// defaultAdvertise fills in what is unset of how addresses are announced.
func defaultAdvertise(a **Advertise) {
	if *a == nil {
		*a = &Advertise{L2: &L2Advertise{}}
	}
	if l2 := (*a).L2; l2 != nil {
		setDefault(&l2.Mode, L2ActiveBackup)
	}
}
