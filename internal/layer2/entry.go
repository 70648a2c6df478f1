package layer2

import (
	"container/heap"
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/model"
)

// entry is what the driver knows of one VIP. It is guarded by Driver.mu.
type entry struct {
	want   model.L2Advert
	port   *openPort // where its frames go; nil while it cannot send
	router bool      // flag of its IPv6 advertisements

	burst     burst
	series    series
	result    model.ProbeResult // of the newest series that has ended
	conflict  conflict
	inquiry   inquiry
	silent    bool // the rules may be in force
	answers   meter
	tooLate   bool // to begin to respond, with the burst lateBurst
	lateBurst uint64
	err       string // in words; empty if none

	due time.Time // earliest deadline; zero: none
	pos int       // in the queue; meaningless while due is zero
}

// report is what Apply returns for the VIP.
func (e *entry) report() model.AppliedVIP {
	return model.AppliedVIP{
		Interface:  e.want.Interface,
		Announcing: e.burst.on,
		Silent:     e.silent && silenced(&e.want),
		TooLate:    e.tooLate,
		Probe:      e.result,
		Conflicts:  e.conflict.count,
		Foreign:    e.conflict.foreign,
		Duplicate:  e.inquiry.by,
		Err:        e.err,
	}
}

// report is what Apply has told last. The map is never changed.
type report struct {
	vips   map[netip.Addr]model.AppliedVIP
	marked int // of them another host answers for
}

// still tells whether all entries are as they were told.
func (r *report) still(entries map[netip.Addr]*entry) bool {
	for a, e := range entries {
		if was, known := r.vips[a]; !known || was != e.report() {
			return false
		}
	}
	return len(r.vips) == len(entries)
}

// deadline is the earliest moment at which the entry has something to do; zero if
// never.
func (e *entry) deadline() time.Time {
	var first time.Time
	next, ask := e.burst.next, e.inquiry.next
	if next == e.burst.held {
		next = time.Time{}
	}
	if ask == e.inquiry.held {
		ask = time.Time{}
	}
	for _, t := range [...]time.Time{e.series.wait, next, e.conflict.defend, ask} {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// queue orders the entries that wait for something by deadline.
type queue []*entry

// update puts the entry where its deadline belongs; it is called after each
// change of an entry.
func (q *queue) update(e *entry) {
	was, at := !e.due.IsZero(), e.deadline()
	if at == e.due {
		return
	}
	e.due = at
	switch is := !e.due.IsZero(); {
	case is && was:
		heap.Fix(q, e.pos)
	case is:
		heap.Push(q, e)
	case was:
		heap.Remove(q, e.pos)
	}
}

// remove takes the entry out for good.
func (q *queue) remove(e *entry) {
	if !e.due.IsZero() {
		heap.Remove(q, e.pos)
		e.due = time.Time{}
	}
}

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].pos, q[j].pos = i, j
}

func (q *queue) Push(x any) {
	e := x.(*entry)
	e.pos = len(*q)
	*q = append(*q, e)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}

// An interface sends some 1000 frames of ARP and ND in the busiest second once all
// addresses have been announced: switches are told to drop what goes beyond that at a port. Only
// what can wait does so: repetitions of announcements, refreshes and inquiries. First announcements,
// probes and defences are sent at once, and counted.
const (
	// paceRate is frames a second, paceBurst those that go together after a calm.
	paceRate  = 800
	paceBurst = 200
	// paceDebt is how much of what is sent at once others make up for: a second's worth.
	paceDebt = paceRate
	// paceLeast is how many go in a second all the same if there is no calm.
	paceLeast = 80
	// paceBatch is how many go at once where many wait: each time wakes every node.
	paceBatch = 100
	// paceBound is how many of what is bound in a second do not wait either: the bursts
	// of 20 addresses, such as that of the API server.
	paceBound = 100
)

// line is what an interface may send, and what waits for that. It holds turns, not
// frames: of what was lost, or has begun anew meanwhile, nothing is sent.
type line struct {
	left      float64 // frames; below zero after what could not wait
	filled    time.Time
	again     []turn // repetitions, the oldest first
	refreshes []turn // and inquiries, the oldest first
	looked    time.Time
	went      time.Time // when it had room last, or began to hold anything
	bound     meter
}

// turn is something that waits since it was due.
type turn struct {
	entry         *entry
	due           time.Time
	refresh, asks bool
}

// void tells whether what waited is not to be sent any more.
func (t *turn) void() bool {
	if t.asks {
		return t.entry.inquiry.next != t.due
	}
	return t.entry.burst.next != t.due
}

// lineOf is the line of the interface of an entry.
func (d *Driver) lineOf(e *entry) *line {
	l := d.lines[e.want.Interface]
	if l == nil {
		l = &line{left: paceBurst, filled: time.Now()}
		d.lines[e.want.Interface] = l
	}
	return l
}

// free tells whether an entry need not wait for its turn.
func (l *line) free(e *entry, now time.Time) bool {
	return !e.want.Respond && !l.bound.over(now, paceBound)
}

func (l *line) add(t turn, now time.Time) {
	if l.count() == 0 {
		l.looked, l.went = now, now
	}
	if t.refresh {
		l.refreshes = append(l.refreshes, t)
	} else {
		l.again = append(l.again, t)
	}
}

func (l *line) count() int { return len(l.again) + len(l.refreshes) }

// pop takes the oldest of what waits. Repetitions go before the refreshes that were not
// due long before them.
func (l *line) pop() (t turn, any bool) {
	for l.count() > 0 {
		from := &l.again
		if r := l.refreshes; len(l.again) == 0 || len(r) > 0 && l.again[0].due.Sub(r[0].due) > refreshInterval {
			from = &l.refreshes
		}
		t, (*from)[0] = (*from)[0], turn{}
		*from = (*from)[1:]
		if !t.void() {
			return t, true
		}
	}
	return turn{}, false
}

// room is how many frames may be sent now.
func (l *line) room(now time.Time) float64 {
	if since := now.Sub(l.filled); since > 0 {
		l.left, l.filled = min(paceBurst, l.left+since.Seconds()*paceRate), now
	}
	return l.left
}

// pay counts a frame.
func (l *line) pay(now time.Time) { l.left = max(l.room(now)-1, -paceDebt) }

// look tells how many of those that wait may go now.
func (l *line) look(now time.Time) int {
	l.looked = now
	n := int(l.room(now))
	if n <= 0 && now.Sub(l.went) >= time.Second {
		n = paceLeast
	}
	if n > 0 {
		l.went = now
	}
	return n
}

// next is when to look again; zero if nothing waits. Who looks is not late, see release.
func (l *line) next(now time.Time) time.Time {
	if l.count() == 0 {
		return time.Time{}
	}
	at := now
	if need := float64(min(l.count(), paceBatch)) - l.room(now); need > 0 {
		at = now.Add(time.Duration(need/paceRate*float64(time.Second)) + time.Millisecond)
	}
	if last := l.looked.Add(maxLate / 4); last.Before(at) {
		return last
	}
	return at
}
