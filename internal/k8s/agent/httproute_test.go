package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/tenants/propagate"
)

const (
	classesOf    = "gateway.networking.k8s.io/v1/gatewayclasses"
	gatewaysOf   = "gateway.networking.k8s.io/v1/gateways"
	httpRoutesOf = "gateway.networking.k8s.io/v1/httproutes"
	grpcRoutesOf = "gateway.networking.k8s.io/v1/grpcroutes"
)

// serveGateways has the cluster know the Gateway API, and a Gateway of the hub.
func (b *bed) serveGateways() {
	for res, kind := range map[string]string{classesOf: "GatewayClass", gatewaysOf: "Gateway", httpRoutesOf: "HTTPRoute"} {
		b.tenant.Serve(res, kind)
	}
	b.tenant.Put(classesOf, map[string]any{"metadata": map[string]any{"name": "lbd", "uid": "class"}, "spec": map[string]any{"controllerName": "lbd.dev/hub"}})
	b.tenant.Put(gatewaysOf, map[string]any{"metadata": map[string]any{"namespace": "default", "name": "hub", "uid": "gateway"}, "spec": map[string]any{
		"gatewayClassName": "lbd", "listeners": []any{map[string]any{"name": "http", "port": 80, "protocol": "HTTP"}}}})
}

