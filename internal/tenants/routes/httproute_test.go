package routes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// httpRoute makes a TenantRoute of an HTTPRoute, as route does of an Ingress. The Tenants have a Gateway.
func (w *world) httpRoute(tenant, name string, age int, hosts ...string) *Route {
	for _, c := range w.Clusters {
		c.Tenant.Spec.Gateway = "edge/public"
	}
	r := &Route{TenantRoute: &v1alpha1.TenantRoute{}, Created: time.Unix(int64(age), 0)}
	r.Spec.Origin = v1alpha1.TenantOrigin{Kind: v1alpha1.OriginHTTPRoute, Namespace: "default", Name: name}
	r.Spec.HTTP = &v1alpha1.TenantHTTP{Hostnames: hosts, Rules: []v1alpha1.TenantHTTPRule{{Backends: []v1alpha1.TenantHTTPBackend{{Service: name, NodePort: 30080}}}}}
	r.Default()
	w.Routes[model.Key{Namespace: tenant, Name: tenants.RouteName(KindHTTPRoute, "default", name)}] = r
	return r
}

// of is the HTTPRoute of the hub for one of the tenant.
func (w *world) of(tenant, name string) ID {
	return ID{KindHTTPRoute, model.Key{Namespace: tenant, Name: tenants.HubName(tenant, KindHTTPRoute, "default", name)}}
}

// judge is what the Gateway of the hub says of an HTTPRoute.
func (w *world) judge(id ID, gateway, status, reason string) {
	w.Have[id].Body["status"] = map[string]any{"parents": []any{map[string]any{"controllerName": "engine", "parentRef": map[string]any{"namespace": "edge", "name": gateway},
		"conditions": []any{map[string]any{"type": "ResolvedRefs", "status": "True", "reason": "ResolvedRefs"}, map[string]any{"type": "Accepted", "status": status, "reason": reason}}}}}
}

// TestHTTPRouteServed: an HTTPRoute of a tenant becomes one of the Gateway of its Tenant, made of known fields and
// with names that nobody chose, and ends with it.
func TestHTTPRouteServed(t *testing.T) {
	w := newWorld()
	r := w.httpRoute("shop", "web", 1, "a.shop.example.com")
	r.Spec.HTTP.Rules = []v1alpha1.TenantHTTPRule{{
		Matches:  []v1alpha1.TenantHTTPMatch{{Path: "/a", Type: v1alpha1.PathExact, Method: "GET", Headers: []v1alpha1.TenantHTTPValue{{Name: "X", Value: "1"}}, Query: []v1alpha1.TenantHTTPValue{{Name: "q", Value: "2"}}}},
		Headers:  &v1alpha1.TenantHTTPHeaders{Set: []v1alpha1.TenantHTTPValue{{Name: "A", Value: "b"}}, Remove: []string{"C"}},
		Rewrite:  &v1alpha1.TenantHTTPRewrite{Path: &v1alpha1.TenantHTTPPath{Type: v1alpha1.ReplaceFull, Path: "/z"}},
		Backends: []v1alpha1.TenantHTTPBackend{{Service: "web", NodePort: 30080, Weight: new(int32(9))}, {Service: "new", NodePort: 30081, Weight: new(int32(0))}},
		Timeouts: v1alpha1.TenantHTTPTimeouts{Request: "10s"},
	}, {Redirect: &v1alpha1.TenantHTTPRedirect{Scheme: "https", Port: 443, StatusCode: 301, Path: &v1alpha1.TenantHTTPPath{Type: v1alpha1.ReplacePrefix, Path: "/n"}}}}
	out := w.step(t)
	expect(t, says(&out), map[string]string{"shop/httproute.default.web": "Accepted"})
	service := func(name string) string { return tenants.HubName("shop", KindService, "default", name) }
	want := jsonOf(map[string]any{
		"parentRefs": []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "edge", "name": "public"}}, "hostnames": []any{"a.shop.example.com"},
		"rules": []any{map[string]any{
			"matches": []any{map[string]any{"path": map[string]any{"type": "Exact", "value": "/a"}, "method": "GET",
				"headers": []any{map[string]any{"type": "Exact", "name": "X", "value": "1"}}, "queryParams": []any{map[string]any{"type": "Exact", "name": "q", "value": "2"}}}},
			"filters": []any{map[string]any{"type": "RequestHeaderModifier", "requestHeaderModifier": map[string]any{"set": []any{map[string]any{"name": "A", "value": "b"}}, "remove": []any{"C"}}},
				map[string]any{"type": "URLRewrite", "urlRewrite": map[string]any{"path": map[string]any{"type": "ReplaceFullPath", "replaceFullPath": "/z"}}}},
			"backendRefs": []any{map[string]any{"group": "", "kind": "Service", "name": service("web"), "port": 30080, "weight": 9}, map[string]any{"group": "", "kind": "Service", "name": service("new"), "port": 30081, "weight": 0}},
			"timeouts":    map[string]any{"request": "10s"},
		}, map[string]any{
			"matches": []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": "/"}}},
			"filters": []any{map[string]any{"type": "RequestRedirect", "requestRedirect": map[string]any{"scheme": "https", "port": 443, "statusCode": 301,
				"path": map[string]any{"type": "ReplacePrefixMatch", "replacePrefixMatch": "/n"}}}},
		}}})
	id := w.of("shop", "web")
	if have := w.Have[id].Body["spec"]; !covers(have, want) || !covers(want, have) {
		t.Errorf("the HTTPRoute is\n%v\nwant\n%v", have, want)
	}
	if len(w.Have) != 1+2*3 { // and two Services with two EndpointSlices
		t.Errorf("%d objects", len(w.Have))
	}
	for id := range w.Have {
		if id.Namespace != "shop" {
			t.Errorf("it is not in the namespace of the cluster: %v", id)
		}
	}
	clear(w.Routes)
	if w.step(t); len(w.Have) != 0 {
		t.Errorf("left: %s", w.text())
	}
}

