package v1alpha1

import (
	"net/netip"
	"time"
)

// LoadBalancer leads the connections to some ports of its addresses to servers on other
// machines, which run no lbd. One node has each address and forwards, as with a VirtualIP.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=lbd,shortName=lb
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`,description="The addresses that clients connect to"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the object is in use as it is written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,description="Why it is accepted, or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type LoadBalancer struct {
	TypeMeta `json:",inline"`
	// Metadata names the object.
	// +optional
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	Spec LoadBalancerSpec `json:"spec"`
	// Status is what the controller found; files have none.
	Status *ObjectStatus `json:"status,omitempty"`
}

// LoadBalancerSpec is what is wanted of a LoadBalancer.
//
// +kubebuilder:validation:XValidation:rule="!self.backends.exists(b, b.address in self.addresses)",message="a backend has an address of this object; give the server's own address",fieldPath=".backends"
// +kubebuilder:validation:XValidation:rule="(self.addresses.exists(a, a.contains(':')) || !self.backends.exists(b, b.address.contains(':'))) && (self.addresses.exists(a, !a.contains(':')) || !self.backends.exists(b, !b.address.contains(':')))",message="a backend is of another family than the addresses of this object",fieldPath=".backends"
// +kubebuilder:validation:XValidation:rule="has(self.backendNodes) || (!self.addresses.exists(a, a.contains(':')) || self.backends.exists(b, b.address.contains(':'))) && (!self.addresses.exists(a, !a.contains(':')) || self.backends.exists(b, !b.address.contains(':')))",message="an address has no backend of its family",fieldPath=".addresses"
// +kubebuilder:validation:XValidation:rule="!has(self.allowedSources) || (self.addresses.exists(a, a.contains(':')) || !self.allowedSources.exists(s, s.contains(':'))) && (self.addresses.exists(a, !a.contains(':')) || !self.allowedSources.exists(s, !s.contains(':')))",message="a prefix is of another family than the addresses of this object",fieldPath=".allowedSources"
// +kubebuilder:validation:XValidation:rule="!(has(self.healthCheck) && has(self.healthCheck.exec))",message="exec is not for a LoadBalancer, which asks each backend by the network",fieldPath=".healthCheck.exec"
// +kubebuilder:validation:XValidation:rule="!(has(self.healthCheck) && has(self.healthCheck.https) && has(self.healthCheck.https.host) && size(self.healthCheck.https.host) > 0)",message="the host of https is not for a LoadBalancer, which asks each backend at its own address",fieldPath=".healthCheck.https.host"
// +kubebuilder:validation:XValidation:rule="!(has(self.healthCheck) && has(self.healthCheck.http) && has(self.healthCheck.http.host) && size(self.healthCheck.http.host) > 0)",message="the host of http is not for a LoadBalancer, which asks each backend at its own address",fieldPath=".healthCheck.http.host"
// +kubebuilder:validation:XValidation:rule="!(has(self.healthCheck) && has(self.healthCheck.tcp) && has(self.healthCheck.tcp.host) && size(self.healthCheck.tcp.host) > 0)",message="the host of tcp is not for a LoadBalancer, which asks each backend at its own address",fieldPath=".healthCheck.tcp.host"
// +kubebuilder:validation:XValidation:rule="!(has(self.advertise) && has(self.advertise.bgp)) || has(self.advertise.l2)",message="bgp needs l2 beside it: the balancer that owns the addresses there is the one that advertises them",fieldPath=".advertise.bgp"
// +kubebuilder:validation:XValidation:rule="!(has(self.advertise) && has(self.advertise.bgp)) || !has(self.source) || self.source != 'client'",message="bgp is for the source vip: with client the answers of the backends would not come back by a router",fieldPath=".advertise.bgp"
// +kubebuilder:validation:XValidation:rule="!(has(self.advertise) && has(self.advertise.l2) && has(self.advertise.l2.mode) && self.advertise.l2.mode == 'balanced')",message="balanced is not for a LoadBalancer, which is announced by l2 in the mode active-backup",fieldPath=".advertise.l2.mode"
// +kubebuilder:validation:XValidation:rule="(size(self.addresses.filter(a, a.contains(':'))) * size(self.backends.filter(b, b.address.contains(':'))) + size(self.addresses.filter(a, !a.contains(':'))) * size(self.backends.filter(b, !b.address.contains(':')))) * size(self.ports) <= 200000",message="has more than 200000 ways from an address and a port to a backend",fieldPath=".ports"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceAddresses) || self.sourceAddresses.all(s, s in self.addresses)",message="is none of the addresses of this object, as they are written there",fieldPath=".sourceAddresses"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceAddresses) || size(self.sourceAddresses) == 0 || !has(self.source) || self.source != 'client'",message="is for the source vip: with client backends see the client",fieldPath=".sourceAddresses"
type LoadBalancerSpec struct {
	// Addresses are those of a VirtualIP: IPv4 and IPv6 addresses without a prefix length, 1 to 64.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) && !ip(self).isUnspecified() && !ip(self).isLoopback() && !(cidr('224.0.0.0/4').containsIP(self) || cidr('ff00::/8').containsIP(self)) && self != '255.255.255.255' && !(ip(self).family() == 6 && ip(self).isLinkLocalUnicast())",message="must be an IP address of one host, without prefix length, zone and IPv6 form of IPv4; not unspecified, loopback, multicast, broadcast or IPv6 link-local"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !isIP(a) || self.exists_one(b, isIP(b) && ip(a) == ip(b)))",message="has an address twice"
	Addresses []string `json:"addresses"`
	// Ports are 1 to 1000. The addresses, times the backends of their family, times the ports are
	// at most 200000: each is an entry of the kernel's rules.
	// +listType=map
	// +listMapKey=port
	// +listMapKey=protocol
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	Ports []ForwardedPort `json:"ports"`
	// Backends are the servers, at most 1000. Each family of Addresses needs one, unless
	// BackendNodes selects servers.
	// +optional
	// +listType=atomic
	// +kubebuilder:default={}
	// +kubebuilder:validation:MaxItems=1000
	Backends []Backend `json:"backends,omitempty"`
	// BackendNodes selects Nodes of the cluster that are backends beside Backends: each by its
	// first InternalIP of each family of Addresses, with the targetPort of each port and the
	// weight 10. A Node that is not ready or is about to go gets new connections only while no
	// other backend can serve. A file cannot have it.
	BackendNodes *LabelSelector `json:"backendNodes,omitempty"`
	// HealthCheck asks each backend, from each node: https, http or tcp, without host. Without
	// it every backend counts as healthy.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// Affinity is what goes to one backend together. Default: connection.
	// +kubebuilder:default=connection
	Affinity Affinity `json:"affinity,omitempty"`
	// OnFailure is what becomes of the connections of a backend that fails. Default: reset.
	// +kubebuilder:default=reset
	OnFailure FailurePolicy `json:"onFailure,omitempty"`
	// Source is what backends see as the address of a client. Default: vip. With client their
	// answers have to come back: an address of this object is the gateway of the backends.
	// The definition has no default, which an API server would write into objects that
	// daemons of an older version could not read then.
	Source SourceAddress `json:"source,omitempty"`
	// SourceAddresses are those of Addresses that backends see as clients, with the source vip: each
	// connection has one of its family, in place of the one that the client connected to. One
	// address has some 64000 connections to a port of a backend at a time, and with more of them
	// fewer connections have their port changed, which a crash of the owner loses.
	// Default: the one that the client connected to. Written as in Addresses.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=45
	SourceAddresses []string `json:"sourceAddresses,omitempty"`
	// DrainTimeout is how long the connections of a backend go on that was given the weight 0
	// or taken out: 0s to 1h. Default: 30s.
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="must be from 0s to 1h"
	DrainTimeout *Duration `json:"drainTimeout,omitempty"`
	// AllowedSources are prefixes of clients, at most 1000. Default: all. To others the ports
	// look filtered.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="must be a prefix, such as 10.0.0.0/8, without bits behind its length"
	AllowedSources []string `json:"allowedSources,omitempty"`
	// Advertise is how the addresses are announced: l2 in the mode active-backup, and bgp beside
	// it if routers are to be told. The node that owns an address at layer 2 is the one that
	// advertises it. Default: layer 2 on the interface whose subnet holds the address.
	// +kubebuilder:default={l2: {}}
	Advertise *Advertise `json:"advertise,omitempty"`
	// NodeSelector limits the nodes that may own the addresses. Default: all.
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`
	// Preempt lets a better ranked node take an address back from its owner as soon as it can.
	// Default: the owner keeps it.
	Preempt bool `json:"preempt,omitempty"`
	// Partition is what happens when the nodes no longer see each other. Default: available.
	// +kubebuilder:default=available
	Partition PartitionPolicy `json:"partition,omitempty"`
}

