package announce

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

// Timing of a Runner. Apply is idempotent, so asking again costs little.
const (
	// applyTimeout bounds one Apply; a driver that is stuck for longer is asked
	// again, and delays nobody else.
	applyTimeout = 5 * time.Second
	// retryMin and retryMax bound the pause after a failed Apply.
	retryMin = 50 * time.Millisecond
	retryMax = 5 * time.Second
	// resync is how often the truth is looked at without a cause.
	resync = 30 * time.Second
	// relook is the same while decisions are extended.
	relook = 5 * time.Second
)

// Runner drives one Driver from one goroutine: the newest Desired wins, a failed
// Apply is tried again with growing pauses, the truth is looked at from time to
// time, and every report is handed on.
type Runner struct {
	driver Driver
	log    *slog.Logger
	report func(model.SinkName, model.Applied)

	mu      sync.Mutex
	want    *model.Desired
	applied *model.Desired // last that was applied without an error; nil while one is
	looked  time.Time      // when it was
	kick    chan struct{}  // of 1: there is something to do

	lastErr string
}

// NewRunner returns a runner that is started by Run. The report function must
// not block for long.
func NewRunner(d Driver, log *slog.Logger, report func(model.SinkName, model.Applied)) *Runner {
	return &Runner{driver: d, log: log.With("driver", string(d.Name())), report: report, kick: make(chan struct{}, 1)}
}

// Submit hands over a Desired that must not be changed any more. It never
// blocks; one that has not been applied yet is replaced.
func (r *Runner) Submit(d *model.Desired) {
	r.mu.Lock()
	r.want = d
	r.mu.Unlock()
	wake.Up(r.kick)
}

// Extend hands over a Desired that asks this driver for what the one before does:
// only the time has passed. It never blocks.
func (r *Runner) Extend(d *model.Desired) {
	e, ok := r.driver.(Extender)
	if ok && r.extend(d, e) {
		return
	}
	r.Submit(d)
}

func (r *Runner) extend(d *model.Desired, e Extender) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.applied == nil || r.applied != r.want || time.Since(r.looked) >= relook || !e.Extend(d.ValidUntil) {
		return false
	}
	r.want, r.applied = d, d
	return true
}

// Run applies until ctx ends, then closes the driver.
func (r *Runner) Run(ctx context.Context) error {
	retry := time.NewTimer(resync)
	defer retry.Stop()
	pause := retryMin
	for {
		select {
		case <-ctx.Done():
			c, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
			defer cancel()
			return r.driver.Close(c)
		case <-r.kick:
		case <-r.driver.Changed():
		case <-retry.C:
		}
		r.mu.Lock()
		want := r.want
		r.applied, r.looked = nil, time.Now()
		r.mu.Unlock()
		if want == nil {
			continue
		}
		err := r.apply(ctx, want)
		r.mu.Lock()
		if err == nil {
			r.applied = want
		}
		r.mu.Unlock()
		if err != nil {
			retry.Reset(pause)
			pause = min(2*pause, retryMax)
			continue
		}
		pause = retryMin
		retry.Reset(resync)
	}
}

// apply runs the driver once and hands on what it reports.
func (r *Runner) apply(ctx context.Context, want *model.Desired) error {
	c, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	got, err := r.driver.Apply(c, want)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err // stopping
	}
	got.Gen = want.Gen
	got.At = time.Now()
	text := ""
	if err != nil {
		text = err.Error()
	}
	got.Err = text
	if text != r.lastErr {
		if text == "" {
			r.log.Info("driver works again")
		} else {
			r.log.Warn("driver fails", "err", text)
		}
		r.lastErr = text
	}
	r.report(r.driver.Name(), got)
	return err
}
