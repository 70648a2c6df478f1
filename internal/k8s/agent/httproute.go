package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants/propagate"
)

// GatewayClass is the class of the Gateways that a hub serves, and controllerName how its routes know who judges
// them.
const (
	GatewayClass   = "lbd"
	controllerName = "lbd.dev/hub"
)

// The kinds of the Gateway API, as those of writes.
const (
	kindGatewayClass = "GatewayClass"
	kindGateway      = "Gateway"
	kindHTTPRoute    = string(v1alpha1.OriginHTTPRoute)
	kindGRPCRoute    = string(v1alpha1.OriginGRPCRoute)
	kindGrant        = "ReferenceGrant"
)

var gatewayKinds = map[string]schema.GroupVersionResource{
	kindGatewayClass: {Group: propagate.GatewayGroup, Version: "v1", Resource: "gatewayclasses"},
	kindGateway:      {Group: propagate.GatewayGroup, Version: "v1", Resource: "gateways"},
	kindHTTPRoute:    {Group: propagate.GatewayGroup, Version: "v1", Resource: "httproutes"},
	kindGRPCRoute:    {Group: propagate.GatewayGroup, Version: "v1", Resource: "grpcroutes"},
	kindGrant:        {Group: propagate.GatewayGroup, Version: "v1beta1", Resource: "referencegrants"},
}

// gatewayPart is what an Agent has that propagates routes of Gateways.
type gatewayPart struct {
	classes  *k8s.Watch[*gatewayClass]
	gateways *k8s.Watch[*propagate.Gateway]
	routes   map[v1alpha1.TenantOriginKind]*k8s.Watch[*propagate.HTTPRoute]
	grants   *k8s.Watch[*propagate.Grant]
}

func newGatewayPart(a *Agent) *gatewayPart {
	p := &gatewayPart{
		classes:  watchGateway(a, kindGatewayClass, convertGatewayClass),
		gateways: watchGateway(a, kindGateway, convertGateway),
		grants: watchGateway(a, kindGrant, func(obj runtime.Object) (*propagate.Grant, bool) {
			u, ok := obj.(*unstructured.Unstructured)
			if !ok {
				return nil, false
			}
			return propagate.ReadGrant(part(u, "spec")), true
		}),
		routes: map[v1alpha1.TenantOriginKind]*k8s.Watch[*propagate.HTTPRoute]{},
	}
	for _, kind := range propagate.GatewayKinds {
		p.routes[kind] = watchGateway(a, string(kind), func(obj runtime.Object) (*propagate.HTTPRoute, bool) { return convertRoute(kind, obj) })
	}
	return p
}

func watchGateway[T any](a *Agent, kind string, convert func(runtime.Object) (T, bool)) *k8s.Watch[T] {
	r := gatewayKinds[kind]
	return k8s.NewWatch(k8s.WatchOptions[T]{
		Name: r.Resource, ListWatch: k8s.ListWatch(a.o.Tenant.Dynamic, a.o.Tenant.Dynamic.Resource(r)), Object: &unstructured.Unstructured{},
		Convert: convert, Same: same[T], Changed: func([]model.Key) { a.wake() },
	})
}

var errClass = errors.New("there is no GatewayClass " + GatewayClass + " of the controller " + controllerName)

// classLacks tells whether Gateways of the class are not ours. One that is deleted and made anew is to cost nothing.
func (p *gatewayPart) classLacks() bool {
	return p != nil && p.classes.Synced() && len(p.classes.All()) == 0
}

// gatewayClass is what counts of a GatewayClass: of ours only whether it says that it is accepted.
type gatewayClass struct {
	UID        string
	Generation int64
	Accepted   bool
}

// part is a field of an object as JSON.
func part(u *unstructured.Unstructured, fields ...string) []byte {
	v, _, _ := unstructured.NestedFieldNoCopy(u.Object, fields...)
	data, _ := json.Marshal(v) // it comes from JSON
	return data
}

