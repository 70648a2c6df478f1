// Package agent runs in a tenant cluster: it writes the Services of type LoadBalancer and the Nodes into
// a namespace of another cluster, the hub, and the addresses and the words of the hub into the status of
// the Services. internal/tenants/propagate decides what is written.
//
// Two processes keep their watches warm; a Lease in the tenant cluster says which one writes. Nothing is
// written before both clusters have been read. While one of them is away, what is there stays.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/tenants/propagate"
)

// Manager names this writer among those of one object, and is the source of events.
const Manager = "lbd-agent"

// onlyLoadBalancers is what is watched of the Services: one that changes its type looks deleted.
const onlyLoadBalancers = "spec.type=LoadBalancer"

// The sides that are written to.
const (
	SideHub    = "hub"
	SideTenant = "tenant"
)

// Options are what an Agent needs.
type Options struct {
	Logger *slog.Logger
	// Tenant is the cluster that the agent is of, Hub the other one, in which HubNamespace is its.
	Tenant, Hub  *k8s.Client
	HubNamespace string
	// Class is the spec.loadBalancerClass of the Services that are propagated; Classless: those
	// without one are, too. CordonDrains: a Node that is cordoned is draining.
	Class                   string
	Classless, CordonDrains bool
	// Ingress: Ingresses of IngressClass are propagated, too.
	Ingress bool
	// Gateway: HTTPRoutes and GRPCRoutes of Gateways of GatewayClass are propagated, too.
	Gateway bool
	// TLSNamespaces are those of which the Secrets that Ingresses name are copied to the hub.
	TLSNamespaces []string
	// Namespace and LeaseName are those of the Lease, and Identity is unique among the processes.
	Namespace, LeaseName, Identity string
	// Secret is the one in Namespace that has the token for the hub, which is renewed there; empty: it
	// is not renewed.
	Secret string
	// Lease replaces the Lease of the API server in tests.
	Lease lease.API
}

// Agent is one of several processes of which one writes.
type Agent struct {
	o       Options
	elector *lease.Elector
	events  *objects.Recorder
	kick    chan struct{}           // of 1: something has changed
	back    map[string]*atomic.Bool // by side: it was away, and the loop is to try it at once
	// patience is giveUpAfter, but for tests.
	patience time.Duration

	services    *k8s.Watch[*propagate.Service]
	slices      *k8s.Watch[propagate.Slice]
	nodes       *k8s.Watch[*services.Node]
	hubNodes    *k8s.Watch[propagate.HubNodes]
	hubServices *k8s.Watch[propagate.HubService]
	ingress     *ingressPart // nil without
	whose       atomic.Int32 // whose the namespace in the hub is; of a leader alone
	waiting     atomic.Int32 // what the loop goes without, see ingressPart.unread

	mu    sync.Mutex // guards all below
	stats Stats
	// turned is when the loop of a leader was last seen alive.
	turned time.Time
}

// Written is what writes are counted by.
type Written struct {
	// Side is SideHub or SideTenant, What the kind of the object.
	Side, What string
	// Result is ok, refused (by the API server, for what the object says), or error.
	Result string
}

// Stats are what an Agent tells about itself, for metrics.
type Stats struct {
	Leader bool
	// HubConnected and TenantConnected tell whether the objects there have been read and are being watched.
	HubConnected, TenantConnected bool
	// Counts are the Services that are propagated. They are 0 unless this process leads, as Nodes are.
	propagate.Counts
	Nodes map[v1alpha1.TenantNodeState]int
	// Routes are the Ingresses that are, and OfGateways the routes of Gateways, by their kinds.
	Routes     propagate.Counts
	OfGateways map[v1alpha1.TenantOriginKind]propagate.Counts
	// Writes counts those to both clusters.
	Writes map[Written]uint64
	// EventsSent and EventsDropped count events in the tenant cluster.
	EventsSent, EventsDropped uint64
	// TokenRenewals counts by result: ok or error.
	TokenRenewals map[string]uint64
}

