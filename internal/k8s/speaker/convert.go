package speaker

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
)

// service keeps what counts of a Service.
func service(obj runtime.Object) (*services.Service, bool) {
	o, ok := obj.(*corev1.Service)
	if !ok || o.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil, false
	}
	s := &services.Service{Labels: o.Labels, Local: o.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal}
	if c := o.Spec.LoadBalancerClass; c != nil {
		s.Class = *c
	}
	for _, i := range o.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(i.IP); err == nil && a.Zone() == "" && !slices.Contains(s.Addresses, a.Unmap()) {
			s.Addresses = append(s.Addresses, a.Unmap())
		}
	}
	return s, true
}

// slice keeps what counts of an EndpointSlice on the node self.
func slice(self string) func(runtime.Object) (services.Slice, bool) {
	return func(obj runtime.Object) (services.Slice, bool) {
		o, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok || o.AddressType != discoveryv1.AddressTypeIPv4 && o.AddressType != discoveryv1.AddressTypeIPv6 {
			return services.Slice{}, false
		}
		s := services.Slice{
			Service: model.Key{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]},
			IPv6:    o.AddressType == discoveryv1.AddressTypeIPv6,
		}
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			// What is not said is true, or what the older condition says.
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready
			serving := ready
			if e.Conditions.Serving != nil {
				serving = *e.Conditions.Serving
			}
			s.Endpoints.Add(e.NodeName != nil && *e.NodeName == self, ready, serving)
		}
		return s, true
	}
}

// node keeps what counts of a Node.
func node(obj runtime.Object) (*services.Node, bool) {
	o, ok := obj.(*corev1.Node)
	if !ok {
		return nil, false
	}
	return objects.Node(o), true
}
