package services

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
)

// TenantNodes are the Nodes of this cluster as a hub is to know them, sorted by name. One that is not
// ready is out, unless none is; one that is to announce nothing for any other reason is draining. A Node
// without an InternalIP of its own is left out. Of two with one address that which serves counts, then
// that which drains: a machine that was replaced under another name leaves its Node behind for a while.
func TenantNodes(nodes map[string]*Node, cordonDrains bool) []v1alpha1.TenantNode {
	someReady := false
	for _, n := range nodes {
		someReady = someReady || n.Ready == ConditionTrue
	}
	var byState [3][]v1alpha1.TenantNode
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[name]
		state, rank := v1alpha1.TenantNodeServing, 0
		switch {
		case n.Ready != ConditionTrue && someReady:
			state, rank = v1alpha1.TenantNodeOut, 2
		case n.excluded(someReady, cordonDrains) != "":
			state, rank = v1alpha1.TenantNodeDraining, 1
		}
		byState[rank] = append(byState[rank], v1alpha1.TenantNode{Name: name, State: state})
	}
	var all []v1alpha1.TenantNode
	taken := make(map[netip.Addr]bool)
	for _, n := range slices.Concat(byState[:]...) {
		for _, four := range []bool{true, false} {
			of := nodes[n.Name].Addresses
			at := slices.IndexFunc(of, func(a netip.Addr) bool { return a.Is4() == four && isOfHost(a) })
			if at >= 0 && !taken[of[at]] {
				taken[of[at]] = true
				n.Addresses = append(n.Addresses, of[at].String())
			}
		}
		if len(n.Addresses) > 0 {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.TenantNode) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
