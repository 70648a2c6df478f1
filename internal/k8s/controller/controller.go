// Package controller runs the allocator against a cluster: watches in, statuses,
// conditions and events out, by one process at a time.
//
// Two processes keep their watches warm; a Lease says which one decides. The one
// that begins reads the Services once more, from the API server's store and not
// from a cache, and rebuilds what is in use from their statuses. A write carries the
// version of the Service it was decided about, and is only sent while the Lease is
// good; the Lease is given up only when the last write has ended.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/ipam"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/k8s/machines"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/k8s/routes"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/wake"
)

// Manager names this writer among those of one object, and is the source of events.
const Manager = "lbd-controller"

// onlyLoadBalancers is what is watched of the Services: one that changes its type
// looks deleted.
const onlyLoadBalancers = "spec.type=LoadBalancer"

// Options are what a Controller needs.
type Options struct {
	Logger *slog.Logger
	Client *k8s.Client
	// Allocator are the rules of allocation.
	Allocator allocator.Options
	// Namespace and LeaseName are those of the Lease, and Identity is unique among the
	// processes.
	Namespace, LeaseName, Identity string
	// Machines serves MachineLoadBalancers too: the cluster is a management cluster of
	// Cluster API. HookTimeout bounds how long the deletion of a Machine is held.
	Machines    bool
	HookTimeout time.Duration
	// Lease replaces the Lease of the API server in tests.
	Lease lease.API
}

// Controller is one of several processes of which one decides.
type Controller struct {
	o       Options
	elector *lease.Elector
	writer  *objects.Writer
	events  events
	// conditions writes those of Services.
	conditions *k8s.Client

	services   *k8s.Watch[watched]
	namespaces *k8s.Watch[map[string]string]
	nodes      *k8s.Watch[node]
	objects    *objects.Set
	machines   *machines.Steward // nil: no Machines are served
	tenants    *tenantServices
	routes     *routes.Keeper
	pulses     *pulses
	standIns   []standIn // MachineLoadBalancers, if they are served, and TenantServices

	freed      *freed
	changes    changes
	sweepEvery time.Duration
	announce   announcePace
	// silent are the Services that no advertisement is for, by name, and why; nil before the
	// leader has looked.
	silent atomic.Pointer[map[string]string]

	work work
}

// work is what a leader does, for metrics and the health check.
type work struct {
	mu    sync.Mutex // guards all below
	stats Stats
	// turned is when the loop of a leader was last seen alive.
	turned time.Time
}

// turn notes that the loop of the leader has turned.
func (w *work) turn(now time.Time, services int, a *allocator.Allocator) {
	counts, usage, waiting := a.Counts(), a.Usage(), a.Waiting()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turned = now
	w.stats.Leader, w.stats.Services, w.stats.Waiting, w.stats.Counts, w.stats.Pools = true, services, waiting, counts, usage
}

// wrote counts the status of a Service that was written, by result.
func (w *work) wrote(result string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Writes[result]++
}

// end notes that this process leads no more.
func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Leader, w.stats.Pools, w.turned = false, nil, time.Time{}
}

// Stats are what a Controller tells about itself, for metrics.
type Stats struct {
	Leader   bool
	Services int // of all classes
	Waiting  int // that would take more than they have
	allocator.Counts
	// Writes counts statuses of Services that were written, by result: "ok",
	// "conflict" or "error".
	Writes map[string]uint64
	// Events that were sent, and those that were dropped.
	EventsSent, EventsDropped uint64
	Pools                     []ipam.PoolUsage // nil unless it leads
}

