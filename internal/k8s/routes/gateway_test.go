package routes

import (
	"context"
	"errors"
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
	log := &counted{Handler: slog.NewTextHandler(t.Output(), nil), words: "HTTPRoutes of tenants are not served"}
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
// lasted. Nothing is deleted by what was known then, and all is as before once it can be read again.
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
			eventually(t, "it says that it is not known", func() bool { return statusOf(api) == "[a.example.com] [198.51.100.9] AddressPending" })
			if took := time.Since(began); took < patience {
				t.Errorf("it said so after %s", took)
			}
			before := len(api.Requests())
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

// TestPendingEnds: that nobody knew the HTTPRoutes at the end of a term has the next one not look all the time.
func TestPendingEnds(t *testing.T) {
	_, w := bed(t)
	w.k.secrets = &certificates{k: w.k}
	w.k.gateway.pending = true
	if _, _, known := w.k.input(t.Context()); known || w.k.gateway.pending {
		t.Errorf("known %v, pending %v", known, w.k.gateway.pending)
	}
}

// TestGatewayListed: a hub that has no HTTPRoutes since it has not the kind, or whose Gateways alone may not be read,
// gives hostnames to who asks for them, although another tenant may have them and has a Gateway.
func TestGatewayListed(t *testing.T) {
	for name, c := range map[string]struct {
		kinds map[string]string
		deny  string
		left  bool
		want  string
	}{
		"no kind":            {want: "Accepted"},
		"no kind, but marks": {left: true, want: string(routes.ReasonUnknown)},
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
	eventually(t, "it is known", func() bool { return p.now().err == nil })
	now := p.now()
	p.used.Store(&now)
	time.Sleep(2 * p.patience)
	before := told.Load()
	if time.Sleep(5 * p.patience); told.Load() != before {
		t.Error("nothing has changed, and it tells of it")
	}
	for _, used := range []gatewayState{{err: errors.New("not read any more"), listed: now.listed}, {listed: !now.listed}} {
		p.used.Store(&used)
		eventually(t, "it tells of it", func() bool { return told.Load() != before })
		p.used.Store(&now)
		time.Sleep(2 * p.patience)
		before = told.Load()
	}
}

// TestLeftIsNamed: the log names once the Service of an ended Tenant that keeps all others from new hostnames.
func TestLeftIsNamed(t *testing.T) {
	var text strings.Builder
	k := &Keeper{o: Options{Logger: slog.New(slog.NewTextHandler(&text, nil))}, gateway: &gatewayPart{}}
	marked := routes.Have{Body: map[string]any{"metadata": map[string]any{"annotations": map[string]any{"lbd.dev/http-ports": "30080"}}}}
	in := &routes.Input{Clusters: map[string]tenants.Cluster{"shop": {Tenant: &v1alpha1.Tenant{}}}, Have: map[routes.ID]routes.Have{}, HTTPRoutesUnknown: true}
	in.Have[routes.ID{Kind: routes.KindService, Key: model.Key{Namespace: "shop", Name: "web"}}] = marked
	if k.tellLeft(in); text.Len() > 0 {
		t.Errorf("a Tenant has it: %s", text.String())
	}
	in.Have[routes.ID{Kind: routes.KindService, Key: model.Key{Namespace: "ended", Name: "b"}}] = marked
	in.Have[routes.ID{Kind: routes.KindService, Key: model.Key{Namespace: "ended", Name: "a"}}] = marked
	in.HTTPRoutesListed = true
	if k.tellLeft(in); text.Len() > 0 {
		t.Errorf("HTTPRoutes are known: %s", text.String())
	}
	in.HTTPRoutesListed = false
	k.tellLeft(in)
	k.tellLeft(in)
	if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "service=ended/a services=2") {
		t.Errorf("the log: %s", got)
	}
}
