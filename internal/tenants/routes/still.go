package routes

import (
	"fmt"
	"maps"
	"slices"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// standStill decides while nobody knows which Ingresses or HTTPRoutes the hub has. A hostname that is given away may be that
// of one, and a Service that is deleted may be behind one, so nothing changes but the endpoints of Services: they follow the nodes.
func (out *Output) standStill(in *Input) {
	out.Still = true
	wanted, other := make(map[ID]bool), in.unserved()
	for _, id := range slices.SortedFunc(maps.Keys(in.Have), ID.compare) {
		if id.Kind != KindService || in.Clusters[id.Namespace].Tenant == nil {
			continue
		}
		wanted[id] = true
		out.endpoints(in, wanted, id, portsIn(in.Have[id]), other)
	}
	for _, id := range slices.SortedFunc(maps.Keys(in.Have), ID.compare) {
		if have := in.Have[id]; id.Kind == KindSlice && !wanted[id] && wanted[serviceOf(id, have)] {
			out.Deletes = append(out.Deletes, Delete{id, have.UID})
		}
	}
	for key, r := range in.Routes {
		if !r.Judged {
			out.Verdicts[key] = tenants.Verdict{Reason: tenants.ReasonNotRead, Message: fmt.Sprintf("the controller of the hub cannot read its %s: what is served stays, and nothing new is", in.NotRead)}
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

// unserved are the ports that Services have and their EndpointSlices of a family have not.
func (in *Input) unserved() map[familyPort]bool {
	served, some := map[familyPort]bool{}, map[ID]bool{}
	for id, have := range in.Have {
		if id.Kind == KindSlice {
			family, _ := have.Body["addressType"].(string)
			some[serviceOf(id, have)] = true
			for _, p := range objectsIn(have.Body, "ports") {
				port, _ := p["port"].(int64)
				served[familyPort{serviceOf(id, have), int32(port), family}] = true
			}
		}
	}
	all := map[familyPort]bool{}
	for id := range some {
		for _, port := range portsIn(in.Have[id]) {
			for family := range sliceSuffix {
				x := familyPort{id, port, family}
				if !served[x] {
					all[x] = true
				}
			}
		}
	}
	return all
}
