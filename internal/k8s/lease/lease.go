// Package lease elects one of several processes by a Lease of coordination.k8s.io,
// in the way of client-go: it may share the Lease with any program that uses that.
// client-go's own package brings the types of every group of Kubernetes along,
// which a daemon without a cluster would have to carry too; and it cannot tell
// whether the Lease is good at this moment, which a writer must know.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"lbd.dev/lbd/internal/wake"
)

// The times of an election, those of client-go's users but for a shorter deadline:
// a request that was sent before it (see RequestTimeout) ends before the Lease does.
const (
	DefaultDuration = 15 * time.Second
	DefaultDeadline = 8 * time.Second
	DefaultRetry    = 2 * time.Second
	// RequestTimeout bounds each request of the election, and must bound each one that
	// is sent while Valid.
	RequestTimeout = 5 * time.Second
)

// Record is what a Lease says.
type Record struct {
	Holder      string // "": nobody
	Duration    time.Duration
	Acquired    time.Time
	Renewed     time.Time
	Transitions int64
	// Note is what the holder leaves for the next one, see Elector.SetNote.
	Note string
	// Version is the resourceVersion; Update fails if it is not that of the object.
	Version string
}

// API reads and writes one Lease. A missing one is a NotFound error of the API, and
// one that has changed since a Conflict or AlreadyExists.
type API interface {
	Get(ctx context.Context) (Record, error)
	Create(ctx context.Context, r Record) (Record, error)
	Update(ctx context.Context, r Record) (Record, error)
}

// Options are what an Elector needs.
type Options struct {
	Logger *slog.Logger
	API    API
	// Identity is unique among the processes.
	Identity string
	// Duration is how long others wait for a holder that is silent, Deadline how long
	// the holder trusts in a renewal, and Retry the time between attempts; 0: the
	// defaults. Deadline + RequestTimeout must be below Duration.
	Duration, Deadline, Retry time.Duration
}

// Elector takes part in an election.
type Elector struct {
	o   Options
	now func() instant // by another clock in tests

	mu      sync.Mutex // guards all below
	renewed instant    // when the last renewal that succeeded was sent; zero: does not lead
	note    string     // of this process, or what it found when it began to lead
	holder  string     // as last seen
	err     error      // of the last attempt
}

// New returns an Elector; Run takes part.
func New(o Options) *Elector {
	if o.Duration == 0 {
		o.Duration, o.Deadline, o.Retry = DefaultDuration, DefaultDeadline, DefaultRetry
	}
	return &Elector{o: o, now: now}
}

// Valid tells whether this process leads and may begin a request now. Even a process
// that stood still finds out here, before it does harm.
func (e *Elector) Valid() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.renewed.steady.IsZero() && e.now().atMost(e.renewed) < e.o.Deadline
}

// age is how long ago the last renewal that succeeded was sent.
func (e *Elector) age() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now().atMost(e.renewed)
}

// instant is a moment by both clocks. The monotonic one stands still while a machine
// is suspended, so it never shows too much; the wall clock may be set forward or back.
type instant struct{ steady, wall time.Time }

func now() instant {
	t := time.Now()
	return instant{t, t.Round(0)}
}

// atMost is the time since an earlier instant by the clock that shows more: who holds
// the Lease must not trust in it for too long.
func (i instant) atMost(then instant) time.Duration {
	return max(i.steady.Sub(then.steady), i.wall.Sub(then.wall))
}

// atLeast is the time that has passed for sure: who wants the Lease must not take it
// too soon.
func (i instant) atLeast(then instant) time.Duration { return i.steady.Sub(then.steady) }

// Holder returns who led when the Lease was last seen; "": nobody, or not seen yet.
func (e *Elector) Holder() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holder
}

// Note returns what the last holder has left when this process began to lead, or what
// SetNote has set since.
func (e *Elector) Note() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.note
}

// SetNote changes what the Lease says to the next holder. It is written with the next
// renewal, or when the Lease is given up, and costs no request of its own.
func (e *Elector) SetNote(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.note = text
}

// Err returns why the last attempt failed; nil if it did not, even if somebody else
// leads.
func (e *Elector) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// Run takes part until ctx ends. While this process leads it runs lead, whose context
// ends at once when the Lease is lost or ctx ends; the Lease is given up, or asked
// for again, only when lead has returned.
func (e *Elector) Run(ctx context.Context, lead func(context.Context)) {
	var seen Record
	var seenAt instant
	for ctx.Err() == nil {
		r, err := e.acquire(ctx, &seen, &seenAt)
		if err == nil && r.Holder == e.o.Identity {
			e.o.Logger.Info("leads", "lease", e.o.Identity)
			r = e.hold(ctx, r, lead)
			e.o.Logger.Info("leads no more", "lease", e.o.Identity)
			e.release(r)
			seen = Record{}
		}
		wake.Sleep(ctx, e.o.Retry+rand.N(e.o.Retry/5+1))
	}
}

