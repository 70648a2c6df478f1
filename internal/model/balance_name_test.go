package model

import "testing"

// TestTenantName: no other LoadBalancer can have the name of a tenant's.
func TestTenantName(t *testing.T) {
	machines := Key{Namespace: "tenant", Name: "web"}
	of := TenantName(Key{Namespace: "shop", Name: "default.web"})
	for name, want := range map[string]bool{
		of: true, TenantName(machines): true,
		machines.String(): false, "shop/default.web": false, "tenant": false, "web": false,
	} {
		if got := OfTenant(name); got != want {
			t.Errorf("%s is of a tenant: %t", name, got)
		}
	}
	if of != "tenant/shop/default.web" {
		t.Error(of)
	}
}
