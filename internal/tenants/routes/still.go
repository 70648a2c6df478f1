package routes

import (
	"fmt"
	"maps"
	"slices"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// standStill decides while nobody knows which Ingresses or other routes the hub has. A hostname that is given away may be that
// of one, and a Service that is deleted may be behind one, so nothing changes but the endpoints of Services: they follow the nodes.
func (out *Output) standStill(in *Input) {
	out.Still = true
	wanted, services := make(map[ID]bool), make(map[ID]bool)
	for _, id := range slices.SortedFunc(maps.Keys(in.Have), ID.compare) {
		c := in.Clusters[id.Namespace]
		if id.Kind != KindService || c.Tenant == nil {
			continue
		}
		services[id] = true
		for _, family := range slices.Sorted(maps.Keys(sliceSuffix)) { // those that it had
			if first, is := in.Have[sliceID(id, family, 0)]; is {
				parts := endpoints(&c, family)
				if len(parts) == 0 {
					parts = [][]any{{}} // or nobody knows that it had this family
				}
				out.slices(in, wanted, id, family, portsIn(objectsIn(first.Body, "ports")), parts)
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(in.Have), ID.compare) {
		if have := in.Have[id]; id.Kind == KindSlice && !wanted[id] && services[serviceOf(id, have)] {
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

// serviceOf is the Service that an EndpointSlice is of.
func serviceOf(slice ID, have Have) ID {
	meta, _ := have.Body["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	name, _ := labels[labelOfSlice].(string)
	return ID{KindService, model.Key{Namespace: slice.Namespace, Name: name}}
}
