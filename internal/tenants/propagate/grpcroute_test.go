package propagate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// grpcRoute makes a GRPCRoute in the namespace default of the rest of a spec.
func (w *ingresses) grpcRoute(name, spec string) *HTTPRoute {
	r := &HTTPRoute{UID: "grpc-" + name, Version: "1", Generation: 1}
	if old := w.HTTP.Routes[grpcAt(name)]; old != nil {
		r.Generation, r.States = old.Generation+1, old.States
	}
	ReadRoute(v1alpha1.OriginGRPCRoute, "default", []byte(spec), r)
	w.HTTP.Routes[grpcAt(name)] = r
	return r
}

const plainGRPC = `{"parentRefs":[{"name":"hub"}],"hostnames":["a.example.com"],"rules":[{"matches":[{"method":{"service":"shop.Cart","method":"Add"},"headers":[{"name":"x","value":"1"}]}],"backendRefs":[{"name":"web","port":80}]}]}`

// TestGRPCRoutePropagated: a GRPCRoute and an HTTPRoute of one name have each a TenantRoute and a status of their own. Both share
// the copy of their Service, and are counted by the Gateway.
func TestGRPCRoutePropagated(t *testing.T) {
	w := newHTTPRoutes()
	w.httpRoute("shop", plainHTTP)
	w.grpcRoute("shop", plainGRPC)
	w.stepHTTP(t)
	h := w.HubRoutes["grpcroute.default.shop"].Spec
	if h == nil || len(w.HubRoutes) != 2 || h.Origin.Kind != v1alpha1.OriginGRPCRoute || len(h.HTTP.Rules) != 1 {
		t.Fatalf("the hub has %+v", w.HubRoutes)
	}
	rule := h.HTTP.Rules[0]
	if m := rule.Matches[0]; m.GRPC == nil || *m.GRPC != (v1alpha1.TenantGRPCMethod{Service: "shop.Cart", Method: "Add"}) || m.Headers[0].Value != "1" {
		t.Errorf("it matches %+v", rule.Matches)
	}
	if b := rule.Backends[0]; b.NodePort != 30001 || b.AppProtocol != v1alpha1.AppProtocolH2C {
		t.Errorf("it leads to %+v", b)
	}
	if b := w.HubRoutes["httproute.default.shop"].Spec.HTTP.Rules[0].Backends[0]; b.NodePort != 30001 || b.AppProtocol != "" {
		t.Errorf("the HTTPRoute leads to %+v", b)
	}
	w.judgeHTTP("shop", v1alpha1.ConditionFalse, "HostnameTaken")
	g := w.HubRoutes["grpcroute.default.shop"]
	g.Addresses, g.Conditions = []string{"192.0.2.7"}, []v1alpha1.Condition{{Type: v1alpha1.ConditionAccepted, Status: v1alpha1.ConditionTrue, ObservedGeneration: g.Generation}}
	w.HubRoutes["grpcroute.default.shop"] = g
	w.stepHTTP(t)
	w.expectHTTP(t, "shop", "hub Accepted=HostnameTaken! ResolvedRefs=ResolvedRefs lbd.dev/Programmed=NotAccepted!")
	if got := short(w.HTTP.Routes[grpcAt("shop")].States[0].Conditions); got != "Accepted=Accepted ResolvedRefs=ResolvedRefs lbd.dev/Programmed=Programmed" {
		t.Errorf("the GRPCRoute says %s", got)
	}
	s := w.HTTP.Gateways[at("hub")].Status
	if got := fmt.Sprint(s.Addresses, s.Listeners[0].Attached, s.Listeners[0].Kinds); got != "[192.0.2.7] 1 [map[group:gateway.networking.k8s.io kind:HTTPRoute] map[group:gateway.networking.k8s.io kind:GRPCRoute]]" {
		t.Errorf("the Gateway says %s", got)
	}
	if out := StepIngresses(&w.IngressInput); out.HTTPCounts[v1alpha1.OriginGRPCRoute] != (Counts{Served: 1}) || out.HTTPCounts[v1alpha1.OriginHTTPRoute] != (Counts{Refused: 1}) {
		t.Errorf("counted: %+v", out.HTTPCounts)
	}
	delete(w.HTTP.Routes, grpcAt("shop"))
	w.stepHTTP(t)
	if len(w.HubRoutes) != 1 || w.HubRoutes["grpcroute.default.shop"].Spec != nil || len(w.Backends) != 2 {
		t.Errorf("left: %v %v", w.HubRoutes, w.Backends)
	}
}