// New returns an Agent; Run runs it.
func New(o Options) (*Agent, error) {
	// Renewals must not queue behind statuses, and statuses not behind events.
	apart := func(qps float32, burst int) (*k8s.Client, error) {
		return k8s.NewFor(o.Tenant.Config, k8s.Options{Logger: o.Logger, UserAgent: o.Tenant.Config.UserAgent, QPS: qps, Burst: burst})
	}
	if o.Lease == nil {
		c, err := apart(5, 10)
		if err != nil {
			return nil, err
		}
		o.Lease = lease.NewObject(c.Dynamic, o.Namespace, o.LeaseName)
	}
	news, err := apart(10, 100)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		o: o, kick: make(chan struct{}, 1), patience: giveUpAfter,
		back: map[string]*atomic.Bool{SideHub: new(atomic.Bool), SideTenant: new(atomic.Bool)}, events: objects.NewRecorder(news.Core, Manager, o.Identity),
		elector: lease.New(lease.Options{Logger: o.Logger, API: o.Lease, Identity: o.Identity}),
		stats:   Stats{Writes: map[Written]uint64{}, TokenRenewals: map[string]uint64{}},
	}
	a.watch()
	return a, nil
}

// watch prepares all watches; nothing is sent yet.
func (a *Agent) watch() {
	changed := func([]model.Key) { a.wake() }
	a.services = k8s.NewWatch(k8s.WatchOptions[*propagate.Service]{
		Name: "services", ListWatch: ofTenant(a.o.Tenant.Core, "services", onlyLoadBalancers), Object: &corev1.Service{},
		Convert: convertService, Same: same[*propagate.Service], Changed: changed,
	})
	a.slices = k8s.NewWatch(k8s.WatchOptions[propagate.Slice]{
		Name: "endpointslices", ListWatch: ofTenant(a.o.Tenant.Discovery, "endpointslices", ""), Object: &discoveryv1.EndpointSlice{},
		Convert: convertSlice, Same: same[propagate.Slice], Changed: changed,
	})
	a.nodes = k8s.NewWatch(k8s.WatchOptions[*services.Node]{
		Name: "nodes", ListWatch: ofTenant(a.o.Tenant.Core, "nodes", ""), Object: &corev1.Node{},
		Convert: convertNode, Same: same[*services.Node], Changed: changed,
	})
	a.hubNodes = watchHub(a, v1alpha1.KindTenantNodes, convertHubNodes)
	a.hubServices = watchHub(a, v1alpha1.KindTenantService, convertHubService)
	if a.o.Ingress || a.o.Gateway {
		a.ingress = newIngressPart(a)
	}
}

func same[T any](x, y T) bool { return reflect.DeepEqual(x, y) }

func ofTenant(client rest.Interface, resource, selector string) cache.ListerWatcher {
	lw := cache.NewFilteredListWatchFromClient(client, resource, metav1.NamespaceAll, func(o *metav1.ListOptions) {
		if selector != "" {
			o.FieldSelector = fields.ParseSelectorOrDie(selector).String()
		}
	})
	return cache.ToListWatcherWithWatchListSemantics(lw, client)
}

// watchHub watches one kind in the one namespace of the hub that is ours.
func watchHub[T any](a *Agent, kind string, convert func(runtime.Object) (T, bool)) *k8s.Watch[T] {
	r := a.o.Hub.Dynamic.Resource(objects.Resource(kind)).Namespace(a.o.HubNamespace)
	return k8s.NewWatch(k8s.WatchOptions[T]{
		Name: objects.Resource(kind).Resource, ListWatch: k8s.ListWatch(a.o.Hub.Dynamic, r),
		Object: &unstructured.Unstructured{}, Convert: convert, Same: same[T], Changed: func([]model.Key) { a.wake() },
	})
}

func (a *Agent) wake() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// kindWatch is what all watches have in common.
type kindWatch interface {
	Run(context.Context)
	Synced() bool
	State() k8s.WatchState
	Name() string
}