// New returns a Controller; Run runs it.
func New(o Options) (*Controller, error) {
	// Renewals must not queue behind statuses, and statuses not behind events; what
	// is sent is counted all the same.
	apart := func(qps float32, burst int) (*k8s.Client, error) {
		return k8s.NewFor(o.Client.Config, k8s.Options{Logger: o.Logger, UserAgent: o.Client.Config.UserAgent, QPS: qps, Burst: burst})
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
	conditions, err := apart(50, 50) // they have a pace of their own
	if err != nil {
		return nil, err
	}
	c := &Controller{
		o: o, conditions: conditions, sweepEvery: sweepEvery, announce: announceSlowly, events: events{objects.NewRecorder(news.Core, Manager, o.Identity)}, changes: changes{wake: make(chan struct{}, 1), judged: make(chan struct{}, 1), agentsJudged: make(chan struct{}, 1), seen: make(chan struct{}, 1)},
		elector: lease.New(lease.Options{Logger: o.Logger, API: o.Lease, Identity: o.Identity}),
		writer:  &objects.Writer{Client: o.Client.Dynamic, Manager: Manager},
		work:    work{stats: Stats{Writes: map[string]uint64{}}}, freed: newFreed(o.Allocator.Quarantine),
	}
	c.services = k8s.NewWatch(k8s.WatchOptions[watched]{
		Name: "services", ListWatch: listWatch(o.Client.Core, "services", onlyLoadBalancers), Object: &corev1.Service{},
		Convert: convertWatched, Same: sameWatched, Changed: func(keys []model.Key) {
			c.freed.see(keys, func(k model.Key) []netip.Addr { s, _ := c.services.Get(k); return s.Addresses() }, time.Now())
			c.changes.service(keys)
		},
	})
	c.namespaces = k8s.NewWatch(k8s.WatchOptions[map[string]string]{
		Name: "namespaces", ListWatch: listWatch(o.Client.Core, "namespaces", ""), Object: &corev1.Namespace{},
		Convert: convertNamespace, Same: maps.Equal[map[string]string, map[string]string], Changed: c.changes.namespace,
	})
	c.nodes = k8s.NewWatch(k8s.WatchOptions[node]{
		Name: "nodes", ListWatch: listWatch(o.Client.Core, "nodes", ""), Object: &corev1.Node{},
		Convert: convertNode, Changed: func(keys []model.Key) {
			c.changes.node(keys)
			wake.Up(c.changes.seen)
		},
	})
	c.objects = objects.NewSet(o.Client, c.seeObjects)
	c.tenants = &tenantServices{c: c, requests: map[model.Key]tenants.Request{}, problems: map[model.Key]string{}}
	c.pulses = &pulses{c: c, every: listenEvery, last: map[string]pulse{}}
	c.standIns = []standIn{c.tenants}
	c.routes = routes.New(routes.Options{Logger: o.Logger, Client: o.Client, Manager: Manager, Valid: c.elector.Valid})
	if o.Machines {
		c.machines = c.newSteward()
		c.standIns = append(c.standIns, machineBalancers{c})
	}
	return c, nil
}

// seeObjects notes which objects of lbd.dev have changed.
func (c *Controller) seeObjects(kind string, keys []model.Key) {
	switch kind {
	case v1alpha1.KindIPAddressPool:
		c.changes.mark(&c.changes.pools)
		if c.machines != nil {
			c.machines.Wake()
		}
	case v1alpha1.KindTenantService:
		c.freed.seeAs(kind, keys, c.tenants.addrs, time.Now())
		c.changes.mark(&c.changes.agents)
	case v1alpha1.KindTenant: // some pools are closed while it is not known who has their addresses
		c.changes.mark(&c.changes.pools)
	case v1alpha1.KindVirtualIP, v1alpha1.KindLoadBalancer, v1alpha1.KindBGPPeer, // what tenants may not have depends on them
		v1alpha1.KindL2Advertisement, v1alpha1.KindBGPAdvertisement: // and of which pools they may have something
		c.changes.mark(&c.changes.standIns)
	}
	if objects.OfAgents(kind) {
		c.changes.judgeAgents()
		return
	}
	c.changes.judge() // advertisements depend on pools
}

func listWatch(client rest.Interface, resource, selector string) cache.ListerWatcher {
	return cache.NewFilteredListWatchFromClient(client, resource, "", func(o *metav1.ListOptions) {
		if selector != "" {
			o.FieldSelector = fields.ParseSelectorOrDie(selector).String()
		}
	})
}

// Run watches, and decides while it leads, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	if c.o.Identity == "" {
		return errors.New("controller: it needs an identity")
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	parts := []func(context.Context){c.services.Run, c.namespaces.Run, c.nodes.Run, c.objects.Run, c.routes.Watch, c.events.Run}
	if c.machines != nil {
		parts = append(parts, c.machines.Watch)
	}
	for _, run := range parts {
		wg.Go(func() { run(ctx) })
	}
	// Who cannot see the cluster does not ask to lead.
	for c.Ready() != nil {
		if !wake.Sleep(ctx, 50*time.Millisecond) {
			return nil
		}
	}
	c.o.Logger.Info("the cluster is known", "services", len(c.services.All()))
	c.elector.Run(ctx, func(ctx context.Context) {
		if err := newLeader(c).run(ctx); err != nil && ctx.Err() == nil {
			c.o.Logger.Error("leader", "err", err)
		}
		c.work.end()
	})
	return nil
}

