// Package allocator decides which addresses Services of type LoadBalancer have.
// It is pure: Services, namespaces, pools and node addresses go in as values, and
// what to write into the status of objects comes out.
//
// What runs keeps running. The status of a Service is the durable record: from it
// the assignments are rebuilt, in order of age, when the allocator starts. An
// address counts as taken from the decision on, before anybody has written it, and
// until the Service has given it up. It is taken from a Service only if the
// Service asks for something else, may no longer share it, or is gone; a change of
// pools alone takes nothing away, it is reported.
//
// Of a TenantService the allocator knows the addresses that count alone. One that its
// status shows beside them may be given to another: the first is not served by it, on
// no node, as long as it does not count, and an allocator that held the address back
// would let whoever keeps it in a status block it. If the older one gets the right to
// it again meanwhile, it is the one that has the address, and the other gets a new one.
package allocator

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/ipam"
	"lbd.dev/lbd/internal/model"
)

// Options are the rules that hold for all Services.
type Options struct {
	// Class is the spec.loadBalancerClass that is served.
	Class string
	// Classless serves Services without a class too.
	Classless bool
	// Quarantine is how long an address rests after its last Service gave it up. A
	// Service that asks for the address itself gets it at once.
	Quarantine time.Duration
}

// Allocator holds what is known and what is decided. It has no lock: one goroutine
// owns it. Nothing is decided outside Step.
type Allocator struct {
	opts       Options
	ipam       *ipam.Allocator
	rested     map[netip.Addr]time.Time // see Rest; nil once started
	services   map[model.Key]*service
	namespaces map[string]map[string]string
	pools      []Pool
	nodes      []netip.Addr
	config     bool // pools or nodes have changed since the last Step
	todo       agenda
	shown      map[netip.Addr]map[model.Key]bool // the Services whose status has an address
	rests      time.Time                         // when the next quarantine ends
	report     report
	counts     Counts
}

// agenda are the Services that need a decision, now or when something happens.
type agenda struct {
	dirty map[model.Key]bool
	// waiting are Services that would take more than they have; stir: something
	// happened that may serve one of them.
	waiting map[model.Key]bool
	stir    bool
	gone    map[model.Key]bool // removed, and may hold addresses
	late    map[model.Key]bool // their status waits until it is gone from that of another one
	// repairs are Services whose status is to be put right later, and when.
	repairs map[model.Key]time.Time
}

// Counts are what was done since the start, for metrics.
type Counts struct {
	// Assigned and Released count addresses given to Services and taken back.
	Assigned, Released uint64
	// Failures counts, by rule, how often a Service began to fail by it.
	Failures map[string]uint64
	// Repaired counts statuses that somebody else had changed.
	Repaired uint64
}

// New returns an allocator that knows nothing. Everything that exists must be set
// before the first Step: it rebuilds the assignments from the status of Services.
func New(opts Options) *Allocator {
	a := &Allocator{
		opts: opts, rested: map[netip.Addr]time.Time{}, services: map[model.Key]*service{}, namespaces: map[string]map[string]string{},
		todo:  agenda{map[model.Key]bool{}, map[model.Key]bool{}, false, map[model.Key]bool{}, map[model.Key]bool{}, map[model.Key]time.Time{}},
		shown: map[netip.Addr]map[model.Key]bool{}, report: report{told: map[string]PoolStatus{}},
		config: true, counts: Counts{Failures: map[string]uint64{}},
	}
	a.ipam, _ = ipam.New(ipam.Config{Quarantine: opts.Quarantine})
	return a
}

// SetService adds a Service or replaces what is known of it. One with another UID
// is another Service: the addresses of the old one are freed.
func (a *Allocator) SetService(s Service) {
	key := s.Key
	old := a.services[key]
	if old == nil || old.UID != s.UID {
		a.forget(key)
		old = &service{}
		a.services[key] = old
	}
	a.show(key, old.status, statusOf(s.Ingress))
	old.Service, old.status = s, statusOf(s.Ingress)
	old.left = slices.DeleteFunc(old.left, func(addr netip.Addr) bool { return !slices.Contains(old.status, addr) })
	a.todo.dirty[key] = true
}

// RemoveService forgets a Service; what it held is freed by the next Step.
func (a *Allocator) RemoveService(key model.Key) {
	a.forget(key)
	delete(a.services, key)
	delete(a.todo.dirty, key)
}

func (a *Allocator) forget(key model.Key) {
	if s := a.services[key]; s != nil {
		a.show(key, s.status, nil)
		a.todo.forget(key)
	}
}

func (g *agenda) forget(key model.Key) {
	g.gone[key] = true
	delete(g.waiting, key)
	delete(g.repairs, key)
	delete(g.late, key)
}

// show keeps track of which statuses have an address.
func (a *Allocator) show(key model.Key, before, after []netip.Addr) {
	for _, addr := range before {
		if delete(a.shown[addr], key); len(a.shown[addr]) == 0 {
			delete(a.shown, addr)
		}
	}
	for _, addr := range after {
		if a.shown[addr] == nil {
			a.shown[addr] = map[model.Key]bool{}
		}
		a.shown[addr][key] = true
	}
}

// Retry makes the next Step write the Service again if its status still differs,
// after a write that failed.
func (a *Allocator) Retry(key model.Key) {
	if a.services[key] != nil {
		a.todo.dirty[key] = true
	}
}

// SetNamespace sets the labels of a namespace. Pools select by them.
func (a *Allocator) SetNamespace(name string, labels map[string]string) {
	if old, ok := a.namespaces[name]; ok && maps.Equal(old, labels) {
		return
	}
	a.namespaces[name] = labels
	a.touch(name)
}

