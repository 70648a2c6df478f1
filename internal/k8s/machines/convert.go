package machines

import (
	"encoding/json"
	"maps"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
)

// paths are where in an object the facts about a Machine are.
type paths struct{ addresses, node []string }

var machinePaths = paths{addresses: []string{"status", "addresses"}, node: []string{"status", "nodeRef", "name"}}

func pathsOf(t *v1alpha1.TargetKind) paths {
	return paths{strings.Split(t.AddressesPath, "."), strings.Split(t.NodeNamePath, ".")}
}

// machine keeps what counts of a Machine, or of an object that stands for one.
func machine(obj runtime.Object, rules *machines.Rules, target string, at paths) (*machines.Machine, bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, false
	}
	m := &machines.Machine{
		Key: model.Key{Namespace: strings.Clone(u.GetNamespace()), Name: strings.Clone(u.GetName())}, Target: target,
		UID: string(u.GetUID()), Labels: maps.Clone(u.GetLabels()), ProviderID: text(u, "spec", "providerID"), Node: text(u, at.node...),
		FailureDomain: text(u, "status", "failureDomain"), Created: u.GetCreationTimestamp().Time,
	}
	if m.FailureDomain == "" { // v1beta1 has none in its status
		m.FailureDomain = text(u, "spec", "failureDomain")
	}
	for k, v := range u.GetAnnotations() {
		if rules.Relevant(k) {
			if m.Annotations == nil {
				m.Annotations = map[string]string{}
			}
			m.Annotations[k] = v
		}
	}
	if d := u.GetDeletionTimestamp(); d != nil {
		m.Deleted = d.Time
	}
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, at.addresses...)
	m.Addresses, m.Internal = addresses(value), internal(value)
	m.Unhealthy = unhealthy(u)
	return m, true
}

// text returns a string of an object, "" if there is none.
func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return strings.Clone(s)
}

// addresses reads a string, a list of them, or a list of objects with the field
// address; what is no IP address, such as a host name, is left out.
func addresses(value any) []netip.Addr {
	var out []netip.Addr
	switch v := value.(type) {
	case string:
		if addr, err := netip.ParseAddr(v); err == nil && addr.Zone() == "" {
			out = append(out, addr.Unmap())
		}
	case []any:
		for _, x := range v {
			if m, ok := x.(map[string]any); ok {
				x = m["address"]
			}
			if s, ok := x.(string); ok {
				out = append(out, addresses(s)...)
			}
		}
	}
	return out
}

// internal are those of a list of objects that have the type InternalIP.
func internal(value any) []netip.Addr {
	list, _ := value.([]any)
	var out []netip.Addr
	for _, x := range list {
		if m, ok := x.(map[string]any); ok && m["type"] == "InternalIP" {
			out = append(out, addresses([]any{x})...)
		}
	}
	return out
}

// unhealthy returns what a MachineHealthCheck says against a Machine. Both versions
// of the API have these types of conditions.
func unhealthy(u *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "conditions")
	all, _ := list.([]any)
	for _, x := range all {
		c, _ := x.(map[string]any)
		kind, _ := c["type"].(string)
		if (kind == "HealthCheckSucceeded" || kind == "OwnerRemediated") && c["status"] == "False" {
			reason, _ := c["reason"].(string)
			return kind + "=False: " + reason
		}
	}
	return ""
}

// cluster keeps what counts of a Cluster.
func cluster(obj runtime.Object) (*machines.Cluster, bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, false
	}
	c := &machines.Cluster{Key: model.Key{Namespace: u.GetNamespace(), Name: u.GetName()}, UID: string(u.GetUID()),
		Version: u.GetResourceVersion(), Deleting: u.GetDeletionTimestamp() != nil}
	host := text(u, "spec", "controlPlaneEndpoint", "host")
	port, _, _ := unstructured.NestedInt64(u.Object, "spec", "controlPlaneEndpoint", "port")
	if host != "" && port > 0 && port < 65536 {
		c.Endpoint = &v1alpha1.MachineEndpoint{Host: host, Port: int32(port)}
	}
	return c, true
}

// balancer reads a MachineLoadBalancer.
func balancer(obj runtime.Object) (*machines.Balancer, bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, false
	}
	o := objects.Read[v1alpha1.MachineLoadBalancer](u, v1alpha1.KindMachineLoadBalancer)
	b := &machines.Balancer{
		Key: model.Key{Namespace: u.GetNamespace(), Name: u.GetName()}, UID: o.UID, Version: u.GetResourceVersion(),
		Generation: o.Generation, Created: o.Created, Spec: o.Value.Spec, Errors: o.Errors,
	}
	_, b.Moved = u.GetAnnotations()[machines.MovedAnnotation]
	if status, found := u.Object["status"]; found {
		if data, err := json.Marshal(status); err == nil {
			_ = json.Unmarshal(data, &b.Status) // what does not fit is written anew
		}
	}
	return b, true
}
