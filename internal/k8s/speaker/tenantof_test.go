package speaker

import (
	"fmt"
	"strings"
	"testing"
)

// TestTenantOf: each node says of an address, or a name, whose it is, as it judges by itself.
func TestTenantOf(t *testing.T) {
	api := cluster(t)
	api.Serve(resTenants, "Tenant")
	api.Serve(resTenantServes, "TenantService")
	b := run(t, api, nil)
	b.become("")
	if o := b.TenantOf("192.0.2.1"); o != nil {
		t.Errorf("without tenants: %+v", o)
	}
	api.Put(resTenants, custom("shop", map[string]any{"pools": []any{"default"}, "limits": map[string]any{"services": 1},
		"clusters": []any{map[string]any{"name": "main", "namespace": "lbd-shop-main", "nodeCIDRs": []any{"10.1.0.0/24"}}}}))
	put := func(namespace, name string, nodePort int, addresses ...string) {
		o := custom(name, map[string]any{"ports": []any{map[string]any{"port": 80, "nodePort": nodePort}}, "addresses": addresses})
		o["metadata"].(map[string]any)["namespace"] = namespace
		o["metadata"].(map[string]any)["creationTimestamp"] = fmt.Sprintf("2026-01-01T00:00:%02dZ", nodePort-30080)
		api.Put(resTenantServes, o)
	}
	put("lbd-shop-main", "default.web", 30080)
	put("lbd-shop-main", "default.more", 30081, "2001:db8::9")
	put("other", "default.web", 30082, "2001:0DB8::9")
	text := func(vip string) string {
		o := b.TenantOf(vip)
		if o == nil {
			return ""
		}
		return fmt.Sprintf("%s %s %s/%s %v %s %s", o.Tenant, o.Cluster, o.Namespace, o.Service, o.Ports, o.Reason, o.Message)
	}
	b.eventually("all are read", func() bool {
		return text("other/default.web") != "" && strings.Contains(text("lbd-shop-main/default.more"), "TenantLimit")
	})
	for vip, want := range map[string]string{
		"lbd-shop-main/default.web":        "shop main lbd-shop-main/default.web [{TCP 80 30080}] AddressPending it has no address yet",
		"tenant/lbd-shop-main/default.web": "shop main lbd-shop-main/default.web [{TCP 80 30080}] AddressPending it has no address yet",
		"lbd-shop-main/default.more":       "shop main lbd-shop-main/default.more [{TCP 80 30081}] TenantLimit with it the Tenant shop has 2 services of 1 that it may have",
		"2001:db8::9":                      "shop main lbd-shop-main/default.more [{TCP 80 30081}] TenantLimit with it the Tenant shop has 2 services of 1 that it may have",
		"other/default.web":                "  other/default.web [{TCP 80 30082}] NoTenant no Tenant that is accepted has the namespace other",
		"192.0.2.200":                      "", "nothing": "",
	} {
		if got := text(vip); got != want {
			t.Errorf("%s: %q, want %q", vip, got, want)
		}
	}
	api.Put(resTenants, custom("shop", map[string]any{"pools": []any{"default"}, "clusters": []any{
		map[string]any{"name": "main", "namespace": "lbd-shop-main", "nodeCIDRs": []any{"10.1.0.0/24"}}, map[string]any{"name": "second", "namespace": "second", "nodeCIDRs": []any{"10.2.0.0/24"}},
	}}))
	for i, namespace := range []string{"lbd-shop-main", "second", "other"} {
		o := custom("default.web", map[string]any{"ports": []any{map[string]any{"port": 80, "nodePort": 30080}}, "globalName": "web", "weight": 40 * i})
		o["metadata"].(map[string]any)["namespace"] = namespace
		api.Put(resTenantServes, o)
	}
	const want = "{main lbd-shop-main default.web 0 AddressPending it has no address yet} {second second default.web 40 AddressPending it has no address yet}"
	b.eventually("those with a global name", func() bool {
		o := b.TenantOf("tenant/shop/global/web")
		return o != nil && o.Tenant == "shop" && o.GlobalName == "web" && strings.Trim(fmt.Sprint(o.Members), "[]") == want
	})
	if o := b.TenantOf("lbd-shop-main/default.web"); o.GlobalName != "web" || b.TenantOf("tenant/shop/global/none") != nil {
		t.Errorf("%+v", o)
	}
	if names := b.TenantNames(); len(names) != 2 || names["lbd-shop-main"] != "shop" {
		t.Errorf("%v", names)
	}
	if none := New(Options{}); none.TenantOf("192.0.2.1") != nil || none.TenantNames() != nil {
		t.Error("without a cluster there are tenants")
	}
}