// RemoveNamespace forgets a namespace.
func (a *Allocator) RemoveNamespace(name string) {
	delete(a.namespaces, name)
	a.touch(name)
}

func (a *Allocator) touch(namespace string) {
	for key, s := range a.services {
		if s.Namespace == namespace {
			a.todo.dirty[key] = true
		}
	}
}

// Rest tells before the first Step of an address that an earlier allocator has freed
// and that nobody is to get until then. It counts if no Service has the address.
func (a *Allocator) Rest(addr netip.Addr, until time.Time) {
	if a.rested != nil {
		a.rested[addr] = until
	}
}

// Resting returns the addresses that rest since their Service gave them up, and until
// when.
func (a *Allocator) Resting() map[netip.Addr]time.Time { return a.ipam.Resting() }

// GaveUp counts those of them that a Service of this allocator gave up, by Service.
func (a *Allocator) GaveUp() map[model.Key]int { return a.ipam.GaveUp() }

// SetPools replaces the pools.
func (a *Allocator) SetPools(pools []Pool) {
	a.pools, a.config = slices.Clone(pools), true
}

// SetNodes replaces the addresses of nodes. They are never given out.
func (a *Allocator) SetNodes(addrs []netip.Addr) {
	addrs = slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	if !slices.Equal(a.nodes, addrs) {
		a.nodes, a.config = addrs, true
	}
}

// Result is what a Step decided.
type Result struct {
	// Writes are statuses of Services, by age of the Service.
	Writes []Write
	// Events are about objects that need no write.
	Events []Event
	// Pools are those whose status changed since the last Step, by name.
	Pools []PoolStatus
	// Wake is when to call Step again though nothing changed; zero: never.
	Wake time.Time

	writes map[*service]Write // the last one of each Service
}

// maxRounds bounds how often one Step goes on with what it set free itself.
const maxRounds = 8

// Step decides about everything that changed since the last one. Of Services that
// compete the older one is served first.
func (a *Allocator) Step(now time.Time) Result {
	r := &Result{writes: map[*service]Write{}}
	a.configure(r)
	if !a.rests.IsZero() && !a.rests.After(now) {
		a.todo.stir = true
	}
	a.ipam.Expire(now)
	a.bury(now)
	a.todo.due(now)
	for range maxRounds {
		batch := a.batch()
		if len(batch) == 0 {
			break
		}
		for _, s := range batch {
			a.adopt(s, now, r)
		}
		for _, s := range batch {
			a.process(s, now, r)
		}
	}
	a.holdBack(now, r)
	for _, s := range slices.SortedFunc(maps.Keys(r.writes), byAge) {
		r.Writes = append(r.Writes, r.writes[s])
	}
	rests := a.ipam.Expire(now)
	a.report.stale = a.report.stale || !rests.Equal(a.rests)
	a.rests = rests
	a.reportPools(r)
	r.Wake = a.wake(now)
	return *r
}

// due has those decided about for which it is time.
func (g *agenda) due(now time.Time) {
	maps.Copy(g.dirty, g.late)
	for key, at := range g.repairs {
		if !at.After(now) {
			g.dirty[key] = true
		}
	}
}

// configure takes over pools and nodes; the first time it rebuilds what is in use.
func (a *Allocator) configure(r *Result) {
	if !a.config {
		return
	}
	a.config, a.report.stale = false, true
	a.loadPools()
	if a.rested != nil {
		a.restore(r)
		for addr, until := range a.rested {
			a.ipam.Rest(addr, until)
		}
		a.rested = nil
	}
	for key := range a.services {
		a.todo.dirty[key] = true
	}
}

// bury frees what removed Services held.
func (a *Allocator) bury(now time.Time) {
	for key := range a.todo.gone {
		if x, ok := a.ipam.Get(key); ok {
			a.counts.Released += uint64(len(x.Addresses))
			a.ipam.Free(key, now)
			a.todo.stir, a.report.stale = true, true
		}
	}
	clear(a.todo.gone)
}

// batch takes the Services that need a decision, the oldest first.
func (a *Allocator) batch() []*service {
	if a.todo.stir {
		a.todo.stir = false
		maps.Copy(a.todo.dirty, a.todo.waiting)
	}
	list := make([]*service, 0, len(a.todo.dirty))
	for key := range a.todo.dirty {
		if s := a.services[key]; s != nil {
			list = append(list, s)
		}
	}
	clear(a.todo.dirty)
	slices.SortFunc(list, byAge)
	return list
}

func byAge(x, y *service) int {
	return cmp.Or(x.Created.Compare(y.Created), x.Compare(y.Key))
}

// wake is when time alone changes something.
func (a *Allocator) wake(now time.Time) time.Time {
	next := time.Time{}
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if a.todo.stir || len(a.todo.dirty) > 0 {
		sooner(now)
	}
	sooner(a.rests)
	for _, at := range a.todo.repairs {
		sooner(at)
	}
	return next
}

// Usage returns how the pools are used, by name.
func (a *Allocator) Usage() []ipam.PoolUsage { return a.ipam.Usage() }

// Counts returns a copy of what was counted.
func (a *Allocator) Counts() Counts {
	c := a.counts
	c.Failures = maps.Clone(c.Failures)
	return c
}

// Waiting counts the Services that would take more than they have.
func (a *Allocator) Waiting() int { return len(a.todo.waiting) }

// Assignments returns what Services hold, by namespace/name.
func (a *Allocator) Assignments() []ipam.Assignment { return a.ipam.Assignments() }
