package controller

import (
	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/objects"
)

// TenantUse is what a Tenant has and what it may have.
type TenantUse struct {
	objects.TenantUse
	Limits v1alpha1.TenantLimits
}

// TenantUse is that of each Tenant, by its name.
func (c *Controller) TenantUse() map[string]TenantUse {
	all := objects.Tenants{Tenants: c.objects.Tenants.All()}
	if len(all.Tenants) == 0 {
		return nil
	}
	all.Nodes, all.Services, all.Routes = c.objects.TenantNodes.All(), c.objects.TenantServices.All(), c.routes.Routes()
	out := make(map[string]TenantUse, len(all.Tenants))
	use := all.Use()
	for k, t := range all.Tenants {
		out[k.Name] = TenantUse{use[k.Name], t.Value.Spec.Limits}
	}
	return out
}
