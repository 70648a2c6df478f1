package propagate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// newHTTPRoutes is a cluster with a Gateway of the hub in the namespace default, and one of another controller.
func newHTTPRoutes() *ingresses {
	w := newIngresses()
	w.HTTP = &HTTPInput{Class: "lbd", Gateways: map[model.Key]*Gateway{}, Routes: map[RouteKey]*HTTPRoute{}, Refused: map[RouteKey]string{}}
	w.gateway("default", "hub", `{"gatewayClassName":"lbd","listeners":[{"name":"http","port":80,"protocol":"HTTP","allowedRoutes":{"namespaces":{"from":"Same"}}}]}`)
	w.gateway("default", "nginx", `{"gatewayClassName":"nginx","listeners":[{"name":"http","port":80,"protocol":"HTTP"}]}`).Class = "nginx"
	return w
}

func (w *ingresses) gateway(namespace, name, spec string) *Gateway {
	g := &Gateway{UID: name, Generation: 1, Class: "lbd"}
	g.Listeners, g.Bad = ReadGateway([]byte(spec))
	w.HTTP.Gateways[model.Key{Namespace: namespace, Name: name}] = g
	return g
}

func grpcAt(name string) RouteKey { return RouteKey{v1alpha1.OriginGRPCRoute, at(name)} }

func httpAt(name string) RouteKey { return RouteKey{v1alpha1.OriginHTTPRoute, at(name)} }

// httpRoute makes an HTTPRoute in the namespace default of the rest of a spec.
func (w *ingresses) httpRoute(name, spec string) *HTTPRoute {
	r := &HTTPRoute{UID: name, Version: "1", Generation: 1}
	if old := w.HTTP.Routes[httpAt(name)]; old != nil {
		r.Generation, r.States = old.Generation+1, old.States
	}
	ReadRoute(v1alpha1.OriginHTTPRoute, "default", []byte(spec), r)
	w.HTTP.Routes[httpAt(name)] = r
	return r
}

// stepHTTP decides until nothing is left to be done.
func (w *ingresses) stepHTTP(t *testing.T) {
	t.Helper()
	for range 8 {
		w.step(t)
		out := StepIngresses(&w.IngressInput)
		for _, g := range out.Gateways {
			w.HTTP.Gateways[g.Gateway].Status = g.Status
		}
		for _, s := range out.HTTPStatuses {
			w.HTTP.Routes[s.Route].States = s.States
		}
		if len(out.Gateways)+len(out.HTTPStatuses) == 0 {
			return
		}
	}
	t.Fatal("it does not come to rest")
}

// judgeHTTP is what the hub says of the route of an HTTPRoute.
func (w *ingresses) judgeHTTP(name string, status v1alpha1.ConditionStatus, reason string, addresses ...string) {
	h := w.HubRoutes["httproute.default."+name]
	h.Addresses, h.Conditions = addresses, []v1alpha1.Condition{{Type: v1alpha1.ConditionAccepted, Status: status, Reason: reason, Message: "words", ObservedGeneration: h.Generation}}
	if len(addresses) == 0 && status == v1alpha1.ConditionTrue {
		h.Conditions = append(h.Conditions, v1alpha1.Condition{Type: v1alpha1.ConditionAddressAssigned, Status: v1alpha1.ConditionFalse, Reason: "AddressPending", ObservedGeneration: h.Generation})
	}
	w.HubRoutes["httproute.default."+name] = h
}

func short(all []v1alpha1.Condition) string {
	var words []string
	for _, c := range all {
		words = append(words, fmt.Sprintf("%s=%s", c.Type, c.Reason))
		if c.Status != v1alpha1.ConditionTrue {
			words[len(words)-1] += "!"
		}
	}
	return strings.Join(words, " ")
}

// saysHTTP is the status of an HTTPRoute in short.
func (w *ingresses) saysHTTP(name string) string {
	var all []string
	for _, s := range w.HTTP.Routes[httpAt(name)].States {
		all = append(all, s.Ref.Name+" "+short(s.Conditions))
	}
	return strings.Join(all, ", ")
}

