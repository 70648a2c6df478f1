package health

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/shortlist"
)

// entry is what is known under one name. Source.mu guards it.
type entry struct {
	run   *run
	state model.HealthState
	stats Stats
}

// run is a check that runs, for all names that ask for the same.
type run struct {
	config v1alpha1.HealthCheck
	// guarded: it is of an object of a cluster, and may read files of directory.
	guarded   bool
	directory string
	forwarded bool // see Options.Forwarded

	cancel context.CancelFunc
	state  model.HealthState // Source.mu guards it, and entries
	// entries are by name; none once it is cancelled.
	entries map[string]*entry
}

// key is equal for checks that are the same.
func (r *run) key() string {
	config, err := json.Marshal(r.config)
	if err != nil { // it consists of strings and numbers
		panic(err)
	}
	return fmt.Sprintf("%t %q %t %s", r.guarded, r.directory, r.forwarded, config)
}

// want is what is to run, by name; the caller holds mu.
func (s *Source) want() map[string]run {
	all := make(map[string]run, len(s.wanted)+len(s.cluster))
	for name, config := range s.cluster {
		all[name] = run{config: config, guarded: true, directory: s.directory, forwarded: s.forwarded(name)}
	}
	for name, config := range s.wanted {
		all[name] = run{config: config, forwarded: s.forwarded(name)}
	}
	return all
}

// reconcile makes the running checks those that are wanted.
func (s *Source) reconcile(ctx context.Context, running *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := s.want()
	for name := range s.entries {
		if _, ok := wanted[name]; !ok {
			s.leave(name)
		}
	}
	var begin []*run
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		template := wanted[name]
		key := template.key()
		r := s.runs[key]
		if r != nil && r.entries[name] != nil {
			continue
		}
		e := &entry{state: model.HealthState{Since: time.Now()}}
		if old := s.leave(name); old != nil {
			e.state, e.stats = old.state, old.stats
		}
		switch {
		case r == nil:
			r = &template
			r.state, r.entries = e.state, map[string]*entry{}
			s.runs[key] = r
			begin = append(begin, r)
		case r.cancel == nil && r.state.State != e.state.State:
			r.state = model.HealthState{Since: time.Now()} // it begins for several that differ
		}
		e.run, r.entries[name], s.entries[name] = r, e, e
		s.tell(e)
	}
	for _, r := range begin {
		var checkCtx context.Context
		checkCtx, r.cancel = context.WithCancel(ctx)
		c := s.newCheck(r)
		running.Go(func() { c.run(checkCtx) })
	}
}

// leave takes a name from the check that it asks for, which ends with the last one. It
// returns what was known, nil without.
func (s *Source) leave(name string) *entry {
	e := s.entries[name]
	if e == nil {
		return nil
	}
	delete(s.entries, name)
	delete(e.run.entries, name)
	if len(e.run.entries) == 0 {
		e.run.cancel()
		delete(s.runs, e.run.key())
	}
	return e
}

// newCheck returns the check for a run; the caller holds mu.
func (s *Source) newCheck(r *run) *check {
	p := s.newProber(r.config, s.log.With("vip", r.names()))
	if r.guarded {
		p = guarded(r.config, r.directory, p)
	}
	var f *forwarded
	if r.forwarded {
		f = newForwarded(r.config)
	}
	return &check{
		interval: grid(&r.config),
		timeout:  r.config.Timeout.Duration,
		phase:    s.phase,
		prober:   p,
		server:   f,
		debounce: debouncer{fall: int(r.config.Fall), rise: int(r.config.Rise), state: r.state.State},
		log: func() *slog.Logger {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.log.With("vip", r.names())
		},
		state:  r.state,
		report: func(res result) { s.report(r, res) },
	}
}

// named is how many names a line of the log has.
const named = 4

// names are for the log; the caller holds mu.
func (r *run) names() string {
	return shortlist.Join(slices.Sorted(maps.Keys(r.entries)), named)
}

// report stores what a probe has led to.
func (s *Source) report(r *run, res result) {
	s.mu.Lock()
	changed := false
	r.state = res.state
	for _, e := range r.entries {
		e.stats.count(res)
		changed = s.tell(e) || changed
	}
	s.changed = s.changed || changed
	s.mu.Unlock()
	if changed {
		s.signal()
	}
}

// tell gives a name the state of its check, and returns whether that is another one. One
// that has changed its settings keeps its own until they have led to any.
func (s *Source) tell(e *entry) (changed bool) {
	is := e.run.state
	if !e.run.forwarded {
		is.Failing = ""
	}
	if is.State == model.HealthUnknown && e.state.State != model.HealthUnknown || is.State == e.state.State && is.Failing == e.state.Failing && is.Detail == e.state.Detail {
		return false
	}
	e.state = is
	return true
}

// count adds a run.
func (s *Stats) count(r result) {
	s.Last = r.took
	switch {
	case r.err == nil:
		s.Successes++
	case isDegraded(r.err):
		s.Degraded++
	default:
		s.Failures++
	}
}
