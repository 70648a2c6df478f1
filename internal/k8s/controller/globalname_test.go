package controller

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/model"
)

// TestGlobalName: Services of two clusters of a Tenant with one global name have one address, which counts once. It
// goes to who is left when the oldest goes, and rests only when nobody has it. No Service of another Tenant, nor of the
// hub, gets it by any name.
func TestGlobalName(t *testing.T) {
	t.Parallel()
	api := hubAPI(t)
	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]},
		{"name":"second","namespace":"second","nodeCIDRs":["10.2.0.0/24"]}],"pools":["public"],"limits":{"addresses":1}}`)
	putTenant(api, "bank", old, `{"clusters":[{"name":"main","namespace":"bank","nodeCIDRs":["10.3.0.0/24"]}],"pools":["public"]}`)
	putSpec(api, tenantNodes, "second", "n-0", old, `{"nodes":[{"name":"a1","addresses":["10.2.0.1"]}]}`)
	putSpec(api, tenantNodes, "bank", "n-0", old, `{"nodes":[{"name":"a1","addresses":["10.3.0.1"]}]}`)
	const spec = `{"ports":[{"port":80,"nodePort":30080}],"globalName":"web","weight":50}`
	putSpec(api, tenantServes, "shop", "default.web", old, spec)
	p := run(t, build(t, api, "a"))
	is := func(namespace, name, want string) {
		t.Helper()
		eventually(t, namespace+"/"+name+" is "+want, func() bool { return tenantSays(api, namespace, name) == want })
	}
	const first = "192.0.2.0=public" + served
	is("shop", "default.web", first)
	eventually(t, "it shares the address", func() bool {
		name, _, _ := nested[string](api.Get(tenantServes, "shop", "default.web"), "status", "globalName")
		return name == "web"
	})

	putSpec(api, tenantServes, "second", "default.web", young, spec)
	putSpec(api, tenantServes, "bank", "default.web", old, spec)
	putSpec(api, tenantServes, "second", "default.other", young, `{"ports":[{"port":443,"nodePort":30443}],"globalName":"web"}`)
	api.Put(resource, service("evil", func(s *corev1.Service) {
		s.Annotations = map[string]string{"lbd.dev/allow-shared-ip": " tenant/shop/global/web", "lbd.dev/loadBalancerIPs": "192.0.2.0"}
	}))
	is("second", "default.web", first)
	is("bank", "default.web", "192.0.2.1=public"+served)
	is("second", "default.other", "False Conflict, False NotAccepted")
	if got := acceptedOf(api, tenantServes, "second", "default.other"); !strings.Contains(got, "has other ports: 80/TCP, and this one 443/TCP") {
		t.Error(got)
	}
	eventually(t, "the Service of the hub is refused", func() bool { return strings.Contains(strings.Join(told(api), "\n"), "192.0.2.0 is ") })
	if got := status(api, "evil"); got != "" {
		t.Errorf("a Service of the hub has %s", got)
	}
	if use := p.TenantUse()["shop"]; use.Addresses != 1 || use.Services != 2 {
		t.Errorf("shop has %+v", use)
	}

	api.Delete(tenantServes, "shop", "default.web")
	putSpec(api, tenantServes, "shop", "default.web", young, spec) // and it comes back, among those that are there
	is("shop", "default.web", first)
	is("second", "default.web", first)
	is("second", "default.other", "False Conflict, False NotAccepted")
	if n := p.tenants.resting()["shop"]; n != 0 {
		t.Errorf("%d addresses rest", n)
	}

	p.stop()
	p = run(t, build(t, api, "b"))
	eventually(t, "b leads", func() bool { return p.Stats().Leader })
	time.Sleep(2 * judgePause)
	is("shop", "default.web", first)
	is("second", "default.web", first)

	putSpec(api, tenantServes, "second", "default.web", young, `{"ports":[{"port":80,"nodePort":30080}]}`)
	is("second", "default.web", "False TenantLimit, False NotAccepted") // it has no other address, and keeps not this one
	is("shop", "default.web", first)
	api.Delete(resource, "default", "evil") // it asks for the address
	api.Delete(tenantServes, "second", "default.other")
	time.Sleep(judgePause)
	api.Delete(tenantServes, "shop", "default.web")
	eventually(t, "the address rests", func() bool { return p.tenants.resting()["shop"] == 1 })
}

// TestAddressOfAnotherTenant: a Service that leaves a global name for one whose first waits for an address in vain shows
// no address that it does not have. So it takes none from another Tenant while nobody leads.
func TestAddressOfAnotherTenant(t *testing.T) {
	t.Parallel()
	api := hubAPI(t)
	putPool(api, "public", "192.0.2.0/29")
	putTenant(api, "bank", old, `{"clusters":[{"name":"main","namespace":"bank","nodeCIDRs":["10.3.0.0/24"]}],"pools":["public"]}`)
	web := func(namespace, name, created string, nodePort int, more string) {
		putSpec(api, tenantServes, namespace, name, created, fmt.Sprintf(`{"ports":[{"port":80,"nodePort":%d}]%s}`, nodePort, more))
	}
	change := func(name string, spec map[string]any) {
		o := api.Get(tenantServes, "shop", name)
		maps.Copy(o["spec"].(map[string]any), spec)
		api.Put(tenantServes, o)
	}
	has := func(namespace, name, addr string) {
		t.Helper()
		eventually(t, namespace+"/"+name+" has "+addr, func() bool { return strings.HasPrefix(tenantSays(api, namespace, name), addr+"=") })
	}
	p := run(t, build(t, api, "a", func(o *Options) { o.Allocator.Quarantine = time.Second }))
	web("bank", "default.old", old, 30080, `,"addresses":["192.0.2.5"]`)
	has("bank", "default.old", "192.0.2.5")
	web("shop", "default.a", old, 30080, `,"globalName":"web"`)
	has("shop", "default.a", "192.0.2.0")
	web("shop", "default.b", young, 30081, `,"globalName":"web"`)
	has("shop", "default.b", "192.0.2.0")
	web("shop", "default.c", young, 30082, `,"globalName":"api"`)
	has("shop", "default.c", "192.0.2.1")
	asks := []any{"192.0.2.5"}
	change("default.c", map[string]any{"addresses": asks})
	eventually(t, "c waits in vain", func() bool { return strings.Contains(tenantSays(api, "shop", "default.c"), "AddressPending") })
	change("default.a", map[string]any{"globalName": "api", "addresses": asks})
	eventually(t, "a waits as well", func() bool { return strings.Contains(tenantSays(api, "shop", "default.a"), "AddressPending") })
	api.Delete(tenantServes, "shop", "default.b")
	eventually(t, "the address rests", func() bool { return p.tenants.resting()["shop"] == 1 })
	eventually(t, "it has rested", func() bool { return p.tenants.resting()["shop"] == 0 })
	web("bank", "default.new", young, 30443, "")
	has("bank", "default.new", "192.0.2.0")
	p.stop()
	api.Delete(tenantServes, "shop", "default.c")
	p = run(t, build(t, api, "b"))
	eventually(t, "b leads", func() bool { return p.Stats().Leader })
	time.Sleep(2 * judgePause)
	if got := tenantSays(api, "shop", "default.a"); strings.Contains(got, "192.0.2.0=") {
		t.Error("a has the address of another Tenant: " + got)
	}
	has("bank", "default.new", "192.0.2.0")
}

// TestNameComesWithAddresses: a status has the global name from the moment that it has the addresses. They would be its own
// otherwise, and those of no other if the name is dropped then.
func TestNameComesWithAddresses(t *testing.T) {
	api := hubAPI(t)
	putSpec(api, tenantServes, "shop", "default.web", old, `{"ports":[{"port":80,"nodePort":30080}],"globalName":"web"}`)
	c := build(t, api, "a", func(o *Options) { o.Lease = &holding{} })
	leading(t, c)
	for _, ingress := range [][]allocator.Ingress{{{IP: "192.0.2.0"}}, nil} {
		s := c.tenants.claims()[0]
		version, _, _ := nested[string](api.Get(tenantServes, "shop", "default.web"), "metadata", "resourceVersion")
		w := allocator.Write{Service: s.Key, UID: s.UID, Version: version, Ingress: ingress, Mark: "192.0.2.0=public"}
		if _, err := c.tenants.assign(t.Context(), model.Key{Namespace: "shop", Name: "default.web"}, w); err != nil {
			t.Fatal(err)
		}
		name, has, _ := nested[string](api.Get(tenantServes, "shop", "default.web"), "status", "globalName")
		if has != (ingress != nil) || has && name != "web" {
			t.Errorf("with %v the status has the name %q", ingress, name)
		}
	}
}

// TestKeptShares: while Tenants may not be read, the oldest asks for an address that several share, and the others go
// without a word.
func TestKeptShares(t *testing.T) {
	all := map[model.Key]tenantService{}
	for i, name := range []string{"c", "b", "a"} {
		s := &v1alpha1.TenantService{Spec: v1alpha1.TenantServiceSpec{GlobalName: "web"}, Status: &v1alpha1.TenantServiceStatus{GlobalName: "web", Addresses: []v1alpha1.TenantAddress{{Address: "192.0.2.1"}}}}
		all[model.Key{Namespace: "shop", Name: name}] = tenantService{Value: s, Created: time.Unix(int64(i), 0)}
	}
	for range 10 { // maps have no order
		if out := kept(all); len(out.Requests) != 1 || out.Requests[0].Key.Name != "c" {
			t.Fatalf("%+v", out.Requests)
		}
	}
}

// TestJoinerMovesNobody: an older Service that takes a global name, but may not have the address, does not become the first:
// those that have it keep it.
func TestJoinerMovesNobody(t *testing.T) {
	t.Parallel() // it waits most of the time
	api := hubAPI(t)
	api.Put(pools, map[string]any{"metadata": map[string]any{"name": "public", "uid": "uid-public"},
		"spec": map[string]any{"addresses": []string{"192.0.2.0/30"}, "serviceAllocation": map[string]any{"namespaces": []any{"shop"}}}})
	putPool(api, "other", "198.51.100.0/30")
	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]},
		{"name":"second","namespace":"second","nodeCIDRs":["10.2.0.0/24"]}],"pools":["public","other"]}`)
	putSpec(api, tenantNodes, "second", "n-0", old, `{"nodes":[{"name":"a1","addresses":["10.2.0.1"]}]}`)
	run(t, build(t, api, "a", func(o *Options) { o.Allocator.Quarantine = time.Second }))
	putSpec(api, tenantServes, "second", "default.web", old, `{"ports":[{"port":80,"nodePort":30080}],"pool":"other"}`)
	eventually(t, "the older has an address", func() bool { return strings.HasPrefix(tenantSays(api, "second", "default.web"), "198.51.100.0=") })
	putSpec(api, tenantServes, "shop", "default.web", young, `{"ports":[{"port":80,"nodePort":30080}],"globalName":"web"}`)
	eventually(t, "the younger has one by the name", func() bool { return strings.HasPrefix(tenantSays(api, "shop", "default.web"), "192.0.2.0=") })
	o := api.Get(tenantServes, "second", "default.web")
	maps.Copy(o["spec"].(map[string]any), map[string]any{"globalName": "web", "pool": ""})
	api.Put(tenantServes, o)
	eventually(t, "the older waits in vain", func() bool { return strings.Contains(tenantSays(api, "second", "default.web"), "AddressPending") })
	for end := time.Now().Add(2 * judgePause); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got := tenantSays(api, "shop", "default.web"); !strings.HasPrefix(got, "192.0.2.0=") {
			t.Fatalf("the younger has %s", got)
		}
	}
}
