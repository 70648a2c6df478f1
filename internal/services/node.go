package services

import (
	"cmp"
	"fmt"
	"slices"
)

// What Nodes say by labels, annotations and taints.
const (
	// ExcludeLabel keeps a node from announcing Services, with any value but
	// "false". kubeadm sets it on every node of the control plane, so it is never
	// applied to VirtualIPs.
	ExcludeLabel = "node.kubernetes.io/exclude-from-external-load-balancers"
	// DrainKey is a label or an annotation to the same end, for people.
	DrainKey = "lbd.dev/drain"
	// TaintAutoscaler is set by the cluster autoscaler before it removes a node.
	TaintAutoscaler = "ToBeDeletedByClusterAutoscaler"
	// TaintOutOfService is set by people, or tools, on a node that has failed.
	TaintOutOfService = "node.kubernetes.io/out-of-service"
)

// excluded says in words why a node is to announce no Services; empty: it may.
// someReady: at least one Node of the cluster is ready. If none is, then those who
// judge are at fault and not the nodes.
func (n *Node) excluded(someReady, cordonDrains bool) string {
	if v, ok := n.Labels[ExcludeLabel]; ok && v != "false" {
		return "the Node has the label " + ExcludeLabel
	}
	return n.leaving(someReady, cordonDrains)
}

// leaving says in words why nothing new is to come to a node, whatever it serves; empty: it may.
// someReady is as for excluded.
func (n *Node) leaving(someReady, cordonDrains bool) string {
	if v, ok := n.Labels[DrainKey]; ok && v != "false" {
		return "the Node has the label " + DrainKey
	}
	if v, ok := n.Annotations[DrainKey]; ok && v != "false" {
		return "the Node has the annotation " + DrainKey
	}
	if n.Deleting {
		return "the Node is being deleted"
	}
	for _, t := range []string{TaintAutoscaler, TaintOutOfService} {
		if slices.Contains(n.Taints, t) {
			return "the Node has the taint " + t
		}
	}
	switch {
	case n.NetworkUnavailable:
		return "the Node has the condition NetworkUnavailable"
	case n.Ready != ConditionTrue && someReady:
		ready := cmp.Or(n.Ready, ConditionUnknown)
		return fmt.Sprintf("the condition Ready of the Node is %s", ready)
	case n.Unschedulable && cordonDrains:
		return "the Node is cordoned"
	}
	return ""
}
