package agent

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/model"
)

const (
	// refusedMost bounds how long the agent waits before it offers again what an API server refused, and
	// failedMost the same for what it failed at while other writes got through.
	refusedMost = resyncEvery
	failedMost  = time.Minute
	// maxBatch bounds the writes to one side that one decision leads to: the others are decided about anew.
	maxBatch = 100
	// maxWrites bounds those to one side that are under way.
	maxWrites = 8
)

// past is how the last write of one object went.
type past struct {
	side string
	// body is what was written or offered; empty: what counts no more.
	body string
	// The same body is not sent before until, and any other not before the pause of its job after sent.
	sent, until time.Time
	wait        time.Duration // from sent to until, but for what chance adds
	err         error         // why it was not taken; nil: it was
	// refuses is the Service that is told so; empty: none is.
	refuses model.Key
}

// side is how the writes to one cluster go.
type side struct {
	// at is when it is tried again after nothing got through, and wait how long that was put off.
	at   time.Time
	wait time.Duration
	// fails and refuses: the log says that writes fail, and that objects are refused.
	fails, refuses bool
}

// due returns the jobs that may be written now, by side, and when the first of the others may be; zero:
// there is no other. Neither side waits for the other one's backlog.
func (l *loop) due(jobs []*job, now time.Time) (due map[string][]*job, next time.Time) {
	due = map[string][]*job{}
	for _, j := range jobs {
		at := l.sides[j.side].at
		if p := l.past[j.id]; p != nil {
			at = latest(at, p.sent.Add(j.pause))
			if p.body == j.body {
				at = latest(at, p.until)
			}
		}
		switch {
		case at.After(now):
			next = model.Earliest(next, at)
		case len(due[j.side]) == maxBatch:
			next = now
		default:
			due[j.side] = append(due[j.side], j)
		}
	}
	return due, next
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// write carries out the jobs, both sides at once, and tells whether any is to be tried again.
func (l *loop) write(ctx context.Context, due map[string][]*job) (again bool) {
	var both sync.WaitGroup
	for _, jobs := range due {
		both.Go(func() { l.carryOut(ctx, jobs) })
	}
	both.Wait()
	now := time.Now()
	for name, jobs := range due {
		again = l.finish(name, jobs, now) || again
	}
	return again
}

// carryOut carries out the jobs of one side, several at a time. When nothing gets through, the rest is
// left alone.
func (l *loop) carryOut(ctx context.Context, jobs []*job) {
	var failed, through atomic.Int32
	room := make(chan struct{}, maxWrites)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, j := range jobs {
		room <- struct{}{}
		if failed.Load() >= maxWrites && through.Load() == 0 || ctx.Err() != nil || !l.a.elector.Valid() {
			return
		}
		wg.Go(func() {
			defer func() { <-room }()
			// It ends before others may lead, and is not cut off, so that what it did is known.
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.RequestTimeout)
			defer cancel()
			j.done, j.err = true, j.run(limited)
			l.a.turns() // many that time out take longer than stuckAfter
			if j.err == nil || refusedObject(j.err) {
				through.Add(1)
			} else {
				failed.Add(1)
			}
		})
	}
}

// finish notes how the jobs of one side ended, and tells whether any is to be tried again. The side is down
// if nothing got through; else what failed did so for itself.
func (l *loop) finish(name string, jobs []*job, now time.Time) (again bool) {
	var failed error
	through := false
	for _, j := range jobs {
		switch {
		case !j.done:
		case j.err == nil || refusedObject(j.err):
			through = true
		default:
			failed = j.err
		}
	}
	for _, j := range jobs {
		if j.done {
			l.ended(j, now, through)
		}
		again = again || !j.done || j.err != nil
	}
	s, log := l.sides[name], l.a.o.Logger.With("cluster", name)
	switch {
	case through:
		if s.fails {
			log.Info("writes to a cluster work again")
		}
		s.at, s.wait, s.fails = time.Time{}, 0, false
	case failed != nil:
		if !s.fails {
			log.Warn("writes to a cluster fail", "err", failed)
		}
		s.wait = min(max(2*s.wait, k8s.RetryFirst), k8s.RetryMost)
		s.at, s.fails = now.Add(s.wait+rand.N(s.wait)), true
	}
	return again
}

// ended notes how one job ended; through: its side is not down.
func (l *loop) ended(j *job, now time.Time, through bool) {
	before := l.past[j.id]
	if before == nil {
		before = &past{}
	}
	p := &past{side: j.side, body: j.body, sent: now, err: j.err}
	result, first, most := "ok", seenWithin, resyncEvery
	switch {
	case j.err == nil:
		// Who goes on to say otherwise has reasons: a definition of another version, or another writer.
	case refusedObject(j.err):
		result, first, most = "refused", k8s.RetryFirst, refusedMost
		p.refuses = j.refuses
	default:
		result, first, most = "error", k8s.RetryFirst, failedMost
	}
	l.a.wrote(Written{Side: j.side, What: j.what, Result: result})
	if j.err != nil {
		l.a.o.Logger.Debug("a write failed", "cluster", j.side, "object", j.id, "err", j.err)
	}
	if !through {
		return
	}
	p.wait = first
	if before.body == j.body && (before.err == nil) == (j.err == nil) {
		p.wait = min(2*before.wait, most)
	}
	p.until = now.Add(p.wait)
	if j.err != nil {
		p.until = p.until.Add(rand.N(p.wait))
	}
	l.past[j.id] = p
	if j.err == nil && j.then != nil {
		j.then()
	}
}

// forget drops what no job stands for any more. true: among it is a refusal that was told, so that all is
// to be decided about anew.
func (l *loop) forget(jobs []*job, now time.Time) (told bool) {
	known := make(map[string]bool, len(jobs))
	for _, j := range jobs {
		known[j.id] = true
	}
	for id, p := range l.past {
		switch {
		case known[id]:
		case now.Sub(p.sent) > refusedMost:
			delete(l.past, id)
		case p.err != nil:
			told = told || p.refuses != (model.Key{})
			l.past[id] = &past{side: p.side, sent: p.sent}
		}
	}
	return told
}

// offerAgain has what the hub refused be offered again soon: what was deleted may have made room for it,
// once its quota has been counted anew.
func (l *loop) offerAgain() {
	for _, p := range l.past {
		if p.side == SideHub && p.err != nil && p.wait > k8s.RetryMost {
			p.wait, p.until = k8s.RetryMost, p.sent.Add(k8s.RetryMost)
		}
	}
}

// tellRefusals logs once that a cluster refuses objects, and once that it does not any more.
func (l *loop) tellRefusals() {
	for name, s := range l.sides {
		count, refused := 0, error(nil)
		for _, p := range l.past {
			if p.side == name && p.err != nil && refusedObject(p.err) {
				count, refused = count+1, p.err
			}
		}
		switch {
		case count > 0 && !s.refuses:
			l.a.o.Logger.Warn("a cluster refuses objects", "cluster", name, "count", count, "err", refused)
		case count == 0 && s.refuses:
			l.a.o.Logger.Info("a cluster refuses no objects any more", "cluster", name)
		}
		s.refuses = count > 0
	}
}
