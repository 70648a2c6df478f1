package routes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/tenants/routes"
)

const (
	tenantRoutes = "lbd.dev/v1alpha1/tenantroutes"
	httpRoutesOf = "gateway.networking.k8s.io/v1/httproutes"
	ingressesOf  = "networking.k8s.io/v1/ingresses"
	grpcRoutesOf = "gateway.networking.k8s.io/v1/grpcroutes"
	gatewaysOf   = "gateway.networking.k8s.io/v1/gateways"
)

// counted counts the lines of a log that say something.
type counted struct {
	slog.Handler
	words string
	n     atomic.Int32
}

func (c *counted) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, c.words) {
		c.n.Add(1)
	}
	return c.Handler.Handle(ctx, r)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("after 30 s still not: %s", what)
}

// gatewayBed is a Keeper at work, with a Tenant shop that has a Gateway and an HTTPRoute that is served, and a Tenant bank.
type gatewayBed struct {
	*apitest.Server
	k    *Keeper
	log  *counted
	away atomic.Pointer[string] // the end of paths that nobody may read
	code atomic.Int32           // what is said to who tries
}

func newGatewayBed(t *testing.T, patience time.Duration) *gatewayBed {
	t.Helper()
	b := &gatewayBed{Server: apitest.New(t, map[string]string{ingressesOf: "Ingress", "v1/services": "Service", "discovery.k8s.io/v1/endpointslices": "EndpointSlice",
		tenantRoutes: "TenantRoute", httpRoutesOf: "HTTPRoute", gatewaysOf: "Gateway"})}
	b.code.Store(http.StatusForbidden)
	b.Gate(func(r *http.Request) int {
		if away := b.away.Load(); away != nil && r.Method == http.MethodGet && strings.Contains(r.URL.Path, *away) {
			return int(b.code.Load())
		}
		return 0
	})
	c, err := k8s.NewFor(b.Config(), k8s.Options{QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	b.log = &counted{Handler: slog.NewTextHandler(t.Output(), nil), words: "what the hub has for routes of tenants cannot be read"}
	b.k = New(Options{Logger: slog.New(b.log), Client: c, Manager: "test", Valid: func() bool { return true }})
	b.k.patience = patience
	b.judged("edge/public")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.k.Watch(ctx); done <- struct{}{} }()
	go func() { b.k.Run(ctx); done <- struct{}{} }()
	t.Cleanup(func() { stop(); <-done; <-done })

	b.Put(gatewaysOf, map[string]any{"metadata": map[string]any{"namespace": "edge", "name": "public"}, "status": map[string]any{"addresses": []any{map[string]any{"value": "198.51.100.9"}}}})
	b.Put(tenantRoutes, map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "httproute.default.web", "uid": "web"}, "spec": map[string]any{
		"origin": map[string]any{"kind": "HTTPRoute", "namespace": "default", "name": "web"},
		"http":   map[string]any{"hostnames": []any{"a.example.com"}, "rules": []any{map[string]any{"backends": []any{map[string]any{"service": "web", "nodePort": int64(30080)}}}}}}})
	name := tenants.HubName("shop", routes.KindHTTPRoute, "default", "web")
	eventually(t, "its HTTPRoute is there", func() bool { return b.Get(httpRoutesOf, "shop", name) != nil })
	r := b.Get(httpRoutesOf, "shop", name)
	r["status"] = map[string]any{"parents": []any{map[string]any{"parentRef": map[string]any{"namespace": "edge", "name": "public"}, "conditions": []any{map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted"}}}}}
	b.Put(httpRoutesOf, r)
	eventually(t, "it is served", func() bool { return statusOf(b.Server) == "[a.example.com] [198.51.100.9] Assigned" })
	return b
}

// judged has the Tenants count, of which shop has a Gateway.
func (b *gatewayBed) judged(gateway string) {
	clusters := map[string]tenants.Cluster{}
	for name, gateway := range map[string]string{"shop": gateway, "bank": ""} {
		tenant := &v1alpha1.Tenant{Metadata: v1alpha1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{Hostnames: []string{"*.example.com"}, IngressClass: "traefik", Gateway: gateway}}
		tenant.Default()
		clusters[name] = tenants.Cluster{Tenant: tenant, NodePorts: v1alpha1.PortRange{First: 30000, Last: 32767}}
	}
	b.k.Judged(clusters)
}

// unread has nobody read what has a path, and all watches end.
func (b *gatewayBed) unread(path string) {
	b.away.Store(&path)
	b.Stop()
	b.Start()
}

// ingress has the Tenant bank ask for a hostname.
func (b *gatewayBed) ingress(name, host string) {
	b.Put(tenantRoutes, map[string]any{"metadata": map[string]any{"namespace": "bank", "name": "ingress.default." + name, "uid": name}, "spec": map[string]any{
		"origin": map[string]any{"kind": "Ingress", "namespace": "default", "name": name},
		"rules":  []any{map[string]any{"host": host, "paths": []any{map[string]any{"path": "/", "type": "Prefix", "service": "web", "nodePort": int64(30080)}}}}}})
}

// accepts is the reason of the condition Accepted of an Ingress of the Tenant bank.
func (b *gatewayBed) accepts(name string) string { return acceptedOf(b.Server, name) }

func acceptedOf(api *apitest.Server, name string) string {
	status, _ := api.Get(tenantRoutes, "bank", "ingress.default."+name)["status"].(map[string]any)
	all, _ := status["conditions"].([]any)
	for _, x := range all {
		if c := x.(map[string]any); c["type"] == v1alpha1.ConditionAccepted {
			return fmt.Sprint(c["reason"])
		}
	}
	return ""
}

// statusOf is what the TenantRoute says.
func statusOf(api *apitest.Server) string {
	status, _ := api.Get(tenantRoutes, "shop", "httproute.default.web")["status"].(map[string]any)
	all, _ := status["conditions"].([]any)
	for _, x := range all {
		if c := x.(map[string]any); c["type"] == v1alpha1.ConditionAddressAssigned {
			return fmt.Sprintf("%v %v %v", status["hostnames"], status["addresses"], c["reason"])
		}
	}
	return ""
}

// TestGatewayAway: that the hub has lost its Gateway API, or the controller the right to read it, is said once it has
// lasted. Nothing is deleted by what was known then, what is served stays, also of a route that is not valid any more, and
// all counts once it can be read again.
func TestGatewayAway(t *testing.T) {
	for _, code := range []int32{http.StatusNotFound, http.StatusForbidden} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel() // it waits most of the time
			const patience = time.Second
			b := newGatewayBed(t, patience)
			b.code.Store(code)
			began := time.Now()
			b.unread("gateway.networking")
			eventually(t, "the log says that they are not known", func() bool { return b.log.n.Load() > 0 })
			if took := time.Since(began); took < patience {
				t.Errorf("it said so after %s", took)
			}
			before := len(b.Requests())
			if got := statusOf(b.Server); got != "[a.example.com] [198.51.100.9] Assigned" {
				t.Errorf("the route says %s", got)
			}
			bad := b.Get(tenantRoutes, "shop", "httproute.default.web")
			bad["spec"].(map[string]any)["http"].(map[string]any)["hostnames"] = []any{"-not valid-"}
			b.Put(tenantRoutes, bad)
			eventually(t, "it is said to be invalid", func() bool { return statusOf(b.Server) == "[a.example.com] [198.51.100.9] NotAccepted" })
			b.Delete(tenantRoutes, "shop", "httproute.default.web")
			time.Sleep(3 * time.Second) // in which what is deleted would be deleted again
			for _, r := range b.Requests()[before:] {
				if strings.HasPrefix(r, http.MethodDelete) {
					t.Errorf("while it is unknown: %s", r)
				}
			}
			if n := b.log.n.Load(); n != 1 {
				t.Errorf("the log says it %d times", n)
			}
			b.away.Store(nil)
			eventually(t, "nothing is left", func() bool { return len(b.All(httpRoutesOf))+len(b.All("v1/services")) == 0 })
		})
	}
}

