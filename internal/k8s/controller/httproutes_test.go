package controller

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/tenants"
)

const (
	httpRoutesOf = "gateway.networking.k8s.io/v1/httproutes"
	gatewaysOf   = "gateway.networking.k8s.io/v1/gateways"
)

// gatewayAPI is routesAPI, in which shop has a Gateway besides.
func gatewayAPI(t testing.TB) *apitest.Server {
	api := routesAPI(t)
	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]}],"pools":["public"],"hostnames":["*.example.com"],"ingressClass":"traefik","gateway":"edge/public"}`)
	return api
}

// serveGateway has the hub know the Gateway API, and a Gateway with an address.
func serveGateway(api *apitest.Server) {
	api.Serve(httpRoutesOf, "HTTPRoute")
	api.Serve(gatewaysOf, "Gateway")
	api.Put(gatewaysOf, map[string]any{"metadata": map[string]any{"namespace": "edge", "name": "public"}, "status": map[string]any{"addresses": []any{map[string]any{"value": "198.51.100.9"}}}})
}

func putHTTPRoute(api *apitest.Server, namespace, name, created, host string) {
	putSpec(api, tenantRoutes, namespace, "ingress.default."+name, created, // by which routeSays finds it
		fmt.Sprintf(`{"origin":{"kind":"HTTPRoute","namespace":"default","name":%q},"http":{"hostnames":[%q],"rules":[{"backends":[{"service":"web","nodePort":30080}]}]}}`, name, host))
}

// takeHTTPRoute has the Gateway take an HTTPRoute.
func takeHTTPRoute(t *testing.T, api *apitest.Server, namespace, name string) {
	t.Helper()
	key := tenants.HubName(namespace, "HTTPRoute", "default", name)
	eventually(t, "its HTTPRoute is there", func() bool { return api.Get(httpRoutesOf, namespace, key) != nil })
	r := api.Get(httpRoutesOf, namespace, key)
	r["status"] = map[string]any{"parents": []any{map[string]any{"parentRef": map[string]any{"namespace": "edge", "name": "public"}, "conditions": []any{map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted"}}}}}
	api.Put(httpRoutesOf, r)
}

// TestTenantHTTPRoute follows an HTTPRoute of a tenant from its creation to its end.
func TestTenantHTTPRoute(t *testing.T) {
	api := gatewayAPI(t)
	serveGateway(api)
	first := run(t, build(t, api, "a"))
	putHTTPRoute(api, "shop", "web", old, "a.example.com")
	eventually(t, "it is accepted", func() bool {
		return routeSays(api, "shop", "web") == "a.example.com, True Accepted, False AddressPending"
	})
	takeHTTPRoute(t, api, "shop", "web")
	engine(api, "shop", "web")
	eventually(t, "it has the address of the Gateway", func() bool {
		return routeSays(api, "shop", "web") == "198.51.100.9, a.example.com, True Accepted, True Assigned"
	})
	eventually(t, "it leads to the node", func() bool { return endpointsOf(api, "shop") == "10.1.0.1=true" })
	putRoute(api, "bank", "steal", young, "a.example.com")
	eventually(t, "another tenant does not get the hostname", func() bool { return routeSays(api, "bank", "steal") == "False HostnameTaken, False NotAccepted" })
	putHTTPRoute(api, "bank", "none", young, "b.example.com")
	eventually(t, "another tenant has no Gateway", func() bool { return routeSays(api, "bank", "none") == "False GatewayNotAllowed, False NotAccepted" })

	// Another controller takes over and has nothing to do.
	first.stop()
	before := len(api.Requests())
	second := run(t, build(t, api, "b"))
	eventually(t, "b leads", func() bool { return second.Stats().Leader })
	putRoute(api, "shop", "more", young, "c.example.com")
	eventually(t, "an Ingress beside it", func() bool {
		return routeSays(api, "shop", "more") == "c.example.com, True Accepted, False AddressPending"
	})
	for _, r := range api.Requests()[before:] {
		if !strings.HasPrefix(r, http.MethodGet) && (strings.Contains(r, "/httproutes/") || strings.Contains(r, "/tenantroutes/ingress.default.web")) {
			t.Errorf("the next one has written %s", r)
		}
	}
	for _, name := range []string{"web", "more"} {
		api.Delete(tenantRoutes, "shop", "ingress.default."+name)
	}
	eventually(t, "nothing is left", func() bool {
		left := slices.Concat(api.All(httpRoutesOf), api.All(ingressesOf), api.All(slicesOf), api.All(resource))
		return !slices.ContainsFunc(left, func(o map[string]any) bool { return o["metadata"].(map[string]any)["namespace"] == "shop" })
	})
	eventually(t, "the hostname is free", func() bool { return strings.HasPrefix(routeSays(api, "bank", "steal"), "a.example.com, True Accepted") })
}

// TestTenantHTTPRouteLacking: a hub without the Gateway API serves Ingresses as ever, says so in the status of an HTTPRoute,
// and serves that once it can.
func TestTenantHTTPRouteLacking(t *testing.T) {
	t.Parallel() // it waits most of the time
	api := gatewayAPI(t)
	putHTTPRoute(api, "shop", "web", old, "a.example.com")
	putRoute(api, "shop", "more", young, "c.example.com")
	run(t, build(t, api, "a"))
	eventually(t, "the Ingress is served", func() bool { return len(api.All(ingressesOf)) == 1 })
	eventually(t, "it says why", func() bool {
		list, _, _ := nested[[]any](api.Get(tenantRoutes, "shop", "ingress.default.web"), "status", "conditions")
		return len(list) == 2 && list[1].(map[string]any)["message"] == "the hub has no HTTPRoutes that its controller can read: it needs them in v1 of the Gateway API, and the roles of this version"
	})
	serveGateway(api)
	takeHTTPRoute(t, api, "shop", "web")
	eventually(t, "it is served", func() bool {
		return routeSays(api, "shop", "web") == "198.51.100.9, a.example.com, True Accepted, True Assigned"
	})
}

// TestTenantHTTPRouteUnread: a controller that starts without the right to read HTTPRoutes keeps what is served, serves nothing
// new, and does so once it may read them.
func TestTenantHTTPRouteUnread(t *testing.T) {
	t.Parallel() // it waits most of the time
	api := gatewayAPI(t)
	serveGateway(api)
	first := run(t, build(t, api, "a"))
	putHTTPRoute(api, "shop", "web", old, "a.example.com")
	takeHTTPRoute(t, api, "shop", "web")
	const served = "198.51.100.9, a.example.com, True Accepted, True Assigned"
	eventually(t, "it is served", func() bool { return routeSays(api, "shop", "web") == served })
	first.stop()
	var denied atomic.Bool
	denied.Store(true)
	api.Gate(func(r *http.Request) int {
		if denied.Load() && strings.Contains(r.URL.Path, "gateway.networking") {
			return http.StatusForbidden
		}
		return 0
	})
	putRoute(api, "shop", "more", young, "c.example.com")
	run(t, build(t, api, "b"))
	eventually(t, "a new one is not served", func() bool {
		return routeSays(api, "shop", "more") == "False HubNotRead, False NotAccepted"
	})
	if got := routeSays(api, "shop", "web"); got != served || len(api.All(ingressesOf)) > 0 || len(api.All(httpRoutesOf)) != 1 {
		t.Errorf("it says %q; %d Ingresses, %d HTTPRoutes", got, len(api.All(ingressesOf)), len(api.All(httpRoutesOf)))
	}
	o := api.Get(tenantRoutes, "shop", "ingress.default.web")
	o["spec"].(map[string]any)["http"].(map[string]any)["hostnames"] = []any{"b.example.com"}
	api.Put(tenantRoutes, o)
	eventually(t, "one that has changed is served as before", func() bool {
		return routeSays(api, "shop", "web") == "198.51.100.9, a.example.com, False HubNotRead, False NotAccepted"
	})
	denied.Store(false)
	eventually(t, "the new one is served", func() bool {
		return len(api.All(ingressesOf)) == 1 && strings.Contains(routeSays(api, "shop", "more"), "True Accepted")
	})
	eventually(t, "the changed one has its other hostname", func() bool {
		return routeSays(api, "shop", "web") == strings.Replace(served, "a.example.com", "b.example.com", 1)
	})
}

// TestNoGatewayUnasked: without a Tenant that has a Gateway nothing of the Gateway API is read.
func TestNoGatewayUnasked(t *testing.T) {
	api := routesAPI(t)
	serveGateway(api)
	putRoute(api, "shop", "web", old, "a.example.com")
	putHTTPRoute(api, "bank", "none", young, "b.example.com")
	run(t, build(t, api, "a"))
	eventually(t, "an HTTPRoute is refused", func() bool { return routeSays(api, "bank", "none") == "False GatewayNotAllowed, False NotAccepted" })
	eventually(t, "its Ingress is there", func() bool { return len(api.All(ingressesOf)) == 1 })
	for _, r := range api.Requests() {
		if strings.Contains(r, "gateway.networking") {
			t.Error(r)
		}
	}
}

// TestGatewayEnds: what a tenant has of a Gateway ends with the Gateway of its Tenant, also if another controller
// leads by then.
func TestGatewayEnds(t *testing.T) {
	api := gatewayAPI(t)
	serveGateway(api)
	first := run(t, build(t, api, "a"))
	putHTTPRoute(api, "shop", "web", old, "a.example.com")
	takeHTTPRoute(t, api, "shop", "web")
	eventually(t, "it is served", func() bool { return strings.HasSuffix(routeSays(api, "shop", "web"), "True Assigned") })
	first.stop()
	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]}],"pools":["public"]}`)
	run(t, build(t, api, "b"))
	eventually(t, "its HTTPRoute is gone", func() bool { return len(api.All(httpRoutesOf)) == 0 })
	eventually(t, "it says so", func() bool { return routeSays(api, "shop", "web") == "False GatewayNotAllowed, False NotAccepted" })
}

