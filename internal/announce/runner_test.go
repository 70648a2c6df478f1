package announce_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
)

// fake is a driver that notes when and with what it was asked.
type fake struct {
	changed chan struct{}
	apply   func(ctx context.Context, gen uint64) error
	closed  bool
	left    time.Duration // that Close was given

	mu    sync.Mutex
	calls []call
}

type call struct {
	gen uint64
	at  time.Duration
}

func (f *fake) Name() model.SinkName     { return "fake" }
func (f *fake) Changed() <-chan struct{} { return f.changed }

func (f *fake) Close(ctx context.Context) error {
	f.closed = true
	if d, ok := ctx.Deadline(); ok && ctx.Err() == nil {
		f.left = time.Until(d)
	}
	return errors.New("closed")
}

// bed runs one driver in a bubble.
type bed struct {
	*announce.Runner
	driver *fake
	begin  time.Time
	stop   context.CancelFunc
	ended  chan error

	mu   sync.Mutex
	got  []model.Applied
	text bytes.Buffer
}

func run(t *testing.T, apply func(ctx context.Context, gen uint64) error, f func(t *testing.T, b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{begin: time.Now(), ended: make(chan error, 1)}
		b.driver = &fake{changed: make(chan struct{}, 1)}
		b.driver.apply = func(ctx context.Context, gen uint64) error {
			b.driver.mu.Lock()
			b.driver.calls = append(b.driver.calls, call{gen, time.Since(b.begin)})
			b.driver.mu.Unlock()
			if apply == nil {
				return nil
			}
			return apply(ctx, gen)
		}
		b.Runner = announce.NewRunner(b.driver, slog.New(slog.NewTextHandler(b, nil)), func(n model.SinkName, a model.Applied) {
			if n != "fake" {
				t.Errorf("report of %q", n)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.got = append(b.got, a)
		})
		ctx, cancel := context.WithCancel(t.Context())
		b.stop = cancel
		go func() { b.ended <- b.Run(ctx) }()
		defer func() { cancel(); synctest.Wait() }()
		f(t, b)
	})
}

func (f *fake) Apply(ctx context.Context, want *model.Desired) (model.Applied, error) {
	err := f.apply(ctx, want.Gen)
	return model.Applied{Gen: 99}, err
}

// Write takes the log.
func (b *bed) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *bed) logs() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *bed) reports() []model.Applied {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

func (b *bed) calls() []call {
	b.driver.mu.Lock()
	defer b.driver.mu.Unlock()
	return slices.Clone(b.driver.calls)
}

func (b *bed) gens() []uint64 {
	var out []uint64
	for _, c := range b.calls() {
		out = append(out, c.gen)
	}
	return out
}

func equal[T comparable](t *testing.T, what string, got []T, want ...T) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: got %v, want %v", what, got, want)
			return
		}
	}
}

// pass lets time pass until all have come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestNewestWins(t *testing.T) {
	slow := func(context.Context, uint64) error { time.Sleep(100 * time.Millisecond); return nil }
	run(t, slow, func(t *testing.T, b *bed) {
		synctest.Wait()
		if len(b.calls()) != 0 {
			t.Error("asked before there was anything to ask for")
		}
		b.Submit(&model.Desired{Gen: 1})
		synctest.Wait() // the driver has it
		for gen := uint64(2); gen <= 5; gen++ {
			b.Submit(&model.Desired{Gen: gen}) // never blocks
		}
		if d := time.Since(b.begin); d != 0 {
			t.Errorf("Submit took %s", d)
		}
		pass(time.Second)
		equal(t, "generations", b.gens(), 1, 5)
		for i, gen := range []uint64{1, 5} {
			if r := b.reports()[i]; r.Gen != gen || r.At.IsZero() || r.Err != "" {
				t.Errorf("report %+v, want generation %d", r, gen)
			}
		}
	})
}

