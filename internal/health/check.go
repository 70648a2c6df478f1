package health

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"lbd.dev/lbd/internal/model"
)

const (
	// retrySpacing is the time between the starts of a check that failed at once,
	// such as by a refused connection, and the next one. It is long enough for a
	// listener to be replaced and short enough to cost nothing in a failover.
	retrySpacing = 50 * time.Millisecond
	// retryRest is the pause after a check that failed slowly, by its timeout: the
	// service had its chance for longer than retrySpacing.
	retryRest = 10 * time.Millisecond
	// detailEvery limits how often a new Detail alone is published, and how soon after a
	// failure that moved nothing it is over; each publication costs a decision.
	detailEvery = time.Second
	// stallGrace is how far beyond its timeout a check may end. Beyond that it was
	// this process that did not run (SIGSTOP, a starved or suspended machine), and
	// the failure says nothing about the service.
	stallGrace = 250 * time.Millisecond
)

// prober asks the service once. It returns nil if the service is well; the text
// of an error is the Detail that people read, so it must not contain what
// differs from one attempt to the next; a degraded one is that of a service that is not
// well, but may be used. It obeys the deadline of ctx, and is not
// called concurrently.
type prober interface {
	probe(ctx context.Context) error
}

// resident is a prober that leaves a connection to the service open between two
// probes.
type resident interface {
	// lost delivers when the service has ended that connection; nil if there is none.
	lost() <-chan struct{}
	// drop ends it from this side.
	drop()
}

// result is one run of a check and the state after it.
type result struct {
	state model.HealthState
	took  time.Duration
	err   error
}

// check runs one prober on schedule.
type check struct {
	interval, timeout time.Duration
	phase             func(interval time.Duration) time.Duration
	prober            prober
	server            *forwarded // nil: nothing is forwarded to it
	debounce          debouncer
	log               func() *slog.Logger // names those that ask for it now
	report            func(result)

	state    model.HealthState // as reported last
	told     time.Time         // when state was last reported with a difference
	stalled  bool              // the last run was discarded
	nextTick time.Time         // on the grid of the interval
	// hasty: the last probe was made since the service had ended a connection.
	hasty bool
}

// run probes until ctx ends, the first time at once.
func (c *check) run(ctx context.Context) {
	if r, ok := c.prober.(resident); ok {
		defer r.drop()
	}
	c.nextTick = time.Now().Add(c.phase(c.interval))
	for ctx.Err() == nil {
		began := time.Now()
		c.wait(ctx, began, c.once(ctx))
	}
}

// wait waits until it is time to probe again after a probe that began then. A
// service that ends the connection that the probe left open has most likely died
// and is asked at once, but not twice in a row: one that ends every connection
// after its answer would be asked without end.
func (c *check) wait(ctx context.Context, began, next time.Time) {
	var lost <-chan struct{}
	r, ok := c.prober.(resident)
	if ok && !c.hasty {
		lost = r.lost()
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	c.hasty = false
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-lost:
		r.drop()
		c.hasty = true
		timer.Reset(time.Until(began.Add(retrySpacing)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
}

// once probes, reports, and returns when to probe again.
func (c *check) once(ctx context.Context) time.Time {
	began := time.Now()
	probeCtx, cancel := context.WithTimeout(ctx, c.timeout)
	err := c.prober.probe(probeCtx)
	cancel()
	if c.server != nil && (err == nil || isDegraded(err)) {
		err = cmp.Or(c.server.missed(), err)
	}
	ended := time.Now()
	if ctx.Err() != nil {
		return ended // run returns; a result cut short is none
	}
	if err != nil && !c.stalled && ended.Sub(began) > c.timeout+stallGrace {
		c.stalled = true
		c.log().Debug("health check discarded: this process did not run", "err", err)
		return ended.Add(retryRest)
	}
	c.stalled = false
	c.conclude(err, ended, ended.Sub(began))
	return c.next(began, ended)
}

// next is when to probe again after a run that began and ended then: on the
// grid, or earlier while the service seems to be falling.
func (c *check) next(began, ended time.Time) time.Time {
	if !c.nextTick.After(ended) {
		missed := ended.Sub(c.nextTick) / c.interval
		c.nextTick = c.nextTick.Add((missed + 1) * c.interval)
	}
	if !c.debounce.falling() {
		return c.nextTick
	}
	return model.Latest(ended.Add(retryRest), began.Add(retrySpacing))
}

// conclude counts a run and reports it.
func (c *check) conclude(err error, now time.Time, took time.Duration) {
	level := model.HealthUp
	switch {
	case isDegraded(err):
		level = model.HealthDegraded
	case err != nil:
		level = model.HealthDown
	}
	turned := c.debounce.observe(level)
	detail := ""
	if err != nil {
		detail = err.Error()
		c.log().Debug("health check failed", "err", err)
	}
	switch {
	case turned:
		c.state = model.HealthState{State: c.debounce.state, Since: now, Detail: detail}
		c.told = now
		c.log().Info("health check is "+c.debounce.state.String(), "reason", detail)
	case c.debounce.state.Passes() && c.debounce.fails > 0:
		if c.state.Failing == "" {
			c.state.Failing, c.told = detail, now
		}
	case c.state.Failing != "" && now.Sub(c.told) >= detailEvery:
		c.state.Failing, c.told = "", now
	case c.debounce.state != model.HealthUp && err != nil && detail != c.state.Detail && now.Sub(c.told) >= detailEvery:
		c.state.Detail = detail
		c.told = now
	}
	c.report(result{state: c.state, took: took, err: err})
}
