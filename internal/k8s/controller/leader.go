package controller

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

const (
	// maxWrites bounds the writes of Services that are under way.
	maxWrites = 16
	// Failed writes are tried again after retryFirst, doubling to retryMost.
	retryFirst = 20 * time.Millisecond
	retryMost  = 30 * time.Second
	// ghostAfter is when a Service that was read from the store, but that the watch
	// does not have, is looked for: it may be gone.
	ghostAfter = 5 * time.Second
	// pageSize is how many Services are read at once.
	pageSize = 500
	// beat is how often the loop turns without a cause.
	beat = 10 * time.Second
)

// leader decides for one term. One goroutine owns all of it.
type leader struct {
	c *Controller
	a *allocator.Allocator
	// known are the Services that the allocator has.
	known map[model.Key]known
	// standIns are the objects of other kinds that it has as Services.
	standIns map[model.Key]allocator.Service
	busy     map[model.Key]bool // a write is under way
	queue    []allocator.Write
	queued   map[model.Key]bool
	retries  map[model.Key]retry
	ghosts   map[model.Key]time.Time
	pools    poolWriter
	results  chan result
	writes   sync.WaitGroup
	failing  bool // the last write failed, and the log says so
	rests    restNote
	gaveUp   tenantRests
	pace     k8s.Pace  // of what agents of tenants write
	listed   time.Time // when it was last tried to list what could not be
}

type known struct {
	uid string
	// version is the oldest that counts: what the watch says of an older one was read
	// or written here before.
	version uint64
}

type retry struct {
	at   time.Time
	wait time.Duration
}

// result is how a write ended.
type result struct {
	write   allocator.Write
	service allocator.Service // if ok
	ok      bool
	err     error
}

func newLeader(c *Controller) *leader {
	c.tenants.rest(nil) // what rested in an earlier term
	return &leader{
		c: c, a: allocator.New(c.o.Allocator), known: map[model.Key]known{}, standIns: map[model.Key]allocator.Service{}, busy: map[model.Key]bool{}, queued: map[model.Key]bool{},
		retries: map[model.Key]retry{}, ghosts: map[model.Key]time.Time{}, results: make(chan result, maxWrites),
		pools: poolWriter{c: c, pending: map[string]allocator.PoolStatus{}, results: make(chan []allocator.PoolStatus, 1)},
	}
}