// TestHTTPRouteAddresses: they are those of the Gateway, once that has taken the route. Else it is said why there
// are none, in words that name nothing of the hub.
func TestHTTPRouteAddresses(t *testing.T) {
	w := newWorld()
	r := w.httpRoute("shop", "web", 1, "a.shop.example.com")
	key, id := model.Key{Namespace: "shop", Name: "httproute.default.web"}, w.of("shop", "web")
	public := model.Key{Namespace: "edge", Name: "public"}
	look := func(addresses, pending string) {
		t.Helper()
		out := w.step(t)
		if got := strings.Join(out.Addresses[key], " "); got != addresses || out.Pending[key] != pending {
			t.Errorf("addresses %q %q, want %q %q", got, out.Pending[key], addresses, pending)
		}
		r.Shows = out.Addresses[key]
	}
	look("", "the Gateway of the hub has not taken the route yet")
	w.judge(id, "other", "True", "Accepted")
	look("", "the Gateway of the hub has not taken the route yet")
	w.judge(id, "public", "False", "NotAllowedByListeners")
	look("", "the Gateway of the hub does not take the route: NotAllowedByListeners")
	w.judge(id, "public", "True", "Accepted")
	look("", "the Gateway of the hub is not there")
	w.Gateways = map[model.Key][]string{public: nil}
	look("", "the Gateway of the hub has no address yet")
	w.Gateways[public] = []string{"192.0.2.9", "2001:db8::9"}
	look("192.0.2.9 2001:db8::9", "")

	// While nobody knows the Gateways of the hub, what was shown stays.
	w.Gateways = nil
	look("192.0.2.9 2001:db8::9", "")
	r.Shows = nil
	look("", "the controller of the hub has not read its Gateways")
	r.Shows = []string{"192.0.2.9"}
	w.judge(id, "public", "False", "NotAllowedByListeners")
	look("", "the Gateway of the hub does not take the route: NotAllowedByListeners")
}

// TestHTTPRouteAttacks: what an agent writes gets nothing of another tenant, and a hostname has one owner over both
// kinds.
func TestHTTPRouteAttacks(t *testing.T) {
	w := newWorld()
	w.httpRoute("shop", "web", 2, "www.example.com")
	w.route("bank", "ingress", 3, "www.example.com")
	w.httpRoute("bank", "theirs", 1, "a.shop.example.com")
	w.httpRoute("bank", "port", 1, "a.bank.example.com").Spec.HTTP.Rules[0].Backends[0].NodePort = 22
	w.httpRoute("bank", "wild", 3, "*.example.com")
	w.httpRoute("bank", "good", 3, "b.bank.example.com")
	double := w.httpRoute("bank", "double", 4, "c.bank.example.com")
	double.Spec.Origin.Name = "good"
	out := w.step(t)
	expect(t, says(&out), map[string]string{
		"shop/httproute.default.web":    "Accepted",
		"bank/ingress.default.ingress":  "HostnameTaken www.example.com is taken: another tenant had a rule for www.example.com first",
		"bank/httproute.default.theirs": `HostnameNotAllowed the Tenant bank may not have the hostname a.shop.example.com; it may have ["*.bank.example.com" "www.example.com"]`,
		"bank/httproute.default.wild":   `HostnameNotAllowed the Tenant bank may not have the hostname *.example.com; it may have ["*.bank.example.com" "www.example.com"]`,
		"bank/httproute.default.port":   "NodePortNotAllowed 22 is in no range of NodePorts of the cluster, which has 30000-32767",
		"bank/httproute.default.good":   "Accepted",
		"bank/httproute.default.double": "Conflict the older TenantRoute httproute.default.good is of the same HTTPRoute",
	})
	// The name stays with shop until its HTTPRoute is gone from the hub, and then goes to the Ingress of bank.
	delete(w.Routes, model.Key{Namespace: "shop", Name: "httproute.default.web"})
	first := Step(&w.Input)
	expect(t, says(&first), map[string]string{"bank/ingress.default.ingress": "HostnameTaken www.example.com is taken: another tenant had a rule for www.example.com first"})
	out = w.step(t)
	expect(t, says(&out), map[string]string{"bank/ingress.default.ingress": "Accepted"})

	// Without a Gateway none is served, and what there was ends.
	w.Clusters["bank"].Tenant.Spec.Gateway = ""
	out = w.step(t)
	expect(t, says(&out), map[string]string{
		"bank/httproute.default.good":  "GatewayNotAllowed the Tenant bank has no gateway: no HTTPRoute of it is served",
		"bank/ingress.default.ingress": "Accepted",
	})
	if text := w.text(); strings.Contains(text, `"kind":"HTTPRoute"`) {
		t.Error(text)
	}
}