func (b *bed) gatewayAgent(identity string, ingress, gateway bool) *Agent {
	b.t.Helper()
	a, err := New(Options{
		Logger: slog.New(slog.NewTextHandler(b.t.Output(), nil)).With("process", identity), Tenant: clientOf(b.t, b.tenant), Hub: clientOf(b.t, b.hub),
		HubNamespace: namespace, Class: "lbd.dev/hub", Ingress: ingress, Gateway: gateway, Namespace: "lbd-agent", LeaseName: Manager, Identity: identity,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// httpRoute puts an HTTPRoute that leads a hostname to port 80 of the Service web by the Gateway of the hub and
// by another one, which has its say in the status.
func (b *bed) httpRoute(name, host string) {
	b.tenant.Put(httpRoutesOf, map[string]any{"metadata": map[string]any{"namespace": "default", "name": name, "uid": "uid-" + name}, "spec": map[string]any{
		"parentRefs": []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "hub"}, map[string]any{"name": "nginx"}}, "hostnames": []any{host},
		"rules": []any{map[string]any{"backendRefs": []any{map[string]any{"name": "web", "port": 80}}}},
	}, "status": map[string]any{"parents": []any{map[string]any{"controllerName": "other/controller", "parentRef": map[string]any{"name": "nginx"}, "conditions": []any{}, "new": "kept"}}}})
}

// statusOf is the status of an object of the Gateway API, as JSON.
func (b *bed) statusOf(res, name string) string {
	ns := "default"
	if res == classesOf {
		ns = ""
	}
	data, _ := json.Marshal(b.tenant.Get(res, ns, name)["status"])
	return string(data)
}

func says(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// TestPropagatesHTTPRoute: from an HTTPRoute to the addresses of the Gateway of the hub, and back to nothing.
func TestPropagatesHTTPRoute(t *testing.T) {
	b := newIngressBed(t)
	b.serveGateways()
	b.httpRoute("shop", "shop.example.com")
	a := b.gatewayAgent("one", false, true)
	b.run(a)
	b.eventually("the class is accepted", func() bool { return says(b.statusOf(classesOf, "lbd"), `"status":"True"`, `"type":"Accepted"`) })
	b.eventually("the route waits", func() bool { return says(b.statusOf(httpRoutesOf, "shop"), `"reason":"Pending"`, `"new":"kept"`) })
	b.allocate(31234)
	const name = "httproute.default.shop"
	b.eventually("the hub knows the HTTPRoute", func() bool {
		return b.spec(hubRoutes, name) == `{"http":{"hostnames":["shop.example.com"],"rules":[{"backends":[{"family":"ipv4","nodePort":31234,"service":"web","weight":1}]}]},`+
			`"origin":{"generation":1,"kind":"HTTPRoute","name":"shop","namespace":"default"}}`
	})
	b.judgeRoute(name, "False", "HostnameTaken")
	b.eventually("the route says why", func() bool {
		return says(b.statusOf(httpRoutesOf, "shop"), `"reason":"HostnameTaken"`, `"message":"words"`, `"controllerName":"lbd.dev/hub"`, `"new":"kept"`)
	})
	b.judgeRoute(name, "True", "Accepted", "192.0.2.7", "lb.example.com")
	b.eventually("the route is served", func() bool {
		return says(b.statusOf(httpRoutesOf, "shop"), `"message":"clients connect to 192.0.2.7, lb.example.com"`, `"type":"lbd.dev/Programmed"`, `"new":"kept"`)
	})
	b.eventually("the Gateway has the addresses", func() bool {
		return says(b.statusOf(gatewaysOf, "hub"), `{"type":"IPAddress","value":"192.0.2.7"},{"type":"Hostname","value":"lb.example.com"}`, `"attachedRoutes":1`, `"type":"Programmed"`)
	})
	b.eventually("stats", func() bool {
		return a.Stats().OfGateways[v1alpha1.OriginHTTPRoute] == propagate.Counts{Served: 1} && a.Stats().Routes == propagate.Counts{}
	})
	b.tenant.Delete(httpRoutesOf, "default", "shop")
	b.eventually("nothing is left", func() bool { return len(b.hub.All(hubRoutes)) == 0 && b.copied() == nil })
	b.eventually("the Gateway has no address", func() bool { return says(b.statusOf(gatewaysOf, "hub"), `"addresses":[]`, `"attachedRoutes":0`) })
	for _, r := range writes(b.hub) {
		if strings.Contains(r, "/status") || !strings.Contains(r, "/namespaces/"+namespace+"/") {
			t.Errorf("the agent has no right to %s", r)
		}
	}
	for _, r := range append(writes(b.tenant), b.tenant.Requests()...) {
		if strings.Contains(r, "/ingresses") || strings.Contains(r, "gateway.networking") && !strings.HasPrefix(r, "GET ") && !strings.Contains(r, "/status") {
			t.Errorf("the agent has no right to %s", r)
		}
	}
	before := len(writes(b.tenant))
	b.node("a", "10.1.0.1")
	b.eventually("it was looked at again", func() bool { return b.spec(hubNodes, "nodes-0") != "" })
	if after := writes(b.tenant); len(after) != before {
		t.Errorf("written although nothing has changed: %q", after[before:])
	}
}

// TestPropagatesGRPCRoute: a GRPCRoute beside an HTTPRoute of its name, in a cluster that has the kind later. Without the kind
// copies that are needed no more go, and with it each route says what the hub says of it.
func TestPropagatesGRPCRoute(t *testing.T) {
	b := newIngressBed(t)
	b.serveGateways()
	b.httpRoute("shop", "shop.example.com")
	b.stale("gone")
	b.hub.Put(hubRoutes, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": "grpcroute.default.old", "uid": "old"}, "spec": map[string]any{
		"origin": map[string]any{"kind": "GRPCRoute", "namespace": "default", "name": "old"}}})
	a := b.gatewayAgent("one", false, true)
	b.run(a)
	b.allocate(31234)
	b.judgeRoute("httproute.default.shop", "True", "Accepted", "192.0.2.7")
	b.eventually("the HTTPRoute is served", func() bool { return says(b.statusOf(httpRoutesOf, "shop"), "clients connect to 192.0.2.7") })
	b.eventually("the Gateway has its address", func() bool { return says(b.statusOf(gatewaysOf, "hub"), `"192.0.2.7"`, `"attachedRoutes":1`) })
	if b.hub.Get(hubRoutes, namespace, "grpcroute.default.old") == nil {
		t.Error("what the hub has of GRPCRoutes is deleted")
	}

	b.tenant.Put(grpcRoutesOf, map[string]any{"metadata": map[string]any{"namespace": "default", "name": "shop", "uid": "grpc"}, "spec": map[string]any{
		"parentRefs": []any{map[string]any{"name": "hub"}}, "hostnames": []any{"grpc.example.com"},
		"rules": []any{map[string]any{"matches": []any{map[string]any{"method": map[string]any{"type": "Exact", "service": "shop.Cart"}}}, "backendRefs": []any{map[string]any{"name": "web", "port": 80}}}}}})
	b.tenant.Serve(grpcRoutesOf, "GRPCRoute")
	b.eventually("the hub knows the GRPCRoute", func() bool {
		return b.spec(hubRoutes, "grpcroute.default.shop") == `{"http":{"hostnames":["grpc.example.com"],"rules":[{"backends":[{"appProtocol":"kubernetes.io/h2c","family":"ipv4","nodePort":31234,"service":"web","weight":1}],`+
			`"matches":[{"grpc":{"service":"shop.Cart"},"path":"/","type":"Prefix"}]}]},"origin":{"generation":1,"kind":"GRPCRoute","name":"shop","namespace":"default"}}`
	})
	b.eventually("what is gone is gone", func() bool { return b.hub.Get(hubRoutes, namespace, "grpcroute.default.old") == nil })
	b.judgeRoute("grpcroute.default.shop", "False", "HostnameTaken")
	b.eventually("the GRPCRoute says why", func() bool { return says(b.statusOf(grpcRoutesOf, "shop"), `"reason":"HostnameTaken"`) })
	b.eventually("stats", func() bool {
		n := a.Stats().OfGateways
		return n[v1alpha1.OriginHTTPRoute] == propagate.Counts{Served: 1} && n[v1alpha1.OriginGRPCRoute] == propagate.Counts{Refused: 1}
	})
	if text := b.statusOf(httpRoutesOf, "shop"); !says(text, "clients connect to 192.0.2.7") || says(text, "HostnameTaken") {
		t.Errorf("the HTTPRoute says %s", text)
	}
	b.tenant.Delete(grpcRoutesOf, "default", "shop")
	b.eventually("the hub has the HTTPRoute alone", func() bool {
		return len(b.hub.All(hubRoutes)) == 1 && b.spec(hubRoutes, "httproute.default.shop") != ""
	})
}