func (w *ingresses) expectHTTP(t *testing.T, name, want string) {
	t.Helper()
	if got := w.saysHTTP(name); got != want {
		t.Errorf("%s says %q, want %q", name, got, want)
	}
}

const plainHTTP = `{"parentRefs":[{"name":"hub"},{"name":"nginx"}],"hostnames":["a.example.com"],"rules":[{"matches":[{"path":{"type":"PathPrefix","value":"/"}}],"backendRefs":[{"group":"","kind":"Service","name":"web","port":80,"weight":3}]}]}`

// TestHTTPRoutePropagated follows an HTTPRoute from its creation to its end.
func TestHTTPRoutePropagated(t *testing.T) {
	w := newHTTPRoutes()
	w.ingress("shop", "web")
	w.httpRoute("shop", plainHTTP)
	w.stepHTTP(t)
	h := w.HubRoutes["httproute.default.shop"].Spec
	if h == nil || len(w.HubRoutes) != 2 || len(h.HTTP.Hostnames) != 1 || h.HTTP.Rules[0].Backends[0].NodePort != 30001 || *h.HTTP.Rules[0].Backends[0].Weight != 3 || h.Origin.Generation != 1 {
		t.Fatalf("the hub has %+v", w.HubRoutes)
	}
	w.expectHTTP(t, "shop", "hub Accepted=Pending!")
	w.judgeHTTP("shop", v1alpha1.ConditionTrue, "Accepted")
	w.stepHTTP(t)
	w.expectHTTP(t, "shop", "hub Accepted=Accepted ResolvedRefs=ResolvedRefs lbd.dev/Programmed=AddressPending!")
	hub := w.HTTP.Gateways[at("hub")]
	if got := short(hub.Status.Conditions) + fmt.Sprint(hub.Status.Listeners[0].Attached); got != "Accepted=Accepted Programmed=AddressNotAssigned!1" {
		t.Errorf("the Gateway says %s", got)
	}
	w.judgeHTTP("shop", v1alpha1.ConditionTrue, "Accepted", "192.0.2.7")
	w.stepHTTP(t)
	w.expectHTTP(t, "shop", "hub Accepted=Accepted ResolvedRefs=ResolvedRefs lbd.dev/Programmed=Programmed")
	if got := short(hub.Status.Conditions) + fmt.Sprint(hub.Status.Addresses); got != "Accepted=Accepted Programmed=Programmed[192.0.2.7]" {
		t.Errorf("the Gateway says %s", got)
	}
	if s := w.HTTP.Gateways[at("nginx")].Status; len(s.Conditions)+len(s.Listeners) > 0 {
		t.Errorf("the Gateway of another controller says %+v", s)
	}

	// A change that the hub has not judged yet changes nothing of what is said, and a bad one nothing in the hub.
	w.httpRoute("shop", strings.Replace(plainHTTP, "a.example", "b.example", 1))
	if out := StepIngresses(&w.IngressInput); len(out.Routes) != 1 || len(out.HTTPStatuses) != 0 {
		t.Errorf("before the hub has it, it says %+v", out.HTTPStatuses)
	}
	w.stepHTTP(t)
	w.expectHTTP(t, "shop", "hub Accepted=Accepted ResolvedRefs=ResolvedRefs lbd.dev/Programmed=Programmed")
	if g := w.HTTP.Routes[httpAt("shop")].States[0].Conditions[0].ObservedGeneration; g != 1 {
		t.Errorf("it is about generation %d", g)
	}
	for _, reason := range []string{"HostnameTaken", "HubNotRead"} {
		w.judgeHTTP("shop", v1alpha1.ConditionFalse, reason)
		w.stepHTTP(t)
		w.expectHTTP(t, "shop", "hub Accepted="+reason+"! ResolvedRefs=ResolvedRefs lbd.dev/Programmed=NotAccepted!")
	}
	w.judgeHTTP("shop", v1alpha1.ConditionFalse, "HubNotRead", "192.0.2.9") // what it was is served still
	w.stepHTTP(t)
	w.expectHTTP(t, "shop", "hub Accepted=Accepted ResolvedRefs=ResolvedRefs lbd.dev/Programmed=HubNotRead!")
	w.httpRoute("shop", strings.Replace(plainHTTP, `"web"`, `"none"`, 1))
	w.stepHTTP(t)
	w.expectHTTP(t, "shop", "hub Accepted=BackendNotFound! ResolvedRefs=BackendNotFound! lbd.dev/Programmed=NotAccepted!")
	if h := w.HubRoutes["httproute.default.shop"].Spec; h == nil || h.HTTP.Hostnames[0] != "b.example.com" {
		t.Errorf("the hub has %+v", h)
	}

	// It leaves the Gateway: nothing says anything of it any more, and the Ingress has its copy still.
	w.httpRoute("shop", strings.Replace(plainHTTP, `{"name":"hub"},`, "", 1))
	w.stepHTTP(t)
	if w.expectHTTP(t, "shop", ""); len(w.HubRoutes) != 1 || len(w.Backends) != 2 {
		t.Errorf("the hub has %v, the cluster %v", w.HubRoutes, w.Backends)
	}
}

