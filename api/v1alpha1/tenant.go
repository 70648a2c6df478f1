package v1alpha1

// Tenant is who may have addresses of this cluster, the hub, for the Services of clusters of its
// own. What its agents write counts only as far as this object allows.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=lbd
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Clusters",type=string,JSONPath=`.spec.clusters[*].name`,description="The clusters of the tenant"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the object is in use as it is written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,description="Why it is accepted, or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type Tenant struct {
	TypeMeta `json:",inline"`
	// Metadata names the tenant.
	// +optional
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what the tenant may have.
	Spec TenantSpec `json:"spec"`
	// Status is what the controller found; files have none.
	Status *ObjectStatus `json:"status,omitempty"`
}

// TenantSpec is what a tenant may have.
type TenantSpec struct {
	// Clusters are 1 to 16. Each has a namespace of its own in the hub.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, self.exists_one(d, d.__namespace__ == c.__namespace__))",message="two clusters have one namespace: each has one of its own, or one agent could write for the other"
	Clusters []TenantCluster `json:"clusters"`
	// Pools are the IPAddressPools that its addresses are from, 1 to 16. The first that has a
	// free address counts, unless a Service names one of them.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Pools []string `json:"pools"`
	// Limits bound what the clusters have together.
	// +optional
	Limits TenantLimits `json:"limits,omitzero"`
	// Sources are what the nodes of the tenant may see as the address of a client: vip, or vip
	// and client. Default: vip.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	Sources []SourceAddress `json:"sources,omitempty"`
	// Hostnames are those that Ingresses and routes of the tenant may have, at most 64. *.example.com stands for
	// all names below example.com. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^(\*\.)?[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Hostnames []string `json:"hostnames,omitempty"`
	// IngressClass is the IngressClass of the hub whose engine serves the Ingresses of the tenant.
	// Default: none are served.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	IngressClass string `json:"ingressClass,omitempty"`
	// Gateway is the Gateway of the hub, NAMESPACE/NAME, that serves the HTTPRoutes and GRPCRoutes of the tenant.
	// Default: none are served.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Gateway string `json:"gateway,omitempty"`
	// Annotations are those of Ingresses that the engine of the hub is to see.
	// +optional
	Annotations TenantAnnotations `json:"annotations,omitzero"`
	// Suspended: what the tenant has stays as it is, and it gets nothing new.
	Suspended bool `json:"suspended,omitempty"`
}

// TenantAnnotations are those of Ingresses that the engine of the hub is to see.
type TenantAnnotations struct {
	// Allow are keys, or beginnings of keys and *; at most 64. None may be a snippet of a configuration.
	// A * stands for no key that gives hostnames or names objects of others. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=252
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9][-A-Za-z0-9_./]{0,250}\*?$`
	// +kubebuilder:validation:items:XValidation:rule="!self.contains('snippet')",message="would let a tenant write into the configuration of the engine"
	Allow []string `json:"allow,omitempty"`
}

// TenantCluster is one cluster of a tenant.
type TenantCluster struct {
	// Name is a DNS-1123 label.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Name string `json:"name"`
	// Namespace is that of the hub in which the agent of the cluster writes. No other cluster of
	// any Tenant may have it.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Namespace string `json:"namespace"`
	// NodeCIDRs are the prefixes in which its nodes are, 1 to 64. None may overlap one of another
	// cluster, or have an address of the hub.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="must be a prefix, such as 10.1.0.0/24, without bits behind its length"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || !(cidr('0.0.0.0/8').containsIP(cidr(self).ip()) || cidr(self).containsIP('0.0.0.0') || cidr('127.0.0.0/8').containsIP(cidr(self).ip()) || cidr(self).containsIP('127.0.0.0') || cidr('169.254.0.0/16').containsIP(cidr(self).ip()) || cidr(self).containsIP('169.254.0.0') || cidr('224.0.0.0/4').containsIP(cidr(self).ip()) || cidr(self).containsIP('224.0.0.0') || cidr('255.255.255.255/32').containsIP(cidr(self).ip()) || cidr(self).containsIP('255.255.255.255') || cidr('::/127').containsIP(cidr(self).ip()) || cidr(self).containsIP('::') || cidr('fe80::/10').containsIP(cidr(self).ip()) || cidr(self).containsIP('fe80::') || cidr('ff00::/8').containsIP(cidr(self).ip()) || cidr(self).containsIP('ff00::'))",message="has addresses that no host has, or that count on one link only"
	NodeCIDRs []string `json:"nodeCIDRs"`
	// NodePorts are those of its NodePorts, the first and the last. Default: 30000-32767.
	// +optional
	// +kubebuilder:default="30000-32767"
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:Pattern=`^[0-9]{1,5}-[0-9]{1,5}$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[0-9]{1,5}-[0-9]{1,5}$') || int(self.split('-')[0]) >= 1024 && int(self.split('-')[0]) <= int(self.split('-')[1]) && int(self.split('-')[1]) <= 65535",message="must be from 1024 to 65535, the lower port first"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[0-9]{1,5}-[0-9]{1,5}$') || ![2379, 2380, 2381, 6443, 10248, 10249, 10250, 10256, 10257, 10259].exists(p, int(self.split('-')[0]) <= p && p <= int(self.split('-')[1]))",message="contains a port that a node has for itself, such as 6443 or 10250"
	NodePorts string `json:"nodePorts,omitempty"`
}

