package services

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
)

// tenantNode is a Node that serves, with these addresses.
func tenantNode(addrs ...string) *Node {
	n := &Node{Ready: ConditionTrue}
	for _, a := range addrs {
		n.Addresses = append(n.Addresses, netip.MustParseAddr(a))
	}
	return n
}

func toldNodes(list []v1alpha1.TenantNode) string {
	var words []string
	for _, n := range list {
		words = append(words, fmt.Sprintf("%s %v %s", n.Name, n.Addresses, n.State))
	}
	return strings.Join(words, ", ")
}

// TestTenantNodes: the states of the rules by which this cluster announces Services itself.
func TestTenantNodes(t *testing.T) {
	with := func(n *Node, change func(*Node)) *Node { change(n); return n }
	unready := func(n *Node) { n.Ready = ConditionUnknown }
	for name, c := range map[string]struct {
		nodes  map[string]*Node
		cordon bool
		want   string
	}{
		"both families, the first of each": {map[string]*Node{"b": tenantNode("10.0.0.2", "10.0.0.9", "fd00::2", "fd00::9"), "a": tenantNode("10.0.0.1")}, false,
			"a [10.0.0.1] Serving, b [10.0.0.2 fd00::2] Serving"},
		"states": {map[string]*Node{
			"cordoned":    with(tenantNode("10.0.0.1"), func(n *Node) { n.Unschedulable = true }),
			"deleted":     with(tenantNode("10.0.0.2"), func(n *Node) { n.Deleting = true }),
			"drained":     with(tenantNode("10.0.0.3"), func(n *Node) { n.Annotations = map[string]string{DrainKey: "true"} }),
			"excluded":    with(tenantNode("10.0.0.4"), func(n *Node) { n.Labels = map[string]string{ExcludeLabel: ""} }),
			"tainted":     with(tenantNode("10.0.0.5"), func(n *Node) { n.Taints = []string{TaintAutoscaler} }),
			"unreachable": with(tenantNode("10.0.0.6"), unready),
		}, false, "cordoned [10.0.0.1] Serving, deleted [10.0.0.2] Draining, drained [10.0.0.3] Draining, excluded [10.0.0.4] Draining, tainted [10.0.0.5] Draining, unreachable [10.0.0.6] Out"},
		"cordoned drains": {map[string]*Node{"a": with(tenantNode("10.0.0.1"), func(n *Node) { n.Unschedulable = true })}, true, "a [10.0.0.1] Draining"},
		"none is ready":   {map[string]*Node{"a": with(tenantNode("10.0.0.1"), unready), "b": with(tenantNode("10.0.0.2"), unready)}, false, "a [10.0.0.1] Serving, b [10.0.0.2] Serving"},
		"without an address of a host": {map[string]*Node{"a": tenantNode(), "b": tenantNode("169.254.0.1", "fe80::1"), "c": tenantNode("10.0.0.3")}, false,
			"c [10.0.0.3] Serving"},
		"the Node of a machine that was replaced": {map[string]*Node{"a": with(tenantNode("10.0.0.1", "fd00::1"), unready), "b": tenantNode("10.0.0.1")}, false,
			"a [fd00::1] Out, b [10.0.0.1] Serving"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := toldNodes(TenantNodes(c.nodes, c.cordon)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
