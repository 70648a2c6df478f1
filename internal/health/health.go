// Package health runs the health checks of this node (https, http, tcp, exec)
// and publishes what is left after debouncing: unknown, up, degraded or down.
//
// Every check has a goroutine of its own, so a slow one delays no other; those that ask the
// same in the same way run as one. A check runs once each interval. While a service that was not down fails, it is asked
// again within 50 ms instead, until Fall failures or a pass: a dead service is
// known to be dead after half an interval on average rather than after Fall
// intervals, and a single lost packet still moves nothing. Fall therefore counts
// attempts and not time; a service that needs seconds of patience needs a longer
// Timeout or a larger Fall.
package health

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/source"
	"lbd.dev/lbd/internal/wake"
)

// Options are what a Source needs from outside.
type Options struct {
	// Logger receives changes of state at Info, single failures at Debug; nil
	// discards.
	Logger *slog.Logger
	// Forwarded names the checks of servers to which connections are forwarded: the first failure is
	// published, as HealthState.Failing, and a server on this host fails where what is forwarded
	// would not reach it. nil: none.
	Forwarded func(name string) bool
}

// Stats are the counters of one check. They live as long as the check has a
// name, also through changes of its settings.
type Stats struct {
	// Last is how long the newest run took.
	Last time.Duration
	// Successes and Failures count runs; Degraded counts those in which the service
	// passed what is required of it only.
	Successes, Degraded, Failures uint64
}

// Source runs the checks that SetChecks names and publishes View.Health. It
// marks itself as synced once SetChecks was called: a check without a result is
// a fact too, model.HealthUnknown. All methods are safe for concurrent use.
type Source struct {
	log       *slog.Logger
	forwarded func(name string) bool
	newProber func(v1alpha1.HealthCheck, *slog.Logger) prober
	// phase places the second run within the interval after the first, so that
	// checks that start together do not run together.
	phase func(interval time.Duration) time.Duration
	// wake tells Run that wanted or a state has changed.
	wake chan struct{}

	mu      sync.Mutex
	wanted  map[string]v1alpha1.HealthCheck // nil before the first SetChecks
	cluster map[string]v1alpha1.HealthCheck // see SetClusterChecks
	// directory is where those of cluster may read files.
	directory string
	entries   map[string]*entry // by name; replaced only by Run
	runs      map[string]*run   // by key; replaced only by Run
	changed   bool              // since Run last published
}

var _ source.Source = (*Source)(nil)

// New returns a Source without checks.
func New(opts Options) *Source {
	log := cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	forwarded := opts.Forwarded
	if forwarded == nil {
		forwarded = func(string) bool { return false }
	}
	return &Source{
		log:       log,
		forwarded: forwarded,
		newProber: newProber,
		phase:     func(interval time.Duration) time.Duration { return rand.N(interval) },
		wake:      make(chan struct{}, 1),
		entries:   map[string]*entry{},
		runs:      map[string]*run{},
	}
}

func (*Source) Name() model.SourceName { return model.SourceHealth }

// SetChecks replaces the checks of files; the keys are those of View.Health. The values
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

// SetClusterChecks is SetChecks for the checks of objects of a cluster: they run no
// programs, read only files below directory ("": none) and quote no answers. Of two
// with one name that of the files counts.
func (s *Source) SetClusterChecks(checks map[string]v1alpha1.HealthCheck, directory string) {
	s.mu.Lock()
	s.cluster, s.directory = maps.Clone(checks), directory
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

// grid is the time between two runs. kube-apiserver asks etcd once a second at most for
// /livez. A little more than half a second, as the interval is by default, has every other
// request be one for which it does, and not one in two or three.
func grid(c *v1alpha1.HealthCheck) time.Duration {
	d := c.Interval.Duration
	if c.HTTPS != nil && c.HTTPS.PreferredPath != "" {
		d += d / 100
	}
	return d
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

func (s *Source) signal() { wake.Up(s.wake) }
