// Package v1alpha1 holds the objects that users write, in YAML files and, in a
// cluster, as custom resources of the group lbd.dev: plain structs, their
// defaults and their validation.
//
// The order is: decode, Default, Validate. Default fills in fields that are
// unset (zero) and is idempotent; Validate expects defaults and returns every
// rule that the object breaks. Neither reads a file, a clock or the network.
//
// The markers in comments (+kubebuilder, +listType and the like) say in the
// definitions of packaging/crds what Default and Validate say in Go, as far as a
// schema can. `make generate` writes those files, and tests/crds compares them
// with Default and Validate.
//
// +groupName=lbd.dev
package v1alpha1

// The group and version of every object.
const (
	Group      = "lbd.dev"
	Version    = "v1alpha1"
	APIVersion = Group + "/" + Version
)

// The kinds of this version.
const (
	KindNodeConfiguration = "NodeConfiguration"
	KindVirtualIP         = "VirtualIP"
	KindBGPPeer           = "BGPPeer"
	KindBFDProfile        = "BFDProfile"
	KindCommunity         = "Community"
	KindIPAddressPool     = "IPAddressPool"
	KindL2Advertisement   = "L2Advertisement"
	KindBGPAdvertisement  = "BGPAdvertisement"
	KindLoadBalancer      = "LoadBalancer"
	// KindBGPListener is for files only, as KindNodeConfiguration is.
	KindBGPListener = "BGPListener"
	// KindMachineLoadBalancer is for clusters only, and the only one with a namespace.
	KindMachineLoadBalancer = "MachineLoadBalancer"
	// These are for clusters only. All but the first have a namespace, that of a cluster of a Tenant.
	KindTenant        = "Tenant"
	KindTenantNodes   = "TenantNodes"
	KindTenantService = "TenantService"
	KindTenantRoute   = "TenantRoute"
)

// TypeMeta says what an object is.
type TypeMeta struct {
	// APIVersion is always "lbd.dev/v1alpha1".
	APIVersion string `json:"apiVersion"`
	// Kind is one of the Kind constants.
	Kind string `json:"kind"`
}

// ObjectMeta names an object.
type ObjectMeta struct {
	// Name is a DNS-1123 subdomain, unique among the objects of its kind.
	Name string `json:"name"`
	// Namespace is a DNS-1123 label; files leave it empty.
	Namespace string `json:"namespace,omitempty"`
	// Labels follow the syntax of Kubernetes. Only those of an IPAddressPool count:
	// advertisements may select pools by them.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are free text; lbd does not read them.
	Annotations map[string]string `json:"annotations,omitempty"`
}
