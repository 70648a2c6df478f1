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
