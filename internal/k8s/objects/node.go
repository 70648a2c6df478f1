package objects

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"lbd.dev/lbd/internal/services"
)

// Node keeps of a Node what counts.
func Node(o *corev1.Node) *services.Node {
	n := &services.Node{Labels: o.Labels, Unschedulable: o.Spec.Unschedulable, Deleting: o.DeletionTimestamp != nil}
	if v, has := o.Annotations[services.DrainKey]; has {
		n.Annotations = map[string]string{services.DrainKey: v}
	}
	for _, c := range o.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			n.Ready = services.ConditionStatus(c.Status)
		case corev1.NodeNetworkUnavailable:
			n.NetworkUnavailable = c.Status == corev1.ConditionTrue
		}
	}
	for _, t := range o.Spec.Taints {
		if t.Key == services.TaintAutoscaler || t.Key == services.TaintOutOfService {
			n.Taints = append(n.Taints, t.Key)
		}
	}
	for _, a := range o.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			n.Addresses = append(n.Addresses, ip.Unmap())
		}
	}
	for _, text := range o.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			n.PodCIDRs = append(n.PodCIDRs, p.Masked())
		}
	}
	return n
}
