package routes

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// grpcRoute makes a TenantRoute of a GRPCRoute, as httpRoute does of an HTTPRoute.
func (w *world) grpcRoute(tenant, name string, age int, hosts ...string) *Route {
	r := w.httpRoute(tenant, name, age, hosts...)
	delete(w.Routes, model.Key{Namespace: tenant, Name: tenants.RouteName(KindHTTPRoute, "default", name)})
	r.Spec.Origin.Kind = v1alpha1.OriginGRPCRoute
	r.Spec.HTTP.Rules[0].Backends[0].AppProtocol = v1alpha1.AppProtocolH2C
	r.Created = time.Unix(int64(age), 0)
	w.Routes[model.Key{Namespace: tenant, Name: tenants.RouteName(KindGRPCRoute, "default", name)}] = r
	return r
}

// ofGRPC is the GRPCRoute of the hub for one of the tenant.
func ofGRPC(tenant, name string) ID {
	return ID{KindGRPCRoute, model.Key{Namespace: tenant, Name: tenants.HubName(tenant, KindGRPCRoute, "default", name)}}
}

// TestGRPCRouteServed: a GRPCRoute of a tenant becomes one of the Gateway of its Tenant, made of known fields, that leads to a
// Service whose port speaks h2c. Its Service goes after it.
func TestGRPCRouteServed(t *testing.T) {
	w := newWorld()
	r := w.grpcRoute("shop", "web", 1, "a.shop.example.com")
	r.Spec.HTTP.Rules = append(r.Spec.HTTP.Rules, v1alpha1.TenantHTTPRule{
		Matches: []v1alpha1.TenantHTTPMatch{{Path: "/", Type: v1alpha1.PathPrefix, GRPC: &v1alpha1.TenantGRPCMethod{Service: "shop.Cart", Method: "Add"}, Headers: []v1alpha1.TenantHTTPValue{{Name: "x", Value: "1"}}},
			{GRPC: &v1alpha1.TenantGRPCMethod{Method: "Add"}}, {}},
		Headers:  &v1alpha1.TenantHTTPHeaders{Remove: []string{"c"}},
		Backends: []v1alpha1.TenantHTTPBackend{{Service: "web", NodePort: 30080, AppProtocol: v1alpha1.AppProtocolH2C, Weight: new(int32(2))}},
	})
	first := Step(&w.Input).Writes[0]
	if have := (Have{Body: first.Body}); !LedTo(first.ID, have, KindGRPCRoute) || LedTo(first.ID, have, KindHTTPRoute) {
		t.Errorf("before its GRPCRoute is there it is %v", first)
	}
	out := w.step(t)
	expect(t, says(&out), map[string]string{"shop/grpcroute.default.web": "Accepted"})
	service := tenants.HubName("shop", KindService, "default", "web")
	backend := func(weight int) any {
		return map[string]any{"group": "", "kind": "Service", "name": service, "port": 30080, "weight": weight}
	}
	want := jsonOf(map[string]any{
		"parentRefs": []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "edge", "name": "public"}}, "hostnames": []any{"a.shop.example.com"},
		"rules": []any{map[string]any{"backendRefs": []any{backend(1)}}, map[string]any{
			"matches": []any{map[string]any{"method": map[string]any{"type": "Exact", "service": "shop.Cart", "method": "Add"}, "headers": []any{map[string]any{"type": "Exact", "name": "x", "value": "1"}}},
				map[string]any{"method": map[string]any{"type": "Exact", "method": "Add"}}, map[string]any{}},
			"filters":     []any{map[string]any{"type": "RequestHeaderModifier", "requestHeaderModifier": map[string]any{"remove": []any{"c"}}}},
			"backendRefs": []any{backend(2)},
		}}})
	id := ofGRPC("shop", "web")
	if have := w.Have[id].Body["spec"]; !covers(have, want) || !covers(want, have) {
		t.Errorf("the GRPCRoute is\n%v\nwant\n%v", have, want)
	}
	if n := strings.Count(w.text(), `"appProtocol":"kubernetes.io/h2c"`); n != 3 || len(w.Have) != 1+3 {
		t.Errorf("%d ports speak h2c: %s", n, w.text())
	}
	w.judge(id, "public", "True", "Accepted")
	w.Gateways = map[model.Key][]string{{Namespace: "edge", Name: "public"}: {"192.0.2.9"}}
	out = w.step(t)
	if got := out.Addresses[model.Key{Namespace: "shop", Name: "grpcroute.default.web"}]; strings.Join(got, " ") != "192.0.2.9" {
		t.Errorf("it has the addresses %q", got)
	}
	clear(w.Routes)
	if out := Step(&w.Input); len(out.Writes) > 0 || len(out.Deletes) != 1 || out.Deletes[0].ID != id {
		t.Errorf("writes %v, deletes %v", out.Writes, out.Deletes)
	}
	if w.step(t); len(w.Have) != 0 {
		t.Errorf("left: %s", w.text())
	}
}