// run decides until ctx ends, and returns when the last write has ended.
func (l *leader) run(ctx context.Context) error {
	defer l.writes.Wait()
	listed, err := l.list(ctx)
	if err != nil {
		return err
	}
	l.load(listed, time.Now())
	l.c.routes.Judged(nil) // what was judged in an earlier term
	j := newJudge(l.c)
	l.writes.Go(func() { j.run(ctx) })
	an := newAnnouncer(l.c)
	l.writes.Go(func() { an.run(ctx) })
	sw := &sweeper{c: l.c, every: l.c.sweepEvery}
	l.writes.Go(func() { sw.run(ctx) })
	l.writes.Go(func() { l.c.routes.Run(ctx) })
	l.writes.Go(func() { l.c.pulses.run(ctx) })
	if l.c.machines != nil {
		l.writes.Go(func() { l.c.machines.Run(ctx) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.c.changes.wake:
		case r := <-l.results:
			l.done(r, time.Now())
			l.drain()
		case r := <-l.pools.results:
			l.pools.done(r, time.Now())
		case <-timer.C:
		}
		timer.Reset(time.Until(l.turn(ctx, time.Now())))
	}
}

// drain takes the results that are there.
func (l *leader) drain() {
	for {
		select {
		case r := <-l.results:
			l.done(r, time.Now())
		default:
			return
		}
	}
}

// list reads all Services from the API server's store, which no cache of it may
// stand for: a status that the leader before has just written must not be missing.
func (l *leader) list(ctx context.Context) (map[model.Key]allocator.Service, error) {
	for wait := retryFirst; ; wait = min(2*wait, k8s.RetryMost) {
		all, err := l.listOnce(ctx)
		if err == nil {
			return all, nil
		}
		l.c.o.Logger.Warn("reading services before the first decision", "err", err)
		if !wake.Sleep(ctx, wait) {
			return nil, ctx.Err()
		}
	}
}

func (l *leader) listOnce(ctx context.Context) (map[model.Key]allocator.Service, error) {
	all := map[model.Key]allocator.Service{}
	for next := ""; ; {
		req := l.c.o.Client.Core.Get().Resource("services").Param("fieldSelector", onlyLoadBalancers).Param("limit", strconv.Itoa(pageSize))
		if next != "" {
			req = req.Param("continue", next)
		}
		var page corev1.ServiceList
		if err := req.Do(ctx).Into(&page); err != nil {
			return nil, fmt.Errorf("services: %w", err)
		}
		for i := range page.Items {
			if s, ok := convertService(&page.Items[i]); ok {
				all[s.Key] = s
			}
		}
		if next = page.Continue; next == "" {
			return all, l.readStandIns(ctx, all)
		}
	}
}

// load gives the allocator all that is known. Of the list and the watch the newer
// version of a Service counts; one that only the watch has was deleted or made
// since, and comes after the first decision.
func (l *leader) load(listed map[model.Key]allocator.Service, now time.Time) {
	l.c.changes.take()
	watched := l.c.services.All()
	for key, s := range listed {
		l.set(s)
		if w, ok := watched[key]; ok {
			l.set(w.Service)
		} else if _, ok := l.standIns[key]; !ok {
			l.ghosts[key] = now.Add(ghostAfter)
		}
	}
	for name, labels := range l.c.namespaces.All() {
		l.a.SetNamespace(name.Name, labels)
	}
	l.a.SetNodes(nodeAddrs(l.c.nodes.All()))
	l.a.SetPools(l.c.tenants.pools())
	for addr, until := range l.c.freed.resting(l.c.elector.Note(), now) {
		l.a.Rest(addr, until)
	}
	r := l.a.Step(now)
	l.take(r)
	for k, s := range watched {
		if _, ok := listed[k]; !ok {
			l.set(s.Service)
		}
	}
	l.setStandIns()
}

// set hands a Service to the allocator unless a newer version of it is known.
func (l *leader) set(s allocator.Service) {
	key := s.Key
	v, _ := strconv.ParseUint(s.Version, 10, 64)
	if k, ok := l.known[key]; ok && v < k.version {
		return
	}
	l.known[key] = known{s.UID, v}
	l.a.SetService(s)
}

func (l *leader) remove(key model.Key) {
	delete(l.known, key)
	delete(l.ghosts, key)
	delete(l.retries, key)
	l.a.RemoveService(key)
}

// turn takes changes over, decides, and returns when to turn again at the latest.
func (l *leader) turn(ctx context.Context, now time.Time) time.Time {
	agents := model.Earliest(l.changes(now), l.listAgain(ctx, now))
	l.hunt(ctx, now)
	var due []model.Key
	stale := false
	for key, r := range l.retries {
		if r.at.After(now) {
			continue
		}
		x, _ := l.c.standsFor(key)
		if wait := l.pace.Wait(now); x == l.c.tenants && wait > 0 { // agents can cause these, too
			r.at = now.Add(wait)
			l.retries[key] = r
			continue
		}
		due = append(due, key)
		r.at = now.Add(2 * retryMost) // the result comes before
		l.retries[key] = r
		stale = stale || x != nil
	}
	if stale { // a change of a version alone is told by nobody
		l.setStandIns()
	}
	for _, key := range due {
		if s, ok := l.lookup(key); ok {
			l.set(s)
		}
		l.a.Retry(key)
	}
	step := l.a.Step(now)
	l.take(step)
	for _, key := range due {
		if !l.busy[key] && !l.queued[key] {
			delete(l.retries, key) // nothing is left to write
		}
	}
	l.send(ctx)
	next := l.pools.flush(ctx, now)
	next = model.Earliest(model.Earliest(next, agents), l.gaveUp.look(l.c.tenants, l.a, now))
	next = model.Earliest(next, now.Add(beat))
	if !step.Wake.IsZero() {
		next = model.Earliest(next, step.Wake)
	}
	for _, r := range l.retries {
		next = model.Earliest(next, r.at)
	}
	for _, at := range l.ghosts {
		next = model.Earliest(next, at)
	}
	if all, news := l.rests.news(l.a, now); news {
		l.c.elector.SetNote(formatRests(all))
	}
	l.c.work.turn(now, len(l.known)-len(l.standIns), l.a)
	return next
}

// changes takes over what the watches have seen, and returns when it is to be called again for what
// waits; zero: nothing does.
func (l *leader) changes(now time.Time) time.Time {
	services, namespaces, nodes, pools := l.c.changes.take()
	for k := range services {
		if s, ok := l.c.services.Get(k); ok {
			l.set(s.Service)
			delete(l.ghosts, k)
		} else {
			l.remove(k)
		}
	}
	for k := range namespaces {
		if labels, ok := l.c.namespaces.Get(k); ok {
			l.a.SetNamespace(k.Name, labels)
		} else {
			l.a.RemoveNamespace(k.Name)
		}
	}
	if nodes {
		l.a.SetNodes(nodeAddrs(l.c.nodes.All()))
	}
	if pools {
		l.a.SetPools(l.c.tenants.pools())
	}
	wait := l.pace.Wait(now)
	changed, waits := l.c.changes.takeStandIns(wait == 0)
	if changed {
		l.setStandIns()
	}
	if waits {
		return now.Add(wait)
	}
	return time.Time{}
}

// hunt looks for Services that the list had and the watch still has not: at most
// maxWrites in one turn, at the same time, and within one bound, since the loop waits.
func (l *leader) hunt(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
	defer cancel()
	var looks sync.WaitGroup
	found := make(map[model.Key]*look, maxWrites)
	for key, at := range l.ghosts {
		if at.After(now) || len(found) == maxWrites {
			continue
		}
		if _, ok := l.c.services.Get(key); ok {
			delete(l.ghosts, key)
			continue
		}
		l.ghosts[key] = now.Add(ghostAfter)
		x := &look{}
		found[key] = x
		looks.Go(func() {
			var s corev1.Service
			x.err = l.c.o.Client.Core.Get().Namespace(key.Namespace).Resource("services").Name(key.Name).Do(ctx).Into(&s)
			x.service, x.ours = convertService(&s)
		})
	}
	looks.Wait()
	for key, x := range found {
		if apierrors.IsNotFound(x.err) || x.err == nil && !x.ours {
			l.remove(key)
		} else if x.err == nil {
			l.set(x.service)
		}
	}
}

// look is what was found of one Service.
type look struct {
	service allocator.Service
	ours    bool
	err     error
}

// take queues what was decided.
func (l *leader) take(r allocator.Result) {
	// Not when the write has ended: what was decided meanwhile would be forgotten.
	for _, w := range r.Writes {
		if x, k := l.c.standsFor(w.Service); x != nil && len(w.Ingress) > 0 {
			x.problem(k, "")
		}
	}
	for _, e := range r.Events {
		l.c.send(e)
	}
	for _, w := range r.Writes {
		// A newer decision about a Service with a write under way comes when that ends.
		if !l.busy[w.Service] && !l.queued[w.Service] {
			l.queued[w.Service] = true
			l.queue = append(l.queue, w)
		}
	}
	l.pools.add(r.Pools)
}

// send starts as many writes as may be under way.
func (l *leader) send(ctx context.Context) {
	for len(l.queue) > 0 && len(l.busy) < maxWrites && l.c.elector.Valid() && ctx.Err() == nil {
		w := l.queue[0]
		l.queue = l.queue[1:]
		delete(l.queued, w.Service)
		if k, ok := l.known[w.Service]; !ok || k.uid != w.UID {
			continue
		}
		l.busy[w.Service] = true
		l.writes.Go(func() { l.results <- l.c.write(ctx, w) })
	}
}

// done takes over how a write ended. Whatever it was: the allocator compares again.
func (l *leader) done(r result, now time.Time) {
	key := r.write.Service
	delete(l.busy, key)
	k, ok := l.known[key]
	if !ok || k.uid != r.write.UID {
		delete(l.retries, key)
		return
	}
	kind := "ok"
	switch {
	case r.err == nil:
		delete(l.retries, key)
		for _, e := range r.write.Events {
			l.c.send(e)
		}
		if r.ok {
			l.set(r.service)
		}
		l.a.Retry(key)
		l.log(nil)
	default:
		x := l.retries[key]
		x.wait = min(max(2*x.wait, retryFirst), retryMost)
		x.at = now.Add(x.wait)
		l.retries[key] = x
		kind = "error"
		if apierrors.IsConflict(r.err) || apierrors.IsNotFound(r.err) {
			kind = "conflict" // the watch tells what has become of it
		} else {
			l.log(r.err)
		}
	}
	l.c.work.wrote(kind)
}

// log tells when writes begin and end to fail.
func (l *leader) log(err error) {
	switch {
	case err != nil && !l.failing:
		l.c.o.Logger.Warn("statuses of services are not written; it is tried again", "err", err)
	case err == nil && l.failing:
		l.c.o.Logger.Info("statuses of services are written again")
	}
	l.failing = err != nil
}
