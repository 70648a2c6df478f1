package controller

import (
	"maps"
	"net/netip"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/ipam"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
)

// convertService keeps what allocation needs.
func convertService(obj runtime.Object) (allocator.Service, bool) {
	s, ok := obj.(*corev1.Service)
	if !ok || s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return allocator.Service{}, false
	}
	x := allocator.Service{
		Key: model.Key{Namespace: s.Namespace, Name: s.Name}, UID: string(s.UID), Version: s.ResourceVersion, Created: s.CreationTimestamp.Time,
		Labels: maps.Clone(s.Labels), Type: string(s.Spec.Type), LoadBalancerIP: s.Spec.LoadBalancerIP,
		Local: s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
	}
	for k, v := range s.Annotations {
		if allocator.Relevant(k) {
			if x.Annotations == nil {
				x.Annotations = map[string]string{}
			}
			x.Annotations[k] = v
		}
	}
	if s.Spec.LoadBalancerClass != nil {
		x.Class = new(*s.Spec.LoadBalancerClass)
	}
	if s.Spec.IPFamilyPolicy != nil {
		x.Policy = string(*s.Spec.IPFamilyPolicy)
	}
	for _, f := range s.Spec.IPFamilies {
		x.Families = append(x.Families, string(f))
	}
	if x.Local { // it counts only then
		x.Selector = maps.Clone(s.Spec.Selector)
	}
	for _, p := range s.Spec.Ports {
		x.Ports = append(x.Ports, ipam.Port{Protocol: string(p.Protocol), Number: uint16(p.Port)})
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		x.Ingress = append(x.Ingress, allocator.Ingress{IP: i.IP, Hostname: i.Hostname})
	}
	return x, true
}

// watched is a Service as it is kept: what allocation needs, and the condition Announced that it has,
// without a type if it has none.
type watched struct {
	allocator.Service
	announced v1alpha1.Condition
}

func convertWatched(obj runtime.Object) (watched, bool) {
	s, ok := convertService(obj)
	if !ok {
		return watched{}, false
	}
	return watched{s, announcedOf(obj.(*corev1.Service))}, true
}

// announcedOf is the condition Announced of a Service.
func announcedOf(s *corev1.Service) v1alpha1.Condition {
	for _, c := range s.Status.Conditions {
		if c.Type == conditionAnnounced {
			return v1alpha1.Condition{Type: conditionAnnounced, Status: v1alpha1.ConditionStatus(c.Status), LastTransitionTime: c.LastTransitionTime.Time,
				Reason: strings.Clone(c.Reason), Message: strings.Clone(c.Message)}
		}
	}
	return v1alpha1.Condition{}
}

// sameWatched leaves out the condition, on which allocation does not depend, and the version: a
// change of what does not count is no news.
func sameWatched(a, b watched) bool {
	a.Version, b.Version = "", ""
	return reflect.DeepEqual(a.Service, b.Service)
}

func convertNamespace(obj runtime.Object) (map[string]string, bool) {
	n, ok := obj.(*corev1.Namespace)
	if !ok {
		return nil, false
	}
	return maps.Clone(n.Labels), true
}

// node is a Node as it is kept: as speakers see it, and under which addresses it is known.
type node struct {
	*services.Node
	addresses []netip.Addr
}

func (n node) ready() bool { return n.Ready == services.ConditionTrue }

func convertNode(obj runtime.Object) (node, bool) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return node{}, false
	}
	x := node{Node: objects.Node(n)}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && (a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP) {
			x.addresses = append(x.addresses, ip)
		}
	}
	return x, true
}

func nodeAddrs(nodes map[model.Key]node) []netip.Addr {
	var list []netip.Addr
	for _, n := range nodes {
		list = append(list, n.addresses...)
	}
	return list
}

// poolsOf are the pools of a cluster, those too that break a rule.
func poolsOf(set *objects.Set) []allocator.Pool {
	var list []allocator.Pool
	for k, o := range set.Pools.All() {
		p := allocator.Pool{Name: k.Name, UID: o.UID, Created: o.Created, Generation: o.Generation, Spec: o.Value.Spec}
		for _, err := range o.Errors {
			p.Invalid = append(p.Invalid, err.Error())
		}
		list = append(list, p)
	}
	return list
}