// Ready tells whether the cluster is known, so that this process can lead.
func (c *Controller) Ready() error {
	var missing []string
	for name, ok := range map[string]bool{
		c.services.Name(): c.services.Synced(), c.namespaces.Name(): c.namespaces.Synced(), c.nodes.Name(): c.nodes.Synced(),
		c.objects.Pools.Name(): c.objects.Pools.Synced(), c.objects.Tenants.Name(): c.objects.Tenants.Synced(),
		c.objects.TenantServices.Name(): c.objects.TenantServices.Synced(), "machines": c.machines == nil || c.machines.Synced(),
	} {
		if !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not read yet: %v", missing)
	}
	return nil
}

// stuckAfter is how long the loop of a leader may not turn.
const stuckAfter = time.Minute

// Healthy tells whether a leader is at work.
func (c *Controller) Healthy() error {
	c.work.mu.Lock()
	defer c.work.mu.Unlock()
	if turned := c.work.turned; !turned.IsZero() && time.Since(turned) > stuckAfter {
		return fmt.Errorf("the loop has not turned for %v", time.Since(turned).Round(time.Second))
	}
	return nil
}

// Holder returns who leads, as far as is known.
func (c *Controller) Holder() string { return c.elector.Holder() }

// Stats returns what is to be told.
func (c *Controller) Stats() Stats {
	c.work.mu.Lock()
	defer c.work.mu.Unlock()
	s := c.work.stats
	s.Writes = maps.Clone(s.Writes)
	s.EventsSent, s.EventsDropped = c.events.Counts()
	return s
}

// changes are what the watches have seen and the leader has not.
type changes struct {
	wake   chan struct{}
	judged chan struct{} // objects are to be judged
	// agentsJudged: so are those that agents of tenants write, when it is their turn.
	agentsJudged chan struct{}
	seen         chan struct{} // conditions of Services may have to be others

	mu           sync.Mutex // guards all below
	services     map[model.Key]bool
	unjudged     map[model.Key]bool // Services
	unseen       map[model.Key]bool // Nodes that the judge has not seen
	namespaces   map[model.Key]bool
	nodes, pools bool
	standIns     bool // objects that stand as Services have changed, or what they may have
	agents       bool // of those only such as agents of tenants write
}

func (c *changes) service(keys []model.Key) {
	c.add(&c.unjudged, keys)
	c.add(&c.services, keys)
	c.judge()
	wake.Up(c.seen)
}
func (c *changes) namespace(keys []model.Key) { c.add(&c.namespaces, keys) }

func (c *changes) node(keys []model.Key) {
	c.add(&c.unseen, keys)
	c.judge() // LoadBalancers may select them
	c.mark(&c.nodes)
}

func (c *changes) add(set *map[model.Key]bool, keys []model.Key) {
	c.mu.Lock()
	if *set == nil {
		*set = map[model.Key]bool{}
	}
	for _, k := range keys {
		(*set)[k] = true
	}
	c.mu.Unlock()
	c.poke()
}

func (c *changes) mark(flag *bool) {
	c.mu.Lock()
	*flag = true
	c.mu.Unlock()
	c.poke()
}

func (c *changes) poke()        { wake.Up(c.wake) }
func (c *changes) judge()       { wake.Up(c.judged) }
func (c *changes) judgeAgents() { wake.Up(c.agentsJudged) }

// takeJudged returns the Services and Nodes that changed and were not judged yet, and forgets
// them.
func (c *changes) takeJudged() (services, nodes map[model.Key]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	services, nodes = c.unjudged, c.unseen
	c.unjudged, c.unseen = nil, nil
	return services, nodes
}

// takeStandIns tells whether objects that stand as Services are to be looked at, and forgets it. What
// agents of tenants have written counts if it is their turn, or else waits.
func (c *changes) takeStandIns(turn bool) (changed, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if changed = c.standIns || turn && c.agents; changed {
		c.standIns, c.agents = false, false
	}
	return changed, c.agents
}

// take returns the changes and forgets them.
func (c *changes) take() (services, namespaces map[model.Key]bool, nodes, pools bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	services, namespaces, nodes, pools = c.services, c.namespaces, c.nodes, c.pools
	c.services, c.namespaces, c.nodes, c.pools = nil, nil, false, false
	c.standIns = c.standIns || nodes || pools
	return services, namespaces, nodes, pools
}
