package agent

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
	"lbd.dev/lbd/internal/tenants/propagate"
)

// convertService keeps of a Service what counts.
func convertService(obj runtime.Object) (*propagate.Service, bool) {
	o, ok := obj.(*corev1.Service)
	if !ok || o.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil, false
	}
	s := &propagate.Service{
		UID: string(o.UID), LoadBalancerIP: o.Spec.LoadBalancerIP, HealthCheckNodePort: o.Spec.HealthCheckNodePort,
		Local: o.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal, ClientIP: o.Spec.SessionAffinity == corev1.ServiceAffinityClientIP,
		SourceRanges: o.Spec.LoadBalancerSourceRanges,
	}
	if c := o.Spec.LoadBalancerClass; c != nil {
		s.Class = *c
	}
	for k, v := range o.Annotations {
		if propagate.Relevant(k) {
			if s.Annotations == nil {
				s.Annotations = map[string]string{}
			}
			s.Annotations[k] = v
		}
	}
	for _, f := range o.Spec.IPFamilies {
		s.Families = append(s.Families, familyOf(f))
	}
	for _, p := range o.Spec.Ports {
		s.Ports = append(s.Ports, propagate.Port{Protocol: string(p.Protocol), Port: p.Port, NodePort: p.NodePort})
	}
	for _, i := range o.Status.LoadBalancer.Ingress {
		text := i.IP
		if text == "" {
			text = i.Hostname // of somebody else: what the hub gives are addresses
		}
		s.Ingress = append(s.Ingress, text)
	}
	for _, c := range o.Status.Conditions {
		if c.Type == propagate.ConditionType {
			s.Condition = v1alpha1.Condition{Type: c.Type, Status: v1alpha1.ConditionStatus(c.Status), LastTransitionTime: c.LastTransitionTime.Time,
				Reason: c.Reason, Message: c.Message}
		}
	}
	return s, true
}

// convertSlice keeps of an EndpointSlice how many endpoints each node has.
func convertSlice(obj runtime.Object) (propagate.Slice, bool) {
	o, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok || o.AddressType != discoveryv1.AddressTypeIPv4 && o.AddressType != discoveryv1.AddressTypeIPv6 {
		return propagate.Slice{}, false
	}
	s := propagate.Slice{
		Service: model.Key{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]},
		IPv6:    o.AddressType == discoveryv1.AddressTypeIPv6, Ready: map[string]int32{}, Serving: map[string]int32{},
	}
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		if e.NodeName == nil {
			continue
		}
		// What is not said is true, or what the older condition says.
		ready := e.Conditions.Ready == nil || *e.Conditions.Ready
		serving := ready
		if e.Conditions.Serving != nil {
			serving = *e.Conditions.Serving
		}
		if ready {
			s.Ready[*e.NodeName]++
		}
		if serving {
			s.Serving[*e.NodeName]++
		}
	}
	return s, true
}

// convertNode keeps of a Node what counts.
func convertNode(obj runtime.Object) (*services.Node, bool) {
	o, ok := obj.(*corev1.Node)
	if !ok {
		return nil, false
	}
	return objects.Node(o), true
}

// readHub reads an object of the hub. A hub of a later version may say more than is known here, which is
// no reason not to read the rest.
func readHub(obj runtime.Object, into any) (u *unstructured.Unstructured, readable bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, false
	}
	data, err := json.Marshal(u.Object)
	return u, err == nil && json.Unmarshal(data, into) == nil
}

func convertHubNodes(obj runtime.Object) (propagate.HubNodes, bool) {
	var n v1alpha1.TenantNodes
	u, readable := readHub(obj, &n)
	if u == nil {
		return propagate.HubNodes{}, false
	}
	h := propagate.HubNodes{UID: string(u.GetUID()), Generation: u.GetGeneration()}
	if readable {
		n.Default()
		h.Spec = &n.Spec
		if n.Status != nil {
			h.Conditions = n.Status.Conditions
		}
	}
	return h, true
}

func convertHubService(obj runtime.Object) (propagate.HubService, bool) {
	var s v1alpha1.TenantService
	u, readable := readHub(obj, &s)
	if u == nil {
		return propagate.HubService{}, false
	}
	h := propagate.HubService{UID: string(u.GetUID()), Generation: u.GetGeneration()}
	if readable {
		s.Default()
		h.Spec = &s.Spec
		if s.Status != nil {
			h.Conditions = s.Status.Conditions
			for _, a := range s.Status.Addresses {
				h.Addresses = append(h.Addresses, a.Address)
			}
		}
	}
	return h, true
}

func familyOf(f corev1.IPFamily) v1alpha1.AddressFamily {
	if f == corev1.IPv6Protocol {
		return v1alpha1.FamilyIPv6
	}
	return v1alpha1.FamilyIPv4
}
