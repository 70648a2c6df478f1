package v1alpha1

// IPAddressPool has addresses for Services of type LoadBalancer. Field names and
// meanings are those of metallb.io/v1beta1.
type IPAddressPool struct {
	TypeMeta `json:",inline"`
	// Metadata names the object; advertisements refer to that name, or to labels.
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	Spec IPAddressPoolSpec `json:"spec"`
}

// IPAddressPoolSpec is what is wanted of a pool.
type IPAddressPoolSpec struct {
	// Addresses are CIDRs, or first and last address joined by a hyphen, at least
	// one, of both families if need be. They are given out in this order. No
	// address may be in two entries, nor in two pools.
	Addresses []string `json:"addresses"`
	// AutoAssign lets Services have addresses that ask neither for the pool nor for
	// one of its addresses. Default: true.
	AutoAssign *bool `json:"autoAssign,omitempty"`
	// AvoidBuggyIPs leaves out the IPv4 addresses that end in .0 and .255, which
	// some old routers drop.
	AvoidBuggyIPs bool `json:"avoidBuggyIPs,omitempty"`
	// ServiceAllocation limits the pool to some Services. Default: all.
	ServiceAllocation *ServiceAllocation `json:"serviceAllocation,omitempty"`
}

// ServiceAllocation says for which Services a pool is. Such a pool is tried
// before those without. A Service must fit the namespaces and ServiceSelectors.
type ServiceAllocation struct {
	// Priority orders the pools for one Service: 1 first, 2 next, 0 last.
	Priority int32 `json:"priority,omitempty"`
	// Namespaces and NamespaceSelectors are alternatives. Default: all.
	Namespaces         []string   `json:"namespaces,omitempty"`
	NamespaceSelectors []Selector `json:"namespaceSelectors,omitempty"`
	// ServiceSelectors match labels of Services. Default: all.
	ServiceSelectors []Selector `json:"serviceSelectors,omitempty"`
}

// Default fills in what is unset.
func (p *IPAddressPool) Default() {
	if p.Spec.AutoAssign == nil {
		p.Spec.AutoAssign = new(true)
	}
}