// TestHTTPRouteLimits: Services and ports behind HTTPRoutes count with those behind Ingresses.
func TestHTTPRouteLimits(t *testing.T) {
	w := newWorld()
	w.Clusters["shop"].Tenant.Spec.Limits.Routes = 2
	w.route("shop", "one", 1, "a.shop.example.com")
	r := w.httpRoute("shop", "two", 2, "b.shop.example.com")
	w.httpRoute("shop", "three", 3, "c.shop.example.com")
	out := w.step(t)
	expect(t, says(&out), map[string]string{"shop/httproute.default.two": "Accepted", "shop/httproute.default.three": "TenantLimit with it the Tenant shop has 3 routes of 2 that it may have"})
	r.Spec.HTTP.Rules[0].Backends = append(r.Spec.HTTP.Rules[0].Backends, v1alpha1.TenantHTTPBackend{Service: "more", NodePort: 30081})
	out = w.step(t)
	expect(t, says(&out), map[string]string{"shop/httproute.default.two": "TenantLimit with it the Tenant shop has 3 Services behind routes of 2 that it may have"})
}

// TestFamiliesOfNodePorts: an EndpointSlice has no port at which nodes do not answer by its family, whichever route says so,
// and there is none without a port.
func TestFamiliesOfNodePorts(t *testing.T) {
	w := newWorld()
	r := w.route("shop", "web", 1, "a.shop.example.com")
	ports := func() string {
		w.step(t)
		w.step(t) // the Service has families now
		var all []string
		for id, have := range w.Have {
			if id.Kind == KindSlice {
				text, _ := json.Marshal(have.Body["ports"])
				all = append(all, fmt.Sprint(have.Body["addressType"], " ", string(text)))
			}
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	const port = `[{"name":"p30080","port":30080,"protocol":"TCP"}]`
	for family, want := range map[v1alpha1.AddressFamily]string{"": "IPv4 " + port + " IPv6 " + port, v1alpha1.FamilyIPv4: "IPv4 " + port, v1alpha1.FamilyIPv6: "IPv6 " + port} {
		r.Spec.Rules[0].Paths[0].Family = family
		if got := ports(); got != want {
			t.Errorf("%q: %s, want %s", family, got, want)
		}
	}
	// What is refused, is of another Service with the same NodePort, or is contradicted, takes no endpoint of others.
	r.Spec.Rules[0].Paths[0].Family = v1alpha1.FamilyIPv4
	before := ports()
	w.route("shop", "refused", 2, "not.allowed.invalid").Spec.Rules[0].Paths[0] = v1alpha1.TenantPath{Path: "/", Type: v1alpha1.PathPrefix, Service: "web", NodePort: 30080, Family: v1alpha1.FamilyIPv6}
	if got := ports(); got != before {
		t.Errorf("a refused route: %s", got)
	}
	w.httpRoute("shop", "two", 2, "b.shop.example.com").Spec.HTTP.Rules[0].Backends[0].Family = v1alpha1.FamilyIPv6 // Service two
	if got := ports(); got != "IPv4 "+port+" IPv6 "+port {
		t.Errorf("another Service: %s", got)
	}
	w.Routes[keyOf("shop", "refused")].Spec.Rules[0].Host = "c.shop.example.com"
	if got := ports(); got != "IPv4 "+port+" IPv6 "+port+" IPv6 "+port {
		t.Errorf("a route that says otherwise: %s", got)
	}
}