// TestGRPCRouteRefused: what the hub does not serve of a GRPCRoute is said, and nothing of it is left out.
func TestGRPCRouteRefused(t *testing.T) {
	const backend = `"backendRefs":[{"name":"web","port":80}]`
	rule := func(text string) string {
		return `{"parentRefs":[{"name":"hub"}],"hostnames":["a.example.com"],"rules":[{` + text + backend + `}]}`
	}
	match := func(text string) string { return rule(`"matches":[{` + text + `}],`) }
	for spec, want := range map[string]string{
		rule(``):  "",
		match(``): "",
		match(`"method":{"type":"Exact","method":"Add"}`):                                              "",
		rule(`"filters":[{"type":"RequestHeaderModifier","requestHeaderModifier":{"remove":["a"]}}],`): "",
		match(`"method":{"type":"RegularExpression","service":".*"}`):                                  "UnsupportedValue: the hub matches no methods of the type RegularExpression",
		match(`"method":{"service":"a b"}`):                                                            "UnsupportedValue: spec.http.rules[0].matches[0].grpc.service",
		match(`"method":{}`):                                                                           "UnsupportedValue: spec.http.rules[0].matches[0].grpc: must have a service or a method",
		match(`"headers":[{"type":"RegularExpression","name":"a","value":".*"}]`):                      "UnsupportedValue: the hub matches no headers and parameters of the type RegularExpression",
		match(`"path":{"value":"/a"}`):                                                                 `UnsupportedValue: the hub does not serve all of spec: json: unknown field "path"`,
		rule(`"filters":[{"type":"RequestMirror","requestMirror":{}}],`):                               "UnsupportedValue: the hub serves no filter of the type RequestMirror",
		rule(`"filters":[{"type":"URLRewrite","urlRewrite":{}}],`):                                     "UnsupportedValue: spec: a GRPCRoute may not have redirect, rewrite and timeouts",
		rule(`"sessionPersistence":{},`):                                                               `UnsupportedValue: the hub does not serve all of spec: json: unknown field "sessionPersistence"`,
		strings.Replace(rule(``), `"hostnames":["a.example.com"],`, "", 1):                             "UnsupportedValue: without hostnames the route would answer for those of all tenants",
		strings.Replace(rule(``), `"web"`, `"none"`, 1):                                                "BackendNotFound: there is no Service none",
	} {
		w := newHTTPRoutes()
		w.grpcRoute("shop", spec)
		w.stepHTTP(t)
		c := w.HTTP.Routes[grpcAt("shop")].States[0].Conditions[0]
		if got := c.Reason + ": " + c.Message; want != "" && !strings.HasPrefix(got, want) || (len(w.HubRoutes) == 0) != (want != "") {
			t.Errorf("%s: %q, want %q; the hub has %v", spec, got, want, w.HubRoutes)
		}
	}
}

