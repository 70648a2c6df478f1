package controller

import (
	"maps"
	"net/netip"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/ipam"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
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

// sameService leaves out the version: a change of what does not count is no news.
func sameService(a, b allocator.Service) bool {
	a.Version, b.Version = "", ""
	return reflect.DeepEqual(a, b)
}

func convertNamespace(obj runtime.Object) (map[string]string, bool) {
	n, ok := obj.(*corev1.Namespace)
	if !ok {
		return nil, false
	}
	return maps.Clone(n.Labels), true
}

// convertNode keeps the addresses under which a node is known.
func convertNode(obj runtime.Object) ([]string, bool) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return nil, false
	}
	list := []string{}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			list = append(list, strings.Clone(a.Address))
		}
	}
	return list, true
}

// nodeAddrs are the addresses of all nodes; what is none is left out.
func nodeAddrs(nodes map[model.Key][]string) []netip.Addr {
	var list []netip.Addr
	for _, texts := range nodes {
		for _, text := range texts {
			if addr, err := netip.ParseAddr(text); err == nil {
				list = append(list, addr)
			}
		}
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
