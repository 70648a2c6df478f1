package propagate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// TestNodes: nodes stay where they are, so that one that changes, comes or goes is one write.
func TestNodes(t *testing.T) {
	w := newWorld()
	for i := range 250 {
		w.Nodes = append(w.Nodes, node(i))
	}
	if out := w.settle(t); len(out.Nodes) != 3 {
		t.Errorf("%d writes of 250 nodes", len(out.Nodes))
	}
	sizes := func() (list []string) {
		for _, name := range slices.Sorted(maps.Keys(w.HubNodes)) {
			list = append(list, fmt.Sprintf("%s:%d", name, len(w.HubNodes[name].Spec.Nodes)))
		}
		return list
	}
	if got := fmt.Sprint(sizes()); got != "[nodes-0:100 nodes-1:100 nodes-2:50]" {
		t.Errorf("%s", got)
	}
	before := w.placement()
	w.Nodes[7].State = v1alpha1.TenantNodeDraining
	if out := w.settle(t); len(out.Nodes) != 1 || out.Nodes[0].Name != "nodes-0" {
		t.Errorf("%+v", out.Nodes)
	}
	w.Nodes = slices.Delete(w.Nodes, 10, 11) // n010
	w.settle(t)
	w.Nodes = append(w.Nodes, node(900)) // takes the place that is free
	if out := w.settle(t); len(out.Nodes) != 1 || out.Nodes[0].Name != "nodes-0" {
		t.Errorf("%+v", out.Nodes)
	}
	delete(before, "n010")
	before["n900"] = "nodes-0"
	if after := w.placement(); !maps.Equal(before, after) {
		t.Errorf("nodes have moved: %v", after)
	}
	// The object goes with the last of its nodes.
	w.Nodes = slices.DeleteFunc(w.Nodes, func(n v1alpha1.TenantNode) bool { return before[n.Name] == "nodes-1" })
	w.settle(t)
	if got := fmt.Sprint(sizes()); got != "[nodes-0:100 nodes-2:50]" {
		t.Errorf("%s", got)
	}
}

// TestNodesOfOthers: an object that is there already is used, a node that is listed twice stays once, and
// one that cannot be read is written anew.
func TestNodesOfOthers(t *testing.T) {
	w := newWorld()
	w.Nodes = []v1alpha1.TenantNode{node(1), node(2)}
	w.HubNodes["x"] = HubNodes{UID: "1", Spec: &v1alpha1.TenantNodesSpec{Nodes: []v1alpha1.TenantNode{node(2), node(9)}}}
	w.HubNodes["y"] = HubNodes{UID: "2", Spec: &v1alpha1.TenantNodesSpec{Nodes: []v1alpha1.TenantNode{node(2)}}}
	w.HubNodes["z"] = HubNodes{UID: "3", Generation: 2, Conditions: []v1alpha1.Condition{
		{Type: "Accepted", Status: "False", Reason: "RefusedNodes", Message: "n009: 10.0.0.10 is in none of the nodeCIDRs", ObservedGeneration: 2},
	}}
	out := w.settle(t)
	if got := fmt.Sprint(w.placement()); got != "map[n001:x n002:x]" || len(w.HubNodes) != 1 {
		t.Errorf("%s, %d objects", got, len(w.HubNodes))
	}
	if len(out.Complaints) != 1 || !strings.HasPrefix(out.Complaints[0], "z: RefusedNodes: n009") {
		t.Errorf("%q", out.Complaints)
	}
}

// TestCount: endpoints count as kube-proxy counts them.
func TestCount(t *testing.T) {
	other := model.Key{Namespace: "default", Name: "other"}
	list := []Slice{
		{Service: key, Ready: map[string]int32{"a": 1, "b": 2}, Serving: map[string]int32{"a": 1, "b": 2, "c": 1}},
		{Service: key, Ready: map[string]int32{"b": 150}},
		{Service: key, IPv6: true, Ready: map[string]int32{"a": 3}},
		{Service: other, Ready: map[string]int32{}, Serving: map[string]int32{"c": 1}},
		{Service: model.Key{Name: "cluster"}, Ready: map[string]int32{"a": 1}},
	}
	got := Count(list, func(k model.Key) bool { return k == key || k == other })
	want := map[model.Key]string{key: "[{a 3} {b 100}]", other: "[{c 1}]"}
	if len(got) != 2 {
		t.Errorf("%v", got)
	}
	for k, text := range want {
		if fmt.Sprint(got[k]) != text {
			t.Errorf("%s: %v, want %s", k, got[k], text)
		}
	}
}
