package speaker

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/services"
)

// putOf puts an object of a tenant.
func putOf(api *apitest.Server, res, namespace, name, created string, spec map[string]any, addresses ...string) {
	o := custom(name, spec)
	meta := o["metadata"].(map[string]any)
	meta["creationTimestamp"] = created
	if namespace != "" {
		meta["namespace"] = namespace
	}
	var list []any
	for _, a := range addresses {
		list = append(list, map[string]any{"address": a, "pool": "a"})
	}
	o["status"] = map[string]any{"addresses": list}
	api.Put(res, o)
}

// led is where the LoadBalancers of the View lead.
func (b *bed) led() string {
	var all []string
	b.lock(func() {
		for _, lb := range b.view.LoadBalancers {
			for _, s := range lb.Servers {
				for _, p := range lb.Ports {
					all = append(all, fmt.Sprintf("%s %v > %s:%d", lb.Name, lb.VIPs, s.Addr, p.TargetPort))
				}
			}
		}
	})
	return strings.Join(all, "\n")
}

// TestAttacksReachNoRule: whatever an agent writes, and were it into statuses, this node leads no connection to what the
// Tenant does not have, announces no address that it may not have, and the other tenant keeps its own.
func TestAttacksReachNoRule(t *testing.T) {
	const before, now = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
	api := hub(t)
	port := func(nodePort int) map[string]any {
		return map[string]any{"ports": []any{map[string]any{"port": 80, "nodePort": nodePort}}}
	}
	cluster := func(name, cidr string) map[string]any {
		return map[string]any{"pools": []string{"a"}, "clusters": []any{map[string]any{"name": "main", "namespace": name, "nodeCIDRs": []string{cidr}}}}
	}
	putOf(api, resTenants, "", "shop", before, cluster("shop", "10.1.0.0/24"))
	putOf(api, resTenantServes, "shop", "default.web", before, port(30080), "192.0.2.9")
	putOf(api, resTenants, "", "evil", now, cluster("evil", "10.2.0.0/24"))
	putOf(api, resTenants, "", "wide", now, cluster("wide", "10.1.0.0/16"))
	putOf(api, resTenants, "", "local", now, cluster("local", "127.0.0.0/8"))
	putOf(api, resTenants, "", "vips", now, cluster("vips", "192.0.2.0/28"))
	for namespace, list := range map[string][]string{
		"evil":  {"10.2.0.1", "10.1.0.1", "10.0.0.1", "127.0.0.1", "169.254.169.254", "fe80::1", "192.0.2.9", "0.0.0.0", "224.0.0.1"},
		"wide":  {"10.1.0.1"},
		"local": {"127.0.0.1"},
		"vips":  {"192.0.2.9"},
	} {
		for i, a := range list {
			putOf(api, resTenantNodes, namespace, fmt.Sprintf("n-%d", i), now, map[string]any{"nodes": []any{map[string]any{"name": fmt.Sprintf("x%d", i), "addresses": []string{a}}}})
		}
		putOf(api, resTenantServes, namespace, "default.web", now, port(30080), map[string]string{"evil": "192.0.2.10", "wide": "192.0.2.11", "local": "192.0.2.12", "vips": "192.0.2.13"}[namespace])
	}
	for name, nodePort := range map[string]int{"ssh": 22, "api": 6443, "kubelet": 10250} {
		putOf(api, resTenantServes, "evil", "default."+name, now, port(nodePort), fmt.Sprintf("192.0.2.%d", 20+len(name)))
	}
	putOf(api, resTenantServes, "evil", "default.stolen", now, port(30081), "192.0.2.9")
	putOf(api, resTenantServes, "evil", "default.foreign", now, port(30082), "198.51.100.1")
	million := port(30083)
	million["local"] = map[string]any{"healthCheckNodePort": 30084, "nodes": []any{map[string]any{"name": "x0", "endpoints": 10_000_000}}}
	putOf(api, resTenantServes, "evil", "default.million", now, million, "192.0.2.30")
	many, nodes := port(30085), []any{}
	for i := range 1001 {
		nodes = append(nodes, map[string]any{"name": fmt.Sprintf("x%d", i), "endpoints": 100})
	}
	many["local"] = map[string]any{"healthCheckNodePort": 30086, "nodes": nodes}
	putOf(api, resTenantServes, "evil", "default.many", now, many, "192.0.2.31")
	b := run(t, api, nil)
	b.become("192.0.2.9=tenant/shop/default.web 192.0.2.10=tenant/evil/default.web")
	const want = "tenant/evil/default.web [192.0.2.10] > 10.2.0.1:30080\ntenant/shop/default.web [192.0.2.9] > 10.1.0.1:30080"
	b.eventually("nothing else is led", func() bool { return b.led() == want })
	time.Sleep(300 * time.Millisecond) // what comes later is looked at later
	if got := b.led(); got != want {
		t.Errorf("led:\n%s\nwant\n%s", got, want)
	}
}

// TestStartWithoutTenants: a daemon that starts while the API server is away, or may not read tenants or what their agents
// write, leads to none and has no address of theirs: it does not know what they may have. It does once it knows. Services of
// the hub are served meanwhile, if they can be read.
func TestStartWithoutTenants(t *testing.T) {
	for _, kind := range []string{"/tenants", "/tenantnodes", "/tenantservices", ""} {
		t.Run("without "+kind, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			api := hub(t)
			api.Put(resServices, lb("web", false, "192.0.2.1"))
			api.Put(resSlices, endpointsOf("web", "n2"))
			if kind == "" {
				api.Fail(http.StatusServiceUnavailable)
			} else {
				api.Gate(func(r *http.Request) int {
					if strings.HasSuffix(r.URL.Path, kind) {
						return http.StatusForbidden
					}
					return 0
				})
			}
			b := run(t, api, nil)
			if kind == "" {
				b.eventually("it has asked", func() bool { return b.Status().Err != "" })
			} else {
				b.become("192.0.2.1=default/web")
			}
			time.Sleep(300 * time.Millisecond)
			if got := b.led(); got != "" || slices.Contains(strings.Fields(b.vips()), "192.0.2.9=tenant/shop/default.web") {
				t.Errorf("led: %q, VIPs %s", got, b.vips())
			}
			if kind == "/tenantnodes" {
				b.eventually("it says so", func() bool {
					return slices.ContainsFunc(b.Status().Problems, func(p services.Problem) bool {
						return p.Kind == "TenantNodes" && strings.HasPrefix(p.Text, "no tenant is served: ")
					})
				})
			}
			api.Gate(nil)
			api.Fail(0)
			b.become("192.0.2.1=default/web 192.0.2.9=tenant/shop/default.web")
			b.eventually("it leads to the node", func() bool { return b.led() == "tenant/shop/default.web [192.0.2.9] > 10.1.0.1:30080" })
		})
	}
}