func TestRetryBacksOff(t *testing.T) {
	var failing atomic.Bool
	failing.Store(true)
	fail := func(context.Context, uint64) error {
		if failing.Load() {
			return errors.New("no")
		}
		return nil
	}
	run(t, fail, func(t *testing.T, b *bed) {
		b.Submit(&model.Desired{Gen: 1})
		pass(20 * time.Second)
		var pauses []time.Duration
		calls := b.calls()
		for i, c := range calls[1:] {
			pauses = append(pauses, c.at-calls[i].at)
		}
		ms := time.Millisecond
		equal(t, "pauses", pauses, 50*ms, 100*ms, 200*ms, 400*ms, 800*ms, 1600*ms, 3200*ms, 5000*ms, 5000*ms)
		if r := b.reports()[0]; r.Err != "no" || r.Gen != 1 {
			t.Errorf("a failure is a report too: %+v", r)
		}
		// Success ends it, and the next failure begins with the short pause.
		failing.Store(false)
		pass(5 * time.Second)
		n := len(b.calls())
		pass(10 * time.Second)
		if len(b.calls()) != n {
			t.Error("asked again after a success")
		}
		failing.Store(true)
		b.Submit(&model.Desired{Gen: 2})
		pass(60 * time.Millisecond)
		equal(t, "generations", b.gens()[n:], 2, 2)
		// The log tells each change once.
		failing.Store(false)
		pass(time.Second)
		if n := strings.Count(b.logs(), "driver fails"); n != 2 {
			t.Errorf("%d times that it fails:\n%s", n, b.logs())
		}
		if n := strings.Count(b.logs(), "works again"); n != 2 {
			t.Errorf("%d times that it works:\n%s", n, b.logs())
		}
	})
}

func TestChangedAndResync(t *testing.T) {
	run(t, nil, func(t *testing.T, b *bed) {
		b.driver.changed <- struct{}{} // before there is a Desired
		synctest.Wait()
		b.Submit(&model.Desired{Gen: 1})
		synctest.Wait()
		b.driver.changed <- struct{}{}
		synctest.Wait()
		equal(t, "generations", b.gens(), 1, 1)
		pass(29 * time.Second)
		equal(t, "generations", b.gens(), 1, 1)
		pass(2 * time.Second)
		equal(t, "generations", b.gens(), 1, 1, 1)
		pass(30 * time.Second)
		equal(t, "generations", b.gens(), 1, 1, 1, 1)
	})
}

func TestStuckDriver(t *testing.T) {
	stuck := func(ctx context.Context, gen uint64) error {
		if gen == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	run(t, stuck, func(t *testing.T, b *bed) {
		b.Submit(&model.Desired{Gen: 1})
		pass(time.Second)
		b.Submit(&model.Desired{Gen: 2})
		pass(3900 * time.Millisecond)
		equal(t, "generations", b.gens(), 1)
		pass(200 * time.Millisecond)
		equal(t, "generations", b.gens(), 1, 2)
		if r := b.reports()[0]; r.Gen != 1 || r.Err == "" {
			t.Errorf("the driver was stuck: %+v", r)
		}
	})
}

func TestCloseOnEnd(t *testing.T) {
	for _, busy := range []bool{false, true} {
		wait := func(ctx context.Context, _ uint64) error {
			if busy {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		run(t, wait, func(t *testing.T, b *bed) {
			b.Submit(&model.Desired{Gen: 1})
			synctest.Wait()
			reports := len(b.reports())
			b.stop()
			synctest.Wait()
			select {
			case err := <-b.ended:
				if err == nil || err.Error() != "closed" {
					t.Errorf("Run returned %v, want what Close did", err)
				}
			default:
				t.Fatal("Run goes on")
			}
			if !b.driver.closed || b.driver.left != 5*time.Second {
				t.Errorf("closed %v with %s left", b.driver.closed, b.driver.left)
			}
			if len(b.reports()) != reports {
				t.Error("an Apply that was broken off is no report")
			}
			if strings.Contains(b.logs(), "driver fails") {
				t.Errorf("stopping is no failure:\n%s", b.logs())
			}
			b.Submit(&model.Desired{Gen: 2}) // nobody listens; it must not block
		})
	}
}
