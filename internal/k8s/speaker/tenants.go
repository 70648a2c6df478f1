package speaker

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
	"lbd.dev/lbd/internal/tenants"
)

// TenantNames are the Tenants that have namespaces, by namespace. It is empty while the cluster is not known.
func (s *Source) TenantNames() map[string]string {
	s.mu.Lock()
	w := s.watches
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	all := objects.Tenants{Tenants: w.objects.Tenants.All()}
	return all.Owners()
}

// TenantOf tells of the TenantService that an address is of, or that has this name, NAMESPACE/NAME or that of
// its VIPs, or of those with this global name, and how this node judges it, whatever the controller says of it;
// nil: it is of none.
func (s *Source) TenantOf(vip string) *v1alpha1.TenantOwner {
	s.mu.Lock()
	w, out := s.watches, s.tenants
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	all, names := w.objects.Objects().Objects, s.TenantNames()
	if tenant, global, is := model.GlobalOf(vip); is {
		return globalOwner(&all, &out, names, tenant, global)
	}
	key, ok := findTenantService(&all, &out, vip)
	if !ok {
		return nil
	}
	o := &v1alpha1.TenantOwner{Tenant: names[key.Namespace], Namespace: key.Namespace, Service: key.Name, Reason: string(out.Services[key].Reason), Message: out.Services[key].Message}
	o.Cluster, o.GlobalName = clusterOf(&all, o.Tenant, key.Namespace), all.TenantServices[key].Spec.GlobalName
	for _, p := range all.TenantServices[key].Spec.Ports {
		o.Ports = append(o.Ports, v1alpha1.BalancerPort{Protocol: string(p.Protocol), Port: p.Port, TargetPort: p.NodePort})
	}
	return o
}

// globalOwner is what is said of the TenantServices of a Tenant with one global name.
func globalOwner(all *services.Objects, out *tenants.Output, names map[string]string, tenant, global string) *v1alpha1.TenantOwner {
	o := &v1alpha1.TenantOwner{Tenant: tenant, GlobalName: global, Reason: string(tenants.ReasonAccepted)}
	for _, key := range slices.SortedFunc(maps.Keys(all.TenantServices), model.Key.Compare) {
		s := &all.TenantServices[key].Spec
		if names[key.Namespace] == tenant && s.GlobalName == global {
			o.Members = append(o.Members, v1alpha1.TenantMember{
				Cluster: clusterOf(all, tenant, key.Namespace), Namespace: key.Namespace, Service: key.Name, Weight: s.Share(),
				Reason: string(out.Services[key].Reason), Message: out.Services[key].Message,
			})
		}
	}
	if len(o.Members) == 0 {
		return nil
	}
	return o
}

// clusterOf is the name of the cluster of a Tenant that has a namespace.
func clusterOf(all *services.Objects, tenant, namespace string) string {
	for _, t := range all.Tenants {
		for _, c := range t.Spec.Clusters {
			if t.Metadata.Name == tenant && c.Namespace == namespace {
				return c.Name
			}
		}
	}
	return ""
}

// findTenantService finds a TenantService by its name or an address. Of two that have or ask for the
// address the one that counts goes first.
func findTenantService(all *services.Objects, out *tenants.Output, vip string) (model.Key, bool) {
	k, is := model.TenantKey(vip)
	if !is {
		k = model.ParseKey(vip)
	}
	if all.TenantServices[k] != nil {
		return k, true
	}
	addr, err := netip.ParseAddr(vip)
	if err != nil {
		return model.Key{}, false
	}
	var found model.Key
	best := 0
	for k, s := range all.TenantServices {
		rank := 0
		switch {
		case slices.Contains(out.Given[k], addr):
			rank = 3
		case slices.Contains(s.Given, addr):
			rank = 2
		case slices.ContainsFunc(s.Spec.Addresses, func(text string) bool { a, err := netip.ParseAddr(text); return err == nil && a == addr }):
			rank = 1
		}
		if rank > best || rank == best && rank > 0 && k.Compare(found) < 0 {
			found, best = k, rank
		}
	}
	return found, best > 0
}
