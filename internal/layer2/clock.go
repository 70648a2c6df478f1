package layer2

import (
	"context"
	"sync"
	"time"
)

// looks is how often in a standstill the process looks at the clock. A timer that is
// late by two thirds of it is taken for one.
const looks = 3

// clock finds out whether the process stood still. It has a lock of its own that is
// never held for long: whoever is busy with the network holds up no look.
type clock struct {
	limit time.Duration // a standstill
	kick  chan struct{} // on has changed

	mu     sync.Mutex
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
	select {
	case c.kick <- struct{}{}:
	default:
	}
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