// ForwardedPort is a port of all addresses.
type ForwardedPort struct {
	// Port is what clients connect to: 1 to 65535.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// TargetPort is that of the backends: 1 to 65535. Default: Port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	TargetPort int32 `json:"targetPort,omitempty"`
	// Protocol is TCP or UDP. Default: TCP.
	// +kubebuilder:default=TCP
	Protocol TransportProtocol `json:"protocol,omitempty"`
}

// TransportProtocol is TCP or UDP.
//
// +kubebuilder:validation:Enum=TCP;UDP
type TransportProtocol string

// The protocols of a ForwardedPort.
const (
	ProtocolTCP TransportProtocol = "TCP"
	ProtocolUDP TransportProtocol = "UDP"
)

// Backend is one server.
type Backend struct {
	// Address is that of the machine, in a family of the object's addresses.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self) && !ip(self).isUnspecified() && !ip(self).isLoopback() && !(cidr('224.0.0.0/4').containsIP(self) || cidr('ff00::/8').containsIP(self)) && self != '255.255.255.255' && !(ip(self).family() == 6 && ip(self).isLinkLocalUnicast())",message="must be an IP address of one host, without prefix length, zone and IPv6 form of IPv4; not unspecified, loopback, multicast, broadcast or IPv6 link-local"
	Address string `json:"address"`
	// Port is 1 to 65535. Default: the targetPort of each port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Weight is its share of new connections beside those of the others: 0 to 100. With 0 it
	// gets none. Default: 10.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Weight *int32 `json:"weight,omitempty"`
}

