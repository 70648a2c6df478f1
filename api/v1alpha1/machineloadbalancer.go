package v1alpha1

import (
	"cmp"
	"strings"
)

// MachineLoadBalancer is one address for a set of Machines of Cluster API, chosen
// by labels. It lives in the management cluster, in the namespace of the Machines.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=lbd,shortName=mlb
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`,description="The cluster whose Machines are members"
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.url`,description="Where clients connect"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.status`,description="How many members are healthy"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the endpoint has a healthy member"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready, or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type MachineLoadBalancer struct {
	TypeMeta `json:",inline"`
	// Metadata names the object.
	// +optional
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	Spec MachineLoadBalancerSpec `json:"spec"`
	// Status is what lbd found.
	Status *MachineLoadBalancerStatus `json:"status,omitempty"`
}

// MachineLoadBalancerSpec is what is wanted of a MachineLoadBalancer.
//
// +kubebuilder:validation:XValidation:rule="has(self.clusterName) || has(self.clusterRef) || has(self.machineSelector)",message="must have clusterName, clusterRef or machineSelector, or it would select the Machines of every cluster"
// +kubebuilder:validation:XValidation:rule="!(has(self.clusterName) && has(self.clusterRef)) || self.clusterName == self.clusterRef.name",message="must be the name of clusterRef, if both are given",fieldPath=".clusterName"
// +kubebuilder:validation:XValidation:rule="!(has(self.address) && has(self.addressPool))",message="address and addressPool exclude each other"
// +kubebuilder:validation:XValidation:rule="!(has(self.addresses) && (has(self.address) || has(self.addressPool)))",message="addresses, address and addressPool exclude each other",fieldPath=".addresses"
// +kubebuilder:validation:XValidation:rule="!(has(self.families) && (has(self.address) || has(self.addresses)))",message="families are of addresses from a pool; address and addresses have their own",fieldPath=".families"
// +kubebuilder:validation:XValidation:rule="!(has(self.address) && has(self.healthCheck) && has(self.healthCheck.https) && has(self.healthCheck.https.host) && isIP(self.address) && isIP(self.healthCheck.https.host) && ip(self.address) == ip(self.healthCheck.https.host))",message="the host of https is the address of this object; ask the service on the node itself, such as 127.0.0.1",fieldPath=".healthCheck.https.host"
// +kubebuilder:validation:XValidation:rule="!(has(self.addresses) && has(self.healthCheck) && has(self.healthCheck.https) && has(self.healthCheck.https.host) && isIP(self.healthCheck.https.host)) || !self.addresses.exists(a, isIP(a) && ip(a) == ip(self.healthCheck.https.host))",message="the host of https is an address of this object; ask the service on the node itself, such as 127.0.0.1",fieldPath=".healthCheck.https.host"
// +kubebuilder:validation:XValidation:rule="!(has(self.address) && has(self.healthCheck) && has(self.healthCheck.http) && has(self.healthCheck.http.host) && isIP(self.address) && isIP(self.healthCheck.http.host) && ip(self.address) == ip(self.healthCheck.http.host))",message="the host of http is the address of this object; ask the service on the node itself, such as 127.0.0.1",fieldPath=".healthCheck.http.host"
// +kubebuilder:validation:XValidation:rule="!(has(self.addresses) && has(self.healthCheck) && has(self.healthCheck.http) && has(self.healthCheck.http.host) && isIP(self.healthCheck.http.host)) || !self.addresses.exists(a, isIP(a) && ip(a) == ip(self.healthCheck.http.host))",message="the host of http is an address of this object; ask the service on the node itself, such as 127.0.0.1",fieldPath=".healthCheck.http.host"
// +kubebuilder:validation:XValidation:rule="!(has(self.address) && has(self.healthCheck) && has(self.healthCheck.tcp) && has(self.healthCheck.tcp.host) && isIP(self.address) && isIP(self.healthCheck.tcp.host) && ip(self.address) == ip(self.healthCheck.tcp.host))",message="the host of tcp is the address of this object; ask the service on the node itself, such as 127.0.0.1",fieldPath=".healthCheck.tcp.host"
// +kubebuilder:validation:XValidation:rule="!(has(self.addresses) && has(self.healthCheck) && has(self.healthCheck.tcp) && has(self.healthCheck.tcp.host) && isIP(self.healthCheck.tcp.host)) || !self.addresses.exists(a, isIP(a) && ip(a) == ip(self.healthCheck.tcp.host))",message="the host of tcp is an address of this object; ask the service on the node itself, such as 127.0.0.1",fieldPath=".healthCheck.tcp.host"
// +kubebuilder:validation:XValidation:rule="!(has(self.healthCheck) && has(self.healthCheck.exec))",message="exec is for files only: an object of a cluster cannot run programs on hosts",fieldPath=".healthCheck.exec"
// +kubebuilder:validation:XValidation:rule="!(has(self.advertise) && has(self.advertise.bgp) && has(self.advertise.bgp.communities)) || self.advertise.bgp.communities.all(c, c.contains(':') || c in ['graceful-shutdown','local-as','no-advertise','no-export','no-export-subconfed','no-peer'])",message="a name is that of a Community object, which hosts do not read for Machines; write a:b, large:a:b:c or a well-known name",fieldPath=".advertise.bgp.communities"
type MachineLoadBalancerSpec struct {
	// ClusterName is the value of the label cluster.x-k8s.io/cluster-name of the
	// members. Default: the name of ClusterRef.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	ClusterName string `json:"clusterName,omitempty"`
	// ClusterRef is a Cluster in the namespace of this object, whose
	// spec.controlPlaneEndpoint is filled in if it is empty, and counts as the
	// address if it is not.
	ClusterRef *ClusterReference `json:"clusterRef,omitempty"`
	// Namespaces are those whose Machines may be members, at most 64. Two clusters of
	// one name in two namespaces are two clusters. Default: that of this object.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Namespaces []string `json:"namespaces,omitempty"`
	// MachineSelector matches labels of Machines, besides ClusterName. Default: the
	// label cluster.x-k8s.io/control-plane exists.
	MachineSelector *Selector `json:"machineSelector,omitempty"`
	// FailureDomains limit the members to Machines whose status.failureDomain is one
	// of these, at most 64. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	FailureDomains []string `json:"failureDomains,omitempty"`
	// TargetKind has objects of another kind stand for the Machines. Default:
	// Machines of cluster.x-k8s.io.
	TargetKind *TargetKind `json:"targetKind,omitempty"`
	// Address is the address without a prefix length. Default: one of AddressPool.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self) && !ip(self).isUnspecified() && !ip(self).isLoopback() && !(cidr('224.0.0.0/4').containsIP(self) || cidr('ff00::/8').containsIP(self)) && self != '255.255.255.255' && !(ip(self).family() == 6 && ip(self).isLinkLocalUnicast())",message="must be an IP address of one host, without prefix length, zone and IPv6 form of IPv4; not unspecified, loopback, multicast, broadcast or IPv6 link-local"
	Address string `json:"address,omitempty"`
	// Addresses are two addresses instead of Address, one of each family. Cluster API
	// is told of the first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) && !ip(self).isUnspecified() && !ip(self).isLoopback() && !(cidr('224.0.0.0/4').containsIP(self) || cidr('ff00::/8').containsIP(self)) && self != '255.255.255.255' && !(ip(self).family() == 6 && ip(self).isLinkLocalUnicast())",message="must be an IP address of one host, without prefix length, zone and IPv6 form of IPv4; not unspecified, loopback, multicast, broadcast or IPv6 link-local"
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || !isIP(self[0]) || !isIP(self[1]) || ip(self[0]).family() != ip(self[1]).family()",message="must be of two families"
	Addresses []string `json:"addresses,omitempty"`
	// Families are those of the addresses from AddressPool, ipv4, ipv6 or both: there is
	// one address of each, and Cluster API is told of the first. Default: ipv4, or ipv6 if
	// the pool has no IPv4.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	Families []AddressFamily `json:"families,omitempty"`
	// AddressPool is the name of the IPAddressPool that the address is from. Default:
	// any pool with autoAssign.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	AddressPool string `json:"addressPool,omitempty"`
	// Port is where clients connect, and what they reach.
	// +optional
	// +kubebuilder:default={port: 6443}
	Port MachinePort `json:"port,omitzero"`
	// HealthCheck decides on each node whether it may have the address. With a MachinePort
	// of their own each Machine is asked, at its address. Default: for TCP and Machines
	// of a control plane, https to the port of the endpoint on the node itself, or to
	// MachinePort of each Machine, with insecureSkipVerify; else none, and every member may.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// Advertise is how the address is announced. Default: layer 2 on the interface
	// whose subnet holds the address.
	// +kubebuilder:default={l2: {}}
	Advertise *Advertise `json:"advertise,omitempty"`
	// Drain is what happens with a member that is about to go.
	// +optional
	Drain MachineDrain `json:"drain,omitzero"`
	// AnnotateMembers writes loadbalancer.cluster.x-k8s.io/name and
	// loadbalancer.cluster.x-k8s.io/status on the members.
	AnnotateMembers bool `json:"annotateMembers,omitempty"`
	// ProviderRef names an object that says who provides the load balancer. Default:
	// lbd itself.
	ProviderRef *ProviderReference `json:"providerRef,omitempty"`
}

// ClusterReference names a Cluster of Cluster API.
type ClusterReference struct {
	// Name of the Cluster.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Name string `json:"name"`
}

// MachinePort is the port of a MachineLoadBalancer.
type MachinePort struct {
	// Port is where clients connect. Default: 6443.
	// +optional
	// +kubebuilder:default=6443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// MachinePort is where the Machines listen. If it is not the port of the endpoint,
	// the node that has the address forwards connections to the Machines, which need no
	// lbd. Default: Port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	MachinePort int32 `json:"machinePort,omitempty"`
	// Protocol is what clients speak. Default: TCP.
	// +kubebuilder:default=TCP
	Protocol MachineProtocol `json:"protocol,omitempty"`
}

// MachineProtocol is a transport protocol.
//
// +kubebuilder:validation:Enum=TCP;UDP
type MachineProtocol string

// The transport protocols of a MachineLoadBalancer.
const (
	MachineTCP MachineProtocol = "TCP"
	MachineUDP MachineProtocol = "UDP"
)

// MachineDrain is what happens with a member that is about to go.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.preDrainHook) && has(self.hook) && !self.hook)",message="needs hook: true",fieldPath=".preDrainHook"
type MachineDrain struct {
	// Timeout bounds how long the deletion of a member is held, from its
	// deletionTimestamp: 1s to 1h. Default: --hook-timeout of the controller.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="must be from 1s to 1h"
	Timeout Duration `json:"timeout,omitzero"`
	// Hook is whether the hook pre-drain.delete.hook.machine.cluster.x-k8s.io/lbd of a
	// member holds its deletion until it has drained. False removes the hook at once.
	// Default: true.
	// +kubebuilder:default=true
	Hook *bool `json:"hook,omitempty"`
	// PreDrainHook is who puts that hook on the members. Default: whoever makes them,
	// by the template of their metadata.
	PreDrainHook PreDrainHook `json:"preDrainHook,omitempty"`
}

// PreDrainHook is who puts the hook of lbd on Machines.
//
// +kubebuilder:validation:Enum=register
type PreDrainHook string

// PreDrainHookRegister has `lbd controller --machines` put it on every member that is
// not being deleted.
const PreDrainHookRegister PreDrainHook = "register"

// TargetKind says where objects that stand for Machines are, and where in them to
// look. Paths are names of fields joined by dots.
type TargetKind struct {
	// Group of the API.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*)?$`
	Group string `json:"group,omitempty"`
	// Version of the API.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Version string `json:"version"`
	// Kind of the objects.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?$`
	Kind string `json:"kind"`
	// Resource is the plural in lower case, as in URLs. Default: Kind in lower case
	// with an s.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Resource string `json:"resource,omitempty"`
	// AddressesPath leads to a string, a list of strings or a list of objects with the
	// field address. Default: status.addresses.
	// +kubebuilder:default="status.addresses"
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)?$`
	AddressesPath string `json:"addressesPath,omitempty"`
	// NodeNamePath leads to the name of the Node. Default: status.nodeRef.name.
	// +kubebuilder:default="status.nodeRef.name"
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)?$`
	NodeNamePath string `json:"nodeNamePath,omitempty"`
}