const grantsOf = "gateway.networking.k8s.io/v1beta1/referencegrants"

// httpRouteAcross puts an HTTPRoute that leads to a Service in the namespace back.
func (b *bed) httpRouteAcross(name string) {
	b.tenant.Put(servicesOf, map[string]any{"metadata": map[string]any{"namespace": "back", "name": "web", "uid": "back"}, "spec": map[string]any{
		"type": "NodePort", "selector": map[string]any{"app": "web"}, "ports": []any{map[string]any{"protocol": "TCP", "port": 80, "nodePort": 31111}}}})
	b.tenant.Put(httpRoutesOf, map[string]any{"metadata": map[string]any{"namespace": "default", "name": name, "uid": name}, "spec": map[string]any{
		"parentRefs": []any{map[string]any{"name": "hub"}}, "hostnames": []any{name + ".example.com"},
		"rules": []any{map[string]any{"backendRefs": []any{map[string]any{"name": "web", "namespace": "back", "port": 80}}}}}})
}

// grant has the cluster know ReferenceGrants, and one by which HTTPRoutes may lead there.
func (b *bed) grant() {
	b.tenant.Serve(grantsOf, "ReferenceGrant")
	b.tenant.Put(grantsOf, map[string]any{"metadata": map[string]any{"namespace": "back", "name": "g", "uid": "g"}, "spec": map[string]any{
		"from": []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "default"}}, "to": []any{map[string]any{"group": "", "kind": "Service"}}}})
}

// answerGrants has the API server of the tenant answer every request for ReferenceGrants with a code.
func (b *bed) answerGrants(code int) {
	b.tenant.Gate(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/referencegrants") {
			return code
		}
		return 0
	})
}

// TestGrantPropagated: a route to a Service of another namespace is refused in a cluster that has no ReferenceGrants, and served
// once there is one.
func TestGrantPropagated(t *testing.T) {
	b := newIngressBed(t)
	b.serveGateways()
	b.httpRouteAcross("shop")
	b.run(b.gatewayAgent("one", false, true))
	b.eventually("it is refused", func() bool { return says(b.statusOf(httpRoutesOf, "shop"), `"reason":"RefNotPermitted"`) })
	b.grant()
	b.eventually("the hub knows it", func() bool {
		return says(b.spec(hubRoutes, "httproute.default.shop"), `"namespace":"back"`, `"nodePort":31111`)
	})
	b.tenant.Delete(grantsOf, "back", "g")
	b.eventually("the hub knows it no more", func() bool { return len(b.hub.All(hubRoutes)) == 0 })
}