func convertGatewayClass(obj runtime.Object) (*gatewayClass, bool) {
	var o struct {
		Spec struct {
			ControllerName string `json:"controllerName"`
		} `json:"spec"`
		Status struct {
			Conditions []v1alpha1.Condition `json:"conditions"`
		} `json:"status"`
	}
	u, readable := readHub(obj, &o)
	if u == nil || !readable || u.GetName() != GatewayClass || o.Spec.ControllerName != controllerName {
		return nil, false
	}
	c := &gatewayClass{UID: string(u.GetUID()), Generation: u.GetGeneration()}
	for _, x := range o.Status.Conditions {
		c.Accepted = c.Accepted || x.Type == v1alpha1.ConditionAccepted && x.Status == v1alpha1.ConditionTrue && x.ObservedGeneration == c.Generation
	}
	return c, true
}

func convertGateway(obj runtime.Object) (*propagate.Gateway, bool) {
	var o struct {
		Spec struct {
			Class string `json:"gatewayClassName"`
		} `json:"spec"`
		Status struct {
			Addresses []struct {
				Value string `json:"value"`
			} `json:"addresses"`
			Conditions []v1alpha1.Condition       `json:"conditions"`
			Listeners  []propagate.ListenerStatus `json:"listeners"`
		} `json:"status"`
	}
	u, readable := readHub(obj, &o)
	if u == nil || !readable || o.Spec.Class != GatewayClass {
		return nil, false
	}
	g := &propagate.Gateway{UID: string(u.GetUID()), Generation: u.GetGeneration(), Class: o.Spec.Class}
	g.Listeners, g.Bad = propagate.ReadGateway(part(u, "spec"))
	g.Status = propagate.GatewayStatus{Conditions: o.Status.Conditions, Listeners: o.Status.Listeners}
	for _, a := range o.Status.Addresses {
		g.Status.Addresses = append(g.Status.Addresses, a.Value)
	}
	return g, true
}

func convertRoute(kind v1alpha1.TenantOriginKind, obj runtime.Object) (*propagate.HTTPRoute, bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, false
	}
	r := &propagate.HTTPRoute{UID: string(u.GetUID()), Version: u.GetResourceVersion(), Generation: u.GetGeneration()}
	propagate.ReadRoute(kind, u.GetNamespace(), part(u, "spec"), r)
	var parents []json.RawMessage
	_ = json.Unmarshal(part(u, "status", "parents"), &parents) // null is none
	for _, p := range parents {
		var x struct {
			ControllerName string               `json:"controllerName"`
			ParentRef      propagate.ParentRef  `json:"parentRef"`
			Conditions     []v1alpha1.Condition `json:"conditions"`
		}
		if err := json.Unmarshal(p, &x); err != nil || x.ControllerName != controllerName {
			r.Others = append(r.Others, p)
			continue
		}
		r.States = append(r.States, propagate.ParentState{Ref: x.ParentRef, Conditions: x.Conditions})
	}
	return r, true
}

// input adds what there is of routes of Gateways, unless none of their kinds is known. grants is why ReferenceGrants are not.
func (p *gatewayPart) input(in *propagate.IngressInput, grants error) {
	if p == nil {
		return
	}
	lacking := apierrors.IsNotFound(grants) && !p.grants.Synced()
	for kind, w := range p.routes {
		if in.Unread[kind] {
			continue
		}
		if in.HTTP == nil {
			in.HTTP = &propagate.HTTPInput{Class: GatewayClass, Gateways: p.gateways.All(), Routes: map[propagate.RouteKey]*propagate.HTTPRoute{}, Refused: map[propagate.RouteKey]string{},
				Grants: p.grants.All(), GrantsLacking: lacking, GrantsUnread: !lacking && grants != nil}
		}
		for key, r := range w.All() {
			in.HTTP.Routes[propagate.RouteKey{Kind: kind, Key: key}] = r
		}
	}
}

