package objects

import (
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// OfAgents tells whether agents of tenants write objects of a kind, as often as they like.
func OfAgents(kind string) bool {
	return kind == v1alpha1.KindTenantNodes || kind == v1alpha1.KindTenantService
}

// NewTenantRoutes watches TenantRoutes.
func NewTenantRoutes(client *k8s.Client, changed func([]model.Key)) *k8s.Watch[Object[*v1alpha1.TenantRoute]] {
	return newOptionalWatch[v1alpha1.TenantRoute](client, v1alpha1.KindTenantRoute, func(_ string, keys []model.Key) { changed(keys) })
}

// given are the lists of texts of a status; what is malformed is left out.
func given(u *unstructured.Unstructured, names ...string) map[string]any {
	status := map[string]any{}
	for _, name := range names {
		if list, ok, err := unstructured.NestedStringSlice(u.Object, "status", name); ok && err == nil {
			status[name] = list
		}
	}
	return status
}

// readTenants adds the valid objects of tenants, and the others to Invalid.
func (s *Set) readTenants(o *Objects) {
	for _, x := range validByKey(s.Tenants, v1alpha1.KindTenant, &o.Invalid) {
		o.Tenants = append(o.Tenants, tenants.Tenant{Tenant: x.Value, Created: x.Created})
	}
	nodes := validByKey(s.TenantNodes, v1alpha1.KindTenantNodes, &o.Invalid)
	o.TenantNodes = make(map[model.Key]*v1alpha1.TenantNodes, len(nodes))
	for k, x := range nodes {
		o.TenantNodes[k] = x.Value
	}
	services := validByKey(s.TenantServices, v1alpha1.KindTenantService, &o.Invalid)
	o.TenantServices = make(map[model.Key]*tenants.Service, len(services))
	for k, x := range services {
		o.TenantServices[k] = TenantService(x)
	}
}

// TenantService is a TenantService as it is judged.
func TenantService(x Object[*v1alpha1.TenantService]) *tenants.Service {
	s := &tenants.Service{TenantService: x.Value, Created: x.Created, Given: Given(x.Value)}
	if x.Value.Status != nil {
		s.Shared = x.Value.Status.GlobalName
	}
	return s
}

// Given are the addresses of the status of a TenantService.
func Given(s *v1alpha1.TenantService) (addrs []netip.Addr) {
	if s.Status == nil {
		return nil
	}
	for _, a := range s.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// validByKey returns the objects without errors, and adds the others to invalid.
func validByKey[T any](w *k8s.Watch[Object[T]], kind string, invalid *[]Invalid) map[model.Key]Object[T] {
	all := maps.Clone(w.All())
	for _, k := range slices.SortedFunc(maps.Keys(all), model.Key.Compare) {
		if o := all[k]; len(o.Errors) > 0 {
			*invalid = append(*invalid, Invalid{Kind: kind, Name: k.String(), Errors: o.Errors})
			delete(all, k)
		}
	}
	return all
}
