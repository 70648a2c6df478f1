package v1alpha1

import (
	"fmt"
	"regexp"
	"slices"
)

// The bounds of what a TenantRoute has of an HTTPRoute.
const (
	maxHTTP        = 16 // hostnames, rules, backends, headers
	maxHTTPMatches = 64 // of a rule
	maxAllMatches  = 128
	maxAllValues   = 64 // headers and parameters of all matches
	maxHTTPName    = 64
	maxHTTPValue   = 256
	maxHTTPWeight  = 1000000
)

var (
	httpName     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	httpValue    = regexp.MustCompile(`^[A-Za-z0-9 ._~+,=:@/%&?!*()-]+$`)
	httpDuration = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)
	grpcService  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
	grpcMethod   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	httpMethods  = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}
)

// tenantHTTP checks what a TenantRoute has of an HTTPRoute.
func (k *checker) tenantHTTP(h *TenantHTTP) {
	const at = "spec.http"
	k.want(len(h.Hostnames) > 0, at+".hostnames", nil, "must have at least one hostname")
	k.atMost(at+".hostnames", len(h.Hostnames), maxHTTP)
	k.eachOnce(at+".hostnames", h.Hostnames, func(at, host string) { k.want(isRouteHost(host), at, host, ruleHostname) })
	k.want(len(h.Rules) > 0, at+".rules", nil, "must have at least one rule")
	k.atMost(at+".rules", len(h.Rules), maxHTTP)
	matches, values := 0, 0
	for i := range h.Rules {
		r := &h.Rules[i]
		matches += len(r.Matches)
		for _, m := range r.Matches {
			values += len(m.Headers) + len(m.Query)
		}
		k.tenantHTTPRule(fmt.Sprintf("%s.rules[%d]", at, i), r)
	}
	k.want(matches <= maxAllMatches, at+".rules", nil, fmt.Sprintf("have more than %d matches in all", maxAllMatches))
	k.want(values <= maxAllValues, at+".rules", nil, fmt.Sprintf("have more than %d headers and parameters in all matches", maxAllValues))
}

// tenantGRPC checks that a GRPCRoute has nothing that is of HTTPRoutes alone, and the other way round.
func (k *checker) tenantGRPC(h *TenantHTTP, grpc bool) {
	var matches []TenantHTTPMatch
	plain := true
	for _, r := range h.Rules {
		matches = append(matches, r.Matches...)
		plain = plain && r.Redirect == nil && r.Rewrite == nil && r.Timeouts == TenantHTTPTimeouts{}
	}
	if !grpc {
		k.want(!slices.ContainsFunc(matches, func(m TenantHTTPMatch) bool { return m.GRPC != nil }), "spec", nil, "only a GRPCRoute may match by grpc")
		return
	}
	k.want(plain, "spec", nil, "a GRPCRoute may not have redirect, rewrite and timeouts")
	k.want(!slices.ContainsFunc(matches, func(m TenantHTTPMatch) bool {
		return m.Path != "/" || m.Type != PathPrefix || m.Method != "" || len(m.Query) > 0
	}), "spec", nil, "a GRPCRoute may not match by path, type, method and query")
}

