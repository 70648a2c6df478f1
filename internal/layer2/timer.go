package layer2

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/wake"
)

// run is the one timer of all VIPs.
func (d *Driver) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(d.nextIn())
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		case <-timer.C:
			d.fire()
		}
	}
}

// nextIn is the time to the earliest deadline.
func (d *Driver) nextIn() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.conflicts.due
	if len(d.queue) > 0 && (next.IsZero() || d.queue[0].due.Before(next)) {
		next = d.queue[0].due
	}
	now := time.Now()
	for _, l := range d.lines {
		if at := l.next(now); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() {
		return time.Hour
	}
	return next.Sub(now)
}

// rouse makes run look at the earliest deadline again.
func (d *Driver) rouse() { wake.Up(d.wake) }

// fire does everything that is due by now. What falls due meanwhile is for the next
// time: where sending is slow there would be no end, and nobody else gets the lock.
func (d *Driver) fire() {
	var over []ending
	d.mu.Lock()
	if d.conflicts.waited(time.Now()) {
		d.notify()
	}
	for begin := time.Now(); ; {
		d.alive()
		if len(d.queue) == 0 {
			break
		}
		e, now := d.queue[0], time.Now()
		if begin.Before(e.due) {
			break
		}
		if d.stepProbe(e, now) {
			over = append(over, ending{e, e.port})
			d.queue.remove(e) // conclude puts it back
			continue
		}
		if e.burst.on {
			d.stepAnnounce(e, now)
			d.stepInquiry(e, now)
		}
		d.queue.update(e)
	}
	_ = d.pump() // fail tells it; series may have been answered
	for _, l := range d.lines {
		d.release(l)
	}
	d.mu.Unlock()
	if len(over) > 0 {
		d.conclude(over)
	}
}

// release sends what waits in a line as far as it has room. What waited while the process
// did not run is left to the next decision.
func (d *Driver) release(l *line) {
	began := time.Now()
	stood := began.Sub(l.looked) > maxLate
	n := l.look(began)
	if stood {
		n = l.count()
	}
	for ; n > 0 && time.Since(began) <= maxLate; n-- {
		d.alive()
		t, any := l.pop()
		if !any {
			return
		}
		e, now := t.entry, time.Now()
		switch {
		case t.asks && stood:
			e.inquiry.next = now.Add(askAgain)
		case t.asks:
			d.inquire(e, now)
		default:
			d.repeat(e, stood, now)
		}
		d.queue.update(e)
	}
}

// send puts a frame on the wire. An error that a new socket may mend marks the
// port as broken.
func (d *Driver) send(p *openPort, frame []byte) error {
	err := p.Send(frame)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
		p.broken = true
	}
	return fmt.Errorf("interface %q: send: %w", p.link.Name, err)
}

// fail stops what the entry was doing after an error between two calls of Apply;
// the next one tries again.
func (d *Driver) fail(e *entry, err error) {
	d.counters.errors.Add(1)
	e.fault(d, err)
	e.quiet()
	d.notify()
}

// quiet stops announcing and probing.
func (e *entry) quiet() {
	e.burst, e.series, e.inquiry = burst{}, series{}, inquiry{}
	e.conflict.defend = time.Time{}
}

// looks is how often in a standstill the process looks at the clock. A timer that is
// late by two thirds of it is taken for one.
const looks = 3

// clock finds out whether the process stood still. It has a lock of its own that is
// never held for long: whoever is busy with the network holds up no look.
type clock struct {
	limit time.Duration // a standstill
	kick  chan struct{} // on has changed

	mu     sync.Locker
	on     bool // somebody relies on it
	ran    time.Time
	lapses uint64
}

// allow sets what is not yet a standstill.
func (c *clock) allow(limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = limit
}

// look notes that the process runs, and returns how often it was found that it had
// not for too long.
func (c *clock) look() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now() // with the lock: no look is older than the one before
	if c.on && now.Sub(c.ran) >= c.limit {
		c.lapses++
	}
	c.ran = now
	return c.lapses
}

// count is what look returned last.
func (c *clock) count() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lapses
}

// set begins or ends the looking. What was before it began does not count.
func (c *clock) set(on bool) {
	c.mu.Lock()
	changed := on != c.on
	if changed {
		c.on, c.ran = on, time.Now()
	}
	c.mu.Unlock()
	if !changed {
		return
	}
	wake.Up(c.kick)
}

// pause is the time to the next look.
func (c *clock) pause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.on {
		return time.Hour
	}
	return c.limit / looks
}

// watch looks while anything is answered for.
func (d *Driver) watch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for known := uint64(0); ; {
		timer.Reset(d.clock.pause())
		select {
		case <-ctx.Done():
			return
		case <-d.clock.kick:
		case <-timer.C:
		}
		if now := d.clock.look(); now != known {
			known = now
			d.mu.Lock()
			d.alive()
			d.mu.Unlock()
		}
	}
}
