// Package routes has the engine of a hub serve the Ingresses, HTTPRoutes and GRPCRoutes of its tenants: TenantRoutes and the
// nodes of tenants in, Services, EndpointSlices, Ingresses and routes in the namespaces of their clusters out,
// and back the addresses of the engine. internal/tenants/routes decides. It is a part of the controller, which says which
// nodes count, and writes while that leads.
package routes

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/tenants/routes"
)

// Options are what a Keeper needs.
type Options struct {
	Logger *slog.Logger
	Client *k8s.Client
	// Manager names this writer among those of one object.
	Manager string
	// Valid tells whether this process may write now.
	Valid func() bool
}

// Keeper keeps the objects of the hub for the Ingresses and other routes of tenants.
type Keeper struct {
	o       Options
	kick    chan struct{} // of 1: something has changed
	routes  *k8s.Watch[objects.Object[*v1alpha1.TenantRoute]]
	have    map[string]*k8s.Watch[routes.Have] // by kind
	gateway *gatewayPart

	secrets  *certificates // of Run
	unknown  bool          // TenantRoutes are, and the log says so; of Run
	read     reading       // by which Run has decided
	patience time.Duration // lostAfter, but for tests
	still    atomic.Bool   // Run decides without knowing all that the hub has

	mu       sync.Mutex // guards all below
	clusters map[string]tenants.Cluster
}

// resources are those of the kinds that are written.
var resources = map[string]schema.GroupVersionResource{
	routes.KindService:   {Version: "v1", Resource: "services"},
	routes.KindSlice:     {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	routes.KindIngress:   {Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
	routes.KindHTTPRoute: {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"},
	routes.KindGRPCRoute: {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"},
}

// New returns a Keeper. Watch and Run make it work.
func New(o Options) *Keeper {
	k := &Keeper{o: o, kick: make(chan struct{}, 1), have: make(map[string]*k8s.Watch[routes.Have]), patience: lostAfter}
	changed := func([]model.Key) { k.wake() }
	k.routes = objects.NewTenantRoutes(o.Client, changed)
	k.gateway = newGatewayPart(o.Client, changed)
	for kind, r := range resources {
		if slices.Contains(routes.GatewayKinds, kind) {
			continue
		}
		k.have[kind] = k8s.NewWatch(k8s.WatchOptions[routes.Have]{
			Name: r.Resource, ListWatch: marked(o.Client, r), Object: &unstructured.Unstructured{}, Convert: convert, Changed: changed, Optional: true,
			Same: func(a, b routes.Have) bool { return reflect.DeepEqual(a, b) },
			Lacks: func(ctx context.Context) (bool, error) {
				return o.Client.Lacks(ctx, r.Group, []string{r.Version}, r.Resource)
			},
		})
	}
	return k
}

// marked lists and watches the objects that were made here.
func marked(c *k8s.Client, r schema.GroupVersionResource) cache.ListerWatcher {
	ours := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = routes.Label + "=" + routes.LabelValue
		return o
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.Dynamic.Resource(r).List(ctx, ours(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Dynamic.Resource(r).Watch(ctx, ours(o))
		},
	}, c.Dynamic)
}

// convert keeps of an object what is compared.
func convert(obj runtime.Object) (routes.Have, bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u.GetLabels()[routes.Label] != routes.LabelValue {
		return routes.Have{}, false
	}
	body := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{
		"name": u.GetName(), "namespace": u.GetNamespace(), "labels": u.Object["metadata"].(map[string]any)["labels"], "annotations": u.Object["metadata"].(map[string]any)["annotations"],
	}}
	for _, field := range []string{"spec", "status", "addressType", "ports", "endpoints"} {
		if v, has := u.Object[field]; has {
			body[field] = v
		}
	}
	ports, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "ports") // of a Service: in whatever order
	if list, ok := ports.([]any); ok {
		slices.SortStableFunc(list, func(a, b any) int { return cmp.Compare(number(a), number(b)) })
	}
	return routes.Have{UID: string(u.GetUID()), Body: body}, true
}

// number is that of a port.
func number(port any) int64 {
	p, _ := port.(map[string]any)
	n, _ := p["port"].(int64)
	return n
}

func (k *Keeper) wake() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// Watch reads what there is until ctx ends.
func (k *Keeper) Watch(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { k.routes.Run(ctx) })
	wg.Go(func() { k.gateway.watch(ctx) })
	for _, w := range k.have {
		wg.Go(func() { w.Run(ctx) })
	}
	wg.Wait()
}

// Judged says which clusters of tenants count, and their nodes; nil: that is not known, as at the begin of
// a term, and what is there stays.
func (k *Keeper) Judged(clusters map[string]tenants.Cluster) {
	k.mu.Lock()
	same := reflect.DeepEqual(k.clusters, clusters)
	k.clusters = clusters
	k.mu.Unlock()
	if !same {
		k.wake()
	}
}

// Still tells whether nothing changes but the nodes behind routes, since what the hub has for them cannot be read.
func (k *Keeper) Still() bool { return k.still.Load() }

// Routes are the TenantRoutes.
func (k *Keeper) Routes() map[model.Key]objects.Object[*v1alpha1.TenantRoute] { return k.routes.All() }

// resyncEvery is how often all is compared without a cause, and unknownEvery while not all is known.
const (
	resyncEvery  = 10 * time.Minute
	unknownEvery = time.Minute
)

