package propagate

import (
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// across is an HTTPRoute that leads to a Service of the namespace back, and grant a ReferenceGrant there.
var across = strings.Replace(plainHTTP, `"name":"web","port":80`, `"name":"web","namespace":"back","port":80`, 1)

const grant = `{"from":[{"group":"gateway.networking.k8s.io","kind":"HTTPRoute","namespace":"default"}],"to":[{"group":"","kind":"Service","name":"web"}]}`

func (w *ingresses) grant(namespace, spec string) {
	w.HTTP.Grants = map[model.Key]*Grant{{Namespace: namespace, Name: "g"}: ReadGrant([]byte(spec))}
}

// newAcross has a Service web in the namespace back, and a route to it.
func newAcross() *ingresses {
	w := newHTTPRoutes()
	w.Backends[model.Key{Namespace: "back", Name: "web"}] = w.Backends[at("web")]
	delete(w.Backends, at("web"))
	w.httpRoute("shop", across)
	return w
}

// TestGrants: a route leads to a Service of another namespace if a ReferenceGrant there says so, and else not.
func TestGrants(t *testing.T) {
	for name, x := range map[string]struct {
		namespace, spec string
		granted         bool
	}{
		"granted":             {"back", grant, true},
		"all Services":        {"back", strings.Replace(grant, `,"name":"web"`, "", 1), true},
		"one of several":      {"back", strings.Replace(grant, `"from":[`, `"from":[{"group":"gateway.networking.k8s.io","kind":"HTTPRoute","namespace":"x"},`, 1), true},
		"of the route's own":  {"default", grant, false},
		"another Service":     {"back", strings.Replace(grant, `"web"`, `"other"`, 1), false},
		"another namespace":   {"back", strings.Replace(grant, `"default"`, `"other"`, 1), false},
		"another kind":        {"back", strings.Replace(grant, `"HTTPRoute"`, `"GRPCRoute"`, 1), false},
		"another group":       {"back", strings.Replace(grant, `"gateway.networking.k8s.io"`, `"example.com"`, 1), false},
		"to Secrets":          {"back", strings.Replace(grant, `"Service"`, `"Secret"`, 1), false},
		"to another group":    {"back", strings.Replace(grant, `"to":[{"group":""`, `"to":[{"group":"x"`, 1), false},
		"with an unknown one": {"back", strings.Replace(grant, `"kind":"Service"`, `"kind":"Service","selector":{}`, 1), false},
	} {
		w := newAcross()
		w.grant(x.namespace, x.spec)
		w.stepHTTP(t)
		h := w.HubRoutes["httproute.default.shop"].Spec
		if (h != nil) != x.granted {
			t.Fatalf("%s: the hub has %+v; it says %s", name, w.HubRoutes, w.saysHTTP("shop"))
		}
		if !x.granted {
			w.expectHTTP(t, "shop", "hub Accepted=RefNotPermitted! ResolvedRefs=RefNotPermitted! lbd.dev/Programmed=NotAccepted!")
		} else if b := h.HTTP.Rules[0].Backends[0]; b.Namespace != "back" || b.Service != "web" || b.NodePort != 30001 {
			t.Errorf("%s: it leads to %+v", name, b)
		}
	}
}

// TestGrantOfGRPCRoute: a grant is of a kind of routes.
func TestGrantOfGRPCRoute(t *testing.T) {
	w := newAcross()
	w.grpcRoute("shop", strings.Replace(plainGRPC, `"name":"web"`, `"name":"web","namespace":"back"`, 1))
	w.grant("back", strings.Replace(grant, "HTTPRoute", "GRPCRoute", 1))
	w.stepHTTP(t)
	if len(w.HubRoutes) != 1 || w.HubRoutes["grpcroute.default.shop"].Spec == nil {
		t.Errorf("the hub has %+v", w.HubRoutes)
	}
}

// TestGrantRevoked: once a grant is gone the route leaves the hub, with its copy. While nobody knows the grants, what the hub has
// stays, and no other route gets there. A mistake in a route that leads elsewhere takes nothing from the hub.
func TestGrantRevoked(t *testing.T) {
	w := newAcross()
	w.grant("back", grant)
	w.stepHTTP(t)
	w.judgeHTTP("shop", v1alpha1.ConditionTrue, "Accepted", "192.0.2.7")
	w.stepHTTP(t)
	const served = "hub Accepted=Accepted ResolvedRefs=ResolvedRefs lbd.dev/Programmed=Programmed"
	w.expectHTTP(t, "shop", served)
	w.httpRoute("shop", strings.Replace(across, `"backendRefs"`, `"retry":{},"backendRefs"`, 1)) // which is not served
	w.stepHTTP(t)
	if len(w.HubRoutes) != 1 || len(w.Backends) != 2 {
		t.Errorf("with a mistake in it the hub has %+v, the cluster %v", w.HubRoutes, w.Backends)
	}
	w.httpRoute("shop", across)
	w.stepHTTP(t)
	w.judgeHTTP("shop", v1alpha1.ConditionTrue, "Accepted", "192.0.2.7")
	w.stepHTTP(t)
	w.HTTP.Grants, w.HTTP.GrantsUnread = nil, true
	w.httpRoute("more", across)
	w.stepHTTP(t)
	w.expectHTTP(t, "shop", served)
	if w.expectHTTP(t, "more", "hub Accepted=Pending!"); len(w.HubRoutes) != 1 || len(w.Backends) != 2 {
		t.Errorf("the hub has %+v, the cluster %v", w.HubRoutes, w.Backends)
	}
	if got := w.HTTP.Routes[httpAt("more")].States[0].Conditions[0].Message; got != "the ReferenceGrants of this cluster cannot be read" {
		t.Errorf("it says %q", got)
	}
	delete(w.HTTP.Routes, httpAt("more"))
	w.HTTP.GrantsUnread = false
	w.stepHTTP(t)
	if w.expectHTTP(t, "shop", "hub Accepted=RefNotPermitted! ResolvedRefs=RefNotPermitted! lbd.dev/Programmed=NotAccepted!"); len(w.HubRoutes) != 0 || len(w.Backends) != 1 {
		t.Errorf("the hub has %+v, the cluster %v", w.HubRoutes, w.Backends)
	}
	w.httpRoute("shop", strings.Replace(across, `"back"`, `"default"`, 1))
	w.Backends[at("web")] = w.Backends[model.Key{Namespace: "back", Name: "web"}]
	w.stepHTTP(t)
	w.httpRoute("shop", across)
	w.stepHTTP(t)
	if w.expectHTTP(t, "shop", "hub Accepted=RefNotPermitted! ResolvedRefs=RefNotPermitted! lbd.dev/Programmed=NotAccepted!"); len(w.HubRoutes) != 1 {
		t.Errorf("the hub has %+v", w.HubRoutes)
	}
}

// TestGrantsLacking: an API server that says that it has no ReferenceGrants has new routes refused, and what the hub has stays: it
// may say so by mistake, or serve another version of them.
func TestGrantsLacking(t *testing.T) {
	w := newAcross()
	w.grant("back", grant)
	w.stepHTTP(t)
	w.HTTP.Grants, w.HTTP.GrantsLacking = nil, true
	w.httpRoute("more", across)
	w.stepHTTP(t)
	for _, name := range []string{"shop", "more"} {
		w.expectHTTP(t, name, "hub Accepted=RefNotPermitted! ResolvedRefs=RefNotPermitted! lbd.dev/Programmed=NotAccepted!")
	}
	if len(w.HubRoutes) != 1 || w.HubRoutes["httproute.default.shop"].Spec == nil || len(w.Backends) != 2 {
		t.Errorf("the hub has %+v, the cluster %v", w.HubRoutes, w.Backends)
	}
}
