package propagate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// fataler is a test, or one of rapid.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// world is both clusters in memory.
type world struct {
	Input
	made int // objects, for UIDs
}

func newWorld() *world {
	return &world{Input: Input{
		Class: "lbd.dev/hub", Services: map[model.Key]*Service{}, Endpoints: map[model.Key][]v1alpha1.TenantEndpoints{},
		HubNodes: map[string]HubNodes{}, HubServices: map[string]HubService{},
	}}
}

// web is a Service that asks for nothing special.
func web() *Service {
	return &Service{UID: "u1", Class: "lbd.dev/hub", Families: []v1alpha1.AddressFamily{v1alpha1.FamilyIPv4},
		Ports: []Port{{Protocol: "TCP", Port: 80, NodePort: 30080}}}
}

// merge carries out a merge patch (RFC 7396).
func merge(o, p map[string]any) {
	for k, v := range p {
		sub, isMap := v.(map[string]any)
		switch in, had := o[k].(map[string]any); {
		case v == nil:
			delete(o, k)
		case isMap && had:
			merge(in, sub)
		case isMap:
			fresh := map[string]any{}
			merge(fresh, sub)
			o[k] = fresh
		default:
			o[k] = v
		}
	}
}

// written is the spec that a write leaves in the hub.
func written[T any](t fataler, w Write[T]) *T {
	t.Helper()
	fields := object(w.Before)
	merge(fields, Patch(w.Before, w.Spec))
	data, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	spec := new(T)
	if err := json.Unmarshal(data, spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// apply writes what was decided.
func (w *world) apply(t fataler, out Output) {
	t.Helper()
	for _, x := range out.Nodes {
		if x.Spec == nil {
			delete(w.HubNodes, x.Name)
			continue
		}
		h := w.HubNodes[x.Name]
		h.UID, h.Generation, h.Spec = w.uid(x.UID), h.Generation+1, written(t, x)
		w.HubNodes[x.Name] = h
	}
	for _, x := range out.Services {
		if x.Spec == nil {
			delete(w.HubServices, x.Name)
			continue
		}
		h := w.HubServices[x.Name]
		h.UID, h.Generation, h.Spec = w.uid(x.UID), h.Generation+1, written(t, x)
		w.HubServices[x.Name] = h
	}
	for _, x := range out.Statuses {
		s := w.Services[x.Service]
		if s == nil {
			delete(w.Had, x.Service)
			continue
		}
		if x.Ingress != nil {
			s.Ingress = *x.Ingress
		}
		s.Condition = v1alpha1.Condition{}
		if x.Condition != nil {
			s.Condition = *x.Condition
		}
	}
}

func (w *world) uid(old string) string {
	if old != "" {
		return old
	}
	w.made++
	return "hub-" + strconv.Itoa(w.made)
}

// judge has the hub say something of a TenantService.
func (w *world) judge(name string, addresses []string, conditions ...v1alpha1.Condition) {
	h := w.HubServices[name]
	h.Addresses, h.Conditions = addresses, conditions
	w.HubServices[name] = h
}

func accepted(status v1alpha1.ConditionStatus, reason, message string) v1alpha1.Condition {
	return v1alpha1.Condition{Type: v1alpha1.ConditionAccepted, Status: status, Reason: reason, Message: message}
}

// settle steps until nothing is left to do, and returns the first decision. A second one deletes the objects
// of which Services had to lose the address first, and nothing else.
func (w *world) settle(t fataler) Output {
	t.Helper()
	first := Step(&w.Input)
	w.apply(t, first)
	again := Step(&w.Input)
	for _, s := range first.Statuses {
		if s.Condition == nil && s.Ingress != nil {
			again.Services = slices.DeleteFunc(again.Services, func(x Write[v1alpha1.TenantServiceSpec]) bool {
				if x.Name != NameOf(s.Service) || x.Spec != nil {
					return false
				}
				delete(w.HubServices, x.Name)
				return true
			})
		}
	}
	if len(again.Nodes)+len(again.Services)+len(again.Statuses) > 0 {
		t.Fatalf("the second step has something to do, too: %s\nafter %s", shown(again), shown(first))
	}
	return first
}

func shown(o Output) string {
	data, _ := json.Marshal(o)
	return string(data)
}

// node is a TenantNode that serves.
func node(i int) v1alpha1.TenantNode {
	return v1alpha1.TenantNode{Name: fmt.Sprintf("n%03d", i), Addresses: []string{fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)}, State: v1alpha1.TenantNodeServing}
}

// placement is in which object each node is.
func (w *world) placement() map[string]string {
	all := map[string]string{}
	for name, h := range maps.All(w.HubNodes) {
		for _, n := range h.Spec.Nodes {
			all[n.Name] = name
		}
	}
	return all
}
