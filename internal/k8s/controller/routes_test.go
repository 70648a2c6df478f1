package controller

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/tenants/routes"
)

const (
	tenantRoutes = "lbd.dev/v1alpha1/tenantroutes"
	ingressesOf  = "networking.k8s.io/v1/ingresses"
	slicesOf     = "discovery.k8s.io/v1/endpointslices"
)

// routesAPI is hubAPI with an engine, and a Tenant that may use it.
func routesAPI(t testing.TB) *apitest.Server {
	api := hubAPI(t)
	for res, kind := range map[string]string{tenantRoutes: "TenantRoute", ingressesOf: "Ingress", slicesOf: "EndpointSlice"} {
		api.Serve(res, kind)
	}
	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]}],"pools":["public"],"hostnames":["*.example.com"],"ingressClass":"traefik"}`)
	putTenant(api, "bank", young, `{"clusters":[{"name":"main","namespace":"bank","nodeCIDRs":["10.2.0.0/24"]}],"pools":["public"],"hostnames":["*.example.com"],"ingressClass":"traefik"}`)
	return api
}

func putRoute(api *apitest.Server, namespace, name, created, host string) {
	putSpec(api, tenantRoutes, namespace, "ingress.default."+name, created,
		fmt.Sprintf(`{"origin":{"kind":"Ingress","namespace":"default","name":%q},"rules":[{"host":%q,"paths":[{"path":"/","service":"web","nodePort":30080}]}]}`, name, host))
}

// routeSays is what the status of a TenantRoute has.
func routeSays(api *apitest.Server, namespace, name string) string {
	var s v1alpha1.TenantRouteStatus
	data, _ := json.Marshal(api.Get(tenantRoutes, namespace, "ingress.default."+name)["status"])
	_ = json.Unmarshal(data, &s)
	words := slices.Concat(s.Addresses, s.Hostnames)
	for _, c := range s.Conditions {
		words = append(words, string(c.Status)+" "+c.Reason)
	}
	return strings.Join(words, ", ")
}

// endpointsOf are the addresses of the EndpointSlices of the Service web of a tenant, with whether they get
// new connections.
func endpointsOf(api *apitest.Server, namespace string) string {
	var all []string
	for _, s := range api.All(slicesOf) {
		list, _, _ := nested[[]any](s, "endpoints")
		labels, _, _ := nested[map[string]any](s, "metadata", "labels")
		for _, x := range list {
			e := x.(map[string]any)
			if labels["kubernetes.io/service-name"] == tenants.HubName(namespace, "Service", "default", "web") {
				all = append(all, fmt.Sprint(e["addresses"].([]any)[0], "=", e["conditions"].(map[string]any)["ready"]))
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// engine does what the API server and the engine of a hub do: a Service has families, an Ingress an address.
func engine(api *apitest.Server, namespace, name string) {
	key := tenants.HubName(namespace, "Service", "default", "web")
	if s := api.Get(resource, namespace, key); s != nil {
		s["spec"].(map[string]any)["ipFamilies"] = []any{"IPv4"}
		api.Put(resource, s)
	}
	if i := api.Get(ingressesOf, namespace, tenants.HubName(namespace, "Ingress", "default", name)); i != nil {
		i["status"] = map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "198.51.100.9"}}}}
		api.Put(ingressesOf, i)
	}
}

// TestTenantRoute follows an Ingress of a tenant from its creation to its end.
func TestTenantRoute(t *testing.T) {
	api := routesAPI(t)
	first := run(t, build(t, api, "a"))
	putRoute(api, "shop", "web", old, "a.example.com")
	eventually(t, "it is accepted", func() bool {
		return routeSays(api, "shop", "web") == "a.example.com, True Accepted, False AddressPending"
	})
	eventually(t, "its Ingress is there", func() bool { return len(api.All(ingressesOf)) == 1 })
	engine(api, "shop", "web")
	eventually(t, "it has the address of the engine", func() bool {
		return routeSays(api, "shop", "web") == "198.51.100.9, a.example.com, True Accepted, True Assigned"
	})
	eventually(t, "it leads to the node", func() bool { return endpointsOf(api, "shop") == "10.1.0.1=true" })

	// Nodes come, drain and go; one that is not of the cluster never counts.
	putSpec(api, tenantNodes, "shop", "n-1", old, `{"nodes":[{"name":"a2","addresses":["10.1.0.2"]},{"name":"x","addresses":["10.2.0.1"]}]}`)
	eventually(t, "another node", func() bool { return endpointsOf(api, "shop") == "10.1.0.1=true 10.1.0.2=true" })
	putSpec(api, tenantNodes, "shop", "n-0", old, `{"nodes":[{"name":"a1","addresses":["10.1.0.1"],"state":"Draining"}]}`)
	eventually(t, "one drains", func() bool { return endpointsOf(api, "shop") == "10.1.0.1=false 10.1.0.2=true" })
	putSpec(api, tenantNodes, "shop", "n-0", old, `{"nodes":[{"name":"a1","addresses":["10.1.0.1"],"state":"Out"}]}`)
	eventually(t, "one is gone", func() bool { return endpointsOf(api, "shop") == "10.1.0.2=true" })

	putRoute(api, "bank", "steal", young, "a.example.com")
	eventually(t, "another tenant does not get the hostname", func() bool { return routeSays(api, "bank", "steal") == "False HostnameTaken, False NotAccepted" })

	// Another controller takes over and has nothing to do.
	first.stop()
	before := len(routeWrites(api))
	second := run(t, build(t, api, "b"))
	eventually(t, "b leads", func() bool { return second.Stats().Leader })
	putRoute(api, "shop", "more", young, "b.example.com")
	eventually(t, "a second Ingress", func() bool {
		return routeSays(api, "shop", "more") == "b.example.com, True Accepted, False AddressPending"
	})
	if after := routeWrites(api)[before:]; len(after) > 4 { // an Ingress and a status, once more if a watch was late
		t.Errorf("written:\n%s", strings.Join(after, "\n"))
	}
	for _, name := range []string{"web", "more"} {
		api.Delete(tenantRoutes, "shop", "ingress.default."+name)
	}
	eventually(t, "nothing is left", func() bool {
		left := slices.Concat(api.All(ingressesOf), api.All(slicesOf), api.All(resource))
		return !slices.ContainsFunc(left, func(o map[string]any) bool { return o["metadata"].(map[string]any)["namespace"] == "shop" })
	})
	eventually(t, "the hostname is free", func() bool { return strings.HasPrefix(routeSays(api, "bank", "steal"), "a.example.com, True Accepted") })
	for _, r := range routeWrites(api) {
		if !strings.Contains(r, "/namespaces/shop/") && !strings.Contains(r, "/namespaces/bank/") {
			t.Errorf("the controller has no right to %s", r)
		}
	}
}

// routeWrites are requests that write what is of routes.
func routeWrites(api *apitest.Server) (list []string) {
	for _, r := range api.Requests() {
		if strings.HasPrefix(r, http.MethodGet) {
			continue
		}
		for _, what := range []string{"/tenantroutes/", "/ingresses/", "/endpointslices/", "/services/"} {
			if strings.Contains(r, what) {
				list = append(list, r)
			}
		}
	}
	return list
}

// TestTenantRoutesUnread: while Tenants, their nodes or TenantRoutes may not be read, what the engine has
// stays.
func TestTenantRoutesUnread(t *testing.T) {
	for _, res := range []string{"tenants", "tenantnodes", "tenantroutes"} {
		t.Run(res, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			api := routesAPI(t)
			first := run(t, build(t, api, "a"))
			putRoute(api, "shop", "web", old, "a.example.com")
			eventually(t, "its Ingress is there", func() bool { return len(api.All(ingressesOf)) == 1 })
			engine(api, "shop", "web")
			eventually(t, "it leads to the node", func() bool { return endpointsOf(api, "shop") == "10.1.0.1=true" })
			first.stop()
			var denied atomic.Bool
			denied.Store(true)
			api.Gate(func(r *http.Request) int {
				if denied.Load() && strings.HasSuffix(r.URL.Path, "/"+res) {
					return http.StatusForbidden
				}
				return 0
			})
			before := len(routeWrites(api))
			second := run(t, build(t, api, "b"))
			eventually(t, "b leads", func() bool { return second.Stats().Leader })
			eventually(t, "it knows that it may not read", func() bool { return second.objects.Synced() && second.routes.Synced() })
			putSpec(api, tenantNodes, "shop", "n-9", old, `{"nodes":[{"name":"a9","addresses":["10.1.0.9"]}]}`)
			putSpec(api, "lbd.dev/v1alpha1/ipaddresspools", "", "more", old, `{"addresses":["192.0.2.64/30"]}`) // a change
			eventually(t, "that was judged", func() bool {
				c, _, _ := nested[[]any](api.Get("lbd.dev/v1alpha1/ipaddresspools", "", "more"), "status", "conditions")
				return len(c) > 0
			})
			if got := endpointsOf(api, "shop"); res != "tenantroutes" && got != "10.1.0.1=true" || got == "" || len(api.All(ingressesOf)) != 1 {
				t.Errorf("endpoints %q, %d Ingresses; written:\n%s", got, len(api.All(ingressesOf)), strings.Join(routeWrites(api)[before:], "\n"))
			}
			denied.Store(false)
			eventually(t, "all is read again", func() bool { return endpointsOf(api, "shop") == "10.1.0.1=true 10.1.0.9=true" })
		})
	}
}

// TestTenantRoutesLacking: while a definition is lacking what the engine has stays.
func TestTenantRoutesLacking(t *testing.T) {
	for _, res := range []string{tenantsOf, tenantNodes, tenantRoutes} {
		t.Run(res, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			api := routesAPI(t)
			first := run(t, build(t, api, "a"))
			putRoute(api, "shop", "web", old, "a.example.com")
			eventually(t, "its Ingress is there", func() bool { return len(api.All(ingressesOf)) == 1 })
			engine(api, "shop", "web")
			eventually(t, "it leads to the node", func() bool { return endpointsOf(api, "shop") == "10.1.0.1=true" })
			first.stop()
			api.Withdraw(res)
			before := len(routeWrites(api))
			second := run(t, build(t, api, "b"))
			eventually(t, "b leads", func() bool { return second.Stats().Leader })
			putSpec(api, "lbd.dev/v1alpha1/ipaddresspools", "", "more", old, `{"addresses":["192.0.2.64/30"]}`) // a change
			eventually(t, "that was judged", func() bool {
				c, _, _ := nested[[]any](api.Get("lbd.dev/v1alpha1/ipaddresspools", "", "more"), "status", "conditions")
				return len(c) > 0
			})
			if i := api.Get(ingressesOf, "shop", tenants.HubName("shop", "Ingress", "default", "web")); i != nil { // it looks at the engine again
				i["status"] = nil
				api.Put(ingressesOf, i)
			}
			time.Sleep(500 * time.Millisecond)
			if got := endpointsOf(api, "shop"); got != "10.1.0.1=true" || len(api.All(ingressesOf)) != 1 {
				t.Errorf("endpoints %q, %d Ingresses; written:\n%s", got, len(api.All(ingressesOf)), strings.Join(routeWrites(api)[before:], "\n"))
			}
		})
	}
}

// TestTenantRouteNotWritten: what the hub does not take keeps no other from being served, and its words are
// not told to the tenant.
func TestTenantRouteNotWritten(t *testing.T) {
	api := routesAPI(t)
	bad := tenants.HubName("shop", "Ingress", "default", "bad")
	var full atomic.Bool
	full.Store(true)
	api.Gate(func(r *http.Request) int {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/ingresses/"+bad) && full.Load() {
			return http.StatusUnprocessableEntity
		}
		return 0
	})
	putRoute(api, "shop", "bad", old, "a.example.com")
	putRoute(api, "shop", "web", young, "b.example.com")
	run(t, build(t, api, "a"))
	eventually(t, "the other one is there", func() bool { return len(api.All(ingressesOf)) == 1 })
	eventually(t, "it says so", func() bool {
		list, _, _ := nested[[]any](api.Get(tenantRoutes, "shop", "ingress.default.bad"), "status", "conditions")
		return len(list) == 2 && list[1].(map[string]any)["message"] == "the hub could not make all objects for it; the log of its controller says why"
	})
	full.Store(false)
	eventually(t, "both are there", func() bool { return len(api.All(ingressesOf)) == 2 })
	// What is not marked is not touched.
	other := map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "other", "labels": map[string]any{routes.Label: "helm"}}}
	api.Put(ingressesOf, other)
	putRoute(api, "shop", "last", young, "c.example.com")
	eventually(t, "a third one", func() bool { return strings.HasPrefix(routeSays(api, "shop", "last"), "c.example.com, True Accepted") })
	if api.Get(ingressesOf, "shop", "other") == nil {
		t.Error("an Ingress of somebody else is gone")
	}
}