// TestHTTPRouteRefused: what the hub does not serve is said, and nothing of it is left out.
func TestHTTPRouteRefused(t *testing.T) {
	rules := func(rule string) string {
		return `{"parentRefs":[{"name":"hub"}],"hostnames":["a.example.com"],"rules":[` + rule + `]}`
	}
	const backend = `"backendRefs":[{"name":"web","port":80}]`
	filter := func(f string) string { return rules(`{"filters":[` + f + `],` + backend + `}`) }
	match := func(m string) string { return rules(`{"matches":[` + m + `],` + backend + `}`) }
	for spec, want := range map[string]string{
		filter(`{"type":"ExtensionRef","extensionRef":{"group":"traefik.io","kind":"Middleware","name":"x"}}`): "UnsupportedValue: the hub serves no filter of the type ExtensionRef",
		filter(`{"type":"RequestMirror","requestMirror":{"backendRef":{"name":"web","port":80}}}`):             "UnsupportedValue: the hub serves no filter of the type RequestMirror",
		filter(`{"type":"ResponseHeaderModifier","responseHeaderModifier":{}}`):                                "UnsupportedValue: the hub serves no filter of the type ResponseHeaderModifier",
		filter(`{"type":"URLRewrite","urlRewrite":{}},{"type":"URLRewrite","urlRewrite":{}}`):                  "UnsupportedValue: the hub serves one filter of the type URLRewrite in a rule",
		filter(`{"type":"New","new":{}}`):                                                      `UnsupportedValue: the hub does not serve all of spec: json: unknown field "new"`,
		rules(`{"sessionPersistence":{},` + backend + `}`):                                     `UnsupportedValue: the hub does not serve all of spec: json: unknown field "sessionPersistence"`,
		rules(`{"retry":{},` + backend + `}`):                                                  `UnsupportedValue: the hub does not serve all of spec: json: unknown field "retry"`,
		match(`{"path":{"type":"RegularExpression","value":"/.*"}}`):                           "UnsupportedValue: the hub serves no paths of the type RegularExpression",
		match(`{"headers":[{"type":"RegularExpression","name":"a","value":".*"}]}`):            "UnsupportedValue: the hub matches no headers and parameters of the type RegularExpression",
		match(`{"path":{"value":"/a b"}}`):                                                     "UnsupportedValue: spec.http.rules[0].matches[0].path",
		rules(`{"backendRefs":[{"name":"web","namespace":"kube-system","port":80}]}`):          "RefNotPermitted: no ReferenceGrant of the namespace kube-system lets the route lead to its Service web",
		rules(`{"backendRefs":[{"name":"web","kind":"ServiceImport","group":"x","port":80}]}`): "InvalidKind: the backend web is a ServiceImport and no Service",
		rules(`{"backendRefs":[{"name":"web","port":80,"filters":[{"type":"URLRewrite"}]}]}`):  "UnsupportedValue: the hub serves no filters of a single backend, such as those of web",
		rules(`{"backendRefs":[{"name":"web","port":81}]}`):                                    "BackendNotFound: the Service web has no TCP port 81",
		rules(`{}`): "UnsupportedValue: spec.http.rules[0]: must have either backends or a redirect",
		strings.Replace(rules(`{`+backend+`}`), `"hostnames":["a.example.com"],`, "", 1):                                                                        "UnsupportedValue: without hostnames the route would answer for those of all tenants: name them",
		rules(`{` + backend + `,"filters":[{"type":"RequestHeaderModifier","requestHeaderModifier":{"remove":["a"]}}],"timeouts":{"request":"1s"},"name":"x"}`): "",
	} {
		w := newHTTPRoutes()
		w.httpRoute("shop", spec)
		w.stepHTTP(t)
		c := w.HTTP.Routes[httpAt("shop")].States[0].Conditions[0]
		if got := c.Reason + ": " + c.Message; want != "" && !strings.HasPrefix(got, want) || (len(w.HubRoutes) == 0) != (want != "") {
			t.Errorf("%s: %q, want %q; the hub has %v", spec, got, want, w.HubRoutes)
		}
	}
}

