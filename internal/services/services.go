// Package services turns what a cluster says about Services into VIPs: Services
// with their addresses, endpoints and Nodes, and the objects of lbd.dev, all as
// plain values. It knows no client and no clock.
//
// Each node computes its own part: whether it may announce an address is told to
// the others by gossip, so a Builder needs of endpoints only whether there are any
// here and elsewhere.
package services

import (
	"cmp"
	"maps"
	"net/netip"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// KindService is model.VIP.Kind of what this package makes of Services.
const KindService = "Service"

// Service is what counts of a Service of type LoadBalancer.
type Service struct {
	Labels map[string]string
	// Class is spec.loadBalancerClass; empty: none.
	Class string
	// Local is externalTrafficPolicy Local.
	Local bool
	// Addresses are those of status.loadBalancer.ingress.
	Addresses []netip.Addr
}

// Slice is what counts of an EndpointSlice.
type Slice struct {
	Service   model.Key
	IPv6      bool
	Endpoints Endpoints
}

// Endpoints says where there are endpoints for the packets of one family. They
// count as kube-proxy counts them: one that is ready gets packets; one that is not
// but still serves, since it is about to end, does if none is ready.
type Endpoints uint8

// Where there are endpoints.
const (
	ReadyHere Endpoints = 1 << iota
	ServingHere
	ReadyElsewhere
	ServingElsewhere
)

// Add counts one endpoint.
func (e *Endpoints) Add(here, ready, serving bool) {
	at := [2]Endpoints{ReadyElsewhere, ServingElsewhere}
	if here {
		at = [2]Endpoints{ReadyHere, ServingHere}
	}
	if ready {
		*e |= at[0]
	}
	if serving {
		*e |= at[1]
	}
}

// serve tells whether packets that arrive on this node find an endpoint. With
// externalTrafficPolicy Local a node whose last endpoints are ending steps back for
// one that has a ready endpoint, while its own still serve.
func (e Endpoints) serve(local bool) bool {
	switch {
	case !local:
		return e != 0
	case e&(ReadyHere|ReadyElsewhere) != 0:
		return e&ReadyHere != 0
	}
	return e&ServingHere != 0
}

// ConditionStatus is that of a condition of a Node.
type ConditionStatus string

// The states of a condition.
const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)

// Node is what counts of a Node.
type Node struct {
	Labels map[string]string
	// Annotations need only have DrainKey.
	Annotations map[string]string
	// Ready is the condition of this name; empty counts as Unknown.
	Ready ConditionStatus
	// NetworkUnavailable is the condition of this name.
	NetworkUnavailable bool
	// Unschedulable: the Node is cordoned.
	Unschedulable bool
	// Deleting: it has a deletion timestamp.
	Deleting bool
	// Taints are keys, in any order.
	Taints []string
	// Addresses are those of type InternalIP.
	Addresses []netip.Addr
	// PodCIDRs are the networks of its Pods.
	PodCIDRs []netip.Prefix
}

// Objects are the valid objects of lbd.dev, each kind sorted by name.
type Objects struct {
	VirtualIPs        []*v1alpha1.VirtualIP
	LoadBalancers     []*v1alpha1.LoadBalancer
	Peers             []*v1alpha1.BGPPeer
	Profiles          []*v1alpha1.BFDProfile
	Communities       []*v1alpha1.Community
	Pools             []*v1alpha1.IPAddressPool
	L2Advertisements  []*v1alpha1.L2Advertisement
	BGPAdvertisements []*v1alpha1.BGPAdvertisement
	// Tenants, with what their agents have written, are in any order.
	Tenants        []tenants.Tenant
	TenantNodes    map[model.Key]*v1alpha1.TenantNodes
	TenantServices map[model.Key]*tenants.Service
	// TenantRests counts, by namespace, the addresses that TenantServices gave up and that rest. Only
	// the controller knows, and needs it: a node gives out none.
	TenantRests map[string]int
	// Secrets has the content of the files that peers and profiles name; a session
	// whose file is missing is left out.
	Secrets map[string]string
	// Passwords are those of the Secrets that peers name, by name, and Namespace is where
	// these are.
	Passwords map[string]Password
	Namespace string
}

// Password is the key of a BGP session, from a Secret.
type Password struct {
	Key string
	// Lacks is why there is none, in words; empty if there is.
	Lacks string
}

// Options are what does not change while the daemon runs.
type Options struct {
	// Self is the name of this node and of its Node.
	Self model.NodeName
	// Class is the spec.loadBalancerClass that is ours.
	Class string
	// Classless: Services without a class are ours too.
	Classless bool
	// CordonDrains: a Node that is cordoned announces no Services.
	CordonDrains bool
}

// Ours tells whether a Service of this class is ours.
func (o *Options) Ours(class string) bool {
	return class == o.Class && class != "" || class == "" && o.Classless
}

// Problem is something that an object asks for and does not get.
type Problem struct {
	Kind string
	Name string // "namespace/name" of a Service
	Text string // a sentence without a full stop
}

// Compare orders by kind, name and text.
func (p Problem) Compare(o Problem) int {
	return cmp.Or(cmp.Compare(p.Kind, o.Kind), cmp.Compare(p.Name, o.Name), cmp.Compare(p.Text, o.Text))
}

// Result is what a node is to know. None of it may be changed.
type Result struct {
	model.Objects // the peers are those of every node
	// Checks are the health checks by the names that VIPs and servers give, whatever nodes
	// their objects select; see ChecksHere.
	Checks   map[string]v1alpha1.HealthCheck
	Labels   map[string]string // of the own Node; nil if there is none
	Problems []Problem         // sorted
	// Warnings are about objects that are used as they are written, sorted.
	Warnings []Problem
}

// ChecksHere are the Checks of those objects that select this node. labels are what
// files say of it; of two with one key that of the Node counts, as in
// model.View.SetLabels.
func (r *Result) ChecksHere(labels map[string]string) map[string]v1alpha1.HealthCheck {
	all := make(map[string]string, len(labels)+len(r.Labels))
	maps.Copy(all, labels)
	maps.Copy(all, r.Labels)
	here := make(map[string]v1alpha1.HealthCheck)
	add := func(check string) {
		if h, ok := r.Checks[check]; ok {
			here[check] = h
		}
	}
	forwarded := make(map[string]bool) // LoadBalancers that select this node
	for i := range r.VIPs {
		v := &r.VIPs[i]
		if _, asked := r.Checks[v.Check]; !asked && !v.Forwarded() || !(v1alpha1.Selector{MatchLabels: v.NodeSelector}).Matches(all) {
			continue
		}
		add(v.Check)
		if v.Forwarded() {
			forwarded[v.Name] = true
		}
	}
	for i := range r.LoadBalancers {
		if lb := &r.LoadBalancers[i]; forwarded[lb.Name] {
			for _, s := range lb.Servers {
				add(s.Check)
			}
		}
	}
	return here
}