// TestGrantsNotFound: an agent that starts while the API server says that there are no ReferenceGrants refuses a new route to
// another namespace, and deletes none in the hub.
func TestGrantsNotFound(t *testing.T) {
	b := newIngressBed(t)
	b.serveGateways()
	b.grant()
	b.httpRouteAcross("shop")
	stop := b.run(b.gatewayAgent("one", false, true))
	b.eventually("the hub knows it", func() bool { return len(b.hub.All(hubRoutes)) == 1 })
	stop()
	b.answerGrants(http.StatusNotFound)
	b.httpRouteAcross("more")
	b.run(b.gatewayAgent("two", false, true))
	for _, name := range []string{"more", "shop"} {
		b.eventually(name+" is refused", func() bool { return says(b.statusOf(httpRoutesOf, name), `"reason":"RefNotPermitted"`) })
	}
	b.httpRoute("last", "last.example.com")
	b.allocate(31234)
	b.eventually("the hub knows a later one", func() bool { return b.spec(hubRoutes, "httproute.default.last") != "" })
	if b.spec(hubRoutes, "httproute.default.shop") == "" || b.spec(hubRoutes, "httproute.default.more") != "" {
		t.Errorf("the hub was told %q", writes(b.hub))
	}
	b.tenant.Gate(nil)
	b.eventually("the hub knows all", func() bool { return len(b.hub.All(hubRoutes)) == 3 })
}

// syncBuffer is a buffer for a log of several goroutines.
type syncBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// TestGrantsUnread: without the right to ReferenceGrants, or while the API server fails to tell them, a new route to another
// namespace says so, as does the log. Once they can be read the hub knows it, although no object has changed.
func TestGrantsUnread(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel() // it waits most of the time
			b := newIngressBed(t)
			b.serveGateways()
			b.tenant.Serve(grpcRoutesOf, "GRPCRoute")
			b.grant()
			b.httpRouteAcross("shop")
			a, log := b.gatewayAgent("one", false, true), &syncBuffer{}
			a.o.Logger = slog.New(slog.NewTextHandler(log, nil))
			b.run(a)
			b.eventually("the hub knows it", func() bool { return b.spec(hubRoutes, "httproute.default.shop") != "" })
			b.tenant.Stop()
			b.answerGrants(code)
			b.tenant.Start()
			b.eventually("grants are not read, and all else is", func() bool {
				return !a.ingress.gateway.grants.State().Connected && len(a.ingress.unread(0)) == 1
			})
			b.httpRouteAcross("more")
			b.eventually("the route says why it waits", func() bool {
				return says(b.statusOf(httpRoutesOf, "more"), `"message":"the ReferenceGrants of this cluster cannot be read"`)
			})
			b.eventually("the log says so", func() bool {
				return says(log.String(), "routes to Services of other namespaces are not propagated", "kind=ReferenceGrant")
			})
			if len(b.hub.All(hubRoutes)) != 1 {
				t.Errorf("the hub was told %q", writes(b.hub))
			}
			b.tenant.Gate(nil)
			b.eventually("the hub knows the other one", func() bool { return b.spec(hubRoutes, "httproute.default.more") != "" })
			b.eventually("it waits for the hub", func() bool { return says(b.statusOf(httpRoutesOf, "more"), "the hub has not judged it yet") })
			b.eventually("the log says so", func() bool { return says(log.String(), "routes to Services of other namespaces are propagated again") })
		})
	}
}

// TestMaskOf: the loop is woken when a kind can be read or cannot be any more, and when it becomes known that the cluster has not the kind.
func TestMaskOf(t *testing.T) {
	seen := map[int32]bool{0: true}
	for _, kind := range []v1alpha1.TenantOriginKind{v1alpha1.OriginIngress, v1alpha1.OriginHTTPRoute, v1alpha1.OriginGRPCRoute, kindGrant} {
		for _, err := range []error{errClass, apierrors.NewNotFound(schema.GroupResource{}, "")} {
			mask := maskOf(map[v1alpha1.TenantOriginKind]error{kind: err})
			if seen[mask] {
				t.Errorf("%s, %v: %b as before", kind, err, mask)
			}
			seen[mask] = true
		}
	}
}

