package v1alpha1

import "time"

// ConditionAccepted is the type of the condition that every object of a cluster
// has: "True" if it is in use as it is written, "False" if some rule, which
// Reason and Message name, keeps it from that.
const ConditionAccepted = "Accepted"

// ObjectStatus is what the controller found about an object.
type ObjectStatus struct {
	// Conditions are one for each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// IPAddressPoolStatus is what the controller found about a pool, and how much of
// it is in use. Counts of IPv6 addresses end at 9223372036854775807.
type IPAddressPoolStatus struct {
	// Conditions are one for each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// AssignedIPv4 counts the IPv4 addresses that Services have.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AssignedIPv4 int64 `json:"assignedIPv4"`
	// AssignedIPv6 counts the IPv6 addresses that Services have.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AssignedIPv6 int64 `json:"assignedIPv6"`
	// AvailableIPv4 counts the IPv4 addresses that can be given out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AvailableIPv4 int64 `json:"availableIPv4"`
	// AvailableIPv6 counts the IPv6 addresses that can be given out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AvailableIPv6 int64 `json:"availableIPv6"`
}

// Condition is one aspect of an object, in the form that all of Kubernetes uses.
type Condition struct {
	// Type of the condition, such as Accepted.
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:MinLength=1
	Type string `json:"type"`
	// Status is True, False or Unknown.
	Status ConditionStatus `json:"status"`
	// ObservedGeneration is the metadata.generation that the condition is about.
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// LastTransitionTime is when Status last changed.
	LastTransitionTime time.Time `json:"lastTransitionTime"`
	// Reason is one word for programs.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`
	Reason string `json:"reason"`
	// Message is a sentence for people.
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message"`
}

// ConditionStatus says whether a condition holds.
//
// +kubebuilder:validation:Enum=True;False;Unknown
type ConditionStatus string

// The states of a condition.
const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)

// The types of conditions of a MachineLoadBalancer, besides ConditionAccepted.
const (
	// ConditionReady: the endpoint is known and at least one member is healthy.
	ConditionReady = "Ready"
	// ConditionEndpointAssigned: clients and Cluster API know where to connect. It
	// does not wait for a member.
	ConditionEndpointAssigned = "EndpointAssigned"
	// ConditionReachable: a member answers for the address.
	ConditionReachable = "Reachable"
	// ConditionMembersResolved: every member has a node or an address.
	ConditionMembersResolved = "MembersResolved"
	// ConditionDeletionHeld: the deletion of a member waits for its connections.
	ConditionDeletionHeld = "DeletionHeld"
)

// MachineLoadBalancerStatus is what lbd found about a MachineLoadBalancer.
type MachineLoadBalancerStatus struct {
	// ObservedGeneration is the metadata.generation that the status is about.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Endpoint is where clients connect. It is there before any Machine is.
	Endpoint *MachineEndpoint `json:"endpoint,omitempty"`
	// Address is the one that the members share; of two the one that Cluster API is told.
	Address string `json:"address,omitempty"`
	// Addresses are all that the members share, one of each family, Address first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Addresses []string `json:"addresses,omitempty"`
	// AddressPool is the IPAddressPool that the addresses are from, if they are from one;
	// two names, separated by a comma, if each is from another.
	AddressPool string `json:"addressPool,omitempty"`
	// URL is the endpoint in one string: https://10.0.0.1:6443, tcp:// or udp://.
	URL string `json:"url,omitempty"`
	// ReportedBy is the node whose daemon last wrote how the members are doing; empty
	// until one has. From then on only daemons say that.
	ReportedBy string `json:"reportedBy,omitempty"`
	// Members are the Machines, sorted by namespace and name; at most MaxMembers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Members []MachineMemberStatus `json:"members,omitempty"`
	// MemberCount counts the members that are not Disabled and not Drained.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemberCount int32 `json:"memberCount"`
	// HealthyCount counts the members that may have the address.
	// +optional
	// +kubebuilder:validation:Minimum=0
	HealthyCount int32 `json:"healthyCount"`
	// Status tells both: "4 of 5 members healthy".
	Status string `json:"status,omitempty"`
	// Ready is the condition Ready for those who read no conditions.
	// +optional
	Ready bool `json:"ready"`
	// Conditions are one for each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// MaxMembers bounds the members in a status; the counts are of all.
const MaxMembers = 500

// MachineEndpoint is where clients connect.
type MachineEndpoint struct {
	// Host is an IP address, or the name that the Cluster already had.
	// +kubebuilder:validation:MaxLength=512
	Host string `json:"host"`
	// Port is that of the host.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// MemberState is how a member is doing.
//
// +kubebuilder:validation:Enum=Active;Draining;Drained;Unhealthy;Pending;Disabled
type MemberState string

// The states of a member.
const (
	MemberActive    MemberState = "Active"    // it may have the address
	MemberDraining  MemberState = "Draining"  // it takes no new connections
	MemberDrained   MemberState = "Drained"   // it has let go of the address
	MemberUnhealthy MemberState = "Unhealthy" // its check fails, or its node is silent
	MemberPending   MemberState = "Pending"   // no node has been heard that it could be
	MemberDisabled  MemberState = "Disabled"  // somebody asked for it
)

// MachineMemberStatus is one member.
type MachineMemberStatus struct {
	// Machine is the name of the Machine.
	Machine string `json:"machine"`
	// Namespace is that of the Machine.
	Namespace string `json:"namespace"`
	// Node is the name of the node that the Machine is.
	Node string `json:"node,omitempty"`
	// Address is the first address of the Machine.
	Address string `json:"address,omitempty"`
	// FailureDomain is status.failureDomain of the Machine.
	FailureDomain string `json:"failureDomain,omitempty"`
	// State is how it is doing.
	State MemberState `json:"state"`
	// Reason is one word for why.
	Reason string `json:"reason,omitempty"`
	// Since is when State last changed.
	// +optional
	Since time.Time `json:"since,omitzero"`
}