// TestRedirects: one that changes no more than the scheme is refused, since the hub serves the route by both.
func TestRedirects(t *testing.T) {
	prefix, exact := `{"path":{"type":"PathPrefix","value":"/a"}}`, `{"path":{"type":"Exact","value":"/a"}}`
	for _, x := range []struct {
		matches, redirect string
		served            bool
	}{
		{prefix, `"scheme":"https","statusCode":301`, false},
		{``, `"scheme":"https"`, false},
		{``, `"statusCode":302`, false},
		{exact, `"scheme":"http"`, false},
		{exact, `"scheme":"https","port":443`, false},
		{exact, `"scheme":"https","port":8443`, true},
		{exact, `"scheme":"https","hostname":"a.example.com"`, false},
		{exact, `"scheme":"https","hostname":"b.example.com"`, true},
		{exact, `"scheme":"https","path":{"type":"ReplaceFullPath","replaceFullPath":"/a"}`, false},
		{exact, `"scheme":"https","path":{"type":"ReplaceFullPath","replaceFullPath":"/b"}`, true},
		{prefix, `"path":{"type":"ReplaceFullPath","replaceFullPath":"/a"}`, true}, // for which there may be another rule
		{prefix, `"path":{"type":"ReplacePrefixMatch","replacePrefixMatch":"/a"}`, false},
		{prefix, `"path":{"type":"ReplacePrefixMatch","replacePrefixMatch":"/b"}`, true},
		{``, `"scheme":"https","path":{"type":"ReplacePrefixMatch","replacePrefixMatch":"/b"}`, true},
		{`{"path":{"type":"PathPrefix","value":"/"},"headers":[{"name":"X-Forwarded-Proto","value":"http"}]}`, `"scheme":"https"`, true},
		{`{"method":"POST"}`, `"scheme":"https"`, true},
		{`{"method":"POST"},{"method":"GET"}`, `"scheme":"https"`, false},
	} {
		w := newHTTPRoutes()
		w.httpRoute("shop", `{"parentRefs":[{"name":"hub"}],"hostnames":["a.example.com"],"rules":[{"matches":[`+x.matches+`],"filters":[{"type":"RequestRedirect","requestRedirect":{`+x.redirect+`}}]}]}`)
		w.stepHTTP(t)
		c := w.HTTP.Routes[httpAt("shop")].States[0].Conditions[0]
		if refused := strings.HasPrefix(c.Message, "the redirect of spec.rules[0] changes at most the scheme"); refused == x.served || (len(w.HubRoutes) == 1) != x.served {
			t.Errorf("%+v: %+v", x, c)
		}
	}
}

