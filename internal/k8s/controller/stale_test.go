package controller

import (
	"fmt"
	"testing"

	"lbd.dev/lbd/internal/allocator"
)

// TestStaleAddressesAreKnown: the allocator knows of each address that a TenantService shows, and which of them
// count.
func TestStaleAddressesAreKnown(t *testing.T) {
	api := hubAPI(t)
	shows := func(namespace, name string, addresses ...any) {
		putWeb(api, namespace, name, old, 30080)
		o := api.Get(tenantServes, namespace, name)
		o["status"] = map[string]any{"addresses": addresses}
		api.Put(tenantServes, o)
	}
	at := func(address string) any { return map[string]any{"address": address, "pool": "public"} }
	shows("shop", "default.web", at("192.0.2.0"), at("198.51.100.1"))
	shows("nobody", "default.web", at("192.0.2.1"))
	putWeb(api, "nobody", "default.none", old, 30081)
	c := build(t, api, "a", func(o *Options) { o.Lease = &holding{} })
	leading(t, c)
	read, err := c.tenants.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]allocator.Service{c.tenants.claims(), read} {
		got := map[string]string{}
		for _, s := range list {
			got[s.Namespace] += fmt.Sprintf("%s %v %v", s.Type, s.Addresses(), s.Stale)
		}
		if len(got) != 2 || got["shop"] != "LoadBalancer [192.0.2.0] [198.51.100.1]" || got["nobody"] != " [] [192.0.2.1]" {
			t.Errorf("%q", got)
		}
	}
}
