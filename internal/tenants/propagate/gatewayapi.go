package propagate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// GatewayGroup is that of the Gateway API.
const GatewayGroup = "gateway.networking.k8s.io"

// ParentRef is what a route is attached to, with its defaults.
type ParentRef struct {
	Group       string `json:"group,omitempty"`
	Kind        string `json:"kind,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name"`
	SectionName string `json:"sectionName,omitempty"`
	Port        int32  `json:"port,omitempty"`
}

// Listener is one of a Gateway.
type Listener struct {
	Name     string `json:"name"`
	Hostname string `json:"hostname"`
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"`
	// TLS is looked at by nobody: the certificates are those of the hub.
	TLS           json.RawMessage `json:"tls"`
	AllowedRoutes struct {
		Namespaces struct {
			From     string          `json:"from"`
			Selector json.RawMessage `json:"selector"`
		} `json:"namespaces"`
		Kinds []struct {
			Group *string `json:"group"`
			Kind  string  `json:"kind"`
		} `json:"kinds"`
	} `json:"allowedRoutes"`
}

// ReadGateway reads the spec of a Gateway; bad is what of it is not known here, in words.
func ReadGateway(spec []byte) (listeners []Listener, bad string) {
	var s struct {
		GatewayClassName string     `json:"gatewayClassName"`
		Listeners        []Listener `json:"listeners"`
	}
	if err := strict(spec, &s); err != nil {
		return nil, "the hub does not serve all of spec: " + err.Error()
	}
	return s.Listeners, ""
}

// strict reads an object with no other fields than those that are known.
func strict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// backendRef is where a route leads to.
type backendRef struct {
	Group     string            `json:"group"`
	Kind      string            `json:"kind"`
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Port      int32             `json:"port"`
	Weight    *int32            `json:"weight"`
	Filters   []json.RawMessage `json:"filters"`
}

type httpPathChange struct {
	Type    string `json:"type"`
	Full    string `json:"replaceFullPath"`
	Replace string `json:"replacePrefixMatch"`
}

func (p *httpPathChange) path() *v1alpha1.TenantHTTPPath {
	if p == nil {
		return nil
	}
	return &v1alpha1.TenantHTTPPath{Type: p.Type, Path: cmp.Or(p.Full, p.Replace)}
}

// httpFilter has what is served of filters, and the names of the others.
type httpFilter struct {
	Type    string                      `json:"type"`
	Headers *v1alpha1.TenantHTTPHeaders `json:"requestHeaderModifier"`
	Rewrite *struct {
		Hostname string          `json:"hostname"`
		Path     *httpPathChange `json:"path"`
	} `json:"urlRewrite"`
	Redirect *struct {
		Scheme     string          `json:"scheme"`
		Hostname   string          `json:"hostname"`
		Path       *httpPathChange `json:"path"`
		Port       int32           `json:"port"`
		StatusCode int32           `json:"statusCode"`
	} `json:"requestRedirect"`
	ResponseHeaderModifier json.RawMessage `json:"responseHeaderModifier"`
	RequestMirror          json.RawMessage `json:"requestMirror"`
	CORS                   json.RawMessage `json:"cors"`
	ExternalAuth           json.RawMessage `json:"externalAuth"`
	ExtensionRef           json.RawMessage `json:"extensionRef"`
}

// httpMatched is a header or a parameter that requests are matched by.
type httpMatched struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

type httpMatch struct {
	Path struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	} `json:"path"`
	Method      string        `json:"method"`
	Headers     []httpMatched `json:"headers"`
	QueryParams []httpMatched `json:"queryParams"`
}

// grpcMatch is what calls of a GRPCRoute are matched by.
type grpcMatch struct {
	Method *struct {
		Type    string `json:"type"`
		Service string `json:"service"`
		Method  string `json:"method"`
	} `json:"method"`
	Headers []httpMatched `json:"headers"`
}

// routeSpec is what is known of the spec of an HTTPRoute or a GRPCRoute.
type routeSpec[M any] struct {
	ParentRefs []ParentRef `json:"parentRefs"`
	Hostnames  []string    `json:"hostnames"`
	Rules      []struct {
		Name        string                      `json:"name"` // for policies, of which there are none
		Matches     []M                         `json:"matches"`
		Filters     []httpFilter                `json:"filters"`
		BackendRefs []backendRef                `json:"backendRefs"`
		Timeouts    v1alpha1.TenantHTTPTimeouts `json:"timeouts"`
	} `json:"rules"`
}

// HTTPRule is a rule of a route, the backends of which are Services and not yet NodePorts.
type HTTPRule struct {
	v1alpha1.TenantHTTPRule
	Refs []HTTPBackend
}

// HTTPBackend is a port of a Service.
type HTTPBackend struct {
	Service model.Key
	Port    int32
	Weight  *int32
}

// ReadRoute reads the spec of a route in a namespace. What is not served is never left out: then why says it.
func ReadRoute(kind v1alpha1.TenantOriginKind, namespace string, spec []byte, into *HTTPRoute) {
	if kind == v1alpha1.OriginGRPCRoute {
		readRoute[grpcMatch](namespace, spec, into)
		return
	}
	readRoute[httpMatch](namespace, spec, into)
}