// TenantLimits bound what the clusters of a tenant have together. Whatever is over a limit is
// shown and not served; what is older counts first.
type TenantLimits struct {
	// Services are 1 to 5000. Default: 50.
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	Services int32 `json:"services,omitempty"`
	// Addresses are 1 to 5000. Default: 20.
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	Addresses int32 `json:"addresses,omitempty"`
	// Ports are those of all Services, and as many may be behind TenantRoutes: 1 to 20000. Default: 200.
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20000
	Ports int32 `json:"ports,omitempty"`
	// Nodes are 1 to 2000. Default: 100.
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2000
	Nodes int32 `json:"nodes,omitempty"`
	// Routes are TenantRoutes, and as many different Services may be behind them: 1 to 5000. Default: 200.
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	Routes int32 `json:"routes,omitempty"`
	// TLSSecrets are Secrets with certificates for TenantRoutes that agents may write: 0 to 1000.
	// Default: 0, the hub takes none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	TLSSecrets int32 `json:"tlsSecrets,omitempty"`
}

// TenantNodes are up to 100 nodes of one cluster of a tenant, as its agent sees them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=lbd,path=tenantnodes,singular=tenantnodes,shortName=tnodes
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.spec.nodes[*].name`,description="The nodes of the object"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether all of its nodes count"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,description="Why, or why not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type TenantNodes struct {
	TypeMeta `json:",inline"`
	// Metadata names the object, in the namespace of the cluster.
	// +optional
	Metadata ObjectMeta `json:"metadata"`
	// Spec are the nodes.
	Spec TenantNodesSpec `json:"spec"`
	// Status is what the controller found.
	Status *ObjectStatus `json:"status,omitempty"`
}

// TenantNodesSpec are the nodes.
type TenantNodesSpec struct {
	// Nodes are at most 100.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Nodes []TenantNode `json:"nodes,omitempty"`
}

// TenantNode is one node.
type TenantNode struct {
	// Name is that of the Node.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Name string `json:"name"`
	// Addresses are its InternalIPs, 1 to 4. The first one of each family counts.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) && !ip(self).isUnspecified() && !ip(self).isLoopback() && !(cidr('224.0.0.0/4').containsIP(self) || cidr('ff00::/8').containsIP(self)) && self != '255.255.255.255' && !(ip(self).family() == 6 && ip(self).isLinkLocalUnicast())",message="must be an IP address of one host, without prefix length, zone and IPv6 form of IPv4; not unspecified, loopback, multicast, broadcast or IPv6 link-local"
	Addresses []string `json:"addresses"`
	// State is Serving, Draining or Out. Default: Serving.
	// +kubebuilder:default=Serving
	State TenantNodeState `json:"state,omitempty"`
	// Weight is its share of new connections beside those of the others: 0 to 100. Default: 10.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Weight *int32 `json:"weight,omitempty"`
}

// TenantNodeState is what the agent says of a node.
//
// +kubebuilder:validation:Enum=Serving;Draining;Out
type TenantNodeState string

// The states of a TenantNode.
const (
	// TenantNodeServing gets new connections.
	TenantNodeServing TenantNodeState = "Serving"
	// TenantNodeDraining keeps its connections, and gets new ones only while no other node can.
	TenantNodeDraining TenantNodeState = "Draining"
	// TenantNodeOut is not ready or gone.
	TenantNodeOut TenantNodeState = "Out"
)

// TenantService is a Service of type LoadBalancer of a cluster of a tenant. Its name is that of
// the Service, NAMESPACE.NAME.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=lbd,shortName=tsvc
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.status.addresses[*].address`,description="The addresses that clients connect to"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the object is in use as it is written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,description="Why it is accepted, or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type TenantService struct {
	TypeMeta `json:",inline"`
	// Metadata names the object, in the namespace of the cluster.
	// +optional
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what the Service asks for.
	Spec TenantServiceSpec `json:"spec"`
	// Status is what the controller found.
	Status *TenantServiceStatus `json:"status,omitempty"`
}