// TestNoGatewayUnasked: without the option nothing of the Gateway API is looked at.
func TestNoGatewayUnasked(t *testing.T) {
	b := newIngressBed(t)
	b.serveGateways()
	b.httpRoute("shop", "shop.example.com")
	b.ingress("more", "lbd", "more.example.com")
	b.startIngress("one")
	b.allocate(31234)
	b.eventually("the hub knows the Ingress", func() bool { return b.spec(hubRoutes, "ingress.default.more") != "" })
	for _, r := range b.tenant.Requests() {
		if strings.Contains(r, "gateway.networking") {
			t.Error(r)
		}
	}
}

// TestGatewayLacking: a cluster without the Gateway API, or an agent without the right, still has Services and
// Ingresses served. What the hub has of HTTPRoutes stays, and once they can be read they are served too.
func TestGatewayLacking(t *testing.T) {
	for _, lacks := range []bool{true, false} {
		t.Run(fmt.Sprintf("lacks the kinds: %v", lacks), func(t *testing.T) {
			t.Parallel() // it waits most of the time
			b := newIngressBed(t)
			if !lacks {
				b.serveGateways()
				b.httpRoute("shop", "shop.example.com")
				b.tenant.Gate(func(r *http.Request) int {
					if strings.Contains(r.URL.Path, "gateway.networking") {
						return http.StatusForbidden
					}
					return 0
				})
			}
			b.hub.Put(hubRoutes, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": "httproute.default.old", "uid": "old"}, "spec": map[string]any{
				"origin": map[string]any{"kind": "HTTPRoute", "namespace": "default", "name": "old"}}})
			b.stale("gone")
			b.service("shop")
			b.ingress("more", "lbd", "more.example.com")
			a := b.gatewayAgent("one", true, true)
			b.run(a)
			b.judge("default.shop", "True", "Accepted", "the hub serves it", "198.51.100.7")
			b.eventually("the Service is served", func() bool { return b.shown("shop") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
			b.allocate(31234)
			b.judgeRoute("ingress.default.more", "True", "Accepted", "192.0.2.7")
			b.eventually("the Ingress is served", func() bool { return b.ingressShows("more") == `{"ingress":[{"ip":"192.0.2.7"}]}` })
			b.eventually("what is gone of Ingresses is gone", func() bool { return b.spec(hubRoutes, "ingress.default.gone") == "" })
			if b.hub.Get(hubRoutes, namespace, "httproute.default.old") == nil || a.Ready() != nil {
				t.Errorf("ready %v, writes %q", a.Ready(), writes(b.hub))
			}
			b.tenant.Gate(nil)
			if lacks {
				b.serveGateways()
				b.httpRoute("shop", "shop.example.com")
			}
			b.eventually("the hub knows the HTTPRoute", func() bool { return strings.Contains(b.spec(hubRoutes, "httproute.default.shop"), "31234") })
			b.eventually("what is gone is gone", func() bool { return b.hub.Get(hubRoutes, namespace, "httproute.default.old") == nil })
		})
	}
}

