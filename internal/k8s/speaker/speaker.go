// Package speaker is the source of what a cluster says: it watches Services, their
// endpoints, Nodes and the objects of lbd.dev and publishes the VIPs that become of
// them. What it knew before an outage of the API server stays, for as long as that
// lasts.
package speaker

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/nodestatus"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
	"lbd.dev/lbd/internal/source"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/wake"
)

// How the source takes its time.
const (
	// Coalesce is how long further changes are waited for after a first one, and
	// CoalesceEach how much longer for each VIP that there is: every change is a
	// decision about all of them.
	Coalesce     = 20 * time.Millisecond
	CoalesceEach = 20 * time.Microsecond
	// ConnectEvery is the time between attempts to read the kubeconfig.
	ConnectEvery = 5 * time.Second
	// LookEvery is how often files with passwords are read and the state of the
	// connection is looked at.
	LookEvery = 2 * time.Second
	// LostAfter is how long a watch must have failed to be called lost: one that is
	// opened again at once is no news.
	LostAfter = time.Second
)

// Options are what a Source needs.
type Options struct {
	Logger *slog.Logger
	// Connect makes the client. It is asked again until it succeeds: the kubeconfig
	// may come later than the daemon.
	Connect func() (*k8s.Client, error)
	// Services says which Services count, and the name of this node.
	Services services.Options
	// Namespace is that of lbd, in which BGPPeers name Secrets.
	Namespace string
	// PeerSelector matches the Nodes whose addresses OnPeers is told.
	PeerSelector v1alpha1.Selector
	// OnChange is told what is published, before it is, OnPeers one address of each
	// Node that is selected, sorted; both in the goroutine of Run. Either may be nil.
	OnChange func(services.Result)
	OnPeers  func([]netip.Addr)
	// NodeStatus is what the object of this node is to say, with a summary, and
	// whether that is known yet; nil: none is written.
	NodeStatus func() (v1alpha1.NodeStatus, bool)
	// VIPs are all VIPs of the newest decision, of which a NodeStatus names some; needed with
	// NodeStatus. Events are about them.
	VIPs func() []model.VIPStatus
}

// Source watches a cluster.
type Source struct {
	o Options

	kick chan struct{} // of 1: something is pending

	mu      sync.Mutex // guards all below
	client  *k8s.Client
	watches *watches // nil until connected
	since   time.Time
	err     error // why there is no client
	pending pending
	status  Status
	tenants tenants.Output // as of the last build
}

// Status tells how the source is doing.
type Status struct {
	// Connected: the objects of the cluster are being watched.
	Connected bool
	// Synced: they have all been read since the daemon started.
	Synced bool
	// Since is when Connected last changed.
	Since time.Time
	// Err is why it is not, or was last not, connected, in words; empty if it always
	// was.
	Err string
	// Problems are what objects ask for and do not get.
	Problems []services.Problem
	// Warnings are about objects that are used as they are written.
	Warnings []services.Problem
	// Requests counts requests by method and result.
	Requests map[k8s.Request]uint64
}

// watches are all that is watched.
type watches struct {
	services *k8s.Watch[*services.Service]
	slices   *k8s.Watch[services.Slice]
	nodes    *k8s.Watch[*services.Node]
	objects  *objects.Set
}

var _ source.Source = (*Source)(nil)

// New returns a Source; Run connects it.
func New(o Options) *Source {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.OnChange == nil {
		o.OnChange = func(services.Result) {}
	}
	if o.OnPeers == nil {
		o.OnPeers = func([]netip.Addr) {}
	}
	return &Source{o: o, kick: make(chan struct{}, 1), since: time.Now(), pending: newPending()}
}

func (s *Source) Name() model.SourceName { return model.SourceKube }

// Run watches and publishes until ctx ends.
func (s *Source) Run(ctx context.Context, publish source.Publish) error {
	c := s.connect(ctx)
	if c == nil {
		return nil
	}
	w := s.watch(c)
	s.mu.Lock()
	s.client, s.watches, s.err = c, w, nil
	s.mu.Unlock()
	var running sync.WaitGroup
	defer running.Wait()
	for _, run := range []func(context.Context){w.services.Run, w.slices.Run, w.nodes.Run, w.objects.Run} {
		running.Go(func() { run(ctx) })
	}
	if s.o.NodeStatus != nil {
		n := nodestatus.New(nodestatus.Options{Logger: s.o.Logger, Client: c.Dynamic, Status: s.o.NodeStatus, VIPs: s.o.VIPs})
		running.Go(func() { n.Run(ctx) })
	}
	l := &loop{s: s, w: w, b: services.New(s.o.Services), publish: publish}
	l.passwords = passwords{c.Core, s.o.Namespace, s.wake, &running, make(map[string]*secretWatch)}
	l.run(ctx)
	return nil
}