// Run writes until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	w := &writer{k: k, past: map[routes.ID]past{}}
	k.secrets = &certificates{k: k, watches: map[string]*certificateWatch{}}
	defer k.secrets.running.Wait()
	defer k.still.Store(false)
	timer := time.NewTimer(0)
	defer timer.Stop()
	look := time.NewTicker(min(k8s.RetryMost, k.patience)) // no watch tells that its objects cannot be read any more
	defer look.Stop()
	var pace k8s.Pace // agents of tenants can cause all of it
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if k.reading() == k.read {
				continue
			}
		case <-k.kick:
		case <-timer.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace.Wait(time.Now())):
		}
		next := unknownEvery
		began := time.Now()
		if in, all, known := k.input(ctx); known {
			out := routes.Step(in)
			pace.Done(began, time.Now()) // writes have a pace of their own
			next = w.write(ctx, &out)
			if out.Young {
				next = min(next, youngFor)
			}
			next = min(next, w.tell(ctx, all, &out))
		} else if !k.secrets.settled() { // that one may not be read is no change of an object
			next = seenWithin
		}
		timer.Reset(next)
	}
}

// input is what there is now; false: not all of it is known.
func (k *Keeper) input(ctx context.Context) (*routes.Input, map[model.Key]objects.Object[*v1alpha1.TenantRoute], bool) {
	before := k.reading() // a list that is stale when it is taken may be fresh right after
	k.mu.Lock()
	in := &routes.Input{Clusters: k.clusters, Routes: make(map[model.Key]*routes.Route), Have: make(map[routes.ID]routes.Have)}
	k.mu.Unlock()
	k.secrets.follow(ctx, in.Clusters)
	if in.Clusters == nil || !k.Synced() || !k.known() || !k.secrets.settled() {
		return nil, nil, false
	}
	in.Certificates = k.secrets.read(time.Now())
	for kind, w := range k.have {
		for key, have := range w.All() {
			in.Have[routes.ID{Kind: kind, Key: key}] = have
		}
	}
	all := k.routes.All()
	k.gateway.add(in, all)
	if !k.knows(in, before) {
		return nil, nil, false
	}
	for key, o := range all {
		if len(o.Errors) == 0 {
			r := &routes.Route{TenantRoute: o.Value, Created: o.Created}
			if s := o.Value.Status; s != nil {
				r.Held, r.Shows = slices.Clone(s.Hostnames), slices.Clone(s.Addresses)
				r.Judged = slices.ContainsFunc(o.Conditions, func(c v1alpha1.Condition) bool {
					return c.Type == v1alpha1.ConditionAccepted && c.ObservedGeneration == o.Generation
				})
			}
			in.Routes[key] = r
		}
	}
	return in, all, true
}

// reading is what is known of what the hub has for routes.
type reading struct {
	notRead string  // a resource that cannot be read; empty: there is none
	waiting bool    // routes of a Gateway have not been read yet
	lacking [2]bool // the kinds of these, each at its place in routes.GatewayKinds, which has as many, that the hub has not, or that cannot be read and it has none of
}

// lostAfter is how long what the hub has may be stale. It may be another by then.
const lostAfter = k8s.RetryMost

// reading tells what is known now. Only Run may call it.
func (k *Keeper) reading() (r reading) {
	lost := func(s k8s.WatchState, began time.Time) bool {
		return s.Guessed || !s.Connected && time.Since(cmp.Or(s.Since, began)) >= k.patience
	}
	for _, w := range k.have {
		if lost(w.State(), time.Now()) {
			r.notRead = max(r.notRead, w.Name())
		}
	}
	for i, kind := range routes.GatewayKinds {
		w := k.gateway.routes[kind]
		switch s := w.State(); {
		case !w.wanted && len(w.All()) == 0: // there is none, and none is wanted
		case lost(s, w.began) && (s.Guessed || !w.Synced()) && !w.led && kind != routes.KindHTTPRoute: // no controller has made any, or their Services would be marked
			r.lacking[i] = true
		case lost(s, w.began):
			r.notRead = max(r.notRead, w.Name())
		case !w.Synced():
			r.waiting = true
		case s.Absent:
			r.lacking[i] = true
		}
	}
	return r
}

// knows adds to the input what could not be read, now or when the lists were taken, and logs the change. False: routes of a Gateway have
// not been read yet, or were while the lists were taken, and Run decides again soon.
func (k *Keeper) knows(in *routes.Input, taken reading) bool {
	before := k.read.notRead
	k.read = k.reading()
	if k.read.waiting != taken.waiting || k.read.lacking != taken.lacking {
		k.read = taken
		return false
	}
	k.read.notRead = cmp.Or(k.read.notRead, taken.notRead)
	k.still.Store(k.read.notRead != "")
	in.NotRead, in.Lacking = k.read.notRead, make(map[string]bool)
	for i, kind := range routes.GatewayKinds {
		in.Lacking[kind] = k.read.lacking[i]
	}
	switch now := k.read.notRead; {
	case now != "" && before == "":
		k.o.Logger.Warn("what the hub has for routes of tenants cannot be read: it stays as it is, and only the nodes behind it change", "resource", now)
	case now == "" && before != "":
		k.o.Logger.Info("what the hub has for routes of tenants is known again")
	}
	return !k.read.waiting
}

// known tells whether TenantRoutes are known, and logs once that they are not.
func (k *Keeper) known() bool {
	is := k.routes.Known()
	switch before := k.unknown; {
	case !is && !before && slices.ContainsFunc(slices.Collect(maps.Values(k.have)), func(w *k8s.Watch[routes.Have]) bool { return len(w.All()) > 0 }):
		k.unknown = true
		k.o.Logger.Warn("tenantroutes are lacking, or may not be read: what the engine has for routes of tenants stays", "err", k.routes.State().Err)
	case is && before:
		k.unknown = false
		k.o.Logger.Info("tenantroutes are known again")
	}
	return is
}

// Synced tells whether all has been read. What is lacking, or may not be read, counts as read.
func (k *Keeper) Synced() bool {
	for _, w := range k.have {
		if !w.Synced() {
			return false
		}
	}
	return k.routes.Synced()
}
