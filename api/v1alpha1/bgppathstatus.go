package v1alpha1

// BGPPathStatus is one prefix as a BGP peer is told of it.
type BGPPathStatus struct {
	Prefix string `json:"prefix"`
	// LocalPref is LOCAL_PREF; absent towards eBGP peers.
	// +kubebuilder:validation:Format=int64
	LocalPref *uint32 `json:"localPref,omitempty"`
	// MED is MULTI_EXIT_DISC; absent if it is not set.
	// +kubebuilder:validation:Format=int64
	MED *uint32 `json:"med,omitempty"`
	// Prepend is how many more times than needed the own ASN is in AS_PATH.
	Prepend int `json:"asPathPrepend,omitempty"`
	// Communities are standard ones ("65000:1") and large ones ("large:1:2:3").
	// +listType=atomic
	Communities []string `json:"communities,omitempty"`
	// GracefulShutdown: the peer is asked to prefer other paths (RFC 8326), since
	// the node is draining.
	GracefulShutdown bool `json:"gracefulShutdown,omitempty"`
}
