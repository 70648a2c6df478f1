package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lbd.dev/lbd/api/v1alpha1"
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
	if n := p.Stats().Released; n != 0 {
		t.Errorf("%d addresses were released", n)
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
