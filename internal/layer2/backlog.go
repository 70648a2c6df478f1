package layer2

import (
	"errors"
	"math/rand/v2"
	"time"
)

// How many series of probes run at once. A node that starts may have thousands of
// VIPs to ask for: sent at once they would flood the LAN, and while the last probes
// are sent the answers to the first would come too late to prove anything, again and
// again. So the number falls when series end late and rises while they do not.
const (
	mostSeries  = 64 // some 4000 probes a second
	leastSeries = 8
	firstSeries = 32
)

// backlog are the series that are asked for and have not begun. Driver.mu guards it.
type backlog struct {
	limit   int                 // of series that run at once
	running map[*entry]struct{} // those that ran when it was last looked
	waiting []*entry            // may name some that wait no more
}

func newBacklog() backlog { return backlog{limit: firstSeries, running: make(map[*entry]struct{})} }

// add puts an entry at a place by chance: of several nodes that ask for the same
// VIPs each begins elsewhere.
func (b *backlog) add(e *entry) {
	b.waiting = append(b.waiting, e)
	last := len(b.waiting) - 1
	i := rand.IntN(last + 1)
	b.waiting[i], b.waiting[last] = b.waiting[last], b.waiting[i]
}

// next takes an entry that waits, if one more series may run; nil if none.
func (b *backlog) next() *entry {
	if len(b.waiting) == 0 {
		return nil
	}
	if b.count() >= b.limit {
		return nil
	}
	for len(b.waiting) > 0 {
		last := len(b.waiting) - 1
		e := b.waiting[last]
		b.waiting[last] = nil
		b.waiting = b.waiting[:last]
		if e.series.waits {
			b.running[e] = struct{}{}
			return e
		}
	}
	return nil
}

// crowded tells whether more series run than may.
func (b *backlog) crowded() bool { return b.count() > b.limit }

// count is how many series run.
func (b *backlog) count() int {
	for e := range b.running {
		if !e.series.running() {
			delete(b.running, e)
		}
	}
	return len(b.running)
}

// ended notes that a series has ended, in time or too late to be believed.
func (b *backlog) ended(late bool) {
	if late {
		b.limit = max(b.limit/2, leastSeries)
	} else {
		b.limit = min(b.limit+1, mostSeries)
	}
}

// pump begins series that wait, as many as may run, and tells what could not be sent.
func (d *Driver) pump() error {
	var errs []error
	for e := d.backlog.next(); e != nil; e = d.backlog.next() {
		e.series.waits = false
		if err := d.probe(e, time.Now()); err != nil {
			d.fail(e, err)
			errs = append(errs, err)
		}
		d.queue.update(e)
	}
	return errors.Join(errs...)
}