// TestListenerKinds: a listener takes routes of the kinds that it allows.
func TestListenerKinds(t *testing.T) {
	for kinds, want := range map[string]string{
		`[]`:                     "Accepted Accepted HTTPRoute GRPCRoute ",
		`[{"kind":"GRPCRoute"}]`: "NotAllowedByListeners Accepted GRPCRoute ",
		`[{"kind":"HTTPRoute"},{"kind":"HTTPRoute"},{"kind":"TLSRoute"}]`: "Accepted NotAllowedByListeners HTTPRoute ",
		`[{"kind":"GRPCRoute","group":"example.com"}]`:                    "NoMatchingParent NoMatchingParent ",
	} {
		w := newHTTPRoutes()
		g := w.gateway("default", "hub", `{"gatewayClassName":"lbd","listeners":[{"name":"http","port":80,"protocol":"HTTP","allowedRoutes":{"kinds":`+kinds+`}}]}`)
		w.httpRoute("shop", plainHTTP)
		w.grpcRoute("shop", plainGRPC)
		w.stepHTTP(t)
		got := ""
		for _, r := range []RouteKey{httpAt("shop"), grpcAt("shop")} {
			if h, there := w.HubRoutes[r.name()]; there {
				h.Conditions = []v1alpha1.Condition{{Type: v1alpha1.ConditionAccepted, Status: v1alpha1.ConditionTrue, ObservedGeneration: h.Generation}}
				w.HubRoutes[r.name()] = h
			}
		}
		w.stepHTTP(t)
		for _, r := range []RouteKey{httpAt("shop"), grpcAt("shop")} {
			got += w.HTTP.Routes[r].States[0].Conditions[0].Reason + " "
		}
		for _, k := range g.Status.Listeners[0].Kinds {
			got += k["kind"] + " "
		}
		if got != want {
			t.Errorf("%s: %q, want %q", kinds, got, want)
		}
	}
}

// TestAppProtocol: the hub is told what a Service speaks, if that is something that an engine needs to know.
func TestAppProtocol(t *testing.T) {
	for says, want := range map[string]string{"": "", "http": "", "https": "", "kubernetes.io/h2c": "kubernetes.io/h2c", "kubernetes.io/ws": "kubernetes.io/ws", "kubernetes.io/wss": ""} {
		w := newHTTPRoutes()
		w.Backends[at("web")].Ports[0].AppProtocol = says
		w.httpRoute("shop", plainHTTP)
		w.grpcRoute("shop", plainGRPC)
		w.stepHTTP(t)
		http, grpc := w.HubRoutes["httproute.default.shop"].Spec, w.HubRoutes["grpcroute.default.shop"].Spec
		if http == nil || grpc == nil {
			t.Fatalf("%q: the hub has %v", says, w.HubRoutes)
		}
		if got := http.HTTP.Rules[0].Backends[0].AppProtocol; got != want {
			t.Errorf("%q: the hub is told %q, want %q", says, got, want)
		}
		if got := grpc.HTTP.Rules[0].Backends[0].AppProtocol; got != v1alpha1.AppProtocolH2C {
			t.Errorf("%q: of the GRPCRoute the hub is told %q", says, got)
		}
	}
}

// TestGRPCRoutesUnread: while GRPCRoutes are not known, what the hub has of them stays, HTTPRoutes change as ever, and Gateways
// lose nothing. In a cluster that has no such kind copies that are needed no more go, and Gateways say what there is.
func TestGRPCRoutesUnread(t *testing.T) {
	w := newHTTPRoutes()
	w.httpRoute("shop", plainHTTP)
	w.grpcRoute("shop", plainGRPC)
	w.stepHTTP(t)
	for _, name := range []string{"httproute.default.shop", "grpcroute.default.shop"} {
		h := w.HubRoutes[name]
		h.Addresses, h.Conditions = []string{"192.0.2.7"}, []v1alpha1.Condition{{Type: v1alpha1.ConditionAccepted, Status: v1alpha1.ConditionTrue, ObservedGeneration: h.Generation}}
		w.HubRoutes[name] = h
	}
	w.stepHTTP(t)
	w.HTTP.Routes = map[RouteKey]*HTTPRoute{}
	w.Backends[at("lbd-old")] = &Backend{UID: "x", Copy: true}
	for _, lacking := range []bool{false, true} {
		w.Unread, w.Lacking = map[v1alpha1.TenantOriginKind]bool{v1alpha1.OriginGRPCRoute: true}, map[v1alpha1.TenantOriginKind]bool{v1alpha1.OriginGRPCRoute: lacking}
		out := StepIngresses(&w.IngressInput)
		if len(out.Routes) != 1 || out.Routes[0].Name != "httproute.default.shop" || out.Routes[0].Spec != nil {
			t.Errorf("lacking %v: routes %+v", lacking, out.Routes)
		}
		if lacking != (len(out.Gateways) == 1) || lacking != (len(out.Copies) == 1) || lacking && out.Copies[0].Key != (model.Key{Namespace: "default", Name: "lbd-old"}) {
			t.Errorf("lacking %v: Gateways %+v, copies %+v", lacking, out.Gateways, out.Copies)
		}
	}
}

