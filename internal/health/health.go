// Package health runs the health checks of this node (https, http, tcp, exec)
// and publishes what is left after debouncing: unknown, up or down.
//
// Every check has a goroutine of its own, so a slow one delays no other. A check
// runs once each interval. While a service that was not down fails, it is asked
// again within 50 ms instead, until Fall failures or a pass: a dead service is
// known to be dead after half an interval on average rather than after Fall
// intervals, and a single lost packet still moves nothing. Fall therefore counts
// attempts and not time; a service that needs seconds of patience needs a longer
// Timeout or a larger Fall.
package health

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/source"
)

// Options are what a Source needs from outside.
type Options struct {
	// Logger receives changes of state at Info, single failures at Debug; nil
	// discards.
	Logger *slog.Logger
}

// Stats are the counters of one check. They live as long as the check has a
// name, also through changes of its settings.
type Stats struct {
	// Last is how long the newest run took.
	Last time.Duration
	// Successes and Failures count runs.
	Successes, Failures uint64
}

// Source runs the checks that SetChecks names and publishes View.Health. It
// marks itself as synced once SetChecks was called: a check without a result is
// a fact too, model.HealthUnknown. All methods are safe for concurrent use.
type Source struct {
	log       *slog.Logger
	newProber func(v1alpha1.HealthCheck, *slog.Logger) prober
	// phase places the second run within the interval after the first, so that
	// checks that start together do not run together.
	phase func(interval time.Duration) time.Duration
	// wake tells Run that wanted or a state has changed.
	wake chan struct{}

	mu      sync.Mutex
	wanted  map[string]v1alpha1.HealthCheck // nil before the first SetChecks
	entries map[string]*entry               // replaced only by Run
	changed bool                            // since Run last published
}

var _ source.Source = (*Source)(nil)

// entry is one check as Run started it. Source.mu guards state and stats.
type entry struct {
	config v1alpha1.HealthCheck
	cancel context.CancelFunc
	state  model.HealthState
	stats  Stats
}

// New returns a Source without checks.
func New(opts Options) *Source {
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Source{
		log:       log,
		newProber: newProber,
		phase:     func(interval time.Duration) time.Duration { return rand.N(interval) },
		wake:      make(chan struct{}, 1),
		entries:   map[string]*entry{},
	}
}

// Name implements source.Source.
func (*Source) Name() model.SourceName { return model.SourceHealth }

// SetChecks replaces the checks; the keys are those of View.Health. The values
// are defaulted and valid. A check that has not changed keeps running, one that
// has changed starts again and keeps its state until the new settings have led
// to another, one that is missing disappears. It does not block and may be
// called before Run.
func (s *Source) SetChecks(checks map[string]v1alpha1.HealthCheck) {
	s.mu.Lock()
	s.wanted = maps.Clone(checks)
	if s.wanted == nil {
		s.wanted = map[string]v1alpha1.HealthCheck{}
	}
	s.changed = true
	s.mu.Unlock()
	s.signal()
}

// Stats returns the counters of every check that runs.
func (s *Source) Stats() map[string]Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := make(map[string]Stats, len(s.entries))
	for name, e := range s.entries {
		stats[name] = e.stats
	}
	return stats
}

// Run runs the checks until ctx ends; it returns nil when all of them have
// stopped.
func (s *Source) Run(ctx context.Context, publish source.Publish) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		s.reconcile(ctx, &running)
		if states, changed := s.takeChange(); changed {
			publish(func(v *model.View) {
				v.Health = states
				if v.Synced == nil {
					v.Synced = map[model.SourceName]bool{}
				}
				v.Synced[model.SourceHealth] = true
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
	}
}

// reconcile makes the running checks those that are wanted.
func (s *Source) reconcile(ctx context.Context, running *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, e := range s.entries {
		if _, ok := s.wanted[name]; !ok {
			e.cancel()
			delete(s.entries, name)
		}
	}
	for name, config := range s.wanted {
		old := s.entries[name]
		if old != nil && reflect.DeepEqual(old.config, config) {
			continue
		}
		e := &entry{config: config, state: model.HealthState{Since: time.Now()}}
		if old != nil {
			old.cancel()
			e.state, e.stats = old.state, old.stats
		}
		var checkCtx context.Context
		checkCtx, e.cancel = context.WithCancel(ctx)
		c := s.newCheck(name, e)
		s.entries[name] = e
		running.Go(func() { c.run(checkCtx) })
	}
}

// newCheck returns the check that reports into e.
func (s *Source) newCheck(name string, e *entry) *check {
	log := s.log.With("vip", name)
	return &check{
		interval: e.config.Interval.Duration,
		timeout:  e.config.Timeout.Duration,
		phase:    s.phase,
		prober:   s.newProber(e.config, log),
		debounce: debouncer{fall: int(e.config.Fall), rise: int(e.config.Rise), state: e.state.State},
		log:      log,
		state:    e.state,
		report: func(r result) {
			s.report(e, r)
		},
	}
}

// report stores what a run has led to.
func (s *Source) report(e *entry, r result) {
	s.mu.Lock()
	e.stats.Last = r.took
	if r.err == nil {
		e.stats.Successes++
	} else {
		e.stats.Failures++
	}
	changed := e.state != r.state
	e.state = r.state
	s.changed = s.changed || changed
	s.mu.Unlock()
	if changed {
		s.signal()
	}
}

// takeChange returns the states if one has changed since the last call and
// SetChecks was called at all.
func (s *Source) takeChange() (map[string]model.HealthState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.changed {
		return nil, false
	}
	s.changed = false
	states := make(map[string]model.HealthState, len(s.entries))
	for name, e := range s.entries {
		states[name] = e.state
	}
	return states, true
}

func (s *Source) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // Run will see this change with the one before it
	}
}
