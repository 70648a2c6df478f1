package layer2

import (
	"math/rand/v2"
	"time"

	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/model"
)

const (
	// refreshInterval repairs what every announcement of the burst missed (a
	// switch port that did not forward yet); neighbours ask at least that often
	// anyway.
	refreshInterval = 30 * time.Second
	// refreshJitter spreads the refreshes of many VIPs.
	refreshJitter = 6 * time.Second
	// refreshSlot is what they fall together in: a hundred frames one by one wake this
	// process, and those of the other nodes, for each of them.
	refreshSlot = 500 * time.Millisecond
	// maxLate is how late an announcement may be before it is left to the next
	// decision: a process that did not run so long may have lost the VIP.
	maxLate = time.Second
	// defendInterval bounds the defence of a VIP (RFC 5227 section 2.4; its 10 s
	// would leave clients with the wrong host for as long).
	defendInterval = time.Second
	// defendDelay leaves a planned successor, whose first announcement looks like
	// a conflict, the time to say so; then the VIP becomes silent here instead.
	defendDelay = 100 * time.Millisecond
	// conflictPause bounds how often conflicts make anybody decide, whoever causes them.
	conflictPause = 100 * time.Millisecond
	// conflictLogInterval bounds what a lasting conflict writes.
	conflictLogInterval = time.Minute
)

// burstAt are the moments of the announcements of a burst from its start: close
// together at first, because a lost one costs clients the time to the next.
var burstAt = [...]time.Duration{
	0, 50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 4 * time.Second,
}

// slot is the end of the slot of refreshes that t is in, on the clock of began.
func slot(began, t time.Time) time.Time {
	return t.Add(refreshSlot - t.Sub(began)%refreshSlot)
}

// burst is the schedule of announcements for one VIP.
type burst struct {
	on     bool // announcing
	number uint64
	start  time.Time
	sent   int       // announcements of the schedule that were sent or are past
	next   time.Time // zero: waits for Apply
	held   time.Time // the next that waits in the line already
}

// begin starts the schedule with the announcement that is sent at now, by a driver
// that began at began.
func (b *burst) begin(number uint64, began, now time.Time) {
	*b = burst{on: true, number: number, start: now}
	b.advance(began, now)
}

// advance is called when an announcement was sent.
func (b *burst) advance(began, now time.Time) {
	for b.sent++; b.sent < len(burstAt); b.sent++ {
		if next := b.start.Add(burstAt[b.sent]); next.After(now) {
			b.next = next
			return
		}
	}
	b.next = refresh(began, now)
}

// delayed has the rest of a burst as much later as what is due now.
func (b *burst) delayed(now time.Time) {
	if due(b.next, now) {
		b.start = b.start.Add(now.Sub(b.next))
	}
}

// refresh is when to repeat what is said now.
func refresh(began, now time.Time) time.Time {
	return slot(began, now.Add(refreshInterval-refreshJitter/2+rand.N(refreshJitter)))
}

// conflict is what was seen of foreign hosts that use an announced VIP.
type conflict struct {
	count    uint64
	foreign  model.MAC
	logged   time.Time
	told     time.Time // when it was last news
	defend   time.Time // when to defend; zero: not
	defended time.Time
}

// seen notes a frame and plans the defence, which is due at most once a second. A
// VIP that yields is not defended: whoever uses it may be the successor.
func (c *conflict) seen(by model.MAC, now time.Time, yield bool) {
	c.count++
	c.foreign = by
	if yield || !c.defend.IsZero() {
		return
	}
	c.defend = now.Add(defendDelay)
	if earliest := c.defended.Add(defendInterval); c.defend.Before(earliest) {
		c.defend = earliest
	}
}

// startAnnouncing begins a burst, or goes on with one that a late timer or an old
// decision has stopped. It does nothing for one that runs.
func (d *Driver) startAnnouncing(e *entry, validUntil time.Time) error {
	b, now := &e.burst, time.Now()
	if b.on && b.number == e.want.Burst && !b.next.IsZero() {
		return nil
	}
	if !validUntil.IsZero() && !now.Before(validUntil) {
		return errStale
	}
	if err := d.announce(e); err != nil {
		return err
	}
	if !b.on {
		d.log.Info("announcing", "vip", e.want.Addr, "iface", e.want.Interface)
	}
	if b.on && b.number == e.want.Burst {
		b.advance(d.began, now)
	} else {
		b.begin(e.want.Burst, d.began, now)
		e.inquiry.next = now.Add(askAfter)
	}
	return nil
}

// stepAnnounce sends what is due for an entry that announces, or has it wait in the line.
func (d *Driver) stepAnnounce(e *entry, now time.Time) {
	b, c := &e.burst, &e.conflict
	scheduled := due(b.next, now)
	defence := due(c.defend, now)
	if !defence && (!scheduled || b.next == b.held) || d.skip(e, now.Sub(e.due) > maxLate, now) {
		return
	}
	if l := d.lineOf(e); !defence && !l.free(e, now) {
		b.held = b.next
		l.add(turn{entry: e, due: b.next, refresh: b.sent >= len(burstAt)}, now)
		return
	}
	if err := d.announce(e); err != nil {
		d.fail(e, err)
		return
	}
	if defence {
		c.defend, c.defended = time.Time{}, now
		d.counters.defences.Add(1)
	}
	if scheduled {
		b.delayed(now)
		b.advance(d.began, now)
	}
}

// skip leaves it to the next decision to go on with what is late, or not decided on any more.
func (d *Driver) skip(e *entry, late bool, now time.Time) bool {
	if !late && now.Before(d.validUntil) {
		return false
	}
	e.burst.delayed(now)
	e.burst.next, e.conflict.defend = time.Time{}, time.Time{}
	d.log.Debug("announcement skipped", "vip", e.want.Addr, "reason", "waits for a decision")
	return true
}

// repeat sends what has waited in the line. The rest of the burst is as much later.
func (d *Driver) repeat(e *entry, late bool, now time.Time) {
	if d.skip(e, late, now) {
		return
	}
	if err := d.announce(e); err != nil {
		d.fail(e, err)
		return
	}
	e.burst.delayed(now)
	e.burst.advance(d.began, now)
}

func due(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

func (d *Driver) announce(e *entry) error {
	mac := e.port.link.MAC
	var frame []byte
	if e.want.Addr.Is4() {
		frame = arp.Announcement(mac, e.want.Addr)
	} else {
		frame = nd.Announce(mac, e.want.Addr, e.router)
	}
	if err := d.send(e.port, frame); err != nil {
		return err
	}
	d.lineOf(e).pay(time.Now())
	d.counters.announcements.Add(1)
	return nil
}
