package speaker

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/model"
)

const (
	resTenants      = "lbd.dev/v1alpha1/tenants"
	resTenantNodes  = "lbd.dev/v1alpha1/tenantnodes"
	resTenantServes = "lbd.dev/v1alpha1/tenantservices"
)

// hub is a cluster with a tenant whose Service has an address.
func hub(t *testing.T) *apitest.Server {
	api := cluster(t)
	for res, kind := range map[string]string{resTenants: "Tenant", resTenantNodes: "TenantNodes", resTenantServes: "TenantService"} {
		api.Serve(res, kind)
	}
	api.Put(resTenants, custom("shop", map[string]any{"pools": []string{"a"},
		"clusters": []any{map[string]any{"name": "main", "namespace": "shop", "nodeCIDRs": []string{"10.1.0.0/24"}}}}))
	putTenantNode(api, 1)
	service := custom("default.web", map[string]any{"ports": []any{map[string]any{"port": 80, "nodePort": 30080}}})
	service["metadata"].(map[string]any)["namespace"] = "shop"
	service["status"] = map[string]any{"addresses": []any{map[string]any{"address": "192.0.2.9", "pool": "a"}}}
	api.Put(resTenantServes, service)
	return api
}

func putTenantNode(api *apitest.Server, number int) {
	o := custom("nodes-0", map[string]any{"nodes": []any{map[string]any{"name": "a1", "addresses": []string{fmt.Sprintf("10.1.0.%d", number)}}}})
	o["metadata"].(map[string]any)["namespace"] = "shop"
	api.Put(resTenantNodes, o)
}

// TestAgentsArePaced: an agent that writes without end has the objects looked at a few times a
// second, and its last word counts.
func TestAgentsArePaced(t *testing.T) {
	api := hub(t)
	b := run(t, api, nil)
	server := func() (addr string) {
		b.lock(func() {
			for _, lb := range b.view.LoadBalancers {
				for _, s := range lb.Servers {
					addr += s.Addr.String()
				}
			}
		})
		return addr
	}
	b.eventually("the Service is led to its node", func() bool { return server() == "10.1.0.1" })
	before, began := 0, time.Now()
	b.lock(func() { before = b.published })
	for number := 10; time.Since(began) < 600*time.Millisecond; number++ {
		putTenantNode(api, number)
		time.Sleep(Coalesce / 2)
	}
	putTenantNode(api, 7)
	b.eventually("the last word counts", func() bool { return server() == "10.1.0.7" })
	after, most := 0, int(time.Since(began)/(250*time.Millisecond))+2
	b.lock(func() { after = b.published })
	if after-before > most {
		t.Errorf("published %d times in %v, want %d at most", after-before, time.Since(began), most)
	}
	api.Put(resServices, lb("web", false, "192.0.2.1"))
	api.Put(resSlices, endpointsOf("web", "n2"))
	b.become("192.0.2.1=default/web 192.0.2.9=tenant/shop/default.web")
}

// TestTenantsStay: while the API server of the hub is away, or lets nobody read the objects of tenants, what is
// known of them stays in force. What changed meanwhile counts afterwards.
func TestTenantsStay(t *testing.T) {
	for name, c := range map[string]struct{ begin, end func(*apitest.Server) }{
		"no API server": {(*apitest.Server).Stop, (*apitest.Server).Start},
		"no right": {func(api *apitest.Server) {
			api.Gate(func(r *http.Request) int {
				if strings.Contains(r.URL.Path, "/tenant") {
					return http.StatusForbidden
				}
				return 0
			})
			api.Fail(http.StatusServiceUnavailable) // all watches are opened again
			api.Fail(0)
		}, func(api *apitest.Server) { api.Gate(nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			api := hub(t)
			b := run(t, api, nil)
			led := func() string {
				servers := ""
				b.lock(func() {
					for _, lb := range b.view.LoadBalancers {
						for _, s := range lb.Servers {
							servers += " " + s.Addr.String()
						}
					}
				})
				return b.vips() + servers
			}
			const before, after = "192.0.2.9=tenant/shop/default.web 10.1.0.1", "192.0.2.9=tenant/shop/default.web 10.1.0.2"
			b.eventually("the Service is led to its node", func() bool { return led() == before })
			c.begin(api)
			b.eventually("the watches are lost", func() bool { return !b.Status().Connected })
			putTenantNode(api, 2)
			time.Sleep(time.Second)
			if got := led(); got != before {
				t.Errorf("it has become %q", got)
			}
			c.end(api)
			b.eventually("the node is the new one", func() bool { return led() == after })
		})
	}
}

// TestWhatAgentsWaitFor: what agents write waits for its turn or for another look at all objects, and
// keeps nothing else waiting.
func TestWhatAgentsWaitFor(t *testing.T) {
	now := time.Now()
	key := map[model.Key]bool{{Name: "x"}: true}
	for name, c := range map[string]struct {
		change func(*loop)
		taken  bool
	}{
		"nothing else":    {func(*loop) {}, false},
		"a Service":       {func(l *loop) { l.s.pending.services = key }, false},
		"endpoints":       {func(l *loop) { l.s.pending.slices = key }, false},
		"a Node":          {func(l *loop) { l.s.pending.nodes = key }, true},
		"another object":  {func(l *loop) { l.s.pending.objects = true }, true},
		"the first state": {func(l *loop) { l.synced = false }, true},
		"its turn":        {func(l *loop) { l.pace = k8s.Pace{} }, true},
	} {
		l := &loop{s: New(Options{}), synced: true, later: time.NewTimer(time.Hour)}
		l.pace.Done(now, now)
		l.s.pending.agents = true
		c.change(l)
		p := l.pending(now)
		if p.agents != c.taken || l.s.pending.agents == c.taken || p.objects != c.taken && name != "another object" {
			t.Errorf("%s: taken %+v, left %+v", name, p, l.s.pending)
		}
		if len(l.s.pending.services)+len(l.s.pending.slices) > 0 {
			t.Errorf("%s: what others changed waits: %+v", name, l.s.pending)
		}
	}
}
