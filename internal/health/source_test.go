package health

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// service is a fake service: its mode can be changed while it is probed.
type service struct {
	mu      sync.Mutex
	err     error
	hang    bool
	frozen  time.Duration // the process does not run for this long in a probe
	always  bool          // in every probe
	started []time.Time
}

func (s *service) set(err error, hang bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.hang = err, hang
}

func (s *service) starts() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.started)
}

func (s *service) probe(ctx context.Context) error {
	s.mu.Lock()
	s.started = append(s.started, time.Now())
	err, hang, frozen := s.err, s.hang, s.frozen
	if !s.always {
		s.frozen = 0
	}
	s.mu.Unlock()
	if frozen > 0 {
		time.Sleep(frozen)
		return errors.New("no answer in time")
	}
	if hang {
		<-ctx.Done()
		return errors.New("no answer in time")
	}
	return err
}

// bench runs a Source whose probers are fake services, found by the first word
// of an exec command, and records what it publishes.
type bench struct {
	*Source
	services map[string]*service

	mu   sync.Mutex
	view model.View
	// published counts calls; at is the time of the last one.
	published int
	at        time.Time
}

func newBench(t *testing.T, services map[string]*service) *bench {
	t.Helper()
	b := &bench{Source: New(Options{}), services: services}
	b.phase = func(interval time.Duration) time.Duration { return interval }
	b.newProber = func(c v1alpha1.HealthCheck, _ *slog.Logger) prober { return b.services[c.Exec.Command[0]] }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- b.Run(ctx, func(change func(*model.View)) {
			b.mu.Lock()
			defer b.mu.Unlock()
			change(&b.view)
			b.published++
			b.at = time.Now()
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
	return b
}

func (b *bench) state(name string) model.HealthState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.view.Health[name]
}

// seen is the View as the daemon would hold it.
func (b *bench) seen() model.View {
	b.mu.Lock()
	defer b.mu.Unlock()
	view := b.view
	view.Synced = maps.Clone(b.view.Synced)
	return view
}

func (b *bench) lastAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

func (b *bench) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.published
}

// sleep lets fake time pass and then everything that is due happen.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// fakeCheck has the defaults, for the service of that name.
func fakeCheck(name string) v1alpha1.HealthCheck {
	c := v1alpha1.HealthCheck{Exec: &v1alpha1.ExecCheck{Command: []string{name}}}
	c.Default()
	return c
}

var errRefused = errors.New("connection refused")

// TestTimeToDown measures promise P4 as far as it is this package's: from the
// death of the service until View.Health says so.
func TestTimeToDown(t *testing.T) {
	tests := []struct {
		name          string
		err           error
		hang          bool
		median, worst time.Duration
	}{
		{name: "refuses", err: errRefused, median: 310 * time.Millisecond, worst: 555 * time.Millisecond},
		{name: "hangs", hang: true, median: 1070 * time.Millisecond, worst: 1320 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var took []time.Duration
			for at := time.Millisecond; at < 500*time.Millisecond; at += 7 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					api := &service{}
					b := newBench(t, map[string]*service{"api": api})
					b.SetChecks(map[string]v1alpha1.HealthCheck{"api": fakeCheck("api")})
					sleep(5*time.Second + at)
					if got := b.state("api").State; got != model.HealthUp {
						t.Fatalf("state before the death = %v, want up", got)
					}
					api.set(tt.err, tt.hang)
					died := time.Now()
					sleep(3 * time.Second)
					if got := b.state("api"); got.State != model.HealthDown {
						t.Fatalf("state = %+v, want down", got)
					}
					took = append(took, b.lastAt().Sub(died))
				})
			}
			slices.Sort(took)
			median, worst := took[len(took)/2], took[len(took)-1]
			t.Logf("down after: best %v, median %v, worst %v", took[0], median, worst)
			if median > tt.median || worst > tt.worst {
				t.Errorf("median %v, worst %v; want at most %v, %v", median, worst, tt.median, tt.worst)
			}
		})
	}
}