// ResourceName is Resource or its default.
func (t *TargetKind) ResourceName() string { return cmp.Or(t.Resource, strings.ToLower(t.Kind)+"s") }

// ProviderReference names an object of a provider of load balancers.
type ProviderReference struct {
	// APIGroup of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*)?$`
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind of the object.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?$`
	Kind string `json:"kind"`
	// Name of the object.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Name string `json:"name"`
}

// DefaultMachinePort is where API servers of kubeadm listen.
const DefaultMachinePort = 6443

// Default fills in what is unset.
func (m *MachineLoadBalancer) Default() {
	s := &m.Spec
	if s.ClusterRef != nil {
		setDefault(&s.ClusterName, s.ClusterRef.Name)
	}
	setDefault(&s.Port.Port, DefaultMachinePort)
	setDefault(&s.Port.MachinePort, s.Port.Port)
	setDefault(&s.Port.Protocol, MachineTCP)
	if s.HealthCheck != nil {
		if s.Port.MachinePort != s.Port.Port { // connections are forwarded
			s.HealthCheck.defaultPace(DefaultBackendCheckTimeout)
		}
		s.HealthCheck.Default()
	}
	defaultAdvertise(&s.Advertise)
	setDefault(&s.Drain.Hook, new(true))
	if t := s.TargetKind; t != nil {
		setDefault(&t.AddressesPath, "status.addresses")
		setDefault(&t.NodeNamePath, "status.nodeRef.name")
	}
}
