package routes

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// portsKey is the annotation of a Service with the ports that HTTPRoutes of the hub lead to. It tells what has to stay
// while they cannot be read, and that there are some. An HTTPRoute that only redirects has no Service.
const portsKey = "lbd.dev/http-ports"

// LedTo tells whether a Service is behind an HTTPRoute of the hub, or was when that was last known.
func LedTo(id ID, have Have) bool { return id.Kind == KindService && len(ledTo(have)) > 0 }

func ledTo(have Have) (list []int32) {
	meta, _ := have.Body["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	text, _ := annotations[portsKey].(string)
	for part := range strings.SplitSeq(text, ",") {
		if p, err := strconv.ParseUint(part, 10, 16); err == nil && p > 0 {
			list = append(list, int32(p))
		}
	}
	return list
}

// mark is what ledTo reads.
func mark(nodePorts []int32) string {
	var parts []string
	for _, p := range nodePorts {
		parts = append(parts, strconv.Itoa(int(p)))
	}
	return strings.Join(parts, ",")
}

// servicePorts are ports of Services of the hub.
type servicePorts map[ID]map[int32]bool

func (s servicePorts) add(id ID, port int32) {
	if s[id] == nil {
		s[id] = make(map[int32]bool)
	}
	s[id][port] = true
}

// ports are those that Services are to have, and of them those of HTTPRoutes. What an HTTPRoute of the hub leads to
// stays until that is gone, or is known to lead elsewhere.
func (in *Input) ports(accepted []model.Key, kept map[ID]model.Key) (all, http servicePorts) {
	all, http = make(servicePorts), in.behind()
	for id := range kept {
		c := in.Clusters[id.Namespace]
		ports, _ := in.serves(&c, id)
		for x := range ports {
			all.add(ID{KindService, x.service}, x.nodePort)
		}
	}
	for _, key := range accepted {
		r := in.Routes[key]
		served := r.Spec.Origin.Kind == v1alpha1.OriginHTTPRoute
		if served && in.HTTPRoutesUnknown { // it is not written either
			continue
		}
		for service, nodePort := range r.Spec.Backends() {
			id := ID{KindService, model.Key{Namespace: key.Namespace, Name: serviceName(key.Namespace, r.TenantRoute, service)}}
			all.add(id, nodePort)
			if served {
				http.add(id, nodePort)
			}
		}
	}
	for id, list := range http {
		for port := range list {
			all.add(id, port)
		}
	}
	return all, http
}

// behind are the ports that HTTPRoutes of the hub lead to. While these are not known, all count that were marked, and
// those of Services that the HTTPRoutes lead to that were known last.
func (in *Input) behind() servicePorts {
	named, all := make(servicePorts), make(servicePorts)
	for id, have := range in.Have {
		if id.Kind != KindHTTPRoute {
			continue
		}
		spec, _ := have.Body["spec"].(map[string]any)
		rules, _ := spec["rules"].([]any)
		for _, x := range rules {
			rule, _ := x.(map[string]any)
			backends, _ := rule["backendRefs"].([]any)
			for _, y := range backends {
				backend, _ := y.(map[string]any)
				name, _ := backend["name"].(string)
				port, _ := backend["port"].(int64)
				named.add(ID{KindService, model.Key{Namespace: id.Namespace, Name: name}}, int32(port))
			}
		}
	}
	for id, have := range in.Have {
		if id.Kind != KindService {
			continue
		}
		for _, port := range ledTo(have) {
			if in.unlisted() || named[id][port] {
				all.add(id, port)
			}
		}
		for port := range named[id] {
			if in.unlisted() {
				all.add(id, port)
			}
		}
	}
	return all
}

// unknown are the hostnames that HTTPRoutes of the hub may have while nobody can read them: those that a tenant may
// have, of each that has a Gateway, had an HTTPRoute when they were known last, or has Services behind some.
type unknown struct {
	of    map[*v1alpha1.Tenant]*claims
	ended bool // there is such an object without a Tenant, so that it may be any
}

// unlisted tells whether the hub may have HTTPRoutes that are not known.
func (in *Input) unlisted() bool { return in.HTTPRoutesUnknown && !in.HTTPRoutesListed }

func (in *Input) unknown() *unknown {
	u := &unknown{of: make(map[*v1alpha1.Tenant]*claims)}
	if !in.unlisted() {
		return u
	}
	wildcards := in.wildcards()
	add := func(t *v1alpha1.Tenant) {
		if u.of[t] != nil {
			return
		}
		u.of[t] = newClaims(wildcards)
		for _, bound := range t.Spec.Hostnames {
			u.of[t].add(t, bound)
		}
	}
	for _, c := range in.Clusters {
		if c.Tenant.Spec.Gateway != "" {
			add(c.Tenant)
		}
	}
	for id, have := range in.Have {
		if !LedTo(id, have) && id.Kind != KindHTTPRoute {
			continue
		}
		if t := in.Clusters[id.Namespace].Tenant; t != nil {
			add(t)
		} else {
			u.ended = true
		}
	}
	return u
}

// keeps is why a tenant does not get a hostname that it has not: another may have it.
func (u *unknown) keeps(t *v1alpha1.Tenant, host string, taken *claims) (tenants.Verdict, bool) {
	if taken.of[host] == t {
		return tenants.Verdict{}, false
	}
	may := u.ended
	for other, bounds := range u.of {
		may = may || other != t && bounds.other(t, host) != ""
	}
	return tenants.Verdict{Reason: ReasonUnknown, Message: fmt.Sprintf("the controller of the hub cannot read HTTPRoutes, and one of another tenant may have %s", host)}, may
}

// serves are the ports that the Ingress of a route leads to, which stays as it is while the route is refused for now.
// false: there is none, or one that its Tenant may not have any more.
func (in *Input) serves(c *tenants.Cluster, id ID) (map[port]bool, bool) {
	have, is := in.Have[id]
	if !is || id.Kind != KindIngress || slices.ContainsFunc(hostsOf(have), func(host string) bool { return !within(host, c.Tenant.Spec.Hostnames) }) {
		return nil, false
	}
	ports := make(map[port]bool)
	for _, rule := range objectsAt(have.Body, "spec", "rules") {
		for _, path := range objectsAt(rule, "http", "paths") {
			backend, _ := path["backend"].(map[string]any)
			service, _ := backend["service"].(map[string]any)
			name, _ := service["name"].(string)
			of, _ := service["port"].(map[string]any)
			number, _ := of["number"].(int64)
			if !c.NodePorts.Contains(int32(number)) {
				return nil, false
			}
			ports[port{model.Key{Namespace: id.Namespace, Name: name}, int32(number)}] = true
		}
	}
	return ports, true
}

// objectsAt are those of a list.
func objectsAt(in map[string]any, object, list string) (all []map[string]any) {
	inner, _ := in[object].(map[string]any)
	items, _ := inner[list].([]any)
	for _, x := range items {
		if o, is := x.(map[string]any); is {
			all = append(all, o)
		}
	}
	return all
}

// as is an Ingress as it is, without what its Tenant may not have any more.
func (in *Input) as(c *tenants.Cluster, id ID) map[string]any {
	meta, _ := in.Have[id].Body["metadata"].(map[string]any)
	had, _ := meta["annotations"].(map[string]any)
	annotations := map[string]any{}
	for key, value := range had {
		if allowed(key, c.Tenant.Spec.Annotations.Allow) {
			annotations[key] = value
		}
	}
	before, _ := in.Have[id].Body["spec"].(map[string]any)
	spec := maps.Clone(before)
	spec["ingressClassName"] = c.Tenant.Spec.IngressClass
	var tls []any
	for _, entry := range tlsOf(in.Have[id]) {
		if name, _ := entry["secretName"].(string); strings.HasPrefix(name, v1alpha1.HubSecretPrefix) && !in.usable(c, secretID(id.Namespace, name)) {
			entry = maps.Clone(entry)
			delete(entry, "secretName")
		}
		tls = append(tls, entry)
	}
	if len(tls) > 0 {
		spec["tls"] = tls
	}
	return map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": spec}
}

// stays tells whether what is served for a route may be what nobody can read now.
func (in *Input) stays(r *Route) bool {
	return in.unlisted() && r.Spec.Origin.Kind == v1alpha1.OriginHTTPRoute
}

// slicesOf are the EndpointSlices that a Service has.
func (in *Input) slicesOf(service ID) (list []ID) {
	for id, have := range in.Have {
		meta, _ := have.Body["metadata"].(map[string]any)
		labels, _ := meta["labels"].(map[string]any)
		if id.Kind == KindSlice && id.Namespace == service.Namespace && labels[labelOfSlice] == service.Name {
			list = append(list, id)
		}
	}
	return list
}
