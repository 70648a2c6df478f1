package v1alpha1

// TenantRoute is an Ingress, an HTTPRoute or a GRPCRoute of a cluster of a tenant. Its name is ingress.NAMESPACE.NAME,
// httproute.NAMESPACE.NAME or grpcroute.NAMESPACE.NAME of that.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=lbd,shortName=troute
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Hosts",type=string,JSONPath=`.spec.rules[*].host`,description="The hostnames that the route asks for"
// +kubebuilder:printcolumn:name="HTTPHosts",type=string,JSONPath=`.spec.http.hostnames[*]`,description="Those of an HTTPRoute or a GRPCRoute"
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.status.addresses[*]`,description="Where clients connect to"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the object is in use as it is written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,description="Why it is accepted, or not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Since when the object exists"
type TenantRoute struct {
	TypeMeta `json:",inline"`
	// Metadata names the object, in the namespace of the cluster.
	// +optional
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what the Ingress or route asks for.
	Spec TenantRouteSpec `json:"spec"`
	// Status is what the controller found.
	Status *TenantRouteStatus `json:"status,omitempty"`
}

// TenantRouteSpec is what the Ingress or route asks for.
//
// +kubebuilder:validation:XValidation:rule="has(self.rules) == (self.origin.kind == 'Ingress')",message="an Ingress must have rules, and nothing else may"
// +kubebuilder:validation:XValidation:rule="has(self.http) == (self.origin.kind != 'Ingress')",message="an HTTPRoute or a GRPCRoute must have http, and nothing else may"
// +kubebuilder:validation:XValidation:rule="self.origin.kind == 'Ingress' || !has(self.tls) && !has(self.annotations)",message="only an Ingress may have tls and annotations"
// +kubebuilder:validation:XValidation:rule="self.origin.kind == 'GRPCRoute' || !has(self.http) || self.http.rules.all(r, !has(r.matches) || r.matches.all(m, !has(m.grpc)))",message="only a GRPCRoute may match by grpc"
// +kubebuilder:validation:XValidation:rule="self.origin.kind != 'GRPCRoute' || !has(self.http) || self.http.rules.all(r, has(r.backends) && !has(r.rewrite) && (!has(r.timeouts) || !has(r.timeouts.request) && !has(r.timeouts.backendRequest)))",message="a GRPCRoute may not have redirect, rewrite and timeouts"
// +kubebuilder:validation:XValidation:rule="self.origin.kind != 'GRPCRoute' || !has(self.http) || self.http.rules.all(r, !has(r.matches) || r.matches.all(m, m.path == '/' && m.type == 'Prefix' && !has(m.method) && (!has(m.query) || size(m.query) == 0)))",message="a GRPCRoute may not match by path, type, method and query"
type TenantRouteSpec struct {
	// Origin is the Ingress or route.
	Origin TenantOrigin `json:"origin"`
	// Rules are those of an Ingress: 1 to 50, with at most 250 paths in all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="self.map(r, size(r.paths)).sum() <= 250",message="have more than 250 paths in all"
	Rules []TenantRule `json:"rules,omitempty"`
	// HTTP is what an HTTPRoute or a GRPCRoute asks for.
	// +optional
	HTTP *TenantHTTP `json:"http,omitempty"`
	// TLS are the hostnames that are served by HTTPS too: at most 50 entries, of 250 hostnames in all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="self.map(t, has(t.hosts) ? size(t.hosts) : 0).sum() <= 250",message="have more than 250 hostnames in all"
	TLS []TenantTLS `json:"tls,omitempty"`
	// Annotations are those of the Ingress, at most 64, of 16384 characters in all with their keys. Only
	// such as the Tenant may have count.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.map(k, size(k) + size(self[k])).sum() <= 16384",message="have more than 16384 characters in all"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// TenantOrigin is the object of the tenant that a TenantRoute stands for.
type TenantOrigin struct {
	// Kind is Ingress, HTTPRoute or GRPCRoute.
	Kind TenantOriginKind `json:"kind"`
	// Namespace is that of the object, in the cluster of the tenant.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Namespace string `json:"namespace"`
	// Name is that of the object.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Name string `json:"name"`
	// Generation is that of the object that the route says the same as.
	// +kubebuilder:validation:Minimum=0
	Generation int64 `json:"generation,omitempty"`
}

// TenantOriginKind is what a TenantRoute may stand for.
//
// +kubebuilder:validation:Enum=Ingress;HTTPRoute;GRPCRoute
type TenantOriginKind string

// The kinds of a TenantOrigin.
const (
	OriginIngress   TenantOriginKind = "Ingress"
	OriginHTTPRoute TenantOriginKind = "HTTPRoute"
	OriginGRPCRoute TenantOriginKind = "GRPCRoute"
)

// TenantRule leads paths of a hostname to NodePorts.
type TenantRule struct {
	// Host is a hostname in lower case, the first label of which may be *.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(\*\.)?[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Host string `json:"host"`
	// Paths are 1 to 50.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	Paths []TenantPath `json:"paths"`
}

// TenantPath leads a path to a NodePort.
type TenantPath struct {
	// Path begins with a slash. It has letters, digits and ._~+,=:@- and no segment of dots alone.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/((\.?[A-Za-z0-9_~+,=:@-][A-Za-z0-9._~+,=:@-]*)/)*(\.?[A-Za-z0-9_~+,=:@-][A-Za-z0-9._~+,=:@-]*)?$`
	Path string `json:"path"`
	// Type is Exact or Prefix. Default: Prefix.
	// +kubebuilder:default=Prefix
	Type TenantPathType `json:"type,omitempty"`
	// Service is the Service of the tenant behind the NodePort, in the namespace of the origin.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Service string `json:"service"`
	// NodePort is that of the nodes, within nodePorts of the cluster.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort"`
	// Family is ipv4 or ipv6 if nodes answer at the NodePort by this family alone. Default: by both.
	// +optional
	Family AddressFamily `json:"family,omitempty"`
}