// acquire looks at the Lease and takes it if it is free. What counts is how long it
// has not changed while this process looked: clocks of machines may differ.
func (e *Elector) acquire(ctx context.Context, seen *Record, seenAt *instant) (Record, error) {
	begun := e.now()
	r, err := bounded(ctx, RequestTimeout, e.o.API.Get)
	if apierrors.IsNotFound(err) {
		begun = e.now()
		r, err = e.write(ctx, RequestTimeout, e.o.API.Create, e.mine(Record{}, begun.wall))
		return e.noted(r, begun, err)
	}
	if err != nil {
		return e.noted(r, begun, err)
	}
	if r.Version != seen.Version || seenAt.steady.IsZero() {
		*seen, *seenAt = r, begun
	}
	if r.Holder != "" && r.Holder != e.o.Identity && e.now().atLeast(*seenAt) <= r.Duration {
		return e.noted(r, begun, nil)
	}
	begun = e.now()
	r, err = e.write(ctx, RequestTimeout, e.o.API.Update, e.mine(r, begun.wall))
	return e.noted(r, begun, err)
}

func bounded(ctx context.Context, limit time.Duration, do func(context.Context) (Record, error)) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}

func (e *Elector) write(ctx context.Context, limit time.Duration, do func(context.Context, Record) (Record, error), r Record) (Record, error) {
	return bounded(ctx, limit, func(ctx context.Context) (Record, error) { return do(ctx, r) })
}

// mine is the record by which this process leads.
func (e *Elector) mine(old Record, now time.Time) Record {
	r := Record{Holder: e.o.Identity, Duration: e.o.Duration, Acquired: now, Renewed: now, Transitions: old.Transitions, Version: old.Version, Note: old.Note}
	if old.Holder == e.o.Identity {
		r.Acquired = old.Acquired
	} else if old.Version != "" {
		r.Transitions++
	}
	return r
}

// noted keeps the result of an attempt that began then.
func (e *Elector) noted(r Record, begun instant, err error) (Record, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	lost := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) // somebody was faster
	switch {
	case err == nil:
		e.err, e.holder = nil, r.Holder
		if r.Holder == e.o.Identity {
			if e.renewed.steady.IsZero() {
				e.note = r.Note
			}
			e.renewed = begun
		}
	case lost:
		e.err = nil
	default:
		if e.err == nil {
			e.o.Logger.Warn("lease", "err", err)
		}
		e.err = err
	}
	return r, err
}

// hold runs lead and renews the Lease until it is lost or ctx ends.
func (e *Elector) hold(ctx context.Context, r Record, lead func(context.Context)) Record {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		lead(work)
	})
	tick := time.NewTicker(e.o.Retry)
	defer tick.Stop()
	for work.Err() == nil {
		select {
		case <-work.Done():
		case <-tick.C:
		}
		if work.Err() != nil {
			break
		}
		if !e.Valid() {
			e.o.Logger.Warn("lease not renewed in time", "err", e.Err())
			break
		}
		next, err := e.renew(work, r)
		if err == nil {
			r = next
		} else if errors.Is(err, errLost) {
			e.o.Logger.Warn("lease lost", "err", err)
			break
		}
	}
	cancel()
	wg.Wait()
	e.mu.Lock()
	e.renewed = instant{}
	e.mu.Unlock()
	return r
}

var errLost = errors.New("somebody else holds the lease")

// renew writes the Lease again, for at most what is left of its deadline.
func (e *Elector) renew(ctx context.Context, r Record) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, e.o.Deadline-e.age())
	defer cancel()
	r.Note = e.Note()
	begun := e.now()
	next, err := e.write(ctx, RequestTimeout, e.o.API.Update, e.mine(r, begun.wall))
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return e.noted(next, begun, err)
	}
	// An update whose answer was lost looks the same as one by somebody else.
	is, gerr := bounded(ctx, RequestTimeout, e.o.API.Get)
	switch {
	case gerr != nil:
		return e.noted(is, begun, gerr)
	case is.Holder != e.o.Identity:
		return is, fmt.Errorf("%w: %s", errLost, is.Holder)
	}
	is.Note = e.Note()
	begun = e.now()
	next, err = e.write(ctx, RequestTimeout, e.o.API.Update, e.mine(is, begun.wall))
	return e.noted(next, begun, err)
}

// release lets others have the Lease at once.
func (e *Elector) release(r Record) {
	if r.Holder != e.o.Identity {
		return
	}
	now := time.Now()
	// A Conflict means that somebody has taken it, which is as well.
	_, err := e.write(context.Background(), RequestTimeout, e.o.API.Update,
		Record{Duration: time.Second, Acquired: now, Renewed: now, Transitions: r.Transitions, Version: r.Version, Note: e.Note()})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		e.o.Logger.Warn("lease not released", "err", err)
	}
}
