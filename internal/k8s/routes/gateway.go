package routes

import (
	"context"
	"sync"
	"sync/atomic"
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
// Gateway API, or without the right, serves Ingresses as ever.
type gatewayPart struct {
	routes   *k8s.Watch[routes.Have]
	gateways *k8s.Watch[*[]string] // addresses
	once     sync.Once
	asked    chan struct{} // closed once they are read
	used     atomic.Int32  // by which reading Run has decided
	changed  func([]model.Key)
	patience time.Duration // lostAfter, but for tests

	unread bool // of Run: the log says that they cannot be read
}

// lostAfter is how long HTTPRoutes of the hub may be stale: they may be others by then.
const lostAfter = 30 * time.Second

// reading is what is known of the HTTPRoutes of the hub.
type reading int32

const (
	waiting reading = iota // nobody knows yet whether they can be read
	unread                 // they cannot
	lacking                // the hub has no such kind
	known
)

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
		asked: make(chan struct{}), changed: changed, patience: lostAfter,
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
	wg.Go(func() { p.attend(ctx) })
	wg.Wait()
}

// attend tells when what is known of HTTPRoutes is not what was decided by, as when they cannot be read any more. A watch
// tells of objects alone.
func (p *gatewayPart) attend(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(k8s.RetryMost, p.patience)):
		}
		if p.now() != reading(p.used.Load()) {
			p.changed(nil)
		}
	}
}

// now is what is known of HTTPRoutes.
func (p *gatewayPart) now() reading {
	s, synced := p.routes.State(), p.routes.Synced()
	lost := !s.Connected && !s.Since.IsZero() && time.Since(s.Since) >= p.patience
	switch {
	case lost, synced && s.Guessed:
		return unread
	case !synced:
		return waiting
	case s.Absent:
		return lacking
	}
	return known
}

// gatewayInput adds what there is of HTTPRoutes and Gateways; false: nobody knows yet.
func (k *Keeper) gatewayInput(in *routes.Input, all map[model.Key]objects.Object[*v1alpha1.TenantRoute]) bool {
	p := k.gateway
	if asks(in, all) {
		p.once.Do(func() { close(p.asked) })
	}
	select {
	case <-p.asked:
	default: // there is none, and none is wanted
		return true
	}
	now := p.now()
	p.used.Store(int32(now))
	if now == waiting {
		return false
	}
	in.HTTPRoutesUnknown, in.HTTPRoutesLacking = now == unread, now == lacking
	switch {
	case now == unread && !p.unread:
		k.o.Logger.Warn("HTTPRoutes cannot be read: what is served for routes of tenants stays as it is, and only the nodes behind it change", "err", p.routes.State().Err)
	case now != unread && p.unread:
		k.o.Logger.Info("HTTPRoutes are known again")
	}
	p.unread = now == unread
	for key, have := range p.routes.All() {
		in.Have[routes.ID{Kind: routes.KindHTTPRoute, Key: key}] = have
	}
	if p.gateways.Known() {
		in.Gateways = make(map[model.Key][]string)
		for key, addresses := range p.gateways.All() {
			in.Gateways[key] = *addresses
		}
	}
	return true
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