func TestFirstRunIsAtOnceAndThenOnPhaseAndInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &service{}
		b := newBench(t, map[string]*service{"api": api})
		b.phase = func(time.Duration) time.Duration { return 123 * time.Millisecond }
		start := time.Now()
		b.SetChecks(map[string]v1alpha1.HealthCheck{"api": fakeCheck("api")})
		sleep(1200 * time.Millisecond)
		want := []time.Duration{0, 123 * time.Millisecond, 623 * time.Millisecond, 1123 * time.Millisecond}
		for i, at := range api.starts() {
			if i >= len(want) || at.Sub(start) != want[i] {
				t.Fatalf("run %d at %v, want %v", i, at.Sub(start), want)
			}
		}
		if got := b.state("api"); got.State != model.HealthUp || !got.Since.Equal(start) {
			t.Errorf("state = %+v, want up since the first run", got)
		}
	})
}

func TestUnknownUntilFirstPassOrFallFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &service{hang: true}
		b := newBench(t, map[string]*service{"api": api})
		b.SetChecks(map[string]v1alpha1.HealthCheck{"api": fakeCheck("api")})
		synctest.Wait()
		if got, ok := b.seen().Health["api"]; !ok || got.State != model.HealthUnknown {
			t.Fatalf("Health[api] = %+v, %v before the first result, want unknown", got, ok)
		}
		if !b.seen().Synced[model.SourceHealth] {
			t.Error("not synced although the checks are known")
		}
		sleep(500 * time.Millisecond) // one failure
		if got := b.state("api"); got.State != model.HealthUnknown || got.Detail == "" {
			t.Fatalf("state after one failure = %+v, want unknown with the failure as detail", got)
		}
		sleep(400 * time.Millisecond) // the second
		if got := b.state("api"); got.State != model.HealthDown {
			t.Fatalf("state after two failures = %+v, want down", got)
		}
	})
}

func TestSyncedOnlyAfterSetChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		sleep(time.Second)
		if n := b.count(); n != 0 {
			t.Fatalf("published %d times before SetChecks", n)
		}
		b.SetChecks(nil)
		synctest.Wait()
		if b.count() != 1 || !b.seen().Synced[model.SourceHealth] || len(b.seen().Health) != 0 {
			t.Fatalf("after SetChecks(nil): %d publications, view %+v; want one, synced, empty", b.count(), b.seen())
		}
	})
}

func TestOneFailureMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &service{}
		b := newBench(t, map[string]*service{"api": api})
		b.SetChecks(map[string]v1alpha1.HealthCheck{"api": fakeCheck("api")})
		sleep(750 * time.Millisecond)
		before := b.count()
		api.set(errRefused, false)
		sleep(260 * time.Millisecond) // fails once, at 1 s
		api.set(nil, false)
		sleep(5 * time.Second)
		if got := b.count(); got != before {
			t.Errorf("%d publications for a failure below fall, want none", got-before)
		}
		if stats := b.Stats()["api"]; stats.Failures != 1 || stats.Successes < 10 {
			t.Errorf("Stats = %+v, want 1 failure and more than 10 successes", stats)
		}
	})
}

