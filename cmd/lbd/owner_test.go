package main

import (
	"errors"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
)

// fakeTenants has the Tenant shop with one Service, that is over a limit.
type fakeTenants struct{}

func (fakeTenants) TenantNames() map[string]string { return map[string]string{"lbd-shop-main": "shop"} }

func (fakeTenants) TenantOf(vip string) *v1alpha1.TenantOwner {
	if vip == "tenant/bank/global/web" {
		return &v1alpha1.TenantOwner{Tenant: "bank", GlobalName: "web", Members: []v1alpha1.TenantMember{{}}}
	}
	if vip != "192.0.2.1" && vip != "lbd-shop-main/default.web" {
		return nil
	}
	return &v1alpha1.TenantOwner{Tenant: "shop", Cluster: "main", Namespace: "lbd-shop-main", Service: "default.web", Reason: "TenantLimit", Message: "too much",
		Ports: []v1alpha1.BalancerPort{{Protocol: "TCP", Port: 80, TargetPort: 30080}}}
}

// TestWhoseAddress: status, explanations and errors name the tenant, and nothing changes without one.
func TestWhoseAddress(t *testing.T) {
	s := v1alpha1.NodeStatus{VIPs: []v1alpha1.VIPStatus{
		{Name: "tenant/lbd-shop-main/default.web", Kind: "TenantService"}, {Name: "tenant/lbd-bank-main/default.web", Kind: "TenantService"}, {Name: "lbd-shop-main/default.web", Kind: "Service"},
		{Name: "tenant/bank/global/web", Kind: "TenantService"}}}
	shared := s.VIPs
	tenantStatus(fakeTenants{})(&s)
	if shared[0].Tenant != "" {
		t.Error("a status that others read is changed")
	}
	if s.VIPs[0].Tenant != "shop" || s.VIPs[1].Tenant != "" || s.VIPs[2].Tenant != "" || s.VIPs[3].Tenant != "bank" {
		t.Errorf("%+v", s.VIPs)
	}
	list := []v1alpha1.Explanation{
		{Name: "tenant/lbd-shop-main/default.web", Address: "192.0.2.1"}, {Name: "default/web", Address: "192.0.2.1"}, {Name: "api", Address: "192.0.2.1"}, {Name: "tenant/lbd-shop-main/default.web", Address: "192.0.2.2"},
		{Name: "tenant/bank/global/web", Address: "192.0.2.1"}}
	explainTenants(list, fakeTenants{})
	if list[0].Tenant == nil || list[1].Tenant != nil || list[2].Tenant != nil || list[3].Tenant != nil || list[4].Tenant == nil || list[4].Tenant.GlobalName != "web" {
		t.Errorf("%+v", list)
	}
	none := errors.New("there is no VIP")
	const want = "there is no VIP; it is of the TenantService default.web in the namespace lbd-shop-main, of the cluster main of the Tenant shop; it leads 80/TCP to NodePort 30080; this node judges TenantLimit: too much"
	for _, vip := range []string{"192.0.2.1", "192.0.2.1:80", "lbd-shop-main/default.web"} {
		if err := unknownVIP(none, vip, fakeTenants{}); !errors.Is(err, none) || err.Error() != want {
			t.Errorf("%s: %v", vip, err)
		}
	}
	for _, err := range []error{unknownVIP(none, "192.0.2.9", fakeTenants{}), unknownVIP(none, "192.0.2.1", nil)} {
		if !strings.HasSuffix(err.Error(), "no VIP") {
			t.Error(err)
		}
	}
	tenantStatus(tenantsIn(nil))(&s)
	explainTenants(list, tenantsIn(nil))
}
