package controller

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s/apitest"
)

// refuse has the API server answer lists and watches of resources by 403.
func refuse(api *apitest.Server, resources ...string) {
	api.Gate(func(r *http.Request) int {
		if r.Method == http.MethodGet && slices.ContainsFunc(resources, func(x string) bool { return strings.HasSuffix(r.URL.Path, "/"+x) }) {
			return http.StatusForbidden
		}
		return 0
	})
}

// TestTenantsUnread: a controller that starts and may not read Tenants takes nothing from their Services,
// gives their addresses to nobody else, and writes nothing.
func TestTenantsUnread(t *testing.T) {
	t.Parallel()
	api := unread(t)
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

// TestTenantsReadAgain: once Tenants may be read again and there is none, their Services have nothing.
func TestTenantsReadAgain(t *testing.T) {
	t.Parallel()
	api := unread(t)
	api.Delete(tenantsOf, "", "shop")
	p := run(t, build(t, api, "a"))
	eventually(t, "it leads", func() bool { return p.Stats().Leader })
	if got := tenantSays(api, "shop", "default.web"); got != "192.0.2.0=public"+served {
		t.Fatal("what it had:", got)
	}
	time.Sleep(3 * judgePause) // all that the start has set going is over
	api.Gate(nil)
	eventually(t, "it has nothing", func() bool { return tenantSays(api, "shop", "default.web") == "False NoTenant, False NotAccepted" })
}

// TestTenantsUnreadAfterOutage: an outage of the API server does not make it known that there are no Tenants.
func TestTenantsUnreadAfterOutage(t *testing.T) {
	t.Parallel()
	api := unread(t)
	p := run(t, build(t, api, "a"))
	eventually(t, "it leads", func() bool { return p.Stats().Leader })
	before := tenantWrites(api)
	api.Stop()
	eventually(t, "the outage is noticed", func() bool { return !p.objects.Tenants.State().Connected })
	if !p.tenants.blind() {
		t.Error("Tenants are known in the outage")
	}
	api.Start()
	eventually(t, "they may not be read still", func() bool { s := p.objects.Tenants.State(); return s.Connected && s.Absent })
	putPool(api, "late", "198.51.100.0/30") // all are looked at
	api.Put(resource, service("own", asks("198.51.100.1")))
	eventually(t, "it was looked at", func() bool { return status(api, "own") == "198.51.100.1" })
	if got, n := tenantSays(api, "shop", "default.web"), tenantWrites(api); got != "192.0.2.0=public"+served || n != before {
		t.Errorf("%d writes, it has %q", n-before, got)
	}
}

// unread is a hub of which Tenants may not be read; a Service of shop has an address.
func unread(t *testing.T) *apitest.Server {
	t.Helper()
	api := hubAPI(t)
	first := run(t, build(t, api, "first"))
	putWeb(api, "shop", "default.web", old, 30080)
	eventually(t, "it has an address", func() bool { return tenantSays(api, "shop", "default.web") == "192.0.2.0=public"+served })
	eventually(t, "all is said", func() bool { return acceptedOf(api, tenantNodes, "shop", "n-0") != "" })
	first.stop()
	refuse(api, "tenants")
	return api
}

func asks(addr string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations[allocator.LoadBalancerIPs] = addr }
}

