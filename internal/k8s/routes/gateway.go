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

// gatewayPart is what is read for HTTPRoutes: nothing before a tenant has to do with them. A hub without the
// Gateway API serves Ingresses as ever.
type gatewayPart struct {
	routes   *k8s.Watch[routes.Have]
	gateways *k8s.Watch[*[]string] // addresses
	asked    chan struct{}         // closed once they are read

	wanted bool      // of Run: a tenant may have HTTPRoutes, or some are left
	began  time.Time // of Run: when they were asked for
}

func newGatewayPart(client *k8s.Client, changed func([]model.Key)) *gatewayPart {
	r := resources[routes.KindHTTPRoute]
	lacks := func(resource string) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) { // in any version that may be stored
			return client.Lacks(ctx, gateways.Group, []string{gateways.Version, "v1beta1"}, resource)
		}
	}
	return &gatewayPart{
		routes: k8s.NewWatch(k8s.WatchOptions[routes.Have]{
			Name: r.Resource, ListWatch: marked(client, r), Object: &unstructured.Unstructured{}, Convert: convert, Changed: changed,
			Optional: true, Lacks: lacks(r.Resource),
		}),
		gateways: k8s.NewWatch(k8s.WatchOptions[*[]string]{
			Name: gateways.Resource, ListWatch: k8s.ListWatch(client.Dynamic, client.Dynamic.Resource(gateways)), Object: &unstructured.Unstructured{},
			Convert: convertGateway, Changed: changed, Optional: true, Lacks: lacks(gateways.Resource),
		}),
		asked: make(chan struct{}),
	}
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

// watch reads once it was asked to, until ctx ends.
func (p *gatewayPart) watch(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-p.asked:
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.routes.Run(ctx) })
	wg.Go(func() { p.gateways.Run(ctx) })
	wg.Wait()
}

// add adds what there is of HTTPRoutes and Gateways.
func (p *gatewayPart) add(in *routes.Input, all map[model.Key]objects.Object[*v1alpha1.TenantRoute]) {
	p.wanted = asks(in, all)
	if p.wanted && p.began.IsZero() {
		p.began = time.Now()
		close(p.asked)
	}
	for key, have := range p.routes.All() {
		in.Have[routes.ID{Kind: routes.KindHTTPRoute, Key: key}] = have
	}
	if p.gateways.Known() {
		in.Gateways = make(map[model.Key][]string)
		for key, addresses := range p.gateways.All() {
			in.Gateways[key] = *addresses
		}
	}
}

// asks tells whether a tenant may have HTTPRoutes, or the hub has some that are left.
func asks(in *routes.Input, all map[model.Key]objects.Object[*v1alpha1.TenantRoute]) bool {
	for _, c := range in.Clusters {
		if c.Tenant.Spec.Gateway != "" {
			return true
		}
	}
	for _, o := range all { // of one whose Tenant had a Gateway there may be something left
		s := o.Value.Status
		if o.Value.Spec.Origin.Kind == v1alpha1.OriginHTTPRoute && s != nil && len(s.Hostnames) > 0 {
			return true
		}
	}
	for id, have := range in.Have { // or of one that was left by another controller
		if routes.LedTo(id, have) {
			return true
		}
	}
	return false
}
