package routes

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/tenants/routes"
)

const (
	tenantRoutes = "lbd.dev/v1alpha1/tenantroutes"
	httpRoutesOf = "gateway.networking.k8s.io/v1/httproutes"
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

// gatewayBed is a Keeper at work, with a Tenant that has a Gateway and an HTTPRoute that is served.
func gatewayBed(t *testing.T, patience time.Duration) (*apitest.Server, *counted) {
	t.Helper()
	api := apitest.New(t, map[string]string{"networking.k8s.io/v1/ingresses": "Ingress", "v1/services": "Service", "discovery.k8s.io/v1/endpointslices": "EndpointSlice",
		tenantRoutes: "TenantRoute", httpRoutesOf: "HTTPRoute", gatewaysOf: "Gateway"})
	c, err := k8s.NewFor(api.Config(), k8s.Options{QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	log := &counted{Handler: slog.NewTextHandler(t.Output(), nil), words: "HTTPRoutes cannot be read"}
	k := New(Options{Logger: slog.New(log), Client: c, Manager: "test", Valid: func() bool { return true }})
	k.gateway.patience = patience
	shop := &v1alpha1.Tenant{Metadata: v1alpha1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.TenantSpec{Hostnames: []string{"*.example.com"}, Gateway: "edge/public"}}
	shop.Default()
	k.Judged(map[string]tenants.Cluster{"shop": {Tenant: shop, NodePorts: v1alpha1.PortRange{First: 30000, Last: 32767}}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { k.Watch(ctx); done <- struct{}{} }()
	go func() { k.Run(ctx); done <- struct{}{} }()
	t.Cleanup(func() { stop(); <-done; <-done })

	api.Put(gatewaysOf, map[string]any{"metadata": map[string]any{"namespace": "edge", "name": "public"}, "status": map[string]any{"addresses": []any{map[string]any{"value": "198.51.100.9"}}}})
	api.Put(tenantRoutes, map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "httproute.default.web", "uid": "web"}, "spec": map[string]any{
		"origin": map[string]any{"kind": "HTTPRoute", "namespace": "default", "name": "web"},
		"http":   map[string]any{"hostnames": []any{"a.example.com"}, "rules": []any{map[string]any{"backends": []any{map[string]any{"service": "web", "nodePort": int64(30080)}}}}}}})
	name := tenants.HubName("shop", routes.KindHTTPRoute, "default", "web")
	eventually(t, "its HTTPRoute is there", func() bool { return api.Get(httpRoutesOf, "shop", name) != nil })
	r := api.Get(httpRoutesOf, "shop", name)
	r["status"] = map[string]any{"parents": []any{map[string]any{"parentRef": map[string]any{"namespace": "edge", "name": "public"}, "conditions": []any{map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted"}}}}}
	api.Put(httpRoutesOf, r)
	eventually(t, "it is served", func() bool { return statusOf(api) == "[a.example.com] [198.51.100.9] Assigned" })
	return api, log
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
// lasted. Nothing is deleted by what was known then, what is served stays, and all counts once it can be read again.
func TestGatewayAway(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusForbidden} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel() // it waits most of the time
			const patience = time.Second
			api, log := gatewayBed(t, patience)
			var away atomic.Bool
			away.Store(true)
			began := time.Now()
			api.Gate(func(r *http.Request) int {
				if away.Load() && strings.Contains(r.URL.Path, "gateway.networking") {
					return code
				}
				return 0
			})
			api.Stop() // all watches end
			api.Start()
			eventually(t, "the log says that they are not known", func() bool { return log.n.Load() > 0 })
			if took := time.Since(began); took < patience {
				t.Errorf("it said so after %s", took)
			}
			before := len(api.Requests())
			if got := statusOf(api); got != "[a.example.com] [198.51.100.9] Assigned" {
				t.Errorf("the route says %s", got)
			}
			api.Delete(tenantRoutes, "shop", "httproute.default.web")
			time.Sleep(3 * time.Second) // in which what is deleted would be deleted again
			for _, r := range api.Requests()[before:] {
				if strings.HasPrefix(r, http.MethodDelete) {
					t.Errorf("while it is unknown: %s", r)
				}
			}
			if n := log.n.Load(); n != 1 {
				t.Errorf("the log says it %d times", n)
			}
			away.Store(false)
			eventually(t, "nothing is left", func() bool { return len(api.All(httpRoutesOf))+len(api.All("v1/services")) == 0 })
		})
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
		"no Gateways":        {map[string]string{httpRoutesOf: "HTTPRoute", gatewaysOf: "Gateway"}, "/gateways", false, "Accepted"},
		"no HTTPRoutes":      {map[string]string{httpRoutesOf: "HTTPRoute", gatewaysOf: "Gateway"}, "/httproutes", false, string(routes.ReasonUnknown)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			kinds := map[string]string{"networking.k8s.io/v1/ingresses": "Ingress", "v1/services": "Service", "discovery.k8s.io/v1/endpointslices": "EndpointSlice", tenantRoutes: "TenantRoute"}
			maps.Copy(kinds, c.kinds)
			api := apitest.New(t, kinds)
			api.Gate(func(r *http.Request) int {
				if c.deny != "" && strings.HasSuffix(r.URL.Path, c.deny) {
					return http.StatusForbidden
				}
				return 0
			})
			if c.left {
				api.Put("v1/services", map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "left", "labels": map[string]any{routes.Label: routes.LabelValue}, "annotations": map[string]any{"lbd.dev/http-ports": "30080"}},
					"spec": map[string]any{"ports": []any{map[string]any{"port": int64(30080)}}}})
			}
			client, err := k8s.NewFor(api.Config(), k8s.Options{QPS: 1000, Burst: 1000})
			if err != nil {
				t.Fatal(err)
			}
			k := New(Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Client: client, Manager: "test", Valid: func() bool { return true }})
			k.gateway.patience = 500 * time.Millisecond
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
			says := func() string {
				status, _ := api.Get(tenantRoutes, "bank", "ingress.default.web")["status"].(map[string]any)
				all, _ := status["conditions"].([]any)
				for _, x := range all {
					if c := x.(map[string]any); c["type"] == v1alpha1.ConditionAccepted {
						return fmt.Sprint(c["reason"])
					}
				}
				return ""
			}
			eventually(t, c.want, func() bool { return says() == c.want })
			if time.Sleep(4 * k.gateway.patience); says() != c.want {
				t.Errorf("then it says %s", says())
			}
			if n := len(api.All("networking.k8s.io/v1/ingresses")); (n > 0) != (c.want == "Accepted") {
				t.Errorf("there are %d Ingresses", n)
			}
		})
	}
}

// TestGatewayDecidedOtherwise: what was decided by another state than there is now is decided again, however short that
// state was.
func TestGatewayDecidedOtherwise(t *testing.T) {
	api := apitest.New(t, map[string]string{httpRoutesOf: "HTTPRoute", gatewaysOf: "Gateway"})
	c, err := k8s.NewFor(api.Config(), k8s.Options{QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var told atomic.Int32
	p := newGatewayPart(c, func([]model.Key) { told.Add(1) })
	p.patience = 100 * time.Millisecond
	close(p.asked)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.watch(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	eventually(t, "they are known", func() bool { return p.now() == known })
	p.used.Store(int32(known))
	time.Sleep(2 * p.patience)
	before := told.Load()
	if time.Sleep(5 * p.patience); told.Load() != before {
		t.Error("nothing has changed, and it tells of it")
	}
	for _, used := range []reading{waiting, unread, lacking} {
		p.used.Store(int32(used))
		eventually(t, "it tells of it", func() bool { return told.Load() != before })
		p.used.Store(int32(known))
		time.Sleep(2 * p.patience)
		before = told.Load()
	}
}