func (k *checker) tenantHTTPRule(at string, r *TenantHTTPRule) {
	k.want((r.Backends != nil) != (r.Redirect != nil), at, nil, "must have either backends or a redirect")
	k.want(r.Redirect == nil || r.Rewrite == nil, at, nil, "may not have both a redirect and a rewrite")
	k.atMost(at+".matches", len(r.Matches), maxHTTPMatches)
	for i, m := range r.Matches {
		at := fmt.Sprintf("%s.matches[%d]", at, i)
		k.routePath(at+".path", m.Path)
		oneOf(k, at+".type", m.Type, PathExact, PathPrefix)
		k.want(m.Method == "" || slices.Contains(httpMethods, m.Method), at+".method", m.Method, "must be a method of HTTP, such as GET")
		k.httpValues(at+".headers", m.Headers)
		k.httpValues(at+".query", m.Query)
		if g := m.GRPC; g != nil {
			k.want(g.Service != "" || g.Method != "", at+".grpc", nil, "must have a service or a method")
			k.want(g.Service == "" || len(g.Service) <= maxSubdomain && grpcService.MatchString(g.Service), at+".grpc.service", g.Service, "must be the name of a service of gRPC, such as shop.v1.Cart")
			k.want(g.Method == "" || len(g.Method) <= maxSubdomain && grpcMethod.MatchString(g.Method), at+".grpc.method", g.Method, "must be the name of a method of gRPC")
		}
	}
	if h := r.Headers; h != nil {
		k.httpValues(at+".headers.set", h.Set)
		k.httpValues(at+".headers.add", h.Add)
		k.atMost(at+".headers.remove", len(h.Remove), maxHTTP)
		for i, name := range h.Remove {
			k.httpName(fmt.Sprintf("%s.headers.remove[%d]", at, i), name)
		}
	}
	if x := r.Redirect; x != nil {
		k.want(x.Scheme == "" || x.Scheme == "http" || x.Scheme == "https", at+".redirect.scheme", x.Scheme, "must be http or https")
		k.httpChange(at+".redirect", x.Hostname, x.Path)
		k.want(x.Port >= 0 && x.Port <= 65535, at+".redirect.port", x.Port, "must be from 1 to 65535")
		k.want(x.StatusCode == 301 || x.StatusCode == 302, at+".redirect.statusCode", x.StatusCode, "must be 301 or 302")
	}
	if x := r.Rewrite; x != nil {
		k.httpChange(at+".rewrite", x.Hostname, x.Path)
	}
	k.want(r.Backends == nil || len(r.Backends) > 0, at+".backends", nil, "must have at least one backend")
	k.atMost(at+".backends", len(r.Backends), maxHTTP)
	for i, b := range r.Backends {
		at := fmt.Sprintf("%s.backends[%d]", at, i)
		k.want(isDNSLabel(b.Service), at+".service", b.Service, ruleDNSLabel)
		k.want(b.Namespace == "" || isDNSLabel(b.Namespace), at+".namespace", b.Namespace, ruleDNSLabel)
		k.port(at+".nodePort", b.NodePort)
		k.oneFamily(at+".family", b.Family)
		k.want(b.AppProtocol == "" || b.AppProtocol == AppProtocolH2C || b.AppProtocol == AppProtocolWS, at+".appProtocol", b.AppProtocol, "must be "+AppProtocolH2C+" or "+AppProtocolWS)
		if w := b.Weight; w != nil {
			k.want(*w >= 0 && *w <= maxHTTPWeight, at+".weight", *w, fmt.Sprintf("must be from 0 to %d", maxHTTPWeight))
		}
	}
	for _, x := range []struct{ name, text string }{{"request", r.Timeouts.Request}, {"backendRequest", r.Timeouts.BackendRequest}} {
		k.want(x.text == "" || httpDuration.MatchString(x.text), at+".timeouts."+x.name, x.text, "must be a duration such as 10s or 1m30s")
	}
}

// httpChange checks what a request has instead of what it was asked with.
func (k *checker) httpChange(at, hostname string, path *TenantHTTPPath) {
	k.want(hostname == "" || isSubdomain(hostname), at+".hostname", hostname, ruleSubdomain)
	if path != nil {
		oneOf(k, at+".path.type", path.Type, ReplaceFull, ReplacePrefix)
		k.routePath(at+".path.path", path.Path)
	}
}

func (k *checker) httpValues(at string, all []TenantHTTPValue) {
	k.atMost(at, len(all), maxHTTP)
	for i, x := range all {
		k.httpName(fmt.Sprintf("%s[%d].name", at, i), x.Name)
		k.want(len(x.Value) <= maxHTTPValue && httpValue.MatchString(x.Value), fmt.Sprintf("%s[%d].value", at, i), x.Value,
			fmt.Sprintf("must have 1 to %d letters, digits, spaces and ._~+,=:@/%%&?!*()-", maxHTTPValue))
	}
}

func (k *checker) httpName(at, name string) {
	k.want(len(name) <= maxHTTPName && httpName.MatchString(name), at, name, fmt.Sprintf("must have 1 to %d letters, digits and ._-", maxHTTPName))
}