// jobs write the statuses of what is of the Gateway API.
func (p *gatewayPart) jobs(l *loop, out *propagate.IngressOutput) (jobs []*job) {
	for k, c := range p.classes.All() {
		if !c.Accepted {
			condition := v1alpha1.Condition{Type: v1alpha1.ConditionAccepted, Status: v1alpha1.ConditionTrue, Reason: v1alpha1.ConditionAccepted,
				Message: "routes of its Gateways are served by a hub", ObservedGeneration: c.Generation}
			jobs = append(jobs, l.gatewayJob(kindGatewayClass, k, c, map[string]any{"uid": c.UID}, func(now time.Time) map[string]any {
				return map[string]any{"conditions": timed([]v1alpha1.Condition{condition}, nil, now)}
			}))
		}
	}
	for i := range out.Gateways {
		w := &out.Gateways[i]
		jobs = append(jobs, l.gatewayJob(kindGateway, w.Gateway, w, map[string]any{"uid": w.UID}, func(now time.Time) map[string]any { return p.gatewayStatus(w, now) }))
	}
	for i := range out.HTTPStatuses {
		w := &out.HTTPStatuses[i]
		// The list has what others say of the route: it is written as it was read. What is said here is the same
		// whatever they say, so that it is not repeated without end to one who takes it away.
		meta := map[string]any{"uid": w.UID, "resourceVersion": w.Version}
		jobs = append(jobs, l.gatewayJob(string(w.Route.Kind), w.Route.Key, []any{w.UID, w.States}, meta, func(now time.Time) map[string]any { return p.routeStatus(w, now) }))
	}
	return jobs
}

// gatewayJob writes a status; what is what it says but for the time.
func (l *loop) gatewayJob(kind string, key model.Key, what any, meta map[string]any, status func(time.Time) map[string]any) *job {
	j := &job{id: kind + "/" + key.String(), side: SideTenant, what: kind, body: text(what), pause: servicePause}
	j.run = func(ctx context.Context) error {
		body := text(map[string]any{"metadata": meta, "status": status(time.Now())})
		_, err := l.a.o.Tenant.Dynamic.Resource(gatewayKinds[kind]).Namespace(key.Namespace).
			Patch(ctx, key.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: Manager}, "status")
		return gone(err)
	}
	return j
}

// timed are conditions since when they are so.
func timed(wanted, before []v1alpha1.Condition, now time.Time) []v1alpha1.Condition {
	out := make([]v1alpha1.Condition, len(wanted))
	for i, c := range wanted {
		c.LastTransitionTime = now.UTC().Truncate(time.Second)
		for _, b := range before {
			if b.Type == c.Type && b.Status == c.Status && !b.LastTransitionTime.IsZero() {
				c.LastTransitionTime = b.LastTransitionTime
			}
		}
		out[i] = c
	}
	return out
}

func (p *gatewayPart) gatewayStatus(w *propagate.GatewayWrite, now time.Time) map[string]any {
	before := propagate.GatewayStatus{}
	if g, ok := p.gateways.Get(w.Gateway); ok {
		before = g.Status
	}
	addresses, listeners := []any{}, []any{}
	for _, a := range w.Status.Addresses {
		kind := "Hostname"
		if _, err := netip.ParseAddr(a); err == nil {
			kind = "IPAddress"
		}
		addresses = append(addresses, map[string]any{"type": kind, "value": a})
	}
	for _, x := range w.Status.Listeners {
		var had []v1alpha1.Condition
		for _, b := range before.Listeners {
			if b.Name == x.Name {
				had = b.Conditions
			}
		}
		x.Conditions = timed(x.Conditions, had, now)
		listeners = append(listeners, x)
	}
	return map[string]any{"addresses": addresses, "conditions": timed(w.Status.Conditions, before.Conditions, now), "listeners": listeners}
}

func (p *gatewayPart) routeStatus(w *propagate.HTTPStatus, now time.Time) map[string]any {
	var before []propagate.ParentState
	if r, ok := p.routes[w.Route.Kind].Get(w.Route.Key); ok {
		before = r.States
	}
	parents := []any{}
	for _, o := range w.Others {
		parents = append(parents, o)
	}
	for _, s := range w.States {
		var had []v1alpha1.Condition
		for _, b := range before {
			if b.Ref == s.Ref {
				had = b.Conditions
			}
		}
		parents = append(parents, map[string]any{"controllerName": controllerName, "parentRef": s.Ref, "conditions": timed(s.Conditions, had, now)})
	}
	return map[string]any{"parents": parents}
}