// TestGatewayWithoutGRPCRoutes: while GRPCRoutes are not known, as to an agent that has no right to them, a new Gateway has a
// status, and one gets the addresses and routes that are added.
func TestGatewayWithoutGRPCRoutes(t *testing.T) {
	w := newHTTPRoutes()
	w.Unread = map[v1alpha1.TenantOriginKind]bool{v1alpha1.OriginGRPCRoute: true}
	says := func(want string) {
		t.Helper()
		w.stepHTTP(t)
		s := w.HTTP.Gateways[at("hub")].Status
		if got := fmt.Sprint(short(s.Conditions), s.Addresses, s.Listeners[0].Attached); got != want {
			t.Errorf("the Gateway says %s, want %s", got, want)
		}
	}
	says("Accepted=Accepted Programmed=AddressNotAssigned![] 0")
	for i, name := range []string{"shop", "more"} {
		w.httpRoute(name, plainHTTP)
		w.stepHTTP(t)
		w.judgeHTTP(name, v1alpha1.ConditionTrue, "Accepted", fmt.Sprintf("192.0.2.%d", i))
	}
	says("Accepted=Accepted Programmed=Programmed[192.0.2.0 192.0.2.1] 2")
	unread := w.Unread
	old := HubRoute{UID: "old", Spec: &v1alpha1.TenantRouteSpec{Origin: v1alpha1.TenantOrigin{Kind: v1alpha1.OriginGRPCRoute, Namespace: "default", Name: "old"}}}
	w.HubRoutes["grpcroute.default.old"] = old
	delete(w.HTTP.Routes, httpAt("shop"))
	says("Accepted=Accepted Programmed=Programmed[192.0.2.0 192.0.2.1] 2") // which those of the GRPCRoute may be
	w.Unread = nil
	says("Accepted=Accepted Programmed=Programmed[192.0.2.1] 1")
	w.Unread, w.HubRoutes["grpcroute.default.old"] = unread, old
	for i := range maxAddresses { // more than a Gateway may have
		w.judgeHTTP("more", v1alpha1.ConditionTrue, "Accepted", fmt.Sprintf("192.0.2.%d", 20+i))
		w.stepHTTP(t)
	}
	w.judgeHTTP("more", v1alpha1.ConditionTrue, "Accepted", "192.0.2.99")
	w.stepHTTP(t)
	if has := w.HTTP.Gateways[at("hub")].Status.Addresses; len(has) != maxAddresses || !slices.Contains(has, "192.0.2.99") {
		t.Errorf("the Gateway has %s, and not all that is known", has)
	}
	delete(w.HubRoutes, "grpcroute.default.old")
	says("Accepted=Accepted Programmed=Programmed[192.0.2.99] 1") // no address can be one of a GRPCRoute
	delete(w.HTTP.Routes, httpAt("more"))
	w.stepHTTP(t)
	says("Accepted=Accepted Programmed=AddressNotAssigned![] 0")
}
