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
	for _, t := range [...]time.Time{e.series.wait, e.burst.next, e.conflict.defend, e.inquiry.next} {
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