// TestFirstFailureIsToldWhereItIsDoubted: at once, and once a second at most for a service that
// fails every other time.
func TestFirstFailureIsToldWhereItIsDoubted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &service{}
		b := newBench(t, map[string]*service{"api": api})
		b.forwarded = func(name string) bool { return name == "lb/api" }
		b.SetChecks(map[string]v1alpha1.HealthCheck{"lb/api": fakeCheck("api"), "api": fakeCheck("api")})
		sleep(750 * time.Millisecond)
		before := b.count()
		api.set(errRefused, false)
		sleep(260 * time.Millisecond) // fails once, at 1 s
		api.set(nil, false)
		if got := b.state("lb/api"); got.State != model.HealthUp || got.Failing != "connection refused" || b.count() != before+1 {
			t.Errorf("after a failure: %+v, %d publications", got, b.count()-before)
		}
		if got := b.state("api"); got.Failing != "" {
			t.Errorf("the same check of another name: %+v", got)
		}
		sleep(900 * time.Millisecond) // passes again and again
		if got := b.state("lb/api"); got.Failing == "" {
			t.Errorf("less than a second after: %+v", got)
		}
		sleep(time.Second)
		if got := b.state("lb/api"); got.State != model.HealthUp || got.Failing != "" || b.count() != before+2 {
			t.Errorf("over: %+v, %d publications", got, b.count()-before)
		}
		before = b.count()
		for range 40 { // 10 s
			api.set(errRefused, false)
			sleep(40 * time.Millisecond)
			api.set(nil, false)
			sleep(210 * time.Millisecond)
		}
		if n := b.count() - before; n > 20 {
			t.Errorf("%d publications in 10 s", n)
		}
		sleep(2 * time.Second)
		api.set(errRefused, false)
		sleep(time.Second)
		if got := b.state("lb/api"); got.State != model.HealthDown || got.Failing != "" {
			t.Errorf("failed for good: %+v", got)
		}
	})
}

func TestRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &service{err: errRefused}
		b := newBench(t, map[string]*service{"api": api})
		c := fakeCheck("api")
		c.Rise = 3
		b.SetChecks(map[string]v1alpha1.HealthCheck{"api": c})
		sleep(750 * time.Millisecond) // runs at 0, 50, 500
		if got := b.state("api"); got.State != model.HealthDown || got.Detail != "connection refused" {
			t.Fatalf("state = %+v, want down", got)
		}
		api.set(nil, false)
		sleep(time.Second) // passes at 1000 and 1500
		if got := b.state("api").State; got != model.HealthDown {
			t.Fatalf("state after two passes of three = %v, want down", got)
		}
		sleep(500 * time.Millisecond)
		if got := b.state("api"); got.State != model.HealthUp || got.Detail != "" {
			t.Fatalf("state after three passes = %+v, want up without detail", got)
		}
	})
}

func TestDownIsCheckedOnScheduleOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &service{err: errRefused}
		b := newBench(t, map[string]*service{"api": api})
		b.SetChecks(map[string]v1alpha1.HealthCheck{"api": fakeCheck("api")})
		sleep(10*time.Second + 100*time.Millisecond)
		if n := len(api.starts()); n != 22 {
			t.Errorf("%d runs in 10 s of a dead service, want 21 on schedule and 1 retry", n)
		}
	})
}

func TestDetailIsPublishedOnceASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &service{err: errRefused}
		b := newBench(t, map[string]*service{"api": api})
		c := fakeCheck("api")
		c.Interval.Duration = 100 * time.Millisecond
		c.Timeout.Duration = 80 * time.Millisecond
		b.SetChecks(map[string]v1alpha1.HealthCheck{"api": c})
		sleep(time.Second)
		before, since := b.count(), b.state("api").Since
		for i := range 50 {
			api.set(errors.New(string(rune('a'+i%26))), false)
			sleep(100 * time.Millisecond)
		}
		if got := b.count() - before; got < 4 || got > 6 {
			t.Errorf("%d publications in 5 s of changing details, want about 5", got)
		}
		if got := b.state("api").Since; !got.Equal(since) {
			t.Errorf("Since moved from %v to %v with the detail", since, got)
		}
	})
}

func TestSlowCheckDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := &service{hang: true}, &service{}
		b := newBench(t, map[string]*service{"slow": slow, "quick": quick})
		c := fakeCheck("slow")
		c.Interval.Duration, c.Timeout.Duration = time.Minute, time.Minute
		b.SetChecks(map[string]v1alpha1.HealthCheck{"slow": c, "quick": fakeCheck("quick")})
		sleep(5 * time.Second)
		if n := len(quick.starts()); n != 11 {
			t.Errorf("quick check ran %d times in 5 s, want 11", n)
		}
	})
}

func TestFrozenProcessIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &service{}
		b := newBench(t, map[string]*service{"api": api})
		c := fakeCheck("api")
		c.Fall = 1
		b.SetChecks(map[string]v1alpha1.HealthCheck{"api": c})
		sleep(750 * time.Millisecond)
		before := b.count()
		api.mu.Lock()
		api.frozen = 10 * time.Second
		api.mu.Unlock()
		sleep(12 * time.Second)
		if got := b.count() - before; got != 0 {
			t.Fatalf("a frozen daemon changed the state %d times, to %+v", got, b.state("api"))
		}
		// A prober that is always late does not hide a dead service for ever.
		api.mu.Lock()
		api.frozen, api.always = 10*time.Second, true
		api.mu.Unlock()
		sleep(25 * time.Second)
		if got := b.state("api").State; got != model.HealthDown {
			t.Errorf("state = %v, want down", got)
		}
	})
}

func TestSetChecksKeepsRestartsRemoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keep, change, remove := &service{}, &service{}, &service{}
		b := newBench(t, map[string]*service{"keep": keep, "change": change, "remove": remove})
		b.SetChecks(map[string]v1alpha1.HealthCheck{
			"keep": fakeCheck("keep"), "change": fakeCheck("change"), "remove": fakeCheck("remove"),
		})
		sleep(750 * time.Millisecond)
		since := b.state("change").Since
		change.set(errRefused, false)
		changed := fakeCheck("change")
		changed.Fall = 3
		b.SetChecks(map[string]v1alpha1.HealthCheck{"keep": fakeCheck("keep"), "change": changed})
		restarted := time.Now()
		synctest.Wait()
		if _, ok := b.seen().Health["remove"]; ok {
			t.Error("the removed check is still in View.Health")
		}
		if got := b.state("change"); got.State != model.HealthUp || !got.Since.Equal(since) {
			t.Errorf("changed check = %+v, want its last state until there is a new one", got)
		}
		sleep(60 * time.Millisecond)
		starts := change.starts()
		if got := starts[len(starts)-2]; !got.Equal(restarted) {
			t.Errorf("the changed check ran at %v, want at once (%v)", got, restarted)
		}
		sleep(time.Second)
		if got := b.state("change").State; got != model.HealthDown {
			t.Errorf("changed check = %v after three failures, want down", got)
		}
		if n := len(keep.starts()); n != 4 {
			t.Errorf("the unchanged check ran %d times in 1.81 s, want 4: it was restarted", n)
		}
		if n := len(remove.starts()); n != 2 {
			t.Errorf("the removed check ran %d times, want 2", n)
		}
		if stats := b.Stats(); len(stats) != 2 || stats["change"].Successes != 2 {
			t.Errorf("Stats = %+v, want two entries and the successes before the change", stats)
		}
	})
}

// TestPublishedMapIsNotReused guards the contract of source.Publish.
func TestPublishedMapIsNotReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &service{}
		b := newBench(t, map[string]*service{"api": api})
		b.SetChecks(map[string]v1alpha1.HealthCheck{"api": fakeCheck("api")})
		sleep(time.Second)
		before := b.seen().Health
		api.set(errRefused, false)
		sleep(2 * time.Second)
		if before["api"].State != model.HealthUp || b.state("api").State != model.HealthDown {
			t.Errorf("old map %+v, new state %+v; want up and down", before, b.state("api"))
		}
	})
}

func TestInvalidCheckFailsAndSaysSo(t *testing.T) {
	err := newProber(v1alpha1.HealthCheck{}, slog.New(slog.DiscardHandler)).probe(t.Context())
	if err == nil {
		t.Error("a check without a type passes")
	}
}
