package routes

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants/routes"
)

var gateways = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}

// gatewayPart is what is read for routes of a Gateway: nothing before a tenant has to do with them. A hub without the
// Gateway API serves Ingresses as ever.
type gatewayPart struct {
	routes   map[string]*gatewayRoutes // by kind
	gateways *k8s.Watch[*[]string]     // addresses
	asked    chan struct{}             // closed once a kind of routes is read
	ask      sync.Once                 // closes it
}

// gatewayRoutes are the routes of one kind.
type gatewayRoutes struct {
	*k8s.Watch[routes.Have]
	asked chan struct{} // closed once they are read

	wanted bool      // of Run: a tenant may have some, or some are left
	led    bool      // of Run: the hub has Services that are marked for them
	began  time.Time // of Run: when they were asked for
}

func newGatewayPart(client *k8s.Client, changed func([]model.Key)) *gatewayPart {
	lacks := func(resource string) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) { // in any version that may be stored
			return client.Lacks(ctx, gateways.Group, []string{gateways.Version, "v1beta1"}, resource)
		}
	}
	p := &gatewayPart{
		routes: make(map[string]*gatewayRoutes),
		gateways: k8s.NewWatch(k8s.WatchOptions[*[]string]{
			Name: gateways.Resource, ListWatch: k8s.ListWatch(client.Dynamic, client.Dynamic.Resource(gateways)), Object: &unstructured.Unstructured{},
			Convert: convertGateway, Changed: changed, Optional: true, Lacks: lacks(gateways.Resource),
		}),
		asked: make(chan struct{}),
	}
	for _, kind := range routes.GatewayKinds {
		r := resources[kind]
		p.routes[kind] = &gatewayRoutes{asked: make(chan struct{}), Watch: k8s.NewWatch(k8s.WatchOptions[routes.Have]{
			Name: r.Resource, ListWatch: marked(client, r), Object: &unstructured.Unstructured{}, Convert: convert, Changed: changed,
			Optional: true, Lacks: lacks(r.Resource),
		})}
	}
	return p
}

// convertGateway keeps of a Gateway its addresses.
func convertGateway(obj runtime.Object) (*[]string, bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, false
	}
	var list []string
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "addresses") // of another type: none
	for _, x := range all {
		address, _ := x.(map[string]any)
		if text, _ := address["value"].(string); text != "" && len(text) <= 253 {
			list = append(list, text)
		}
	}
	return &list, true
}

// watch reads each kind once it was asked to, until ctx ends.
func (p *gatewayPart) watch(ctx context.Context) {
	var wg sync.WaitGroup
	follow := func(asked chan struct{}, run func(context.Context)) {
		wg.Go(func() {
			select {
			case <-ctx.Done():
			case <-asked:
				run(ctx)
			}
		})
	}
	follow(p.asked, p.gateways.Run)
	for _, r := range p.routes {
		follow(r.asked, r.Run)
	}
	wg.Wait()
}

// add adds what there is of Gateways and their routes.
func (p *gatewayPart) add(in *routes.Input, all map[model.Key]objects.Object[*v1alpha1.TenantRoute]) {
	for kind, r := range p.routes {
		r.led = false
		for id, have := range in.Have {
			r.led = r.led || routes.LedTo(id, have, kind)
		}
		r.wanted = r.led || asks(in, all, kind)
		if r.wanted && r.began.IsZero() {
			r.began = time.Now()
			close(r.asked)
			p.ask.Do(func() { close(p.asked) })
		}
		for key, have := range r.All() {
			in.Have[routes.ID{Kind: kind, Key: key}] = have
		}
	}
	if p.gateways.Known() {
		in.Gateways = make(map[model.Key][]string)
		for key, addresses := range p.gateways.All() {
			in.Gateways[key] = *addresses
		}
	}
}

// asks tells whether a tenant may have routes of a kind, or had some. All may have HTTPRoutes that have a
// Gateway. A hub need not have the other kinds, nor the controller a right to them, before a tenant has one.
func asks(in *routes.Input, all map[model.Key]objects.Object[*v1alpha1.TenantRoute], kind string) bool {
	for _, c := range in.Clusters {
		if c.Tenant.Spec.Gateway != "" && kind == routes.KindHTTPRoute {
			return true
		}
	}
	for key, o := range all {
		if string(o.Value.Spec.Origin.Kind) != kind {
			continue
		}
		s, t := o.Value.Status, in.Clusters[key.Namespace].Tenant
		if t != nil && t.Spec.Gateway != "" || s != nil && len(s.Hostnames) > 0 { // of one whose Tenant had a Gateway there may be something left
			return true
		}
	}
	return false
}