// TestGRPCRouteAttacks: a hostname has one owner over all kinds, the limits count all of them, and a GRPCRoute gets nothing of
// another tenant.
func TestGRPCRouteAttacks(t *testing.T) {
	w := newWorld()
	w.grpcRoute("shop", "web", 2, "www.example.com")
	w.route("bank", "ingress", 3, "www.example.com")
	w.httpRoute("bank", "http", 3, "www.example.com")
	w.grpcRoute("bank", "theirs", 1, "a.shop.example.com")
	w.grpcRoute("bank", "port", 1, "a.bank.example.com").Spec.HTTP.Rules[0].Backends[0].NodePort = 22
	w.grpcRoute("bank", "good", 4, "b.bank.example.com")
	w.grpcRoute("bank", "double", 5, "c.bank.example.com").Spec.Origin.Name = "good"
	w.httpRoute("bank", "good", 6, "b.bank.example.com") // another object, of the same tenant
	out := w.step(t)
	const taken = "HostnameTaken www.example.com is taken: another tenant had a rule for www.example.com first"
	expect(t, says(&out), map[string]string{
		"shop/grpcroute.default.web":    "Accepted",
		"bank/ingress.default.ingress":  taken,
		"bank/httproute.default.http":   taken,
		"bank/grpcroute.default.theirs": `HostnameNotAllowed the Tenant bank may not have the hostname a.shop.example.com; it may have ["*.bank.example.com" "www.example.com"]`,
		"bank/grpcroute.default.port":   "NodePortNotAllowed 22 is in no range of NodePorts of the cluster, which has 30000-32767",
		"bank/grpcroute.default.good":   "Accepted",
		"bank/grpcroute.default.double": "Conflict the older TenantRoute grpcroute.default.good is of the same GRPCRoute",
		"bank/httproute.default.good":   "Accepted",
	})
	// The name stays with shop until its GRPCRoute is gone from the hub.
	delete(w.Routes, model.Key{Namespace: "shop", Name: "grpcroute.default.web"})
	first := Step(&w.Input)
	expect(t, says(&first), map[string]string{"bank/ingress.default.ingress": taken, "bank/httproute.default.http": taken})
	out = w.step(t)
	expect(t, says(&out), map[string]string{"bank/ingress.default.ingress": "Accepted", "bank/httproute.default.http": "Accepted"})
	w.grpcRoute("shop", "web", 1, "www.example.com") // although it is older
	out = w.step(t)
	expect(t, says(&out), map[string]string{"shop/grpcroute.default.web": taken})

	w.Clusters["bank"].Tenant.Spec.Limits.Routes = 2
	out = w.step(t)
	expect(t, says(&out), map[string]string{"bank/grpcroute.default.good": "TenantLimit with it the Tenant bank has 3 routes of 2 that it may have"})
	w.Clusters["bank"].Tenant.Spec.Gateway = ""
	out = w.step(t)
	expect(t, says(&out), map[string]string{"bank/grpcroute.default.good": "GatewayNotAllowed the Tenant bank has no gateway: no GRPCRoute of it is served"})
	if text := w.text(); strings.Contains(text, `"kind":"GRPCRoute"`) {
		t.Error(text)
	}
}

// TestGRPCRoutesLacking: in a hub that has no such kind none is written, HTTPRoutes are, and the route says so.
func TestGRPCRoutesLacking(t *testing.T) {
	w := newWorld()
	w.Lacking = map[string]bool{KindGRPCRoute: true}
	w.grpcRoute("shop", "web", 1, "a.shop.example.com")
	w.httpRoute("shop", "more", 2, "b.shop.example.com")
	out := w.step(t)
	if got := out.Pending[model.Key{Namespace: "shop", Name: "grpcroute.default.web"}]; got != "the hub has no GRPCRoutes that its controller can read: it needs them in v1 of the Gateway API, and the roles of this version" {
		t.Errorf("it says %q", got)
	}
	if text := w.text(); strings.Contains(text, `"kind":"GRPCRoute"`) || !strings.Contains(text, `"kind":"HTTPRoute"`) || strings.Contains(text, marks[KindGRPCRoute]) {
		t.Error(text)
	}
}

