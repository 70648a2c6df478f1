package propagate

import (
	"fmt"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// Grant is what counts of a ReferenceGrant: which routes of other namespaces may lead to Services of its own.
type Grant struct {
	From []grantFrom `json:"from"`
	To   []grantTo   `json:"to"`
}

type grantFrom struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
}

type grantTo struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"` // empty: all of the kind
}

// ReadGrant reads the spec of a ReferenceGrant. One with a field that is not known grants nothing: it may be a bound.
func ReadGrant(spec []byte) *Grant {
	var g Grant
	if err := strict(spec, &g); err != nil {
		return &Grant{}
	}
	return &g
}

// refuses is why a route may not lead to a Service; nil: it may, or nobody knows the grants, and what was is so still.
func (in *HTTPInput) refuses(route RouteKey, service model.Key) *v1alpha1.Condition {
	if service.Namespace == route.Namespace || in.GrantsUnread {
		return nil
	}
	for key, g := range in.Grants {
		if key.Namespace == service.Namespace && slices.Contains(g.From, grantFrom{GatewayGroup, string(route.Kind), route.Namespace}) &&
			slices.ContainsFunc(g.To, func(t grantTo) bool {
				return t.Group == "" && t.Kind == "Service" && (t.Name == "" || t.Name == service.Name)
			}) {
			return nil
		}
	}
	return new(no(ReasonNotPermitted, fmt.Sprintf("no ReferenceGrant of the namespace %s lets the route lead to its Service %s", service.Namespace, service.Name)))
}

// revoked tells whether the hub leads a route to a Service that it may not lead to any more.
func (in *HTTPInput) revoked(route RouteKey, hub *v1alpha1.TenantRouteSpec) bool {
	if hub == nil || in.GrantsLacking {
		return false
	}
	for b := range hub.Backends() {
		if b.Namespace != "" && in.refuses(route, model.Key{Namespace: b.Namespace, Name: b.Service}) != nil {
			return true
		}
	}
	return false
}

// hides tells whether a route leads to a Service of another namespace while nobody knows the grants.
func (in *HTTPInput) hides(route RouteKey, service model.Key) bool {
	return in.GrantsUnread && service.Namespace != route.Namespace
}

// waits is what a route waits for that has no verdict, in words.
func (in *HTTPInput) waits(key RouteKey, r *HTTPRoute) string {
	for _, rule := range r.Rules {
		for _, ref := range rule.Refs {
			if in.hides(key, ref.Service) {
				return "the ReferenceGrants of this cluster cannot be read"
			}
		}
	}
	return "the hub has not judged it yet"
}