// TestIngressesAway: while Ingresses cannot be read any more, nobody gets a hostname that an unseen one may have.
func TestIngressesAway(t *testing.T) {
	t.Parallel() // it waits most of the time
	b := newGatewayBed(t, 500*time.Millisecond)
	b.unread("/ingresses")
	eventually(t, "the log says so", func() bool { return b.log.n.Load() > 0 })
	b.ingress("new", "b.example.com")
	eventually(t, "it is refused", func() bool { return b.accepts("new") == string(tenants.ReasonNotRead) })
	if !b.k.Still() {
		t.Error("nothing tells that all stands still")
	}
	if n := len(b.All(ingressesOf)); n > 0 {
		t.Errorf("there are %d Ingresses", n)
	}
	b.away.Store(nil)
	eventually(t, "it is served", func() bool { return b.accepts("new") == "Accepted" && len(b.All(ingressesOf)) == 1 })
	if b.k.Still() {
		t.Error("it is said to stand still")
	}
}

// TestGatewayGivenUp: once no tenant has a Gateway and no HTTPRoute is left, they need not be read any more.
func TestGatewayGivenUp(t *testing.T) {
	t.Parallel() // it waits most of the time
	b := newGatewayBed(t, 500*time.Millisecond)
	b.Delete(tenantRoutes, "shop", "httproute.default.web")
	b.judged("")
	eventually(t, "nothing is left", func() bool { return len(b.All(httpRoutesOf))+len(b.All("v1/services")) == 0 })
	b.unread("gateway.networking")
	time.Sleep(4 * b.k.patience)
	b.ingress("new", "a.example.com")
	eventually(t, "an Ingress is served", func() bool { return b.accepts("new") == "Accepted" && len(b.All(ingressesOf)) == 1 })
	if n := b.log.n.Load(); n > 0 {
		t.Error("the log says that something cannot be read")
	}
}