// TenantServiceSpec is what the Service asks for.
//
// +kubebuilder:validation:XValidation:rule="has(self.globalName) || !has(self.weight)",message="weight needs the globalName: it is the share beside others with that"
type TenantServiceSpec struct {
	// Ports are 1 to 100.
	// +listType=map
	// +listMapKey=port
	// +listMapKey=protocol
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Ports []TenantPort `json:"ports"`
	// Families are those of the addresses, ipv4, ipv6 or both. Default: ipv4.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	Families []AddressFamily `json:"families,omitempty"`
	// Addresses are asked for, of Pools of the Tenant, at most one of each family. Default: free ones.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) && !ip(self).isUnspecified() && !ip(self).isLoopback() && !(cidr('224.0.0.0/4').containsIP(self) || cidr('ff00::/8').containsIP(self)) && self != '255.255.255.255' && !(ip(self).family() == 6 && ip(self).isLinkLocalUnicast())",message="must be an IP address of one host, without prefix length, zone and IPv6 form of IPv4; not unspecified, loopback, multicast, broadcast or IPv6 link-local"
	// +kubebuilder:validation:XValidation:rule="self.exists_one(a, a.contains(':')) || self.exists_one(a, !a.contains(':')) || size(self) == 0",message="has two addresses of one family"
	Addresses []string `json:"addresses,omitempty"`
	// Pool is the IPAddressPool that is asked for, one of those of the Tenant.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Pool string `json:"pool,omitempty"`
	// Local is the externalTrafficPolicy Local: only Nodes get connections.
	Local *TenantLocal `json:"local,omitempty"`
	// Affinity is what goes to one node together. Default: connection.
	// +kubebuilder:default=connection
	Affinity Affinity `json:"affinity,omitempty"`
	// Source is what the nodes see as the address of a client. Default: vip.
	// +kubebuilder:default=vip
	Source SourceAddress `json:"source,omitempty"`
	// AllowedSources are prefixes of clients, at most 200. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="must be a prefix, such as 10.0.0.0/8, without bits behind its length"
	AllowedSources []string `json:"allowedSources,omitempty"`
	// GlobalName is a DNS-1123 label. All TenantServices of one Tenant that have it, whatever their clusters, share
	// their addresses. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	GlobalName string `json:"globalName,omitempty"`
	// Weight is the share of new connections beside the others with the globalName: 0 to 100. With 0 it gets
	// none, and those that it has go on. Default: 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Weight *int32 `json:"weight,omitempty"`
}

