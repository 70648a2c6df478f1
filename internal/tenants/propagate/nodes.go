package propagate

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

const (
	// nodesEach is how many nodes are in one object, and nodesPrefix is what the names of these
	// objects begin with.
	nodesEach   = 100
	nodesPrefix = "nodes-"
)

// nodes brings the TenantNodes objects up to date. A node stays in the object in which it is, so that a
// change of one writes one object, whoever came or went before.
func (out *Output) nodes(in *Input) {
	present := make(map[string]v1alpha1.TenantNode, len(in.Nodes))
	for _, n := range in.Nodes {
		present[n.Name] = n
	}
	names := slices.Sorted(maps.Keys(in.HubNodes))
	wanted := make(map[string][]v1alpha1.TenantNode, len(names))
	for _, name := range names {
		h := in.HubNodes[name]
		if text := h.complaint(); text != "" {
			out.Complaints = append(out.Complaints, name+": "+text)
		}
		if h.Spec == nil {
			continue
		}
		for _, old := range h.Spec.Nodes {
			if n, is := present[old.Name]; is && len(wanted[name]) < nodesEach {
				wanted[name] = append(wanted[name], n)
				delete(present, old.Name)
			}
		}
	}
	// The others go where there is room, first into the objects that are there.
	at := 0
	for _, node := range slices.Sorted(maps.Keys(present)) {
		for at < len(names) && len(wanted[names[at]]) >= nodesEach {
			at++
		}
		if at == len(names) {
			names = append(names, free(in.HubNodes, wanted))
		}
		wanted[names[at]] = append(wanted[names[at]], present[node])
	}
	for _, name := range names {
		out.tellNodes(in, name, wanted[name])
	}
	slices.SortFunc(out.Nodes, func(a, b Write[v1alpha1.TenantNodesSpec]) int { return cmp.Compare(a.Name, b.Name) })
}

// free is the first name that no object has.
func free(has map[string]HubNodes, wanted map[string][]v1alpha1.TenantNode) string {
	for i := 0; ; i++ {
		name := nodesPrefix + strconv.Itoa(i)
		if _, is := has[name]; !is && wanted[name] == nil {
			return name
		}
	}
}

// tellNodes has one object say what it is to say; it goes with its last node.
func (out *Output) tellNodes(in *Input, name string, nodes []v1alpha1.TenantNode) {
	h := in.HubNodes[name]
	w := Write[v1alpha1.TenantNodesSpec]{Name: name, UID: h.UID, Before: h.Spec}
	if len(nodes) > 0 {
		slices.SortFunc(nodes, func(a, b v1alpha1.TenantNode) int { return cmp.Compare(a.Name, b.Name) })
		object := v1alpha1.TenantNodes{Spec: v1alpha1.TenantNodesSpec{Nodes: nodes}}
		object.Default()
		w.Spec = &object.Spec
		if h.Spec != nil && same(h.Spec, w.Spec) {
			return
		}
	}
	out.Nodes = append(out.Nodes, w)
}

// Slice is what counts of an EndpointSlice: how many of its endpoints each node has, those that are ready
// and those that serve, which an endpoint that is about to end does.
type Slice struct {
	Service        model.Key
	IPv6           bool
	Ready, Serving map[string]int32
}

// Count adds up the endpoints of the Services that count. As for kube-proxy those that still serve
// are endpoints only where no node has one that is ready.
func Count(all []Slice, counts func(model.Key) bool) map[model.Key][]v1alpha1.TenantEndpoints {
	type sums [2]struct{ ready, serving map[string]int32 } // by family
	of := make(map[model.Key]*sums)
	for _, s := range all {
		if !counts(s.Service) {
			continue
		}
		if of[s.Service] == nil {
			of[s.Service] = new(sums)
		}
		family := &of[s.Service][0]
		if s.IPv6 {
			family = &of[s.Service][1]
		}
		family.ready = added(family.ready, s.Ready)
		family.serving = added(family.serving, s.Serving)
	}
	out := make(map[model.Key][]v1alpha1.TenantEndpoints, len(of))
	for key, s := range of {
		most := make(map[string]int32) // a Pod of two families is one endpoint
		for _, family := range s {
			counted := family.ready
			if len(counted) == 0 {
				counted = family.serving
			}
			for node, n := range counted {
				most[node] = max(most[node], n)
			}
		}
		for _, node := range slices.Sorted(maps.Keys(most)) {
			out[key] = append(out[key], v1alpha1.TenantEndpoints{Name: node, Endpoints: min(most[node], maxEndpoints)})
		}
	}
	return out
}

func added(sum, more map[string]int32) map[string]int32 {
	if sum == nil {
		sum = make(map[string]int32, len(more))
	}
	for node, n := range more {
		sum[node] += n
	}
	return sum
}