// TestGatewayListed: a hub that has no HTTPRoutes since it has not the kind, or whose Gateways alone may not be read,
// serves Ingresses although a tenant has a Gateway. While HTTPRoutes may not be read nothing new is served.
func TestGatewayListed(t *testing.T) {
	for name, c := range map[string]struct {
		kinds map[string]string
		deny  string
		left  bool
		want  string
	}{
		"no kind":            {want: "Accepted"},
		"no kind, but marks": {left: true, want: "Accepted"},
		"no answer":          {map[string]string{httpRoutesOf: "HTTPRoute", gatewaysOf: "Gateway"}, "hang", false, string(tenants.ReasonNotRead)},
		"no Gateways":        {map[string]string{httpRoutesOf: "HTTPRoute", gatewaysOf: "Gateway"}, "/gateways", false, "Accepted"},
		"no HTTPRoutes":      {map[string]string{httpRoutesOf: "HTTPRoute", gatewaysOf: "Gateway"}, "/httproutes", false, string(tenants.ReasonNotRead)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			kinds := map[string]string{ingressesOf: "Ingress", "v1/services": "Service", "discovery.k8s.io/v1/endpointslices": "EndpointSlice", tenantRoutes: "TenantRoute"}
			maps.Copy(kinds, c.kinds)
			over := t.Context()
			api := apitest.New(t, kinds)
			api.Gate(func(r *http.Request) int {
				if c.deny == "hang" && strings.HasSuffix(r.URL.Path, "/httproutes") {
					select {
					case <-over.Done():
					case <-r.Context().Done():
					}
				}
				if c.deny != "" && strings.HasSuffix(r.URL.Path, c.deny) {
					return http.StatusForbidden
				}
				return 0
			})
			if c.left {
				api.Put("v1/services", map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "left", "labels": map[string]any{routes.Label: routes.LabelValue}, "annotations": map[string]any{"lbd.dev/http-routes": "true"}},
					"spec": map[string]any{"ports": []any{map[string]any{"port": int64(30080)}}}})
			}
			client, err := k8s.NewFor(api.Config(), k8s.Options{QPS: 1000, Burst: 1000})
			if err != nil {
				t.Fatal(err)
			}
			k := New(Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Client: client, Manager: "test", Valid: func() bool { return true }})
			k.patience = 500 * time.Millisecond
			clusters := map[string]tenants.Cluster{}
			for name, gateway := range map[string]string{"shop": "edge/public", "bank": ""} {
				tenant := &v1alpha1.Tenant{Metadata: v1alpha1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{Hostnames: []string{"*.example.com"}, IngressClass: "traefik", Gateway: gateway}}
				tenant.Default()
				clusters[name] = tenants.Cluster{Tenant: tenant, NodePorts: v1alpha1.PortRange{First: 30000, Last: 32767}}
			}
			k.Judged(clusters)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { k.Watch(ctx); done <- struct{}{} }()
			go func() { k.Run(ctx); done <- struct{}{} }()
			t.Cleanup(func() { stop(); <-done; <-done })
			api.Put(tenantRoutes, map[string]any{"metadata": map[string]any{"namespace": "bank", "name": "ingress.default.web", "uid": "web"}, "spec": map[string]any{
				"origin": map[string]any{"kind": "Ingress", "namespace": "default", "name": "web"},
				"rules":  []any{map[string]any{"host": "a.example.com", "paths": []any{map[string]any{"path": "/", "type": "Prefix", "service": "web", "nodePort": int64(30080)}}}}}})
			says := func() string { return acceptedOf(api, "web") }
			eventually(t, c.want, func() bool { return says() == c.want })
			if time.Sleep(4 * k.patience); says() != c.want {
				t.Errorf("then it says %s", says())
			}
			if n := len(api.All(ingressesOf)); (n > 0) != (c.want == "Accepted") {
				t.Errorf("there are %d Ingresses", n)
			}
		})
	}
}

