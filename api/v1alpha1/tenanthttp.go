package v1alpha1

import "iter"

// TenantHTTP is what an HTTPRoute or a GRPCRoute asks for.
type TenantHTTP struct {
	// Hostnames are 1 to 16 hostnames in lower case, the first label of which may be *.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^(\*\.)?[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Hostnames []string `json:"hostnames"`
	// Rules are 1 to 16, with at most 128 matches, and at most 64 values of headers and parameters in these.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(r, has(r.matches) ? size(r.matches) : 0).sum() <= 128",message="have more than 128 matches in all"
	// +kubebuilder:validation:XValidation:rule="self.map(r, has(r.matches) ? r.matches.map(m, (has(m.headers) ? size(m.headers) : 0) + (has(m.query) ? size(m.query) : 0)).sum() : 0).sum() <= 64",message="have more than 64 headers and parameters in all matches"
	Rules []TenantHTTPRule `json:"rules"`
}

// TenantHTTPRule leads requests to NodePorts, or answers them with a redirect.
//
// +kubebuilder:validation:XValidation:rule="has(self.backends) != has(self.redirect)",message="must have either backends or a redirect"
// +kubebuilder:validation:XValidation:rule="!(has(self.rewrite) && has(self.redirect))",message="may not have both a redirect and a rewrite"
type TenantHTTPRule struct {
	// Matches are the requests that it is for, at most 64. Default: all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Matches []TenantHTTPMatch `json:"matches,omitempty"`
	// Headers are changes of the headers of the request.
	// +optional
	Headers *TenantHTTPHeaders `json:"headers,omitempty"`
	// Redirect answers the request.
	// +optional
	Redirect *TenantHTTPRedirect `json:"redirect,omitempty"`
	// Rewrite changes host and path of the request.
	// +optional
	Rewrite *TenantHTTPRewrite `json:"rewrite,omitempty"`
	// Backends are 1 to 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Backends []TenantHTTPBackend `json:"backends,omitempty"`
	// Timeouts are those of a request. Default: those of the engine.
	// +optional
	Timeouts TenantHTTPTimeouts `json:"timeouts,omitzero"`
}

// TenantHTTPMatch stands for requests of which all that it says is true.
type TenantHTTPMatch struct {
	// Path begins with a slash. It has letters, digits and ._~+,=:@- and no segment of dots alone. Default: /.
	// +optional
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/((\.?[A-Za-z0-9_~+,=:@-][A-Za-z0-9._~+,=:@-]*)/)*(\.?[A-Za-z0-9_~+,=:@-][A-Za-z0-9._~+,=:@-]*)?$`
	Path string `json:"path,omitempty"`
	// Type is Exact or Prefix. Default: Prefix.
	// +kubebuilder:default=Prefix
	Type TenantPathType `json:"type,omitempty"`
	// Method is that of the request. Default: any.
	// +optional
	// +kubebuilder:validation:Enum=GET;HEAD;POST;PUT;DELETE;CONNECT;OPTIONS;TRACE;PATCH
	Method string `json:"method,omitempty"`
	// Headers are at most 16, with their exact values.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Headers []TenantHTTPValue `json:"headers,omitempty"`
	// Query are at most 16 parameters, with their exact values.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Query []TenantHTTPValue `json:"query,omitempty"`
	// GRPC is what is called, of a GRPCRoute: that has it in place of path, type, method and query. Default: all.
	// +optional
	GRPC *TenantGRPCMethod `json:"grpc,omitempty"`
}

// TenantGRPCMethod is a method of a service of gRPC, all methods of one, or one of all.
//
// +kubebuilder:validation:XValidation:rule="has(self.service) || has(self.method)",message="must have a service or a method"
type TenantGRPCMethod struct {
	// Service is a name with its package, such as shop.v1.Cart. Default: all.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`
	Service string `json:"service,omitempty"`
	// Method is a name. Default: all.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	Method string `json:"method,omitempty"`
}

// TenantHTTPValue is a header, or a parameter of a query. What could have a meaning of its own in the
// configuration of an engine is in neither.
type TenantHTTPValue struct {
	// Name has letters, digits and ._-
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]*$`
	Name string `json:"name"`
	// Value has letters, digits, spaces and ._~+,=:@/%&?!*()-
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9 ._~+,=:@/%&?!*()-]+$`
	Value string `json:"value"`
}

// TenantHTTPHeaders are changes of the headers of a request.
type TenantHTTPHeaders struct {
	// Set are those that are put in place of others, at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Set []TenantHTTPValue `json:"set,omitempty"`
	// Add are those that are added, at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Add []TenantHTTPValue `json:"add,omitempty"`
	// Remove are names of those that go, at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]*$`
	Remove []string `json:"remove,omitempty"`
}

