// Package propagate decides what the agent of a tenant cluster writes: into its namespace of the hub the
// Nodes and the Services of type LoadBalancer, and into the status of these Services the addresses and
// the words of the hub. It is level-based: what is there and what is to be there go in, the difference
// comes out, and after that was written there is none. Only the object of a Service that is given up goes
// one decision later, when the Service shows its address no more. It is pure.
package propagate

import (
	"cmp"
	"maps"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// ConditionType is the condition of a Service that says whether the hub serves it. It is also the mark by
// which the agent knows a Service whose status it has written.
const ConditionType = "lbd.dev/Accepted"

// Input is all that a decision may look at. Both clusters have been read.
type Input struct {
	// Class is the spec.loadBalancerClass of the Services that are propagated; Classless: those
	// without one are, too.
	Class     string
	Classless bool
	// Nodes are those of the tenant cluster, each once, and Services those of type LoadBalancer.
	Nodes    []v1alpha1.TenantNode
	Services map[model.Key]*Service
	// Endpoints are those of Services with the policy Local.
	Endpoints map[model.Key][]v1alpha1.TenantEndpoints
	// Had are the Services with the condition that this hub has or had, by UID. Those that are not among
	// Services are of another type now.
	Had map[model.Key]string
	// HubNodes and HubServices are all objects in the namespace of the hub, by name.
	HubNodes    map[string]HubNodes
	HubServices map[string]HubService
	// Refused is why the API server of the hub did not take what a Service became, by the Service.
	Refused map[model.Key]string
	// Foreign: the hub has another cluster for this one. What the hub has is not ours, and stays.
	Foreign bool
}

// HubNodes is a TenantNodes object as it is in the hub.
type HubNodes struct {
	UID        string
	Generation int64
	// Spec is nil if the object cannot be read, or breaks a rule.
	Spec       *v1alpha1.TenantNodesSpec
	Conditions []v1alpha1.Condition
}

// HubService is a TenantService object as it is in the hub.
type HubService struct {
	UID        string
	Generation int64
	// Spec is nil if the object cannot be read, or breaks a rule.
	Spec       *v1alpha1.TenantServiceSpec
	Addresses  []string
	Conditions []v1alpha1.Condition
}

// Output is what is to be written. Each list is sorted by name.
type Output struct {
	Nodes    []Write[v1alpha1.TenantNodesSpec]
	Services []Write[v1alpha1.TenantServiceSpec]
	Statuses []Status
	// Complaints are what the hub says about Nodes, one line for each object.
	Complaints []string
	// Counts are the Services that are propagated, each once.
	Counts Counts
}

// Counts are Services: those that have an address, those that the hub or the agent refuses one, and those
// that wait for one.
type Counts struct{ Served, Refused, Waiting int }

// Write makes, changes or deletes one object in the hub.
type Write[T any] struct {
	Name string
	// UID is that of the object; empty: it is to be made.
	UID string
	// Before is what the object says; nil if it cannot be read, or is to be made.
	Before *T
	// Spec is what it is to say; nil: it is to be deleted.
	Spec *T
}

// Status is what the status of a Service is to say.
type Status struct {
	Service model.Key
	UID     string
	// Ingress are the addresses; nil: those that are there stay.
	Ingress *[]string
	// Condition is the one of type ConditionType, without its time; nil: it is to be removed.
	Condition *v1alpha1.Condition
	// Event is to be sent once the status is written; nil: none.
	Event *Event
}

// Event is what people are told of a Service.
type Event struct {
	Reason, Message string
	Warning         bool
}

// NameOf is the name of the TenantService of a Service. Neither a namespace nor a Service has a dot in its
// name.
func NameOf(k model.Key) string { return k.Namespace + "." + k.Name }

// Step decides.
func Step(in *Input) Output {
	var out Output
	if in.Foreign {
		out.foreign(in)
		return out
	}
	out.nodes(in)
	keep := make(map[string]bool)
	for _, key := range slices.SortedFunc(maps.Keys(in.Services), model.Key.Compare) {
		s := in.Services[key]
		name := NameOf(key)
		if in.Ours(s) {
			keep[name] = true
			out.service(in, key, s)
		} else {
			keep[name] = out.giveUp(in, key, s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.HubServices)) {
		if !keep[name] {
			h := in.HubServices[name]
			out.Services = append(out.Services, Write[v1alpha1.TenantServiceSpec]{Name: name, UID: h.UID, Before: h.Spec})
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(in.Had), model.Key.Compare) {
		if in.Services[key] == nil {
			out.Statuses = append(out.Statuses, Status{Service: key, UID: in.Had[key]})
		}
	}
	slices.SortFunc(out.Services, func(a, b Write[v1alpha1.TenantServiceSpec]) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Ours tells whether a Service is to be propagated.
func (in *Input) Ours(s *Service) bool {
	return s.Class == in.Class && s.Class != "" || s.Class == "" && in.Classless
}

// foreign says of all Services that are ours that they are not propagated. They keep what they show.
func (out *Output) foreign(in *Input) {
	for _, key := range slices.SortedFunc(maps.Keys(in.Services), model.Key.Compare) {
		if s := in.Services[key]; in.Ours(s) {
			out.Counts.Refused++
			verdict := no(ReasonClusterMismatch, mismatch)
			if !alike(s.Condition, verdict) {
				out.Statuses = append(out.Statuses, Status{Service: key, UID: s.UID, Condition: &verdict, Event: eventOf(s.Condition, verdict, nil)})
			}
		}
	}
}

// giveUp takes from a Service that is not ours what this hub gave it. Whatever else its status says is of
// another writer, which may be the agent of another hub. true: the hub is to keep the address until the
// Service shows it no more; without the object nobody could tell whose address that is.
func (out *Output) giveUp(in *Input, key model.Key, s *Service) bool {
	hub, there := in.HubServices[NameOf(key)]
	if s.Condition.Type == "" || !there && in.Had[key] != s.UID {
		return false
	}
	st := Status{Service: key, UID: s.UID}
	shows := len(hub.Addresses) > 0 && slices.Equal(s.Ingress, hub.Addresses)
	if shows {
		st.Ingress = new([]string)
	}
	out.Statuses = append(out.Statuses, st)
	return shows
}

// service decides about one Service that is ours.
func (out *Output) service(in *Input, key model.Key, s *Service) {
	hub, there := in.HubServices[NameOf(key)]
	wanted, why := s.wanted(in.Endpoints[key], hub.Spec)
	switch {
	case wanted != nil && (!there || hub.Spec == nil || !same(hub.Spec, wanted)):
		out.Services = append(out.Services, Write[v1alpha1.TenantServiceSpec]{Name: NameOf(key), UID: hub.UID, Before: hub.Spec, Spec: wanted})
	case wanted == nil && there:
		out.Services = append(out.Services, Write[v1alpha1.TenantServiceSpec]{Name: NameOf(key), UID: hub.UID, Before: hub.Spec})
	}
	verdict, known := told(&hub)
	addresses := hub.Addresses
	if text, refused := in.Refused[key]; refused {
		verdict, known = no(ReasonHubRefused, text), true
		if len(addresses) == 0 { // the API server does not say that there is to be none
			addresses = s.Ingress
		}
	}
	if why != nil {
		verdict, known = *why, true
		if wanted == nil {
			addresses = nil
		}
	}
	switch {
	case len(addresses) > 0:
		out.Counts.Served++
	case known && verdict.Status != v1alpha1.ConditionTrue && !waits(verdict):
		out.Counts.Refused++
	default:
		out.Counts.Waiting++
	}
	if !known {
		return // the hub has not looked at it yet: what is there stays
	}
	st := Status{Service: key, UID: s.UID, Condition: &verdict}
	if !slices.Equal(s.Ingress, addresses) {
		st.Ingress = new(slices.Clone(addresses))
	}
	if st.Ingress != nil || !alike(s.Condition, verdict) {
		st.Event = eventOf(s.Condition, verdict, addresses)
		out.Statuses = append(out.Statuses, st)
	}
}

// same tells whether two specs say the same. Both have their defaults.
func same[T any](a, b *T) bool { return slices.Equal(encode(a), encode(b)) }