// TestGRPCRoutes: nothing is asked of GRPCRoutes before a tenant has one. While a hub has no such kind, it says so. One of a tenant
// without a Gateway has nobody ask, so that it cannot have all stand still. What is left of one is known by its Service.
func TestGRPCRoutes(t *testing.T) {
	b := newGatewayBed(t, 500*time.Millisecond)
	put := func(namespace string) {
		b.Put(tenantRoutes, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": "grpcroute.default.cart", "uid": "cart-" + namespace}, "spec": map[string]any{
			"origin": map[string]any{"kind": "GRPCRoute", "namespace": "default", "name": "cart"},
			"http": map[string]any{"hostnames": []any{"grpc.example.com"}, "rules": []any{map[string]any{
				"matches":  []any{map[string]any{"grpc": map[string]any{"service": "shop.Cart"}}},
				"backends": []any{map[string]any{"service": "cart", "nodePort": int64(30081), "appProtocol": "kubernetes.io/h2c"}}}}}}})
	}
	says := func(namespace string) string {
		status, _ := b.Get(tenantRoutes, namespace, "grpcroute.default.cart")["status"].(map[string]any)
		text, _ := json.Marshal(status["conditions"])
		return string(text)
	}
	asked := func() bool {
		return slices.ContainsFunc(b.Requests(), func(r string) bool { return strings.Contains(r, "/grpcroutes") })
	}
	denied := "/grpcroutes"
	b.away.Store(&denied)
	put("bank")
	eventually(t, "it says that it has no Gateway", func() bool { return strings.Contains(says("bank"), "GatewayNotAllowed") })
	b.ingress("new", "b.example.com")
	eventually(t, "an Ingress is served", func() bool { return b.accepts("new") == "Accepted" })
	if asked() || b.log.n.Load() > 0 {
		t.Error("GRPCRoutes are asked for")
	}
	b.away.Store(nil)
	put("shop")
	eventually(t, "it says that the hub lacks the kind", func() bool {
		return strings.Contains(says("shop"), "the hub has no GRPCRoutes that its controller can read: it needs them in v1 of the Gateway API, and the roles of this version")
	})
	b.Serve(grpcRoutesOf, "GRPCRoute")
	name := tenants.HubName("shop", routes.KindGRPCRoute, "default", "cart")
	eventually(t, "its GRPCRoute is there", func() bool { return b.Get(grpcRoutesOf, "shop", name) != nil })
	if text, _ := json.Marshal(b.All("v1/services")); !strings.Contains(string(text), `"lbd.dev/grpc-routes":"true"`) || !strings.Contains(string(text), `"appProtocol":"kubernetes.io/h2c"`) {
		t.Errorf("the Services are %s", text)
	}
	b.unread("/grpcroutes")
	eventually(t, "the log says that they cannot be read", func() bool { return b.log.n.Load() > 0 })
	b.Delete(tenantRoutes, "shop", "grpcroute.default.cart")
	b.ingress("late", "grpc.example.com")
	eventually(t, "another tenant does not get its hostname", func() bool { return b.accepts("late") == string(tenants.ReasonNotRead) })
	b.away.Store(nil)
	eventually(t, "it is gone, and the hostname is free", func() bool { return len(b.All(grpcRoutesOf)) == 0 && b.accepts("late") == "Accepted" })
}

