package propagate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// anyService draws a Service, often one that breaks a rule.
func anyService(t *rapid.T) *Service {
	s := web()
	s.Class = rapid.SampledFrom([]string{"lbd.dev/hub", "lbd.dev/hub", "", "other"}).Draw(t, "class")
	s.Families = rapid.SampledFrom([][]v1alpha1.AddressFamily{{"ipv4"}, {"ipv6", "ipv4"}, nil}).Draw(t, "families")
	s.Ports[0].NodePort = rapid.SampledFrom([]int32{0, 30080, 30081}).Draw(t, "nodePort")
	if s.Local = rapid.Bool().Draw(t, "local"); s.Local {
		s.HealthCheckNodePort = rapid.SampledFrom([]int32{0, 31999}).Draw(t, "healthCheckNodePort")
	}
	s.ClientIP = rapid.Bool().Draw(t, "clientIP")
	s.SourceRanges = rapid.SliceOfN(rapid.SampledFrom([]string{"10.0.0.0/8", "10.1.2.3/8", "x"}), 0, 2).Draw(t, "ranges")
	s.Annotations = map[string]string{AnnotationPool: rapid.SampledFrom([]string{"", "public", "a b"}).Draw(t, "pool"),
		AnnotationGlobal: rapid.SampledFrom([]string{"", "web", "A"}).Draw(t, "global name"), AnnotationWeight: rapid.SampledFrom([]string{"0", "7", "-1"}).Draw(t, "weight")}
	s.Ingress = rapid.SampledFrom([][]string{nil, {"192.0.2.1"}, {"203.0.113.1", "192.0.2.1"}}).Draw(t, "ingress")
	return s
}

// change has something happen in either cluster.
func (w *world) change(t *rapid.T) {
	k := model.Key{Namespace: "default", Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "service")}
	switch rapid.IntRange(0, 6).Draw(t, "what") {
	case 0:
		w.Services[k] = anyService(t)
	case 1:
		delete(w.Services, k)
	case 2:
		w.Classless = !w.Classless
	case 3:
		w.Nodes = nil
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 260), 0, 230, rapid.ID[int]).Draw(t, "nodes") {
			n := node(i)
			n.State = rapid.SampledFrom([]v1alpha1.TenantNodeState{v1alpha1.TenantNodeServing, v1alpha1.TenantNodeOut}).Draw(t, "state")
			w.Nodes = append(w.Nodes, n)
		}
	case 4:
		if _, there := w.HubServices[NameOf(k)]; there {
			addrs := rapid.SampledFrom([][]string{nil, {"192.0.2.1"}}).Draw(t, "addresses")
			w.judge(NameOf(k), addrs, accepted(rapid.SampledFrom([]v1alpha1.ConditionStatus{"True", "False"}).Draw(t, "status"), "R", "m"))
		}
	case 5:
		w.Endpoints[k] = []v1alpha1.TenantEndpoints{{Name: "n001", Endpoints: rapid.Int32Range(1, 100).Draw(t, "endpoints")}}
	case 6: // somebody changes what the agent has written
		if h, there := w.HubServices[NameOf(k)]; there {
			h.Spec = rapid.SampledFrom([]*v1alpha1.TenantServiceSpec{nil, {Pool: "evil", Local: &v1alpha1.TenantLocal{HealthCheckNodePort: 1}}}).Draw(t, "spec")
			w.HubServices[NameOf(k)] = h
		}
	}
}

// TestStepIsAFixedPoint: whatever happens, a decision that is carried out leaves nothing to do, and the hub
// has then each node and each Service of ours once and nothing else, all by its own rules.
func TestStepIsAFixedPoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			w.change(t)
			w.settle(t)
			placed := w.placement()
			listed := 0
			for name, h := range w.HubNodes {
				listed += len(h.Spec.Nodes)
				object := v1alpha1.TenantNodes{TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindTenantNodes}, Metadata: v1alpha1.ObjectMeta{Name: name}, Spec: *h.Spec}
				if errs := object.Validate(); len(errs) > 0 {
					t.Fatalf("%s: %v", name, errs)
				}
			}
			if len(placed) != len(w.Nodes) || listed != len(w.Nodes) {
				t.Fatalf("%d nodes, %d in the hub, %d listed", len(w.Nodes), len(placed), listed)
			}
			for name, h := range w.HubServices {
				namespace, service, _ := strings.Cut(name, ".")
				s := w.Services[model.Key{Namespace: namespace, Name: service}]
				if s == nil || !w.Ours(s) {
					t.Fatalf("the hub has %s, which is no Service of ours", name)
				}
				object := v1alpha1.TenantService{TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindTenantService}, Metadata: v1alpha1.ObjectMeta{Name: name}, Spec: *h.Spec}
				if errs := object.Validate(); len(errs) > 0 {
					t.Fatalf("%s: %v", name, errs)
				}
				if len(h.Conditions) > 0 && !slices.Equal(s.Ingress, h.Addresses) {
					t.Fatalf("%s has %v, its Service %v", name, h.Addresses, s.Ingress)
				}
			}
			for key, s := range maps.All(w.Services) {
				if s.Ports[0].NodePort == 0 && w.Ours(s) && s.Condition.Reason != ReasonNoNodePort {
					t.Fatalf("%s has no NodePort and %s", key, fmt.Sprint(s.Condition))
				}
			}
		}
	})
}
