package routes

import (
	"maps"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// standStill decides while nobody knows the HTTPRoutes of the hub. A hostname that is given away may be that of one, and a
// Service that is deleted may be behind one, so nothing changes but the endpoints of Services: they follow the nodes.
func (out *Output) standStill(in *Input) {
	wanted := make(map[ID]bool)
	for _, id := range slices.SortedFunc(maps.Keys(in.Have), ID.compare) {
		if id.Kind != KindService || in.Clusters[id.Namespace].Tenant == nil {
			continue
		}
		wanted[id] = true
		out.endpoints(in, wanted, id, portsIn(in.Have[id]))
	}
	for _, id := range slices.SortedFunc(maps.Keys(in.Have), ID.compare) {
		if have := in.Have[id]; id.Kind == KindSlice && !wanted[id] && wanted[serviceOf(id, have)] {
			out.Deletes = append(out.Deletes, Delete{id, have.UID})
		}
	}
	for key, r := range in.Routes {
		if !r.Judged {
			out.Verdicts[key] = tenants.Verdict{Reason: ReasonUnknown, Message: "the controller of the hub cannot read its HTTPRoutes: what is served stays, and nothing new is"}
			out.Addresses[key], out.Hostnames[key] = r.Shows, r.Held
		}
	}
}

// portsIn are the ports of a Service of the hub.
func portsIn(service Have) (ports []int32) {
	for _, p := range objectsAt(service.Body, "spec", "ports") {
		port, _ := p["port"].(int64)
		ports = append(ports, int32(port))
	}
	return ports
}

// serviceOf is the Service that an EndpointSlice is of.
func serviceOf(slice ID, have Have) ID {
	meta, _ := have.Body["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	name, _ := labels[labelOfSlice].(string)
	return ID{KindService, model.Key{Namespace: slice.Namespace, Name: name}}
}

// httpKey is the annotation of a Service that HTTPRoutes of the hub lead to. A controller that starts knows by it that
// there are some, also when no tenant has a Gateway any more. An HTTPRoute that only redirects has no Service.
const httpKey = "lbd.dev/http-routes"

// LedTo tells whether a Service is behind an HTTPRoute of the hub.
func LedTo(id ID, have Have) bool {
	meta, _ := have.Body["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	return id.Kind == KindService && annotations[httpKey] == "true"
}

// servicePorts are ports of Services of the hub.
type servicePorts map[ID]map[int32]bool

func (s servicePorts) add(id ID, port int32) {
	if s[id] == nil {
		s[id] = make(map[int32]bool)
	}
	s[id][port] = true
}

// ports are those that Services are to have, and which of these are behind HTTPRoutes. What an HTTPRoute of the hub leads
// to stays until that is gone, or leads elsewhere.
func (in *Input) ports(accepted []model.Key) (all servicePorts, http map[ID]bool) {
	all, http = make(servicePorts), make(map[ID]bool)
	for _, key := range accepted {
		r := in.Routes[key]
		for service, nodePort := range r.Spec.Backends() {
			id := ID{KindService, model.Key{Namespace: key.Namespace, Name: serviceName(key.Namespace, r.TenantRoute, service)}}
			all.add(id, nodePort)
			http[id] = http[id] || r.Spec.Origin.Kind == v1alpha1.OriginHTTPRoute
		}
	}
	for route, have := range in.Have {
		if route.Kind != KindHTTPRoute {
			continue
		}
		for _, rule := range objectsAt(have.Body, "spec", "rules") {
			for _, backend := range objectsIn(rule, "backendRefs") {
				name, _ := backend["name"].(string)
				port, _ := backend["port"].(int64)
				id := ID{KindService, model.Key{Namespace: route.Namespace, Name: name}}
				if _, is := in.Have[id]; is {
					all.add(id, int32(port))
					http[id] = true
				}
			}
		}
	}
	return all, http
}

// objectsAt are those of a list in a field, and objectsIn those of a list.
func objectsAt(in map[string]any, field, list string) []map[string]any {
	inner, _ := in[field].(map[string]any)
	return objectsIn(inner, list)
}

func objectsIn(in map[string]any, list string) (all []map[string]any) {
	items, _ := in[list].([]any)
	for _, x := range items {
		if o, is := x.(map[string]any); is {
			all = append(all, o)
		}
	}
	return all
}