func readRoute[M interface {
	read() (v1alpha1.TenantHTTPMatch, *v1alpha1.Condition)
}](namespace string, spec []byte, into *HTTPRoute) {
	var loose struct {
		ParentRefs []ParentRef `json:"parentRefs"`
	}
	_ = json.Unmarshal(spec, &loose) // what is wrong with it is said below
	into.Parents = loose.ParentRefs
	for i := range into.Parents {
		p := &into.Parents[i]
		p.Group, p.Kind = cmp.Or(p.Group, GatewayGroup), cmp.Or(p.Kind, "Gateway")
	}
	var s routeSpec[M]
	if err := strict(spec, &s); err != nil {
		into.Why = new(no(ReasonUnsupported, "the hub does not serve all of spec: "+err.Error()))
		return
	}
	into.Hostnames = s.Hostnames
	for i := range s.Rules {
		r, rule := &s.Rules[i], HTTPRule{}
		rule.Timeouts = r.Timeouts
		for _, m := range r.Matches {
			match, why := m.read()
			into.Why = cmp.Or(into.Why, why)
			rule.Matches = append(rule.Matches, match)
		}
		for j := range r.Filters {
			into.Why = cmp.Or(into.Why, r.Filters[j].read(&rule))
		}
		if rule.loops(s.Hostnames) {
			into.Why = cmp.Or(into.Why, unsupported("the redirect of spec.rules[%d] changes at most the scheme: the hub serves a route by HTTP and HTTPS alike, so it would lead to itself; the admin of the hub can redirect HTTP", i))
		}
		for _, b := range r.BackendRefs {
			into.Why = cmp.Or(into.Why, b.check())
			rule.Refs = append(rule.Refs, HTTPBackend{model.Key{Namespace: cmp.Or(b.Namespace, namespace), Name: b.Name}, b.Port, b.Weight})
		}
		into.Rules = append(into.Rules, rule)
	}
}

func unsupported(format string, a ...any) *v1alpha1.Condition {
	return new(no(ReasonUnsupported, fmt.Sprintf(format, a...)))
}

// loops tells whether a redirect leads requests for hostnames of the route to the rule again, by whatever scheme. Those
// that are matched by a header may be others the next time, as with X-Forwarded-Proto, and those of other methods become GET.
func (r *HTTPRule) loops(hosts []string) bool {
	x := r.Redirect
	if x == nil || x.Hostname != "" && !slices.Contains(hosts, x.Hostname) || x.Port != 0 && x.Port != map[string]int32{"http": 80, "https": 443}[x.Scheme] {
		return false
	}
	again := func(m v1alpha1.TenantHTTPMatch) bool {
		same := x.Path == nil || cmp.Or(x.Path.Path, "/") == cmp.Or(m.Path, "/") && (x.Path.Type == "ReplaceFullPath") == (m.Type == v1alpha1.PathExact)
		return same && len(m.Headers) == 0 && (m.Method == "" || m.Method == "GET")
	}
	return len(r.Matches) == 0 && again(v1alpha1.TenantHTTPMatch{}) || slices.ContainsFunc(r.Matches, again)
}

// check tells why a backend is not one that the hub can lead to.
func (b *backendRef) check() *v1alpha1.Condition {
	switch {
	case b.Group != "" || b.Kind != "" && b.Kind != "Service":
		return new(no(ReasonInvalidKind, fmt.Sprintf("the backend %s is a %s and no Service", b.Name, b.Kind)))
	case len(b.Filters) > 0:
		return unsupported("the hub serves no filters of a single backend, such as those of %s", b.Name)
	}
	return nil
}

func (m httpMatch) read() (out v1alpha1.TenantHTTPMatch, why *v1alpha1.Condition) {
	out.Path, out.Method = m.Path.Value, m.Method
	switch m.Path.Type {
	case "", "PathPrefix":
		out.Type = v1alpha1.PathPrefix
	case "Exact":
		out.Type = v1alpha1.PathExact
	default:
		return out, unsupported("the hub serves no paths of the type %s", m.Path.Type)
	}
	var of, query *v1alpha1.Condition
	out.Headers, of = exact(m.Headers)
	out.Query, query = exact(m.QueryParams)
	return out, cmp.Or(of, query)
}

func (m grpcMatch) read() (out v1alpha1.TenantHTTPMatch, why *v1alpha1.Condition) {
	if x := m.Method; x != nil {
		if x.Type != "" && x.Type != "Exact" {
			return out, unsupported("the hub matches no methods of the type %s", x.Type)
		}
		out.GRPC = &v1alpha1.TenantGRPCMethod{Service: x.Service, Method: x.Method}
	}
	out.Headers, why = exact(m.Headers)
	return out, why
}

// exact are headers or parameters that are matched by their values.
func exact(all []httpMatched) (out []v1alpha1.TenantHTTPValue, why *v1alpha1.Condition) {
	for _, x := range all {
		if x.Type != "" && x.Type != "Exact" {
			return nil, unsupported("the hub matches no headers and parameters of the type %s", x.Type)
		}
		out = append(out, v1alpha1.TenantHTTPValue{Name: x.Name, Value: x.Value})
	}
	return out, nil
}

// read adds a filter to a rule; nil: it is served.
func (f *httpFilter) read(rule *HTTPRule) *v1alpha1.Condition {
	twice := false
	switch {
	case f.Type == "RequestHeaderModifier" && f.Headers != nil:
		twice, rule.Headers = rule.Headers != nil, f.Headers
	case f.Type == "URLRewrite" && f.Rewrite != nil:
		twice, rule.Rewrite = rule.Rewrite != nil, &v1alpha1.TenantHTTPRewrite{Hostname: f.Rewrite.Hostname, Path: f.Rewrite.Path.path()}
	case f.Type == "RequestRedirect" && f.Redirect != nil:
		r := f.Redirect
		twice, rule.Redirect = rule.Redirect != nil, &v1alpha1.TenantHTTPRedirect{Scheme: r.Scheme, Hostname: r.Hostname, Path: r.Path.path(), Port: r.Port, StatusCode: r.StatusCode}
	default:
		return unsupported("the hub serves no filter of the type %s", f.Type)
	}
	if twice {
		return unsupported("the hub serves one filter of the type %s in a rule", f.Type)
	}
	return nil
}
