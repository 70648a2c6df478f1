package v1alpha1

import "time"

// BalancerStatus is a LoadBalancer, or a MachineLoadBalancer that is forwarded, as one node sees
// it.
type BalancerStatus struct {
	// Name is that of the object.
	Name string `json:"name"`
	// Addresses are its VIPs.
	// +listType=atomic
	Addresses []string `json:"addresses"`
	// Ports are those of each address.
	// +listType=atomic
	Ports []BalancerPort `json:"ports"`
	// Backends are sorted by address. One that is configured no more is among them while it is
	// drained.
	// +listType=atomic
	Backends []BackendStatus `json:"backends"`
}

// BalancerPort is a port of a LoadBalancer.
type BalancerPort struct {
	// Protocol is TCP or UDP.
	Protocol string `json:"protocol"`
	// Port is that of clients.
	Port int32 `json:"port"`
	// TargetPort is that of backends that have none of their own.
	TargetPort int32 `json:"targetPort"`
}

// BackendStatus is a backend of a LoadBalancer, as one node sees it.
type BackendStatus struct {
	// Backend is its address, with its port if it has one of its own.
	Backend string `json:"backend"`
	// Weight is that of the configuration, 0 to 100, or with a global name of a tenant
	// in proportion to its share.
	Weight int `json:"weight"`
	// State is "in" if it gets new connections, "draining" if it gets none by configuration and
	// those that it has go on, "pending" while the node has checked neither it nor the others, or "out".
	State string `json:"state"`
	// Reason is why it gets none: NoWeight, Leaving (with its Machine or Node), Removed (it is configured no
	// more), IsVIP (it is an address of lbd itself), CheckFails, LastCheckFailed, CheckPending,
	// OwnerSays, or NoPlace (this node forwards nothing for the LoadBalancer). Or why it gets some
	// all the same: OwnerSays or NoneBetter; CheckPending while it is pending; NoWeight or
	// Removed until one of those in its place has been checked. Empty if it is well.
	Reason string `json:"reason,omitempty"`
	// By is the node that says so: this one, whose check it is, or the owner of the address. Empty
	// if the configuration does.
	By string `json:"by,omitempty"`
	// Since is when State last changed on this node.
	// +optional
	Since time.Time `json:"since,omitzero"`
	// Share is how many of 1000 new connections it gets.
	Share int `json:"share"`
	// Health is that of the check of this node: unknown, up, failing, down, or empty without one.
	Health string `json:"health,omitempty"`
	// Detail is why the last check failed.
	Detail string `json:"detail,omitempty"`
	// Connections are those that are open and that the node knows, by all addresses of the object,
	// or by the one that is explained. Missing if it cannot tell.
	Connections *int `json:"connections,omitempty"`
	// Client: it gets the connection that was asked about.
	Client bool `json:"client,omitempty"`
}