// TestAppProtocols: a port of a Service speaks what its routes say, and h2c where they say different things. Its endpoints do too,
// also while nobody knows the routes of the hub, and it goes on to while a route is on its way out.
func TestAppProtocols(t *testing.T) {
	w := newWorld()
	http := w.httpRoute("shop", "web", 1, "a.shop.example.com")
	spoken := func(when, want string) {
		t.Helper()
		w.step(t)
		for id, have := range w.Have {
			list := objectsIn(have.Body, "ports")
			switch {
			case id.Kind == KindService:
				list = objectsAt(have.Body, "spec", "ports")
			case id.Kind != KindSlice:
				continue
			}
			if ports := portsIn(list); len(ports) != 1 || ports[0].app != want {
				t.Errorf("%s: %v has %v, want %q", when, id, ports, want)
			}
		}
	}
	spoken("at first", "")
	http.Spec.HTTP.Rules[0].Backends[0].AppProtocol = v1alpha1.AppProtocolWS
	spoken("once its Service says so", v1alpha1.AppProtocolWS)
	last := w.httpRoute("shop", "zeta", 2, "b.shop.example.com")
	last.Spec.HTTP.Rules[0].Backends[0].Service, last.Spec.HTTP.Rules[0].Backends[0].AppProtocol = "web", v1alpha1.AppProtocolH2C
	spoken("with a route that says otherwise", v1alpha1.AppProtocolH2C)
	delete(w.Routes, model.Key{Namespace: "shop", Name: "httproute.default.zeta"})
	spoken("without it", v1alpha1.AppProtocolWS)
	w.grpcRoute("shop", "web", 2, "a.shop.example.com")
	for _, x := range Step(&w.Input).Writes {
		if x.Kind == KindGRPCRoute {
			t.Error("it is written before its Service is marked")
		}
	}
	spoken("with a GRPCRoute", v1alpha1.AppProtocolH2C)
	if _, is := w.Have[ofGRPC("shop", "web")]; !is {
		t.Error("it is not there")
	}
	w.NotRead = "ingresses"
	c := w.Clusters["shop"]
	c.Nodes = c.Nodes[:1]
	w.Clusters["shop"] = c
	spoken("while Ingresses cannot be read", v1alpha1.AppProtocolH2C)
	w.NotRead = ""
	delete(w.Routes, model.Key{Namespace: "shop", Name: "httproute.default.web"})
	w.Clusters["shop"].Tenant.Spec.Gateway = ""
	out := Step(&w.Input)
	for _, x := range out.Writes {
		t.Errorf("before its routes are gone: %v", x)
	}
}

// TestNamespaceOfBackend: a Service of another namespace of the tenant is another one in the hub, and the same as for routes there.
func TestNamespaceOfBackend(t *testing.T) {
	w := newWorld()
	w.httpRoute("shop", "web", 1, "a.shop.example.com").Spec.HTTP.Rules[0].Backends = []v1alpha1.TenantHTTPBackend{
		{Service: "web", NodePort: 30080}, {Namespace: "back", Service: "web", NodePort: 30081}, {Namespace: "default", Service: "web", NodePort: 30080}}
	back := w.httpRoute("shop", "back", 2, "b.shop.example.com")
	back.Spec.Origin.Namespace = "back"
	back.Spec.HTTP.Rules[0].Backends = []v1alpha1.TenantHTTPBackend{{Service: "web", NodePort: 30081}}
	w.step(t)
	for _, namespace := range []string{"default", "back"} {
		id := ID{KindService, model.Key{Namespace: "shop", Name: tenants.HubName("shop", KindService, namespace, "web")}}
		if ports := portsIn(objectsAt(w.Have[id].Body, "spec", "ports")); len(ports) != 1 || (ports[0].number == 30081) != (namespace == "back") {
			t.Errorf("the Service of %s has the ports %v", namespace, ports)
		}
		if !strings.Contains(jsonText(w.Have[w.of("shop", "web")].Body), id.Name) {
			t.Errorf("the HTTPRoute does not lead to %s", id.Name)
		}
	}
}

func jsonText(o any) string {
	data, _ := json.Marshal(o)
	return string(data)
}
