package bfd

import "time"

const (
	shortUp   = time.Second            // an Up that ends sooner is a flap
	firstHold = 100 * time.Millisecond // after the second flap in a row; doubled by each that follows
	longHold  = 5 * time.Second        // at most
	quiet     = time.Minute            // without a flap until they are counted anew
)

// damper holds a session in Down for a while after it was Up for a moment only.
//
// RFC 5880 section 6.8.7 has each change of state told at once, and section
// 6.8.6 has it acted on at once. Two ends that run too seldom to keep up then
// answer what the other has left long ago, and each answer is as stale as what
// it answers: Down, Init and Up go round for ever, as fast as the ends can. A
// session that stays in Down changes nothing and so says nothing new, whatever
// it hears, until the stale packets have run out. To the peer it looks as if its
// packets were lost on the way; Polls are answered all the time. RFC 5882
// section 3.1 leaves such hysteresis to the implementation. An Up that lasted is
// not held: a path that fails and is repaired comes back as fast as ever.
type damper struct {
	until   time.Time // Down until then
	heard   bool      // a packet came meanwhile
	flaps   int       // in a row
	flapped time.Time // the last one
}

// ended learns that the session left Up at now, where it was since. A single
// flap is not held: it may be a path that failed right after it came up.
func (d *damper) ended(since, now time.Time) {
	if now.Sub(since) >= shortUp {
		return
	}
	if now.Sub(d.flapped) >= quiet {
		d.flaps = 0
	}
	hold := time.Duration(0)
	if d.flaps > 0 {
		hold = min(firstHold<<min(d.flaps-1, 16), longHold)
	}
	d.flaps++
	d.flapped, d.until = now, now.Add(hold)
}

// holds tells whether the session has to stay in Down, of which a packet was
// heard now. The newest one counts when that is over.
func (d *damper) holds(now time.Time) bool {
	d.heard = now.Before(d.until)
	return d.heard
}

// release ends the hold when it is time, with what the peer said last.
func (m *machine) release(now time.Time) {
	if m.damper.heard && !now.Before(m.damper.until) {
		m.damper.heard = false
		m.follow(now, m.remote.State)
	}
}