// watches are those of Services and Nodes, without which nothing is written. Those of Ingresses are not
// among them: who may not read these still has load balancers.
func (a *Agent) watches(side string) []kindWatch {
	if side == SideHub {
		return []kindWatch{a.hubNodes, a.hubServices}
	}
	return []kindWatch{a.services, a.slices, a.nodes}
}

// Run watches, and writes while it leads, until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	if a.o.Identity == "" || a.o.HubNamespace == "" {
		return errors.New("agent: it needs an identity and a namespace in the hub")
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, w := range slices.Concat(a.watches(SideTenant), a.watches(SideHub), a.ingress.watches()) {
		wg.Go(func() { w.Run(ctx) })
	}
	wg.Go(func() { a.events.Run(ctx) })
	wg.Go(func() { a.notice(ctx) })
	for a.await(ctx) {
		a.elect(ctx)
	}
	return nil
}

const (
	// lookEvery is how often the state of the connections is looked at, and lostAfter how long a watch must
	// have failed to be called lost: one that is opened again at once is no news.
	lookEvery = time.Second
	lostAfter = time.Second
	// giveUpAfter is how long a cluster may be lost to a process that goes on to lead, or asks to.
	giveUpAfter = 30 * time.Second
)

// await returns once both clusters are known and being watched. false: ctx has ended.
func (a *Agent) await(ctx context.Context) bool {
	for ctx.Err() == nil && (a.Ready() != nil || a.lost(SideHub, lostAfter) != nil || a.lost(SideTenant, lostAfter) != nil) {
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	if ctx.Err() != nil {
		return false
	}
	a.o.Logger.Info("both clusters are known", "services", len(a.services.All()), "namespace", a.o.HubNamespace)
	return true
}

// elect takes part in elections until ctx ends, or a cluster has been lost for too long: another process
// may see it.
func (a *Agent) elect(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var look sync.WaitGroup
	defer look.Wait()
	defer cancel()
	look.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
				if a.lost(SideHub, a.patience) != nil || a.lost(SideTenant, a.patience) != nil {
					a.o.Logger.Info("does not ask to lead before both clusters are back")
					cancel()
				}
			}
		}
	})
	a.elector.Run(ctx, a.lead)
}

// lead writes until ctx ends.
func (a *Agent) lead(ctx context.Context) {
	var parts sync.WaitGroup
	a.whose.Store(int32(unknown))
	parts.Go(func() { newLoop(a).run(ctx) })
	parts.Go(func() { (&pulse{a: a, every: tenants.PulseEvery}).run(ctx) })
	if a.o.Secret != "" {
		parts.Go(func() { (&renewal{a: a, hub: a.o.Hub, secret: a.o.Secret}).run(ctx) })
	}
	parts.Wait()
	a.end()
}

