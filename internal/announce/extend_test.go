package announce_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
)

// patient is a fake that can be extended.
type patient struct {
	*fake
	mu       sync.Mutex
	refuses  bool
	extended []time.Time
	given    []time.Time // ValidUntil of what was applied
}

func (p *patient) Extend(until time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses {
		return false
	}
	p.extended = append(p.extended, until)
	return true
}

func (p *patient) Apply(ctx context.Context, want *model.Desired) (model.Applied, error) {
	p.mu.Lock()
	p.given = append(p.given, want.ValidUntil)
	p.mu.Unlock()
	return p.fake.Apply(ctx, want)
}

// TestExtend: a driver is asked to go on instead of being given the same again, but
// only if what it was given last is in force.
func TestExtend(t *testing.T) {
	var fails atomic.Bool
	run(t, func(_ context.Context, gen uint64) error {
		if gen == 7 {
			time.Sleep(10 * time.Millisecond)
		}
		if fails.Load() {
			return errors.New("fails")
		}
		return nil
	}, func(t *testing.T, b *bed) {
		p := &patient{fake: &fake{changed: make(chan struct{}, 1), apply: b.driver.apply}}
		r := announce.NewRunner(p, slog.New(slog.NewTextHandler(b, nil)), func(model.SinkName, model.Applied) {})
		go func() { _ = r.Run(t.Context()) }()
		at := func(after time.Duration) time.Time { return b.begin.Add(after) }
		want := func(gen uint64, until time.Duration) *model.Desired {
			return &model.Desired{Gen: gen, ValidUntil: at(until)}
		}
		count := func(what string, applied, extended int) {
			t.Helper()
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.given) != applied || len(p.extended) != extended {
				t.Errorf("%s: %d applied and %d extended, want %d and %d", what, len(p.given), len(p.extended), applied, extended)
			}
		}
		r.Extend(want(1, time.Second))
		count("nothing was applied before", 1, 0)
		r.Extend(want(2, 2*time.Second))
		count("in force", 1, 1)
		if !slices.Equal(p.extended, []time.Time{at(2 * time.Second)}) {
			t.Errorf("until %v", p.extended)
		}
		p.changed <- struct{}{}
		count("news of the driver", 2, 1)
		if p.given[1] != at(2*time.Second) {
			t.Errorf("it was given %s, which is not the newest", p.given[1])
		}
		p.mu.Lock()
		p.refuses = true
		p.mu.Unlock()
		r.Extend(want(3, 3*time.Second))
		count("the driver refuses", 3, 1)
		p.mu.Lock()
		p.refuses = false
		p.mu.Unlock()
		fails.Store(true)
		r.Submit(want(4, 4*time.Second))
		synctest.Wait()
		r.Extend(want(5, 5*time.Second))
		count("the last one failed", 5, 1)
		fails.Store(false)
		time.Sleep(time.Second) // it was tried again
		synctest.Wait()
		p.mu.Lock()
		n := len(p.given)
		p.mu.Unlock()
		r.Extend(want(6, 6*time.Second))
		count("it works again", n, 2)
		r.Submit(want(7, 6*time.Second))
		synctest.Wait() // it is being applied
		r.Extend(want(8, 7*time.Second))
		count("one is being applied", n+1, 2)
		time.Sleep(10 * time.Millisecond)
		count("which is followed by the newest", n+2, 2)
		time.Sleep(5 * time.Second)
		r.Extend(want(9, 8*time.Second))
		count("the truth was not looked at for long", n+3, 2)
		refused := func(what string) {
			t.Helper()
			time.Sleep(20 * time.Millisecond)
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.extended) != 2 {
				t.Errorf("%s: extended", what)
			}
		}
		r.Submit(want(10, 9*time.Second))
		r.Extend(want(11, 9*time.Second))
		refused("one waits to be applied")
		r.Submit(want(7, 10*time.Second))
		time.Sleep(20 * time.Millisecond)
		p.changed <- struct{}{} // it is slow, and is applied again
		synctest.Wait()
		r.Extend(want(12, 11*time.Second))
		refused("it is being applied again")
	})
}

// TestExtendWithoutExtender: a driver that cannot be extended is given it all.
func TestExtendWithoutExtender(t *testing.T) {
	run(t, nil, func(t *testing.T, b *bed) {
		for gen := range uint64(3) {
			b.Extend(&model.Desired{Gen: gen + 1})
			synctest.Wait()
		}
		if n := len(b.reports()); n != 3 {
			t.Errorf("%d reports", n)
		}
	})
}
