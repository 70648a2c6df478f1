package v1alpha1

import "time"

// ListenerStatus is what a node has learned by one of its BGPListeners.
type ListenerStatus struct {
	// Name is that of the BGPListener.
	Name string `json:"name"`
	// Masters are those that are connected or kept out, sorted by address.
	// +listType=atomic
	Masters []MasterStatus `json:"masters"`
	// Routes are what the listener accepts and where packets for it go, sorted.
	// +listType=atomic
	Routes []LearnedRouteStatus `json:"routes"`
	// Refused are paths of masters that lead to no route, the first 100 of all listeners.
	// +listType=atomic
	Refused []RefusedPathStatus `json:"refused,omitempty"`
}

// MasterStatus is one machine that has told a node by BGP which addresses it has.
type MasterStatus struct {
	// Address is that of the session.
	Address string `json:"address"`
	// ASN is the AS number that the master says it has; absent before it has said so.
	// +kubebuilder:validation:Format=int64
	ASN uint32 `json:"asn,omitempty"`
	// State is the state of the session by RFC 4271 section 8.2.2.
	State string `json:"state"`
	// HoldTime is the negotiated one, as a Go duration.
	HoldTime string `json:"holdTime,omitempty"`
	// BFD is the state of the BFD session by RFC 5880 section 6.2; empty without.
	BFD string `json:"bfd,omitempty"`
	// BFDDetect is the detection time, as a Go duration; empty until there is any.
	BFDDetect string `json:"bfdDetect,omitempty"`
	// Accepted are the prefixes for which packets are sent to the master.
	// +listType=atomic
	Accepted []string `json:"accepted,omitempty"`
	// Received counts the prefixes that the master advertises, refused ones too.
	// +kubebuilder:validation:Format=int64
	Received uint32 `json:"received,omitempty"`
	// Error is why no session is taken from this address for a while; empty if one is.
	Error string `json:"error,omitempty"`
}

// LearnedRouteStatus is where packets for a prefix go.
type LearnedRouteStatus struct {
	// Prefix is one of acceptPrefixes.
	Prefix string `json:"prefix"`
	// NextHops are the masters that the kernel sends to, sorted; without any the prefix is
	// unreachable.
	// +listType=atomic
	NextHops []string `json:"nextHops,omitempty"`
	// Resilient: the kernel keeps connections where they are while masters come and go.
	Resilient bool `json:"resilient,omitempty"`
	// Since is when a decision last changed the next hops.
	// +optional
	Since time.Time `json:"since,omitzero"`
	// Error is why the kernel lacks something, or why the prefix counts for nothing here.
	Error string `json:"error,omitempty"`
}

// RefusedPathStatus is a path that leads to no route.
type RefusedPathStatus struct {
	// Prefix is what the master advertises.
	Prefix string `json:"prefix"`
	// Master is the address of the session.
	Master string `json:"master"`
	// NextHop is that of the path.
	NextHop string `json:"nextHop,omitempty"`
	// Why says what is wrong.
	Why string `json:"why"`
}
