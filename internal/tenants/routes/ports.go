package routes

import (
	"fmt"
	"maps"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// marks are the annotations of a Service that routes of the hub lead to, by their kind. A controller that starts knows by them
// that there are some, also when no tenant has a Gateway any more. An HTTPRoute that only redirects has no Service.
var marks = map[string]string{KindHTTPRoute: "lbd.dev/http-routes", KindGRPCRoute: "lbd.dev/grpc-routes"}

// LedTo tells whether a Service is behind a route of a kind of the hub.
func LedTo(id ID, have Have, kind string) bool {
	meta, _ := have.Body["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	return id.Kind == KindService && annotations[marks[kind]] == "true"
}

// unmarked tells whether a route is to wait for the marks of Services that are there already. Without them a controller that may
// not read its kind would not know of it, see k8s/routes; of HTTPRoutes each asks.
func (in *Input) unmarked(id ID, namespace string, r *v1alpha1.TenantRoute) bool {
	if _, is := in.Have[id]; is || id.Kind == KindHTTPRoute {
		return false
	}
	for b := range r.Spec.Backends() {
		service := ID{KindService, model.Key{Namespace: namespace, Name: serviceName(namespace, r, b)}}
		if have, is := in.Have[service]; is && !LedTo(service, have, id.Kind) {
			return true
		}
	}
	return false
}

// servicePort is a NodePort, and what the Service of the tenant speaks there.
type servicePort struct {
	number int32
	app    string
}

// object is one in a list of ports.
func (p servicePort) object() map[string]any {
	o := map[string]any{"name": fmt.Sprintf("p%d", p.number), "protocol": "TCP", "port": int64(p.number)}
	put(o, "appProtocol", p.app)
	return o
}

// servicePorts are what Services of the hub are to have: their ports with what is spoken there, and the kinds of routes that
// lead to them.
type servicePorts struct {
	ports map[ID]map[int32]string
	kinds map[ID]map[string]bool
}

// add adds a port. Where routes say different things of one, the first in the alphabet is true, so that h2c goes before all: it
// is what a GRPCRoute needs.
func (s *servicePorts) add(id ID, kind string, port servicePort) {
	if s.ports[id] == nil {
		s.ports[id], s.kinds[id] = make(map[int32]string), make(map[string]bool)
	}
	s.kinds[id][kind] = true
	if app, is := s.ports[id][port.number]; !is || app == "" || port.app != "" && port.app < app {
		s.ports[id][port.number] = port.app
	}
}

// of are the ports of a Service, by number.
func (s *servicePorts) of(id ID) (list []servicePort) {
	for _, number := range slices.Sorted(maps.Keys(s.ports[id])) {
		list = append(list, servicePort{number, s.ports[id][number]})
	}
	return list
}

// portsIn are those in a list.
func portsIn(list []map[string]any) (ports []servicePort) {
	for _, p := range list {
		number, _ := p["port"].(int64)
		app, _ := p["appProtocol"].(string)
		ports = append(ports, servicePort{int32(number), app})
	}
	return ports
}

// ports are those that Services are to have. What a route of the hub leads to stays until that is gone, or leads elsewhere.
func (in *Input) ports(accepted []model.Key) *servicePorts {
	all := &servicePorts{make(map[ID]map[int32]string), make(map[ID]map[string]bool)}
	for _, key := range accepted {
		r := in.Routes[key]
		for b := range r.Spec.Backends() {
			id := ID{KindService, model.Key{Namespace: key.Namespace, Name: serviceName(key.Namespace, r.TenantRoute, b)}}
			all.add(id, string(r.Spec.Origin.Kind), servicePort{b.NodePort, b.AppProtocol})
		}
	}
	for route, have := range in.Have {
		if !slices.Contains(GatewayKinds, route.Kind) {
			continue
		}
		for _, rule := range objectsAt(have.Body, "spec", "rules") {
			for _, backend := range objectsIn(rule, "backendRefs") {
				name, _ := backend["name"].(string)
				port, _ := backend["port"].(int64)
				id := ID{KindService, model.Key{Namespace: route.Namespace, Name: name}}
				if service, is := in.Have[id]; is {
					all.leave(id, route.Kind, int32(port), service)
				}
			}
		}
	}
	return all
}

// leave has a Service keep a port as it has it, unless that is to be another.
func (s *servicePorts) leave(id ID, kind string, port int32, has Have) {
	left := servicePort{number: port}
	for _, had := range portsIn(objectsAt(has.Body, "spec", "ports")) {
		if _, other := s.ports[id][port]; !other && had.number == port {
			left = had
		}
	}
	s.add(id, kind, left)
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