// TestListeners: a route has the hostnames that it and the listeners have in common, and none by a listener that
// does not allow it.
func TestListeners(t *testing.T) {
	const all = `"allowedRoutes":{"namespaces":{"from":"All"}}`
	for _, x := range []struct{ listeners, ref, hosts, want string }{
		{`{"name":"a","port":80,"protocol":"HTTP"}`, ``, `"a.com","*.b.com"`, "*.b.com a.com"},
		{`{"name":"a","port":80,"protocol":"HTTP","hostname":"*.b.com"}`, ``, `"a.com","x.b.com"`, "x.b.com"},
		{`{"name":"a","port":80,"protocol":"HTTP","hostname":"x.b.com"}`, ``, `"*.b.com"`, "x.b.com"},
		{`{"name":"a","port":80,"protocol":"HTTP","hostname":"a.com"},{"name":"b","port":80,"protocol":"HTTP","hostname":"b.com"}`, `,"sectionName":"b"`, `"a.com","b.com"`, "b.com"},
		{`{"name":"a","port":80,"protocol":"HTTP","hostname":"a.com"},{"name":"b","port":81,"protocol":"HTTP","hostname":"b.com"}`, `,"port":81`, `"a.com","b.com"`, "b.com"},
		{`{"name":"a","port":80,"protocol":"HTTP","hostname":"b.com"}`, ``, `"a.com"`, "NoMatchingListenerHostname"},
		{`{"name":"a","port":80,"protocol":"HTTP"}`, `,"sectionName":"b"`, `"a.com"`, "NoMatchingParent"},
		{`{"name":"a","port":443,"protocol":"HTTPS","tls":{"certificateRefs":[{"name":"x"}]}}`, ``, `"a.com"`, "NoMatchingParent"},
		{`{"name":"a","port":80,"protocol":"HTTP","allowedRoutes":{"namespaces":{"from":"Selector","selector":{}}}}`, ``, `"a.com"`, "NoMatchingParent"},
		{`{"name":"a","port":80,"protocol":"HTTP","allowedRoutes":{"kinds":[{"kind":"TLSRoute"}]}}`, ``, `"a.com"`, "NoMatchingParent"},
		{`{"name":"a","port":80,"protocol":"HTTP"}],"addresses":[{"value":"192.0.2.1"}`, ``, `"a.com"`, "UnsupportedValue"},
		{`{"name":"a","port":80,"protocol":"HTTP"}`, `,"namespace":"edge"`, `"a.com"`, "NotAllowedByListeners"},
		{`{"name":"a","port":80,"protocol":"HTTP",` + all + `}`, `,"namespace":"edge"`, `"a.com"`, "a.com"},
	} {
		w := newHTTPRoutes()
		spec := `{"gatewayClassName":"lbd","listeners":[` + x.listeners + `]}`
		w.gateway("default", "g", spec)
		w.gateway("edge", "g", spec)
		w.httpRoute("shop", `{"parentRefs":[{"name":"g"`+x.ref+`}],"hostnames":[`+x.hosts+`],"rules":[{"backendRefs":[{"name":"web","port":80}]}]}`)
		w.stepHTTP(t)
		got := w.HTTP.Routes[httpAt("shop")].States[0].Conditions[0].Reason
		if h := w.HubRoutes["httproute.default.shop"].Spec; h != nil {
			got = strings.Join(h.HTTP.Hostnames, " ")
		}
		if got != x.want {
			t.Errorf("%+v: %s", x, got)
		}
	}
	// A listener that is not served says so, and a route that no listener allows any more leaves the hub.
	w := newHTTPRoutes()
	w.httpRoute("shop", plainHTTP)
	w.stepHTTP(t)
	if len(w.HubRoutes) != 1 {
		t.Fatalf("the hub has %v", w.HubRoutes)
	}
	g := w.gateway("default", "hub", `{"gatewayClassName":"lbd","listeners":[{"name":"tls","port":443,"protocol":"HTTPS"}]}`)
	w.stepHTTP(t)
	if n := StepIngresses(&w.IngressInput).HTTPCounts[v1alpha1.OriginHTTPRoute]; n != (Counts{Refused: 1}) {
		t.Errorf("counted: %+v", n)
	}
	if got := short(g.Status.Listeners[0].Conditions); got != "Accepted=UnsupportedProtocol! ResolvedRefs=ResolvedRefs Programmed=UnsupportedProtocol!" || len(w.HubRoutes) != 0 {
		t.Errorf("%s; the hub has %v", got, w.HubRoutes)
	}
}