// connect makes the client, however long that takes; nil when ctx has ended.
func (s *Source) connect(ctx context.Context) *k8s.Client {
	return k8s.Await(ctx, s.o.Connect, ConnectEvery, func(err error) {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		s.o.Logger.Warn("no cluster", "err", err)
	})
}

// watch prepares all watches; nothing is sent yet.
func (s *Source) watch(c *k8s.Client) *watches {
	lists := func(c rest.Interface, resource string, tweak func(*metav1.ListOptions)) cache.ListerWatcher {
		return cache.ToListWatcherWithWatchListSemantics(
			cache.NewFilteredListWatchFromClient(c, resource, metav1.NamespaceAll, tweak), c)
	}
	return &watches{
		services: k8s.NewWatch(k8s.WatchOptions[*services.Service]{
			Name: "services", Object: &corev1.Service{}, Convert: service, Changed: s.changed(func(p *pending) map[model.Key]bool { return p.services }),
			ListWatch: lists(c.Core, "services", func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector("spec.type", string(corev1.ServiceTypeLoadBalancer)).String()
			}),
		}),
		slices: k8s.NewWatch(k8s.WatchOptions[services.Slice]{
			Name: "endpointslices", Object: &discoveryv1.EndpointSlice{}, Convert: slice(string(s.o.Services.Self)),
			Changed: s.changed(func(p *pending) map[model.Key]bool { return p.slices }),
			// A Service of type LoadBalancer is never headless.
			ListWatch: lists(c.Discovery, "endpointslices", func(o *metav1.ListOptions) {
				o.LabelSelector = discoveryv1.LabelServiceName + ",!" + corev1.IsHeadlessService
			}),
		}),
		nodes: k8s.NewWatch(k8s.WatchOptions[*services.Node]{
			Name: "nodes", Object: &corev1.Node{}, Convert: node, Changed: s.changed(func(p *pending) map[model.Key]bool { return p.nodes }),
			ListWatch: lists(c.Core, "nodes", func(*metav1.ListOptions) {}),
		}),
		objects: objects.NewSet(c, func(kind string, _ []model.Key) {
			s.mu.Lock()
			if objects.OfAgents(kind) {
				s.pending.agents = true
			} else {
				s.pending.objects = true
			}
			s.mu.Unlock()
			s.wake()
		}),
	}
}

// changed notes keys in one part of what is pending.
func (s *Source) changed(part func(*pending) map[model.Key]bool) func([]model.Key) {
	return func(keys []model.Key) {
		s.mu.Lock()
		for _, k := range keys {
			part(&s.pending)[k] = true
		}
		s.mu.Unlock()
		s.wake()
	}
}

func (s *Source) wake() { wake.Up(s.kick) }

func (w *watches) synced() bool {
	return w.services.Synced() && w.slices.Synced() && w.nodes.Synced() && w.objects.Synced()
}

// states are those of all watches, by name.
func (w *watches) states() map[string]k8s.WatchState {
	all := w.objects.States()
	all[w.services.Name()], all[w.slices.Name()], all[w.nodes.Name()] = w.services.State(), w.slices.State(), w.nodes.State()
	return all
}

// Status tells how the source is doing.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	s.connection(&st)
	if s.client != nil {
		st.Requests = s.client.Requests()
	}
	return st
}

// connection fills in whether there is one; the caller holds the lock.
func (s *Source) connection(st *Status) {
	st.Connected, st.Since = s.watches != nil, s.since
	if s.watches == nil {
		if s.err != nil {
			st.Err = s.err.Error()
		}
		return
	}
	states := s.watches.states()
	var last, lost string // errors of the past and of now
	var since time.Time
	for _, name := range slices.Sorted(maps.Keys(states)) {
		w := states[name]
		if w.Connected {
			if w.Err != nil && !w.Absent {
				last = w.Err.Error()
			}
			continue
		}
		if st.Synced && time.Since(w.Since) < LostAfter {
			continue // it may be opened again at once
		}
		if st.Connected = false; lost == "" && w.Err != nil {
			lost = w.Err.Error()
		}
		if since.IsZero() || !w.Since.IsZero() && w.Since.Before(since) {
			since = w.Since
		}
	}
	st.Err = last
	if !st.Connected {
		st.Err = lost
	} else {
		for _, w := range states {
			if w.Since.After(since) {
				since = w.Since
			}
		}
	}
	if !since.IsZero() {
		st.Since = since
	}
}

// loop is the goroutine that owns the Builder.
type loop struct {
	s         *Source
	w         *watches
	b         *services.Builder
	publish   source.Publish
	passwords passwords

	all     objects.Objects
	secrets map[string]string // of files
	keys    map[string]services.Password
	peers   []netip.Addr
	vips    int
	synced  bool
	reread  bool // objects of lbd.dev were, so that others may be invalid
	said    bool // whether it was last logged as connected

	pace  k8s.Pace    // of what agents of tenants write: each change is a look at all objects
	later *time.Timer // runs while some of that waits
}

