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
	// lastingShare is how many series that last run for each short one that may. They
	// send as much in three times the time; and meanwhile nobody answers for the VIP.
	lastingShare = 4 // some 6000 probes a second
)

// backlog are the series that are asked for and have not begun. Driver.mu guards it.
type backlog struct {
	limit          int // of short series that run at once
	short, lasting lane
}

// lane are series that take about the same time. Those of one kind do not wait for the
// other.
type lane struct {
	lasts   bool // see model.L2Advert
	share   int  // how many may run, times the limit
	running map[*entry]struct{}
	// Those that wait may name some that wait no more. The first ones are of what is
	// bound.
	first, waiting []*entry
}

func newBacklog() backlog {
	return backlog{
		limit:   firstSeries,
		short:   lane{share: 1, running: make(map[*entry]struct{})},
		lasting: lane{lasts: true, share: lastingShare, running: make(map[*entry]struct{})},
	}
}

func (b *backlog) lane(e *entry) *lane {
	if e.series.lasts > 0 {
		return &b.lasting
	}
	return &b.short
}

func (b *backlog) add(e *entry) {
	l := b.lane(e)
	if e.want.Unbound {
		l.waiting = somewhere(l.waiting, e)
	} else {
		l.first = somewhere(l.first, e)
	}
}

// somewhere adds an entry at a place by chance: of several nodes that ask for the same
// VIPs each begins elsewhere.
func somewhere(all []*entry, e *entry) []*entry {
	all = append(all, e)
	last := len(all) - 1
	i := rand.IntN(last + 1)
	all[i], all[last] = all[last], all[i]
	return all
}

// next are the entries that wait and may begin now.
func (b *backlog) next() []*entry {
	return append(b.short.next(b.limit), b.lasting.next(b.limit)...)
}

func (l *lane) next(limit int) (begin []*entry) {
	if len(l.first)+len(l.waiting) == 0 {
		return nil
	}
	for free := limit*l.share - l.count(); free > 0; free-- {
		e := l.pop()
		if e == nil {
			break
		}
		e.series.waits = false
		l.running[e] = struct{}{}
		begin = append(begin, e)
	}
	return begin
}

// pop takes the next entry that waits here; nil if none does.
func (l *lane) pop() *entry {
	for _, all := range [...]*[]*entry{&l.first, &l.waiting} {
		for len(*all) > 0 {
			last := len(*all) - 1
			e := (*all)[last]
			(*all)[last] = nil
			*all = (*all)[:last]
			if e.series.waits && l.has(e) {
				return e
			}
		}
	}
	return nil
}

func (l *lane) has(e *entry) bool { return l.lasts == (e.series.lasts > 0) }

// crowded tells whether more series like that of the entry run than may.
func (b *backlog) crowded(e *entry) bool {
	l := b.lane(e)
	return l.count() > b.limit*l.share
}

// count is how many series run.
func (l *lane) count() int {
	for e := range l.running {
		if !e.series.running() || !l.has(e) {
			delete(l.running, e)
		}
	}
	return len(l.running)
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
// What fails leaves its place to the next one.
func (d *Driver) pump() error {
	var errs []error
	for begin := d.backlog.next(); len(begin) > 0; begin = d.backlog.next() {
		for _, e := range begin {
			if err := d.probe(e, time.Now()); err != nil {
				d.fail(e, err)
				errs = append(errs, err)
			}
			d.queue.update(e)
		}
	}
	return errors.Join(errs...)
}
