package controller

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/k8s/apitest"
)

// refuse has the API server answer lists and watches of a resource by 403.
func refuse(api *apitest.Server, resource string) {
	api.Gate(func(r *http.Request) int {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+resource) {
			return http.StatusForbidden
		}
		return 0
	})
}

// TestTenantsUnread: a controller that starts and may not read Tenants takes nothing from their Services,
// gives their addresses to nobody else, and writes nothing.
func TestTenantsUnread(t *testing.T) {
	t.Parallel()
	api := hubAPI(t)
	first := run(t, build(t, api, "a"))
	putWeb(api, "shop", "default.web", old, 30080)
	eventually(t, "it has an address", func() bool { return tenantSays(api, "shop", "default.web") == "192.0.2.0=public"+served })
	eventually(t, "all is said", func() bool { return acceptedOf(api, tenantNodes, "shop", "n-0") != "" })
	first.stop()
	refuse(api, "tenants")
	before := tenantWrites(api)
	second := run(t, build(t, api, "b"))
	eventually(t, "b leads", func() bool { return second.Stats().Leader })
	putWeb(api, "shop", "default.new", young, 30081)
	api.Put(resource, service("own"))
	eventually(t, "a Service of the hub has another address", func() bool { return status(api, "own") == "192.0.2.1" })
	api.Put(adverts, map[string]any{"metadata": map[string]any{"name": "late"}, "spec": map[string]any{}})
	eventually(t, "the objects were judged", func() bool { return judged(api, adverts, "late") != "" })
	if got := tenantSays(api, "shop", "default.web"); got != "192.0.2.0=public"+served {
		t.Error("what it had:", got)
	}
	if got, n := tenantSays(api, "shop", "default.new"), tenantWrites(api); got != "" || n != before {
		t.Errorf("%d writes, the new one has %q", n-before, got)
	}
}

// TestRefusedListIsNotEmpty: while the watch has TenantServices, a list that is refused does not say that
// there are none.
func TestRefusedListIsNotEmpty(t *testing.T) {
	api := hubAPI(t)
	putWeb(api, "shop", "default.web", old, 30080)
	p := run(t, build(t, api, "a"))
	eventually(t, "it is known", func() bool { return len(p.objects.TenantServices.All()) == 1 })
	if all, err := p.tenants.list(t.Context()); err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	refuse(api, "tenantservices")
	if all, err := p.tenants.list(t.Context()); err == nil {
		t.Errorf("a list that was refused has %d Services", len(all))
	}
}

// TestConditionsLeaveAddressesAlone: of a TenantService that is accepted the allocator alone writes the
// addresses, also those that do not count: two writers would overwrite each other without end.
func TestConditionsLeaveAddressesAlone(t *testing.T) {
	api := hubAPI(t)
	putWeb(api, "shop", "default.web", old, 30080)
	o := api.Get(tenantServes, "shop", "default.web")
	o["status"] = map[string]any{"addresses": []any{
		map[string]any{"address": "192.0.2.0", "pool": "public"}, map[string]any{"address": "198.51.100.1", "pool": "public"},
	}}
	api.Put(tenantServes, o)
	c := build(t, api, "a", func(o *Options) { o.Lease = &holding{} })
	leading(t, c)
	if err := newJudge(c).all(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := tenantSays(api, "shop", "default.web"); got != "192.0.2.0=public, 198.51.100.1=public"+served {
		t.Error(got)
	}
}

// leading has a controller watch its objects and hold the Lease, without an allocator.
func leading(t *testing.T, c *Controller) {
	for _, run := range []func(){
		func() { c.objects.Run(t.Context()) },
		func() { c.elector.Run(t.Context(), func(ctx context.Context) { <-ctx.Done() }) },
	} {
		done := make(chan struct{})
		go func() { defer close(done); run() }()
		t.Cleanup(func() { <-done }) // the context of the test has ended by then
	}
	eventually(t, "objects are known, and it leads", func() bool { return c.objects.Synced() && c.elector.Valid() })
}