func (l *loop) run(ctx context.Context) {
	look := time.NewTicker(LookEvery)
	defer look.Stop()
	l.later = time.NewTimer(0)
	l.later.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			l.look()
		case <-l.later.C:
			l.s.wake()
		case <-l.s.kick:
			if !wake.Sleep(ctx, Coalesce+time.Duration(l.vips)*CoalesceEach) {
				return
			}
			began := time.Now()
			ready := l.synced || l.w.synced() // then all that was read first is pending
			p := l.pending(began)
			l.take(ctx, &p)
			if ready && (l.synced || l.passwords.told()) {
				l.build()
			}
			if p.agents {
				l.pace.Done(began, time.Now())
			}
		}
	}
}

// take brings what has changed into the Builder.
func (l *loop) take(ctx context.Context, p *pending) {
	for k := range p.services {
		v, _ := l.w.services.Get(k)
		l.b.SetService(k, v)
	}
	for k := range p.slices {
		if v, ok := l.w.slices.Get(k); ok {
			l.b.SetSlice(k, &v)
		} else {
			l.b.SetSlice(k, nil)
		}
	}
	for k := range p.nodes {
		v, _ := l.w.nodes.Get(k)
		l.b.SetNode(k.Name, v)
	}
	if p.objects {
		l.all, l.reread = l.w.objects.Objects(), true
		l.readSecrets()
	}
	if p.objects || len(p.nodes) > 0 {
		l.followPasswords(ctx)
	}
	if l.readPasswords() || p.objects {
		l.setObjects()
	}
	if len(p.nodes) > 0 || !l.synced {
		l.tellPeers()
	}
}

// setObjects hands the objects of lbd.dev to the Builder.
func (l *loop) setObjects() {
	o := l.all.Objects
	if l.w.objects.TenantNodes.State().Guessed { // an address that leads nowhere is not taken from a node that knows where
		o.Tenants = nil
	}
	o.Secrets, o.Passwords, o.Namespace = l.secrets, l.keys, l.s.o.Namespace
	l.b.SetObjects(o)
}

// build publishes what has changed.
func (l *loop) build() {
	r, changed := l.b.Build()
	l.s.mu.Lock()
	l.s.tenants = l.b.Tenants()
	l.s.mu.Unlock()
	first := !l.synced
	if first || changed || l.reread {
		l.note(r)
	}
	l.synced, l.reread = true, false
	if !first && !changed {
		return
	}
	l.vips = len(r.VIPs)
	l.s.o.OnChange(r)
	l.publish(func(v *model.View) {
		v.SetObjects(model.SourceKube, r.Objects)
		v.SetLabels(model.SourceKube, r.Labels)
		v.Synced[model.SourceKube] = true
	})
	if first {
		l.s.o.Logger.Info("cluster read", "vips", len(r.VIPs), "bgp_peers", len(r.Peers), "load_balancers", len(r.LoadBalancers), "problems", len(r.Problems))
		l.connection()
	}
}

// note keeps problems and warnings for the status, those of invalid objects first, and
// logs the new ones.
func (l *loop) note(r services.Result) {
	var all []services.Problem
	for _, i := range l.all.Invalid {
		for _, e := range i.Errors {
			all = append(all, services.Problem{Kind: i.Kind, Name: i.Name, Text: e.Error() + ": the object is not used"})
		}
	}
	for kind, err := range l.w.objects.Forbidden() {
		what := "no object of this kind is served: "
		if kind == v1alpha1.KindTenantNodes && l.w.objects.TenantNodes.State().Guessed {
			what = "no tenant is served: "
		}
		all = append(all, services.Problem{Kind: kind, Name: "*", Text: what + err.Error() + ": apply the manifest of this version"})
	}
	all = append(all, r.Problems...)
	l.s.mu.Lock()
	before := slices.Concat(l.s.status.Problems, l.s.status.Warnings)
	l.s.status.Problems, l.s.status.Warnings, l.s.status.Synced = all, r.Warnings, true
	l.s.mu.Unlock()
	all = slices.Concat(all, r.Warnings)
	known := make(map[services.Problem]bool, len(before))
	for _, p := range before {
		known[p] = true
	}
	said := 0
	for _, p := range all {
		if known[p] {
			continue
		}
		if said++; said > maxSaid {
			l.s.o.Logger.Warn("more problems with objects of the cluster; see `lbd status -o json`", "count", len(all))
			return
		}
		l.s.o.Logger.Warn("object of the cluster", "kind", p.Kind, "name", p.Name, "reason", p.Text)
	}
}

// maxSaid bounds the lines of one change.
const maxSaid = 20

// connection logs when it is lost and when it is back.
func (l *loop) connection() {
	st := l.s.Status()
	switch {
	case st.Connected == l.said:
		return
	case st.Connected:
		l.s.o.Logger.Info("connected to the API server")
	default:
		l.s.o.Logger.Warn("not connected to the API server; what was known last stays in force", "err", st.Err)
	}
	l.said = st.Connected
}