// TestGRPCRoutesForbidden: a tenant that has a GRPCRoute has nobody stand still in a hub whose controller never had the right to
// GRPCRoutes, or never could read them. Once it can it is served.
func TestGRPCRoutesForbidden(t *testing.T) {
	for _, code := range []int32{http.StatusForbidden, http.StatusServiceUnavailable} {
		t.Run(strconv.Itoa(int(code)), func(t *testing.T) {
			t.Parallel() // it waits most of the time
			b := newGatewayBed(t, 500*time.Millisecond)
			b.Serve(grpcRoutesOf, "GRPCRoute")
			denied := "/grpcroutes"
			b.code.Store(code)
			b.away.Store(&denied)
			b.Put(tenantRoutes, map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "grpcroute.default.cart", "uid": "cart"}, "spec": map[string]any{
				"origin": map[string]any{"kind": "GRPCRoute", "namespace": "default", "name": "cart"},
				"http": map[string]any{"hostnames": []any{"grpc.example.com"}, "rules": []any{map[string]any{
					"backends": []any{map[string]any{"service": "cart", "nodePort": int64(30081)}}}}}}})
			eventually(t, "it says why", func() bool {
				text, _ := json.Marshal(b.Get(tenantRoutes, "shop", "grpcroute.default.cart")["status"])
				return strings.Contains(string(text), "the hub has no GRPCRoutes that its controller can read")
			})
			b.ingress("new", "b.example.com")
			eventually(t, "an Ingress is served", func() bool { return b.accepts("new") == "Accepted" })
			time.Sleep(k8s.ForbiddenAfter + 4*b.k.patience) // the watch has given up by then
			b.ingress("late", "c.example.com")
			eventually(t, "another is served", func() bool { return b.accepts("late") == "Accepted" })
			if n := b.log.n.Load(); n > 0 || b.k.Still() {
				t.Errorf("all stands still; it was said %d times", n)
			}
			b.away.Store(nil)
			name := tenants.HubName("shop", routes.KindGRPCRoute, "default", "cart")
			eventually(t, "its GRPCRoute is there", func() bool { return b.Get(grpcRoutesOf, "shop", name) != nil })
		})
	}
}