// TestGatewayNotServed: a field of a Gateway that is not known takes nothing from the hub, whatever other parents a
// route has.
func TestGatewayNotServed(t *testing.T) {
	for _, refs := range []string{`{"name":"hub"}`, `{"name":"more"},{"name":"hub"}`, `{"name":"hub"},{"name":"other"}`} {
		w := newHTTPRoutes()
		w.gateway("default", "more", `{"gatewayClassName":"lbd","listeners":[{"name":"http","port":80,"protocol":"HTTP","hostname":"b.example.com"}]}`)
		w.gateway("default", "other", `{"gatewayClassName":"lbd","listeners":[{"name":"http","port":80,"protocol":"HTTP","hostname":"c.example.com"}]}`)
		w.httpRoute("shop", `{"parentRefs":[`+refs+`],"hostnames":["a.example.com","b.example.com"],"rules":[{"backendRefs":[{"name":"web","port":80}]}]}`)
		w.stepHTTP(t)
		w.judgeHTTP("shop", v1alpha1.ConditionTrue, "Accepted", "192.0.2.7")
		w.stepHTTP(t)
		good, spec := w.saysHTTP("shop"), w.HubRoutes["httproute.default.shop"].Spec
		g := w.gateway("default", "hub", `{"gatewayClassName":"lbd","infrastructure":{"labels":{"a":"b"}},"listeners":[{"name":"http","port":80,"protocol":"HTTP"}]}`)
		w.stepHTTP(t)
		if has := w.HubRoutes["httproute.default.shop"].Spec; has != spec {
			t.Errorf("%s: the hub has %+v", refs, has)
		}
		if got := short(g.Status.Conditions) + fmt.Sprint(g.Status.Addresses); got != "Accepted=Invalid! Programmed=Invalid![192.0.2.7]" {
			t.Errorf("%s: the Gateway says %s", refs, got)
		}
		for _, s := range w.HTTP.Routes[httpAt("shop")].States {
			if c := s.Conditions[0]; s.Ref.Name != "other" && (c.Reason != ReasonUnsupported ||
				c.Message != `the Gateway default/hub: the hub does not serve all of spec: json: unknown field "infrastructure"; until it is put right, the hub keeps what it has`) {
				t.Errorf("%s: %s says %+v", refs, s.Ref.Name, c)
			}
		}
		w.gateway("default", "hub", `{"gatewayClassName":"lbd","listeners":[{"name":"http","port":80,"protocol":"HTTP"}]}`)
		w.stepHTTP(t)
		if got := w.saysHTTP("shop"); got != good {
			t.Errorf("%s: it says %q at first, and %q after all", refs, good, got)
		}
	}
}