// TenantPort is a port of all addresses, and the NodePort that it leads to.
type TenantPort struct {
	// Port is what clients connect to: 1 to 65535.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// NodePort is that of the nodes, within nodePorts of the cluster.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort"`
	// Protocol is TCP or UDP. Default: TCP.
	// +kubebuilder:default=TCP
	Protocol TransportProtocol `json:"protocol,omitempty"`
}

// TenantLocal is what is to be known of a Service whose nodes serve their own endpoints alone.
type TenantLocal struct {
	// HealthCheckNodePort tells on each node whether it has an endpoint.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	HealthCheckNodePort int32 `json:"healthCheckNodePort"`
	// Nodes are those that have endpoints, by name, and how many; at most 1000.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Nodes []TenantEndpoints `json:"nodes,omitempty"`
}

// TenantEndpoints are how many endpoints a node has.
type TenantEndpoints struct {
	// Name is that of the TenantNode.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Name string `json:"name"`
	// Endpoints are 1 to 100: the share of new connections.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Endpoints int32 `json:"endpoints"`
}

// TenantServiceStatus is what the controller found.
type TenantServiceStatus struct {
	// Addresses are those of the Service.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Addresses []TenantAddress `json:"addresses,omitempty"`
	// GlobalName is the one under which it shares the addresses; empty: it has them alone.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	GlobalName string `json:"globalName,omitempty"`
	// Conditions are one for each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// TenantAddress is an address of a TenantService.
type TenantAddress struct {
	// Address is that of clients.
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address"`
	// Pool is the IPAddressPool that it is from.
	// +kubebuilder:validation:MaxLength=253
	Pool string `json:"pool"`
}

// ConditionAddressAssigned is the type of the condition of a TenantService that tells whether it has
// all addresses that it asks for. ConditionAccepted tells whether it may have any.
const ConditionAddressAssigned = "AddressAssigned"

// The reasons of ConditionAddressAssigned beside AddressPending.
const (
	ReasonAssigned    = "Assigned"
	ReasonNotAccepted = "NotAccepted"
)

// The defaults of a Tenant.
const (
	DefaultNodePorts       = "30000-32767"
	DefaultTenantServices  = 50
	DefaultTenantAddresses = 20
	DefaultTenantPorts     = 200
	DefaultTenantNodes     = 100
	DefaultTenantRoutes    = 200
	DefaultTenantWeight    = 100
)

// Default fills in what is unset.
func (t *Tenant) Default() {
	for i := range t.Spec.Clusters {
		setDefault(&t.Spec.Clusters[i].NodePorts, DefaultNodePorts)
	}
	l := &t.Spec.Limits
	setDefault(&l.Services, DefaultTenantServices)
	setDefault(&l.Addresses, DefaultTenantAddresses)
	setDefault(&l.Ports, DefaultTenantPorts)
	setDefault(&l.Nodes, DefaultTenantNodes)
	setDefault(&l.Routes, DefaultTenantRoutes)
	if len(t.Spec.Sources) == 0 {
		t.Spec.Sources = []SourceAddress{SourceVIP}
	}
}

// Default fills in what is unset.
func (t *TenantNodes) Default() {
	for i := range t.Spec.Nodes {
		n := &t.Spec.Nodes[i]
		setDefault(&n.State, TenantNodeServing)
		if n.Weight == nil {
			n.Weight = new(int32(DefaultBackendWeight))
		}
	}
}

// Share is the weight that counts beside others with the globalName.
func (s *TenantServiceSpec) Share() int32 {
	if s.Weight == nil {
		return DefaultTenantWeight
	}
	return *s.Weight
}

// Default fills in what is unset.
func (t *TenantService) Default() {
	for i := range t.Spec.Ports {
		setDefault(&t.Spec.Ports[i].Protocol, ProtocolTCP)
	}
	if len(t.Spec.Families) == 0 {
		t.Spec.Families = []AddressFamily{FamilyIPv4}
	}
	setDefault(&t.Spec.Affinity, AffinityConnection)
	setDefault(&t.Spec.Source, SourceVIP)
}
