package routes

import (
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// gatewayGroup is that of the Gateway API.
const gatewayGroup = "gateway.networking.k8s.io"

// GatewayOf is the Gateway of the hub that serves the routes of a tenant; the zero key: none does.
func GatewayOf(t *v1alpha1.Tenant) model.Key {
	namespace, name, _ := strings.Cut(t.Spec.Gateway, "/")
	return model.Key{Namespace: namespace, Name: name}
}

// GatewayKinds are the kinds of routes of a Gateway.
var GatewayKinds = []string{KindHTTPRoute, KindGRPCRoute}

// gatewayRoute is made of known fields, as the Ingress is. It names the Gateway of its Tenant and no other, and
// Services of its own namespace alone.
func gatewayRoute(c *tenants.Cluster, namespace string, r *Route) map[string]any {
	gateway := GatewayOf(c.Tenant)
	h := r.Spec.HTTP
	var rules []any
	for i := range h.Rules {
		rule := httpRule(&h.Rules[i], func(b v1alpha1.TenantHTTPBackend) string { return serviceName(namespace, r.TenantRoute, b) })
		put(rule, "matches", matches(h.Rules[i].Matches, r.Spec.Origin.Kind))
		rules = append(rules, rule)
	}
	return map[string]any{"spec": map[string]any{
		"parentRefs": []any{map[string]any{"group": gatewayGroup, "kind": "Gateway", "namespace": gateway.Namespace, "name": gateway.Name}},
		"hostnames":  list(h.Hostnames), "rules": rules,
	}}
}

// httpRule is one rule, the Services of which have other names in the hub.
func httpRule(r *v1alpha1.TenantHTTPRule, named func(v1alpha1.TenantHTTPBackend) string) map[string]any {
	out := map[string]any{}
	var filters, backends []any
	filter := func(kind, field string, what map[string]any) {
		filters = append(filters, map[string]any{"type": kind, field: what})
	}
	if h := r.Headers; h != nil {
		what := map[string]any{}
		put(what, "set", values(h.Set, ""))
		put(what, "add", values(h.Add, ""))
		put(what, "remove", list(h.Remove))
		filter("RequestHeaderModifier", "requestHeaderModifier", what)
	}
	if x := r.Redirect; x != nil {
		what := map[string]any{"statusCode": int64(x.StatusCode)}
		put(what, "scheme", x.Scheme)
		put(what, "hostname", x.Hostname)
		put(what, "path", newPath(x.Path))
		put(what, "port", int64(x.Port))
		filter("RequestRedirect", "requestRedirect", what)
	}
	if x := r.Rewrite; x != nil {
		what := map[string]any{}
		put(what, "hostname", x.Hostname)
		put(what, "path", newPath(x.Path))
		filter("URLRewrite", "urlRewrite", what)
	}
	put(out, "filters", filters)
	for _, b := range r.Backends {
		x := map[string]any{"group": "", "kind": KindService, "name": named(b), "port": int64(b.NodePort), "weight": int64(1)}
		if b.Weight != nil {
			x["weight"] = int64(*b.Weight)
		}
		backends = append(backends, x)
	}
	put(out, "backendRefs", backends)
	timeouts := map[string]any{}
	put(timeouts, "request", r.Timeouts.Request)
	put(timeouts, "backendRequest", r.Timeouts.BackendRequest)
	put(out, "timeouts", timeouts)
	return out
}

// put sets a field that says something.
func put(in map[string]any, field string, value any) {
	switch v := value.(type) {
	case string:
		if v == "" {
			return
		}
	case int64:
		if v == 0 {
			return
		}
	case []any:
		if len(v) == 0 {
			return
		}
	case map[string]any:
		if len(v) == 0 {
			return
		}
	}
	in[field] = value
}

// matches are those of a rule. That for all requests is written of an HTTPRoute alone, as an API server has it by default.
func matches(all []v1alpha1.TenantHTTPMatch, kind v1alpha1.TenantOriginKind) (out []any) {
	match := httpMatch
	if kind == v1alpha1.OriginGRPCRoute {
		match = grpcMatch
	} else if len(all) == 0 {
		all = []v1alpha1.TenantHTTPMatch{{Path: "/"}}
	}
	for i := range all {
		out = append(out, match(&all[i]))
	}
	return out
}

func grpcMatch(m *v1alpha1.TenantHTTPMatch) map[string]any {
	out := map[string]any{}
	if g := m.GRPC; g != nil {
		method := map[string]any{"type": "Exact"}
		put(method, "service", g.Service)
		put(method, "method", g.Method)
		out["method"] = method
	}
	put(out, "headers", values(m.Headers, "Exact"))
	return out
}

func httpMatch(m *v1alpha1.TenantHTTPMatch) map[string]any {
	kind := "PathPrefix"
	if m.Type == v1alpha1.PathExact {
		kind = string(m.Type)
	}
	out := map[string]any{"path": map[string]any{"type": kind, "value": m.Path}}
	put(out, "method", m.Method)
	put(out, "headers", values(m.Headers, "Exact"))
	put(out, "queryParams", values(m.Query, "Exact"))
	return out
}

// values are headers or parameters, of a type if they are matched.
func values(all []v1alpha1.TenantHTTPValue, kind string) (out []any) {
	for _, x := range all {
		value := map[string]any{"name": x.Name, "value": x.Value}
		put(value, "type", kind)
		out = append(out, value)
	}
	return out
}

func newPath(p *v1alpha1.TenantHTTPPath) map[string]any {
	if p == nil {
		return nil
	}
	field := "replaceFullPath"
	if p.Type == v1alpha1.ReplacePrefix {
		field = "replacePrefixMatch"
	}
	return map[string]any{"type": p.Type, field: p.Path}
}

// taken tells whether the Gateway serves a route of the hub; if not, why in words that name nothing of
// others.
func taken(have Have, gateway model.Key) (bool, string) {
	why := "the Gateway of the hub has not taken the route yet"
	for _, parent := range objectsAt(have.Body, "status", "parents") {
		ref, _ := parent["parentRef"].(map[string]any)
		if ref["name"] != gateway.Name || ref["namespace"] != gateway.Namespace {
			continue
		}
		for _, condition := range objectsIn(parent, "conditions") {
			switch reason, _ := condition["reason"].(string); {
			case condition["type"] != v1alpha1.ConditionAccepted:
			case condition["status"] == "True":
				return true, ""
			case reason != "":
				why = "the Gateway of the hub does not take the route: " + reason
			}
		}
	}
	return false, why
}

// fromGateway says where clients of a route of the Gateway connect to, and if nowhere, why. While Gateways are not known, what was
// known stays.
func (out *Output) fromGateway(in *Input, key model.Key, have Have) {
	gateway := GatewayOf(in.Clusters[key.Namespace].Tenant)
	is, why := taken(have, gateway)
	all, there := in.Gateways[gateway]
	switch {
	case is && in.Gateways == nil:
		out.Addresses[key], why = in.Routes[key].Shows, "the controller of the hub has not read its Gateways"
	case is && !there:
		why = "the Gateway of the hub is not there"
	case is:
		out.Addresses[key], why = all[:min(len(all), maxAddresses)], "the Gateway of the hub has no address yet"
	}
	if len(out.Addresses[key]) == 0 {
		out.Pending[key] = why
	}
}