// TestGatewayOrphan: an HTTPRoute that was left when its TenantRoute and the Gateway of its Tenant ended goes, and its
// hostname and Services are nobody's before.
func TestGatewayOrphan(t *testing.T) {
	t.Parallel() // it waits most of the time
	api := gatewayAPI(t)
	serveGateway(api)
	first := run(t, build(t, api, "a"))
	putHTTPRoute(api, "shop", "web", old, "a.example.com")
	takeHTTPRoute(t, api, "shop", "web")
	eventually(t, "it is served", func() bool { return strings.HasSuffix(routeSays(api, "shop", "web"), "True Assigned") })
	first.stop()
	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]}],"pools":["public"]}`)
	api.Delete(tenantRoutes, "shop", "ingress.default.web")
	putRoute(api, "bank", "steal", young, "a.example.com")
	run(t, build(t, api, "b"))
	eventually(t, "another tenant has the hostname", func() bool { return strings.HasPrefix(routeSays(api, "bank", "steal"), "a.example.com, True Accepted") })
	if left := api.All(httpRoutesOf); len(left) > 0 {
		t.Errorf("with it there is still %v", left)
	}
	eventually(t, "its Service is gone", func() bool {
		return !slices.ContainsFunc(api.All(resource), func(o map[string]any) bool { return o["metadata"].(map[string]any)["namespace"] == "shop" })
	})
}