// Affinity is what goes to one backend together.
//
// +kubebuilder:validation:Enum=connection;client
type Affinity string

// The affinities.
const (
	// AffinityConnection places each connection by itself.
	AffinityConnection Affinity = "connection"
	// AffinityClient has all connections of one client address go to one backend.
	AffinityClient Affinity = "client"
)

// FailurePolicy is what becomes of the connections of a backend that fails its check.
//
// +kubebuilder:validation:Enum=reset;keep
type FailurePolicy string

// The policies for backends that fail.
const (
	// FailureReset ends them: their next packet is answered with a reset.
	FailureReset FailurePolicy = "reset"
	// FailureKeep leaves them alone.
	FailureKeep FailurePolicy = "keep"
)

// SourceAddress is what backends see as the address of a client.
//
// +kubebuilder:validation:Enum=vip;client
type SourceAddress string

// The source addresses of connections to backends.
const (
	// SourceVIP has backends see the address of the LoadBalancer. They need nothing.
	SourceVIP SourceAddress = "vip"
	// SourceClient has backends see the address of the client, unless it is in a subnet of theirs.
	SourceClient SourceAddress = "client"
)

// The defaults of a LoadBalancer.
const (
	DefaultBackendWeight       = 10
	DefaultBackendDrainTimeout = 30 * time.Second
)

// Default fills in what is unset.
func (l *LoadBalancer) Default() {
	for i := range l.Spec.Ports {
		p := &l.Spec.Ports[i]
		setDefault(&p.TargetPort, p.Port)
		setDefault(&p.Protocol, ProtocolTCP)
	}
	for i := range l.Spec.Backends {
		if b := &l.Spec.Backends[i]; b.Weight == nil {
			b.Weight = new(int32(DefaultBackendWeight))
		}
	}
	if l.Spec.HealthCheck != nil {
		l.Spec.HealthCheck.defaultPace(DefaultBackendCheckTimeout)
		l.Spec.HealthCheck.defaultPaths()
	}
	setDefault(&l.Spec.Affinity, AffinityConnection)
	setDefault(&l.Spec.OnFailure, FailureReset)
	setDefault(&l.Spec.Source, SourceVIP)
	setDefault(&l.Spec.DrainTimeout, &Duration{DefaultBackendDrainTimeout})
	defaultAdvertise(&l.Spec.Advertise)
	setDefault(&l.Spec.Partition, PartitionAvailable)
}

// Of is the check of one backend.
func (h *HealthCheck) Of(backend netip.Addr) HealthCheck {
	c := *h
	if h.HTTPS != nil {
		https := *h.HTTPS
		https.Host = backend.String()
		c.HTTPS = &https
	}
	if h.HTTP != nil {
		http := *h.HTTP
		http.Host = backend.String()
		c.HTTP = &http
	}
	if h.TCP != nil {
		tcp := *h.TCP
		tcp.Host = backend.String()
		c.TCP = &tcp
	}
	c.defaultHost()
	return c
}
