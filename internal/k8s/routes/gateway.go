package routes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	client   *k8s.Client
	asked    chan struct{}                // closed once they are read
	lacked   atomic.Bool                  // the hub has had no such kind for patience
	used     atomic.Pointer[gatewayState] // by which Run has decided
	changed  func([]model.Key)
	patience time.Duration // k8s.AbsentAfter, but for tests

	pending, lacks, left bool // of Run: nobody knows yet; the log says that they cannot be read, and what is left
}

func newGatewayPart(client *k8s.Client, changed func([]model.Key)) *gatewayPart {
	r := resources[routes.KindHTTPRoute]
	return &gatewayPart{
		routes: k8s.NewWatch(k8s.WatchOptions[routes.Have]{
			Name: r.Resource, ListWatch: marked(client, r), Object: &unstructured.Unstructured{}, Convert: convert, Changed: changed,
		}),
		gateways: k8s.NewWatch(k8s.WatchOptions[*[]string]{
			Name: gateways.Resource, ListWatch: k8s.ListWatch(client.Dynamic, client.Dynamic.Resource(gateways)), Object: &unstructured.Unstructured{},
			Convert: convertGateway, Changed: changed,
		}),
		client: client, asked: make(chan struct{}), changed: changed, patience: k8s.AbsentAfter,
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

// attend tells when what is known is not what was decided by, as when they cannot be read any more. A watch tells of
// objects alone.
func (p *gatewayPart) attend(ctx context.Context) {
	var since time.Time // when the hub did not have the kind for the first time in a row
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(k8s.RetryMost, p.patience)):
		}
		switch {
		case !p.lacking(ctx):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		p.lacked.Store(!since.IsZero() && time.Since(since) >= p.patience)
		now, used := p.now(), p.used.Load()
		if used != nil && ((now.err == nil) != (used.err == nil) || now.listed != used.listed) {
			p.changed(nil)
		}
	}
}

// lacking tells whether the hub has no HTTPRoutes since it has no such kind, in any version that may be stored.
func (p *gatewayPart) lacking(ctx context.Context) bool {
	if s := p.routes.State(); s.Connected || !apierrors.IsNotFound(s.Err) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, k8s.RetryMost)
	defer cancel()
	lacks, err := p.client.Lacks(ctx, gateways.Group, []string{gateways.Version, "v1beta1"}, resources[routes.KindHTTPRoute].Resource)
	return err == nil && lacks
}

// gatewayState is what is known of HTTPRoutes and Gateways.
type gatewayState struct {
	err     error // why they are not known; nil: they are
	pending bool  // they have not been read yet, and nobody knows whether they can be
	listed  bool  // all HTTPRoutes are known, whatever is with Gateways
}

// now is what is known. What could not be read for long may be another by now, or be gone.
func (p *gatewayPart) now() (now gatewayState) {
	now.listed = p.lacked.Load() && len(p.routes.All()) == 0
	for _, w := range []interface {
		Name() string
		Synced() bool
		State() k8s.WatchState
	}{p.routes, p.gateways} {
		var err error
		switch s := w.State(); {
		case !w.Synced():
			now.pending = now.pending || s.Err == nil
			err = cmp.Or(s.Err, errors.New(w.Name()+": not read yet"))
		case !s.Connected && time.Since(s.Since) >= p.patience:
			err = cmp.Or(s.Err, errors.New(w.Name()+": not read any more"))
		}
		now.listed = now.listed || err == nil && w.Name() == p.routes.Name()
		now.err = cmp.Or(now.err, err)
	}
	return now
}

// gatewayInput adds what there is of HTTPRoutes; false: nobody knows yet.
func (k *Keeper) gatewayInput(in *routes.Input, all map[model.Key]objects.Object[*v1alpha1.TenantRoute]) bool {
	p := k.gateway
	asked := false
	for _, c := range in.Clusters {
		asked = asked || c.Tenant.Spec.Gateway != ""
	}
	for _, o := range all { // of one whose Tenant had a Gateway there may be something left
		s := o.Value.Status
		asked = asked || o.Value.Spec.Origin.Kind == v1alpha1.OriginHTTPRoute && s != nil && len(s.Hostnames) > 0
	}
	left := false // or of one that was left by another controller
	for id, have := range in.Have {
		left = left || routes.LedTo(id, have)
	}
	asked = asked || left
	if asked {
		p.once.Do(func() { close(p.asked) })
	}
	select {
	case <-p.asked:
	default: // there is none, and none is wanted
		return true
	}
	now := p.now()
	if p.pending = now.pending; p.pending {
		return false
	}
	p.used.Store(&now)
	err := now.err
	in.HTTPRoutesUnknown, in.HTTPRoutesListed = err != nil, now.listed && (!left || !p.lacked.Load())
	switch {
	case err != nil && !p.lacks:
		k.o.Logger.Warn("HTTPRoutes of tenants are not served; all else is", "err", err)
	case err == nil && p.lacks:
		k.o.Logger.Info("HTTPRoutes of tenants are served again")
	}
	p.lacks = err != nil
	for key, have := range p.routes.All() {
		in.Have[routes.ID{Kind: routes.KindHTTPRoute, Key: key}] = have
	}
	if err == nil {
		in.Gateways = make(map[model.Key][]string)
		for key, addresses := range p.gateways.All() {
			in.Gateways[key] = *addresses
		}
	}
	k.tellLeft(in)
	return true
}

// tellLeft logs which Service keeps all tenants from new hostnames: nobody has it any more.
func (k *Keeper) tellLeft(in *routes.Input) {
	var left []model.Key
	for id, have := range in.Have {
		if in.Clusters[id.Namespace].Tenant == nil && routes.LedTo(id, have) {
			left = append(left, id.Key)
		}
	}
	is := in.HTTPRoutesUnknown && !in.HTTPRoutesListed && len(left) > 0
	if is && !k.gateway.left {
		k.o.Logger.Warn("no tenant gets a new hostname: an HTTPRoute of a Tenant that has ended may have it, which cannot be read", "service", slices.MinFunc(left, model.Key.Compare), "services", len(left))
	}
	k.gateway.left = is
}