// TenantPathType tells which paths of requests a path stands for.
//
// +kubebuilder:validation:Enum=Exact;Prefix
type TenantPathType string

// The types of a TenantPath.
const (
	PathExact  TenantPathType = "Exact"
	PathPrefix TenantPathType = "Prefix"
)

// TenantTLS are hostnames with a certificate.
type TenantTLS struct {
	// Hosts are hostnames as in rules, at most 50. Default: those of the rules.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^(\*\.)?[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Hosts []string `json:"hosts,omitempty"`
	// Secret is the Secret of the tenant with the certificate, in the namespace of the origin. In the
	// hub its name is another one. Default: the engine of the hub has the certificate.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Secret string `json:"secret,omitempty"`
	// HubSecret is the copy of that Secret which the agent has written in the namespace of the object.
	// It counts if the Tenant may have Secrets and all names in the certificate. Default: there is none.
	// +optional
	// +kubebuilder:validation:MaxLength=28
	// +kubebuilder:validation:Pattern=`^lbd-tls-[0-9a-f]{20}$`
	HubSecret string `json:"hubSecret,omitempty"`
}

// HubSecretPrefix is how the names of Secrets begin that agents write in a hub.
const HubSecretPrefix = "lbd-tls-"

// ConditionCertificates is the type of the condition of a TenantRoute that tells whether the Secrets count
// that its agent has written for it. One without such Secrets does not have it.
const ConditionCertificates = "Certificates"

// TenantRouteStatus is what the controller found.
type TenantRouteStatus struct {
	// Addresses are IP addresses or hostnames of the engine of the hub.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Addresses []string `json:"addresses,omitempty"`
	// Hostnames are those that the route has: no other tenant gets them while it asks for them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=300
	// +kubebuilder:validation:items:MaxLength=253
	Hostnames []string `json:"hostnames,omitempty"`
	// Conditions are one for each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// Default fills in what is unset.
func (t *TenantRoute) Default() {
	for i := range t.Spec.Rules {
		for j := range t.Spec.Rules[i].Paths {
			setDefault(&t.Spec.Rules[i].Paths[j].Type, PathPrefix)
		}
	}
	t.Spec.HTTP.setDefaults()
}

// Hosts are the hostnames that a route asks for, those of TLS too; some may be there twice.
func (s *TenantRouteSpec) Hosts() (hosts []string) {
	for _, r := range s.Rules {
		hosts = append(hosts, r.Host)
	}
	for _, t := range s.TLS {
		hosts = append(hosts, t.Hosts...)
	}
	if s.HTTP != nil {
		hosts = append(hosts, s.HTTP.Hostnames...)
	}
	return hosts
}