// TenantHTTPRedirect is where a request is sent to instead. What it does not say stays as it was asked for.
type TenantHTTPRedirect struct {
	// Scheme is http or https.
	// +optional
	// +kubebuilder:validation:Enum=http;https
	Scheme string `json:"scheme,omitempty"`
	// Hostname is any hostname.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Hostname string `json:"hostname,omitempty"`
	// Path is another path.
	// +optional
	Path *TenantHTTPPath `json:"path,omitempty"`
	// Port is another port.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// StatusCode is 301 or 302. Default: 302.
	// +optional
	// +kubebuilder:default=302
	// +kubebuilder:validation:Enum=301;302
	StatusCode int32 `json:"statusCode,omitempty"`
}

// TenantHTTPRewrite is what a request has for its backend.
type TenantHTTPRewrite struct {
	// Hostname is any hostname.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`
	Hostname string `json:"hostname,omitempty"`
	// Path is another path.
	// +optional
	Path *TenantHTTPPath `json:"path,omitempty"`
}

// TenantHTTPPath is a path in place of another.
type TenantHTTPPath struct {
	// Type is ReplaceFullPath, or ReplacePrefixMatch for the part that matched.
	// +kubebuilder:validation:Enum=ReplaceFullPath;ReplacePrefixMatch
	Type string `json:"type"`
	// Path is as in matches.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/((\.?[A-Za-z0-9_~+,=:@-][A-Za-z0-9._~+,=:@-]*)/)*(\.?[A-Za-z0-9_~+,=:@-][A-Za-z0-9._~+,=:@-]*)?$`
	Path string `json:"path"`
}

// The types of a TenantHTTPPath.
const (
	ReplaceFull   = "ReplaceFullPath"
	ReplacePrefix = "ReplacePrefixMatch"
)

// TenantHTTPBackend is a NodePort that gets a share of the requests.
type TenantHTTPBackend struct {
	// Namespace is that of the Service, in the cluster of the tenant. Default: that of the origin.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`
	// Service is the Service of the tenant behind the NodePort.
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
	// AppProtocol is what the Service speaks, as Kubernetes has it: h2c is HTTP/2 without TLS, and ws WebSocket.
	// Default: what the engine takes it for.
	// +optional
	// +kubebuilder:validation:Enum=kubernetes.io/h2c;kubernetes.io/ws
	AppProtocol string `json:"appProtocol,omitempty"`
	// Weight is its share beside those of the others: 0 to 1000000. Default: 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Weight *int32 `json:"weight,omitempty"`
}

// The values of AppProtocol.
const (
	AppProtocolH2C = "kubernetes.io/h2c"
	AppProtocolWS  = "kubernetes.io/ws"
)

// TenantHTTPTimeouts are durations such as 10s, 1m30s or 500ms.
type TenantHTTPTimeouts struct {
	// Request bounds the whole of a request.
	// +optional
	// +kubebuilder:validation:MaxLength=28
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
	Request string `json:"request,omitempty"`
	// BackendRequest bounds one try at a backend.
	// +optional
	// +kubebuilder:validation:MaxLength=28
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
	BackendRequest string `json:"backendRequest,omitempty"`
}

func (h *TenantHTTP) setDefaults() {
	if h == nil {
		return
	}
	for i := range h.Rules {
		r := &h.Rules[i]
		for j := range r.Matches {
			setDefault(&r.Matches[j].Path, "/")
			setDefault(&r.Matches[j].Type, PathPrefix)
		}
		for j := range r.Backends {
			if r.Backends[j].Weight == nil {
				r.Backends[j].Weight = new(int32(1))
			}
		}
		if r.Redirect != nil {
			setDefault(&r.Redirect.StatusCode, 302)
		}
	}
}

// Backends are the NodePorts that a route leads to, and the Services of the tenant behind them; some may be there twice.
func (s *TenantRouteSpec) Backends() iter.Seq[TenantHTTPBackend] {
	return func(yield func(TenantHTTPBackend) bool) {
		for _, r := range s.Rules {
			for _, p := range r.Paths {
				if !yield(TenantHTTPBackend{Service: p.Service, NodePort: p.NodePort, Family: p.Family}) {
					return
				}
			}
		}
		if s.HTTP == nil {
			return
		}
		for _, r := range s.HTTP.Rules {
			for _, b := range r.Backends {
				if !yield(b) {
					return
				}
			}
		}
	}
}
