package routes

import (
	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

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