// notice tells once when a cluster is away, and when it is back, until ctx ends.
func (a *Agent) notice(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	away, denied, idle := map[string]bool{}, false, map[v1alpha1.TenantOriginKind]bool{}
	for {
		a.noticeRoutes(idle)
		for _, side := range []string{SideHub, SideTenant} {
			err := a.lost(side, lostAfter)
			if side == SideHub {
				denied = a.tellDenied(err, denied)
			}
			connected := err == nil && len(a.missing(side)) == 0
			a.mu.Lock()
			if side == SideHub {
				a.stats.HubConnected = connected
			} else {
				a.stats.TenantConnected = connected
			}
			a.mu.Unlock()
			switch {
			case err != nil && !away[side]:
				a.o.Logger.Warn("a cluster is away; what is there stays", "cluster", side, "err", err)
			case err == nil && away[side]:
				a.o.Logger.Info("a cluster is back", "cluster", side)
				a.back[side].Store(true)
				a.wake()
			}
			away[side] = err != nil
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// noticeRoutes has the loop look at Ingresses and other routes as soon as it can, and tells once that it cannot. told:
// it did so.
func (a *Agent) noticeRoutes(told map[v1alpha1.TenantOriginKind]bool) {
	if maskOf(a.ingress.unread(0)) != a.waiting.Load() { // which need not be a change of an object
		a.wake()
	}
	lost := a.ingress.unread(lostAfter)
	for _, kind := range unreadKinds {
		err, which := lost[kind], "routes"
		if kind == kindGrant {
			which = "routes to Services of other namespaces"
		}
		switch {
		case err != nil && !told[kind]:
			level := slog.LevelWarn
			optional := kind == kindGrant || kind == v1alpha1.OriginGRPCRoute // a cluster may well do without; the hub may not
			if optional && apierrors.IsNotFound(err) && !apierrors.IsNotFound(a.ingress.hubRoutes.State().Err) {
				level = slog.LevelInfo
			}
			a.o.Logger.Log(context.Background(), level, which+" are not propagated; what is there stays", "kind", kind, "err", err)
		case err == nil && told[kind]:
			a.o.Logger.Info(which+" are propagated again", "kind", kind)
		}
		told[kind] = err != nil
	}
}

// eventDenied is the reason of the event that the hub does not let the agent in, or takes no sign of life.
const eventDenied = "HubDenied"

// tellDenied tells people of the tenant, by an event of the Secret, that the hub is lost because it does not
// let the agent in: nobody else knows that the token or the namespace has ended. told: it did so since the
// hub was lost.
func (a *Agent) tellDenied(lost error, told bool) bool {
	if lost == nil || told || !apierrors.IsUnauthorized(lost) && !apierrors.IsForbidden(lost) {
		return told && lost != nil
	}
	a.sendDenied("the hub does not let the agent in; Services keep what they have: " + lost.Error())
	return true
}

// sendDenied sends an event of the Secret, if there is one.
func (a *Agent) sendDenied(message string) {
	if a.o.Secret != "" {
		of := corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: a.o.Namespace, Name: a.o.Secret}
		a.events.Send(objects.Event{Of: of, Reason: eventDenied, Message: message, Warning: true})
	}
}

// lost is why a cluster has not been watched for as long.
func (a *Agent) lost(side string, after time.Duration) error {
	for _, w := range a.watches(side) {
		if s := w.State(); !s.Connected && !s.Since.IsZero() && time.Since(s.Since) > after {
			return s.Err
		}
	}
	return nil
}

// missing is what has not been read of a cluster yet.
func (a *Agent) missing(side string) (list []string) {
	for _, w := range a.watches(side) {
		if !w.Synced() {
			list = append(list, side+"'s "+w.Name())
		}
	}
	return list
}

// Ready tells whether both clusters are known, so that this process can lead.
func (a *Agent) Ready() error {
	if list := slices.Concat(a.missing(SideTenant), a.missing(SideHub)); len(list) > 0 {
		return fmt.Errorf("not read yet: %v", list)
	}
	return nil
}

// stuckAfter is how long the loop of a leader may show no sign of life.
const stuckAfter = 2 * time.Minute

// turns notes that the loop of a leader is alive.
func (a *Agent) turns() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turned = time.Now()
}

// Healthy tells whether a leader is at work.
func (a *Agent) Healthy() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.turned.IsZero() && time.Since(a.turned) > stuckAfter {
		return fmt.Errorf("the loop has stood still for %v", time.Since(a.turned).Round(time.Second))
	}
	return nil
}

// Stats returns what is to be told.
func (a *Agent) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stats
	s.Writes, s.Nodes, s.TokenRenewals = maps.Clone(s.Writes), maps.Clone(s.Nodes), maps.Clone(s.TokenRenewals)
	s.EventsSent, s.EventsDropped = a.events.Counts()
	return s
}

// end notes that this process leads no more.
func (a *Agent) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turned, a.stats.Leader, a.stats.Nodes = time.Time{}, false, nil
	a.stats.Counts, a.stats.Routes, a.stats.OfGateways = propagate.Counts{}, propagate.Counts{}, nil
}

// noteRoutes notes how many Ingresses and other routes are propagated.
func (a *Agent) noteRoutes(ingresses propagate.Counts, ofGateways map[v1alpha1.TenantOriginKind]propagate.Counts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Routes, a.stats.OfGateways = ingresses, ofGateways
}

// wrote counts a write.
func (a *Agent) wrote(w Written) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Writes[w]++
}
