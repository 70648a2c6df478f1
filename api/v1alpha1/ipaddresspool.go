package v1alpha1

// IPAddressPool has addresses for Services of type LoadBalancer. Field names and
// meanings are those of metallb.io/v1beta1.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=lbd,shortName=lbpool
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`,description="The addresses of the pool"
// +kubebuilder:printcolumn:name="Auto Assign",type=boolean,JSONPath=`.spec.autoAssign`,description="Whether Services get addresses that do not ask for the pool"
// +kubebuilder:printcolumn:name="Assigned IPv4",type=integer,JSONPath=`.status.assignedIPv4`,description="IPv4 addresses that Services have"
// +kubebuilder:printcolumn:name="Free IPv4",type=integer,JSONPath=`.status.availableIPv4`,description="IPv4 addresses that nobody has"
// +kubebuilder:printcolumn:name="Assigned IPv6",type=integer,JSONPath=`.status.assignedIPv6`,description="IPv6 addresses that Services have",priority=1
// +kubebuilder:printcolumn:name="Free IPv6",type=integer,JSONPath=`.status.availableIPv6`,description="IPv6 addresses that nobody has",priority=1
// +kubebuilder:printcolumn:name="Avoid Buggy IPs",type=boolean,JSONPath=`.spec.avoidBuggyIPs`,description="Whether .0 and .255 are left out",priority=1
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the object is in use as it is written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,description="Why it is accepted, or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type IPAddressPool struct {
	TypeMeta `json:",inline"`
	// Metadata names the object; advertisements refer to that name, or to labels.
	// +optional
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	Spec IPAddressPoolSpec `json:"spec"`
	// Status is what the controller found; files have none.
	Status *IPAddressPoolStatus `json:"status,omitempty"`
}

// IPAddressPoolSpec is what is wanted of a pool.
type IPAddressPoolSpec struct {
	// Addresses are CIDRs, or first and last address joined by a hyphen, 1 to 256,
	// of both families if need be. They are given out in this order. No
	// address may be in two entries, nor in two pools.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=100
	// +kubebuilder:validation:items:XValidation:rule="self.contains('-') ? isIP(self.substring(0, self.indexOf('-')).trim()) && isIP(self.substring(self.indexOf('-') + 1).trim()) : isCIDR(self.trim())",message="must be a CIDR or first-last, without zones and without IPv6 forms of IPv4"
	// +kubebuilder:validation:items:XValidation:rule="self.contains('-') || !isCIDR(self.trim()) || cidr(self.trim()) == cidr(self.trim()).masked()",message="has bits set beyond its prefix length; give the first address of the prefix, or /32 or /128 for one address"
	// +kubebuilder:validation:items:XValidation:rule="!(self.contains('-') && isIP(self.substring(0, self.indexOf('-')).trim()) && isIP(self.substring(self.indexOf('-') + 1).trim())) || ip(self.substring(0, self.indexOf('-')).trim()).family() == ip(self.substring(self.indexOf('-') + 1).trim()).family()",message="has ends of different address families"
	// +kubebuilder:validation:items:XValidation:rule="!(self.contains('-') && isIP(self.substring(0, self.indexOf('-')).trim()) && isIP(self.substring(self.indexOf('-') + 1).trim()) && ip(self.substring(0, self.indexOf('-')).trim()).family() == 4 && ip(self.substring(self.indexOf('-') + 1).trim()).family() == 4) || [[self.substring(0, self.indexOf('-')).trim().split('.'), self.substring(self.indexOf('-') + 1).trim().split('.')]].all(e, int(e[0][0]) * 16777216 + int(e[0][1]) * 65536 + int(e[0][2]) * 256 + int(e[0][3]) <= int(e[1][0]) * 16777216 + int(e[1][1]) * 65536 + int(e[1][2]) * 256 + int(e[1][3]))",message="ends before it begins"
	// +kubebuilder:validation:items:XValidation:rule="!(self.contains('-') && isIP(self.substring(0, self.indexOf('-')).trim()) && isIP(self.substring(self.indexOf('-') + 1).trim()) && ip(self.substring(0, self.indexOf('-')).trim()).family() == 4 && ip(self.substring(self.indexOf('-') + 1).trim()).family() == 4) || [[self.substring(0, self.indexOf('-')).trim().split('.'), self.substring(self.indexOf('-') + 1).trim().split('.')]].all(e, !(int(e[0][0]) * 16777216 + int(e[0][1]) * 65536 + int(e[0][2]) * 256 + int(e[0][3]) < 2130706432 && int(e[1][0]) * 16777216 + int(e[1][1]) * 65536 + int(e[1][2]) * 256 + int(e[1][3]) > 2147483647) && !(int(e[0][0]) * 16777216 + int(e[0][1]) * 65536 + int(e[0][2]) * 256 + int(e[0][3]) < 3758096384 && int(e[1][0]) * 16777216 + int(e[1][1]) * 65536 + int(e[1][2]) * 256 + int(e[1][3]) > 4026531839))",message="contains all of 127.0.0.0/8 (loopback) or 224.0.0.0/4 (multicast)"
	// +kubebuilder:validation:items:XValidation:rule="!(self.contains('-') && isIP(self.substring(0, self.indexOf('-')).trim()) && isIP(self.substring(self.indexOf('-') + 1).trim())) || !(cidr('0.0.0.0/8').containsIP(self.substring(0, self.indexOf('-')).trim()) || cidr('127.0.0.0/8').containsIP(self.substring(0, self.indexOf('-')).trim()) || cidr('224.0.0.0/4').containsIP(self.substring(0, self.indexOf('-')).trim()) || cidr('255.255.255.255/32').containsIP(self.substring(0, self.indexOf('-')).trim()) || cidr('::/127').containsIP(self.substring(0, self.indexOf('-')).trim()) || cidr('fe80::/10').containsIP(self.substring(0, self.indexOf('-')).trim()) || cidr('ff00::/8').containsIP(self.substring(0, self.indexOf('-')).trim()) || cidr('0.0.0.0/8').containsIP(self.substring(self.indexOf('-') + 1).trim()) || cidr('127.0.0.0/8').containsIP(self.substring(self.indexOf('-') + 1).trim()) || cidr('224.0.0.0/4').containsIP(self.substring(self.indexOf('-') + 1).trim()) || cidr('255.255.255.255/32').containsIP(self.substring(self.indexOf('-') + 1).trim()) || cidr('::/127').containsIP(self.substring(self.indexOf('-') + 1).trim()) || cidr('fe80::/10').containsIP(self.substring(self.indexOf('-') + 1).trim()) || cidr('ff00::/8').containsIP(self.substring(self.indexOf('-') + 1).trim()))",message="contains addresses that no Service can have: of this network, loopback, link-local, multicast or broadcast"
	// +kubebuilder:validation:items:XValidation:rule="self.contains('-') || !isCIDR(self.trim()) || !(cidr('0.0.0.0/8').containsIP(cidr(self.trim()).ip()) || cidr('127.0.0.0/8').containsIP(cidr(self.trim()).ip()) || cidr('224.0.0.0/4').containsIP(cidr(self.trim()).ip()) || cidr('255.255.255.255/32').containsIP(cidr(self.trim()).ip()) || cidr('::/127').containsIP(cidr(self.trim()).ip()) || cidr('fe80::/10').containsIP(cidr(self.trim()).ip()) || cidr('ff00::/8').containsIP(cidr(self.trim()).ip()) || cidr(self.trim()).containsIP('0.0.0.0') || cidr(self.trim()).containsIP('127.0.0.0') || cidr(self.trim()).containsIP('224.0.0.0') || cidr(self.trim()).containsIP('255.255.255.255') || cidr(self.trim()).containsIP('::') || cidr(self.trim()).containsIP('fe80::') || cidr(self.trim()).containsIP('ff00::'))",message="contains addresses that no Service can have: of this network, loopback, link-local, multicast or broadcast"
	Addresses []string `json:"addresses"`
	// AutoAssign lets Services have addresses that ask neither for the pool nor for
	// one of its addresses. Default: true.
	// +kubebuilder:default=true
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
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Priority int32 `json:"priority,omitempty"`
	// Namespaces are names of namespaces; those that NamespaceSelectors match are
	// added. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Namespaces []string `json:"namespaces,omitempty"`
	// NamespaceSelectors match labels of namespaces, at most 64; those that
	// Namespaces has are added. Default: all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	NamespaceSelectors []Selector `json:"namespaceSelectors,omitempty"`
	// ServiceSelectors match labels of Services, at most 64. Default: all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ServiceSelectors []Selector `json:"serviceSelectors,omitempty"`
}

// Default fills in what is unset.
func (p *IPAddressPool) Default() {
	setDefault(&p.Spec.AutoAssign, new(true))
}