// TestTenantServicesUnlisted: a leader that may not list TenantServices serves the Services of the hub, keeps
// what has addresses, and gives no address of a pool of tenants to anybody before it knows who has it. That
// holds for one that had them in its watch, and for one that has just started.
func TestTenantServicesUnlisted(t *testing.T) {
	for name, knows := range map[string]bool{"it knew them": true, "it never read them": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := hubAPI(t)
			first := run(t, build(t, api, "a"))
			putWeb(api, "shop", "default.web", old, 30080)
			eventually(t, "it has an address", func() bool { return tenantSays(api, "shop", "default.web") == "192.0.2.0=public"+served })
			api.Put(resource, service("own"))
			eventually(t, "so has one of the hub", func() bool { return status(api, "own") == "192.0.2.1" })
			second := build(t, api, "b")
			if knows {
				run(t, second)
				eventually(t, "b knows them", func() bool { return len(second.objects.TenantServices.All()) == 1 })
			}
			refuse(api, "tenantservices")
			if !knows {
				run(t, second)
			}
			first.stop()
			eventually(t, "b leads", func() bool { return second.Stats().Leader })
			putPool(api, "zone", "198.51.100.0/30")
			api.Put(resource, service("other"))
			eventually(t, "a pool that is no tenant's gives out addresses", func() bool { return status(api, "other") == "198.51.100.0" })
			api.Put(resource, service("thief", asks("192.0.2.0")))
			api.Put(resource, service("asks", asks("192.0.2.2")))
			eventually(t, "events name the rule", func() bool {
				all := strings.Join(told(api), "\n")
				return strings.Contains(all, `default/asks Warning AllocationFailed: PoolClosed: pool "public" gives out nothing for now`) && strings.Contains(all, "default/thief Warning AllocationFailed")
			})
			if got, own := tenantSays(api, "shop", "default.web"), status(api, "own"); got != "192.0.2.0=public"+served || own != "192.0.2.1" {
				t.Errorf("taken back: the tenant has %q, the hub %q", got, own)
			}
			if got := status(api, "thief") + status(api, "asks"); got != "" {
				t.Errorf("given out: %s", got)
			}
			api.Gate(nil)
			eventually(t, "what is free is given out", func() bool { return status(api, "asks") == "192.0.2.2" })
			if got := tenantSays(api, "shop", "default.web"); got != "192.0.2.0=public"+served || status(api, "thief") != "" {
				t.Errorf("the tenant has %q, the thief %q", got, status(api, "thief"))
			}
		})
	}
}

// TestPoolsCloseOnceTenantsAreRead: a controller that could read neither Tenants nor TenantServices, and then
// may read the Tenants alone, gives out no address of their pools.
func TestPoolsCloseOnceTenantsAreRead(t *testing.T) {
	t.Parallel()
	api := hubAPI(t)
	putWeb(api, "shop", "default.web", old, 30080)
	refuse(api, "tenants", "tenantservices")
	p := run(t, build(t, api, "a"))
	eventually(t, "it leads", func() bool { return p.Stats().Leader })
	api.Put(resource, service("early"))
	eventually(t, "the pool gives out addresses", func() bool { return status(api, "early") == "192.0.2.0" })
	refuse(api, "tenantservices")
	eventually(t, "Tenants are read", func() bool { return !p.tenants.blind() })
	api.Put(resource, service("late"))
	eventually(t, "the pool is closed", func() bool {
		return strings.Contains(strings.Join(told(api), "\n"), `default/late Warning AllocationFailed: PoolClosed: pool "public" gives out nothing for now`)
	})
	if got := status(api, "late"); got != "" {
		t.Error("given out:", got)
	}
	api.Gate(nil)
	eventually(t, "what is free is given out", func() bool { return status(api, "late") != "" })
}

// TestWordsForTenants: what is said to a tenant names nothing of the hub that is not the tenant's.
func TestWordsForTenants(t *testing.T) {
	for message, want := range map[string]string{
		"InUse: 192.0.2.1 is in use by default/a":                                                        "InUse: an address that is asked for is in use, or was until a minute ago",
		`WrongPool: 192.0.2.1 is of the pool "internal"`:                                                 "WrongPool: an address that is asked for is in no pool of the Tenant",
		`PoolClosed: pool "p" gives out nothing for now: the controller may not list the tenantservices`: "PoolClosed: the pool gives out no addresses for now",
		`Exhausted: no pool has a free IPv4 address: "public" has none`:                                  `Exhausted: no pool has a free IPv4 address: "public" has none`,
	} {
		if got := new(tenantServices).words(allocator.Event{Reason: allocator.EventFailed, Message: message}); got != want {
			t.Errorf("%s: told as %s, want %s", message, got, want)
		}
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