// TestGatewayClassNotOurs: Gateways of a class of the same name are left alone while it is of another controller or
// lacking, and what the hub has stays.
func TestGatewayClassNotOurs(t *testing.T) {
	b := newIngressBed(t)
	b.serveGateways()
	class := func(controller string) {
		b.tenant.Put(classesOf, map[string]any{"metadata": map[string]any{"name": "lbd", "uid": controller}, "spec": map[string]any{"controllerName": controller}})
	}
	class("other/controller")
	b.httpRoute("shop", "shop.example.com")
	b.service("web", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.Selector = corev1.ServiceTypeNodePort, map[string]string{"app": "web"}
	})
	looked := func(name string) {
		b.ingress(name, "lbd", name+".example.com")
		b.eventually("the hub knows the Ingress "+name, func() bool { return b.spec(hubRoutes, "ingress.default."+name) != "" })
	}
	a := b.gatewayAgent("one", true, true)
	b.run(a)
	looked("first")
	if b.spec(hubRoutes, "httproute.default.shop") != "" || says(b.statusOf(httpRoutesOf, "shop"), controllerName) || b.statusOf(gatewaysOf, "hub") != "null" || b.statusOf(classesOf, "lbd") != "null" {
		t.Errorf("the agent took what is of another controller: %q", writes(b.tenant))
	}
	class(controllerName)
	b.judgeRoute("httproute.default.shop", "True", "Accepted", "192.0.2.7")
	b.eventually("the route is served", func() bool { return says(b.statusOf(httpRoutesOf, "shop"), "clients connect to 192.0.2.7") })
	b.tenant.Delete(classesOf, "", "lbd")
	b.eventually("the agent has seen that", func() bool {
		return a.waiting.Load()&maskOf(map[v1alpha1.TenantOriginKind]error{v1alpha1.OriginHTTPRoute: errClass}) != 0
	})
	b.httpRoute("more", "more.example.com")
	looked("second")
	class("other/controller")
	looked("third")
	if b.spec(hubRoutes, "httproute.default.shop") == "" || b.spec(hubRoutes, "httproute.default.more") != "" || says(b.statusOf(httpRoutesOf, "more"), controllerName) {
		t.Errorf("without the class the hub was told %q", writes(b.hub))
	}
	class(controllerName)
	b.eventually("the hub knows the other route", func() bool { return b.spec(hubRoutes, "httproute.default.more") != "" })
}

// TestHTTPRouteRefusedByQuota: what the API server of the hub does not take is told of the HTTPRoute, and not of an
// Ingress of the same name.
func TestHTTPRouteRefusedByQuota(t *testing.T) {
	b := newIngressBed(t)
	b.serveGateways()
	b.hub.Gate(func(r *http.Request) int {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/tenantroutes") {
			body, err := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if err == nil && strings.Contains(string(body), `"HTTPRoute"`) {
				return http.StatusForbidden
			}
		}
		return 0
	})
	b.httpRoute("shop", "shop.example.com")
	b.ingress("shop", "lbd", "shop.example.com")
	a := b.gatewayAgent("one", true, true)
	b.run(a)
	b.allocate(31234)
	b.eventually("the HTTPRoute says so", func() bool { return says(b.statusOf(httpRoutesOf, "shop"), `"reason":"HubRefused"`) })
	b.judgeRoute("ingress.default.shop", "True", "Accepted", "192.0.2.7")
	b.eventually("the Ingress is served", func() bool { return b.ingressShows("shop") == `{"ingress":[{"ip":"192.0.2.7"}]}` })
	if told := strings.Join(b.told(), "\n"); strings.Contains(told, "HubRefused") {
		t.Error(told)
	}
	if n := a.Stats().Writes[Written{SideHub, v1alpha1.KindTenantRoute, "refused"}]; n == 0 {
		t.Error("no refusal is counted")
	}
}

// TestStatusTakenAway: with a controller that drops what it does not know from the status of routes the agent does
// not go on and on, but waits twice as long each time.
func TestStatusTakenAway(t *testing.T) {
	t.Parallel() // it waits most of the time
	b := newIngressBed(t)
	b.serveGateways()
	b.httpRoute("shop", "shop.example.com")
	b.run(b.gatewayAgent("one", false, true))
	b.allocate(31234)
	b.judgeRoute("httproute.default.shop", "True", "Accepted", "192.0.2.7")
	b.eventually("the route is served", func() bool { return says(b.statusOf(httpRoutesOf, "shop"), "clients connect to 192.0.2.7") })
	var taken []time.Time
	for range 3 {
		b.eventually("it says so again", func() bool { return says(b.statusOf(httpRoutesOf, "shop"), "clients connect to 192.0.2.7") })
		o := b.tenant.Get(httpRoutesOf, "default", "shop")
		o["status"] = map[string]any{"parents": []any{map[string]any{"controllerName": "other/controller", "parentRef": map[string]any{"name": "nginx"}, "conditions": []any{}, "round": len(taken)}}}
		b.tenant.Put(httpRoutesOf, o)
		taken = append(taken, time.Now())
	}
	if first, second := taken[1].Sub(taken[0]), taken[2].Sub(taken[1]); second < seenWithin+seenWithin/2 {
		t.Errorf("it wrote after %v, and then after %v", first, second)
	}
}
