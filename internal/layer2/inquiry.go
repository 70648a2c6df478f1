package layer2

import (
	"time"

	"lbd.dev/lbd/internal/model"
)

// Who announces a VIP asks for it now and then: a host that has it, too, and does not
// announce it is heard by nobody else than the clients whom it answers first.
const (
	// askAfter is when an owner asks first, at the last moment of burstAt: a former owner,
	// which answers until it has heard of this one, is silent by then.
	askAfter = 4 * time.Second
	// askAgain is how often it asks while another host answers, to see the end of that.
	askAgain = 5 * time.Second
	// askEach spreads these questions over many VIPs, since all who have one answer each: one
	// question in this time, but each VIP at least as often as one for which nobody answers.
	askEach = 250 * time.Millisecond
	// askHeard is for how long what is heard counts as an answer.
	askHeard = time.Second
	// askMissed is how many questions in a row the other host leaves unanswered before it
	// counts as gone.
	askMissed = 2
)

// inquiry is what an owner knows by asking for its own VIP.
type inquiry struct {
	next   time.Time // when to ask; zero: not
	held   time.Time // the next that waits in the line already
	asked  time.Time
	by     model.MAC // who answers; zero if nobody does
	missed int       // questions since it was heard
	other  model.MAC // who else answered the last question; zero if nobody did
}

// heard notes a frame of another host that uses the VIP. Of several the first counts, as
// long as it answers: which of them is the quickest is not the same each time.
func (q *inquiry) heard(by model.MAC, now time.Time) {
	if q.asked.IsZero() || now.Sub(q.asked) > askHeard {
		return
	}
	switch q.by {
	case model.MAC{}:
		q.by, q.missed = by, 0
		q.next = now.Add(askAgain)
	case by:
		q.missed = 0
	default:
		q.other = by
	}
}

// stepInquiry asks when it is time, or has the question wait in the line.
func (d *Driver) stepInquiry(e *entry, now time.Time) {
	q := &e.inquiry
	if !e.burst.on || !due(q.next, now) || q.next == q.held {
		return
	}
	if l := d.lineOf(e); !l.free(e, now) {
		q.held = q.next
		l.add(turn{entry: e, due: q.next, refresh: true, asks: true}, now)
		return
	}
	d.inquire(e, now)
}

// inquire asks. An owner whose successor is told does not: that one has the VIP, too, and
// its answer would look like its announcement.
func (d *Driver) inquire(e *entry, now time.Time) {
	q := &e.inquiry
	if e.want.Yield || !now.Before(d.validUntil) {
		q.next = now.Add(askAgain)
		return
	}
	if q.by != (model.MAC{}) && q.missed >= askMissed {
		d.missed(e)
	}
	q.next = refresh(d.began, now)
	if pause := max(askAgain, time.Duration(d.told.marked)*askEach); q.by != (model.MAC{}) && pause < refreshInterval {
		q.next = now.Add(pause)
	}
	if !e.want.Addr.Is4() && !e.port.speaks.IsValid() {
		return // without a link-local address it cannot be asked by whom nothing else is disturbed
	}
	if err := d.ask(e, e.port.speaks); err != nil {
		d.fail(e, err)
		return
	}
	q.asked, q.other = now, model.MAC{}
	q.missed++
}

// missed has the mark go from a host that answers no more to another one that does.
func (d *Driver) missed(e *entry) {
	q := &e.inquiry
	text := "no other host answers for the VIP any more"
	if q.other != (model.MAC{}) {
		text = "a host answers for the VIP no more, but others do"
	}
	d.log.Info(text, "vip", e.want.Addr, "iface", e.want.Interface, "peer", q.by.String())
	q.by, q.missed = q.other, 0
	d.notify()
}

// speechless tells whether a VIP of IPv6 is to be asked for on an interface of which no
// link-local address is known yet.
func (d *Driver) speechless(want []model.L2Advert) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	var last string
	for i := range want {
		w := &want[i]
		if w.Mode != model.L2Announce || w.Addr.Is4() || w.Interface == last {
			continue
		}
		if p := d.ports[portKey{w.Interface, familyOf(w.Addr)}]; p == nil || !p.speaks.IsValid() {
			return true
		}
		last = w.Interface
	}
	return false
}