// TestAttachedRoutes: a listener counts the routes that are accepted, each once.
func TestAttachedRoutes(t *testing.T) {
	w := newHTTPRoutes()
	g := w.gateway("default", "hub", `{"gatewayClassName":"lbd","listeners":[{"name":"a","port":80,"protocol":"HTTP"},{"name":"b","port":80,"protocol":"HTTP","hostname":"b.example.com"}]}`)
	w.httpRoute("shop", `{"parentRefs":[{"name":"hub"},{"name":"hub","sectionName":"a"}],"hostnames":["a.example.com"],"rules":[{"backendRefs":[{"name":"web","port":80}]}]}`)
	w.httpRoute("more", `{"parentRefs":[{"name":"hub"}],"hostnames":["b.example.com"],"rules":[{"backendRefs":[{"name":"web","port":80}]}]}`)
	expect := func(when, want string) {
		t.Helper()
		w.stepHTTP(t)
		got := ""
		for _, l := range g.Status.Listeners {
			got += fmt.Sprintf("%s%d ", l.Name, l.Attached)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	expect("before the hub has judged", "a0 b0 ")
	w.judgeHTTP("shop", v1alpha1.ConditionTrue, "Accepted")
	expect("one by two parents", "a1 b0 ")
	w.judgeHTTP("more", v1alpha1.ConditionTrue, "Accepted", "192.0.2.7")
	expect("both", "a2 b1 ")
	w.judgeHTTP("shop", v1alpha1.ConditionFalse, "HostnameTaken")
	expect("one refused", "a1 b1 ")
}

// TestParentsInAnyOrder: the order of the entries in the status is nothing to write for, an entry too many is.
func TestParentsInAnyOrder(t *testing.T) {
	w := newHTTPRoutes()
	w.gateway("default", "more", `{"gatewayClassName":"lbd","listeners":[{"name":"http","port":80,"protocol":"HTTP"}]}`)
	r := w.httpRoute("shop", strings.Replace(plainHTTP, `{"name":"nginx"}`, `{"name":"more"}`, 1))
	w.stepHTTP(t)
	slices.Reverse(r.States)
	if out := StepIngresses(&w.IngressInput); len(r.States) != 2 || len(out.HTTPStatuses) > 0 {
		t.Errorf("of %+v it writes %+v", r.States, out.HTTPStatuses)
	}
	r.States = append(r.States, ParentState{Ref: ParentRef{Name: "gone"}})
	if out := StepIngresses(&w.IngressInput); len(out.HTTPStatuses) != 1 {
		t.Error("what is said of a parent that is gone stays")
	}
	r.States = r.States[:1]
	if out := StepIngresses(&w.IngressInput); len(out.HTTPStatuses) != 1 {
		t.Error("nothing is said of a parent")
	}
}

// TestHTTPRoutesUnread: while one kind is not known, what the hub has of it stays, and so do copies.
func TestHTTPRoutesUnread(t *testing.T) {
	w := newHTTPRoutes()
	w.ingress("shop", "web")
	w.httpRoute("shop", plainHTTP)
	w.stepHTTP(t)
	for kind, left := range map[v1alpha1.TenantOriginKind]string{v1alpha1.OriginHTTPRoute: "httproute.default.shop", v1alpha1.OriginIngress: "ingress.default.shop"} {
		in := w.IngressInput
		in.HTTP, in.Ingresses, in.Unread = nil, nil, map[v1alpha1.TenantOriginKind]bool{kind: true}
		in.Backends = map[model.Key]*Backend{at("lbd-old"): {UID: "x", Copy: true}}
		out := StepIngresses(&in)
		if len(out.Routes) != 1 || out.Routes[0].Name == left || out.Routes[0].Spec != nil || len(out.Copies) != 0 {
			t.Errorf("without %s: %+v %+v", kind, out.Routes, out.Copies)
		}
	}
}

// TestHTTPRouteNotTaken: what the API server of the hub does not take is said, and counted.
func TestHTTPRouteNotTaken(t *testing.T) {
	w := newHTTPRoutes()
	w.httpRoute("shop", plainHTTP)
	w.away = true
	w.HTTP.Refused[httpAt("shop")] = "quota"
	for range 3 {
		out := StepIngresses(&w.IngressInput)
		for _, c := range out.Copies {
			w.copied(t, c)
		}
		for _, s := range out.HTTPStatuses {
			w.HTTP.Routes[s.Route].States = s.States
		}
	}
	w.expectHTTP(t, "shop", "hub Accepted=HubRefused! ResolvedRefs=ResolvedRefs lbd.dev/Programmed=NotAccepted!")
	if out := StepIngresses(&w.IngressInput); out.HTTPCounts[v1alpha1.OriginHTTPRoute] != (Counts{Refused: 1}) || out.Counts != (Counts{}) {
		t.Errorf("%+v", out.HTTPCounts)
	}
}
