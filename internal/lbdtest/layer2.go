package lbdtest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
)

// The timing of package layer2.
const (
	probeCount      = 3
	probeInterval   = 15 * time.Millisecond
	probeLate       = 20 * time.Millisecond
	silenceLifetime = 6 * time.Second
	maxLate         = time.Second
	defendInterval  = time.Second
	defendDelay     = 100 * time.Millisecond
	// Refresh is how often an address is announced after the first seconds.
	Refresh = 30 * time.Second
	// standstill is the one that is safe with the fastest heartbeats.
	standstill = 74 * time.Millisecond
)

var burstAt = [...]time.Duration{
	0, 50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second,
}

// Layer2 stands for the driver of package layer2: bursts of announcements, series
// of probes, conflicts and silence.
type Layer2 struct {
	// Pace is how far apart series of probes begin; they begin at once if zero.
	Pace time.Duration

	host    *Host
	p       *Process
	changed chan struct{}
	frames  chan heard
	wake    chan struct{}
	stop    context.CancelFunc
	unwatch func()
	wg      sync.WaitGroup

	mu         sync.Mutex // never held while time passes
	entries    map[netip.Addr]*entry
	validUntil time.Time
	announced  map[netip.Addr]time.Time
	lapsed     uint64    // of lapses that were acted on
	slot       time.Time // when the next series may begin

	// Of what the process answers for itself; without the lock, for the Net.
	until         atomic.Int64 // end of the decision, since begin
	begin         time.Time
	lapses, known atomic.Uint64
}

var _ announce.Driver = (*Layer2)(nil)

type heard struct {
	iface string
	frame frame
}

type entry struct {
	want   model.L2Advert
	on     bool // announcing
	burst  uint64
	start  time.Time
	sent   int
	next   time.Time // of the burst
	series uint64
	probes int
	wait   time.Time         // end of the present interval of a series
	heard  model.ProbeResult // only who else asks
	result model.ProbeResult

	conflicts              uint64
	foreign                model.MAC
	told, defend, defended time.Time
	silent                 bool
	tooLate                bool
	late                   uint64 // the burst for which it is
	err                    string
}

// NewLayer2 returns the driver of a process on a machine.
func NewLayer2(p *Process, h *Host) *Layer2 {
	ctx, stop := context.WithCancel(context.Background())
	d := &Layer2{
		host: h, p: p, stop: stop, changed: make(chan struct{}, 1), frames: make(chan heard, 4096), wake: make(chan struct{}, 1),
		entries: map[netip.Addr]*entry{}, announced: map[netip.Addr]time.Time{}, begin: time.Now(),
	}
	p.onChange(func(frozen time.Duration) {
		if frozen >= standstill {
			d.lapses.Add(1)
			signal(d.changed)
		}
		h.lookResponders()
	})
	d.unwatch = h.watch(&watcher{frame: func(iface string, f frame) {
		select {
		case d.frames <- heard{iface, f}:
		default: // the socket is full
		}
	}})
	d.wg.Go(func() { d.receive(ctx) })
	d.wg.Go(func() { d.run(ctx) })
	return d
}

// Name returns model.SinkLayer2.
func (d *Layer2) Name() model.SinkName { return model.SinkLayer2 }

// Changed fires when a series has ended or a conflict was seen.
func (d *Layer2) Changed() <-chan struct{} { return d.changed }

// Announced is when the address was first announced since it was last given up;
// zero if it is not announced.
func (d *Layer2) Announced(a netip.Addr) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.announced[a]
}

// Close ends everything but a silence.
func (d *Layer2) Close(context.Context) error {
	d.stop()
	d.wg.Wait()
	d.unwatch()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.entries {
		d.quiet(e)
	}
	return nil
}

// responds tells whether the process answers for what is not bound.
func (d *Layer2) responds() bool {
	return d.p.Running() && time.Since(d.begin) < time.Duration(d.until.Load()) && d.known.Load() == d.lapses.Load()
}

// alive stops to answer when the process was frozen for too long.
func (d *Layer2) alive() {
	now := d.lapses.Load()
	if d.lapsed == now {
		return
	}
	d.lapsed = now
	for _, e := range d.entries {
		if e.want.Respond {
			d.quiet(e)
		}
	}
}

// Apply makes want.L2 true; the first frame of each entry is on the wire when it
// returns.
func (d *Layer2) Apply(_ context.Context, want *model.Desired) (model.Applied, error) {
	if err := d.p.sleep(d.host.net.call()); err != nil {
		return model.Applied{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.alive()
	d.validUntil = want.ValidUntil
	d.until.Store(int64(want.ValidUntil.Sub(d.begin)))
	d.known.Store(want.Lapses)
	d.reconcile(want.L2)
	d.quieten(want)
	var errs []error
	for _, w := range want.L2 {
		if err := d.start(d.entries[w.Addr]); err != nil {
			errs = append(errs, err)
		}
	}
	signal(d.wake)
	got := model.Applied{Lapses: d.lapses.Load(), VIPs: map[netip.Addr]model.AppliedVIP{}}
	for a, e := range d.entries {
		got.VIPs[a] = model.AppliedVIP{
			Interface: e.want.Interface, Announcing: e.on, Silent: e.silent, TooLate: e.tooLate, Probe: e.result,
			Conflicts: e.conflicts, Foreign: e.foreign, Err: e.err,
		}
	}
	return got, errors.Join(errs...)
}

func (d *Layer2) reconcile(want []model.L2Advert) {
	wanted := map[netip.Addr]bool{}
	for _, w := range want {
		wanted[w.Addr] = true
		e := d.entries[w.Addr]
		if e == nil {
			e = &entry{}
			d.entries[w.Addr] = e
		}
		if e.want.Mode != w.Mode || e.want.Interface != w.Interface || e.want.Respond != w.Respond {
			d.quiet(e)
			e.tooLate = false
		}
		e.want = w
	}
	for a, e := range d.entries {
		if !wanted[a] {
			d.quiet(e)
			delete(d.entries, a)
		}
	}
}

// quiet stops announcing and probing.
func (d *Layer2) quiet(e *entry) {
	e.on, e.next, e.wait, e.defend = false, time.Time{}, time.Time{}, time.Time{}
	delete(d.announced, e.want.Addr)
	if e.want.Respond {
		d.host.respond(e.want.Interface, e.want.Addr, nil)
	}
}

// quieten makes exactly the silent entries silent, by family.
func (d *Layer2) quieten(want *model.Desired) {
	for _, v4 := range []bool{true, false} {
		var silent []netip.Addr
		speaks := false
		for _, w := range want.L2 {
			if w.Addr.Is4() == v4 {
				if w.Mode == model.L2Silent || w.Quiet {
					silent = append(silent, w.Addr)
				}
				speaks = speaks || w.Mode == model.L2Announce
			}
		}
		if len(silent) > 0 || want.Synced || speaks {
			d.host.silence(v4, silent, want.ValidUntil.Add(silenceLifetime))
		}
	}
	for _, w := range want.L2 {
		d.entries[w.Addr].silent = w.Mode == model.L2Silent || w.Quiet
	}
}

// start begins what the entry asks for.
func (d *Layer2) start(e *entry) error {
	e.err = ""
	if e.want.Mode == model.L2Silent {
		return nil
	}
	if !d.host.usable(e.want.Interface) {
		d.quiet(e)
		e.err = fmt.Sprintf("interface %q: has no carrier", e.want.Interface)
		return errors.New(e.err)
	}
	now := time.Now()
	switch e.want.Mode {
	case model.L2Probe:
		if n := e.want.Series; n == e.result.Series && e.result.Done || !e.wait.IsZero() && n == e.series {
			return nil
		}
		e.series, e.probes, e.heard = e.want.Series, 0, model.ProbeResult{}
		if d.Pace > 0 && d.slot.After(now) {
			e.wait, d.slot = d.slot, d.slot.Add(d.Pace)
			return nil
		}
		d.slot = now.Add(d.Pace)
		d.ask(e, now)
	case model.L2Announce:
		if e.on && e.burst == e.want.Burst && !e.next.IsZero() {
			return nil
		}
		if !d.validUntil.IsZero() && !now.Before(d.validUntil) {
			return errStale
		}
		if e.want.Respond && !d.mayStart(e, now) {
			d.quiet(e)
			return nil
		}
		d.announce(e)
		if !e.on || e.burst != e.want.Burst {
			e.on, e.burst, e.start, e.sent = true, e.want.Burst, now, 0
			if e.want.Respond {
				d.host.respond(e.want.Interface, e.want.Addr, d.responds)
			}
			if d.announced[e.want.Addr].IsZero() {
				d.announced[e.want.Addr] = now
			}
		}
		e.advance(now)
	}
	return nil
}

// mayStart tells whether to begin, or go on, to answer for what is not bound.
func (d *Layer2) mayStart(e *entry, now time.Time) bool {
	before := e.want.StartBefore
	switch {
	case d.known.Load() != d.lapses.Load():
		e.err = "did not run for a while"
		return false
	case e.tooLate && e.late == e.want.Burst, !e.on && !before.IsZero() && now.After(before):
		e.tooLate, e.late, e.err = true, e.want.Burst, "too late"
		return false
	}
	e.tooLate = false
	return true
}

func (d *Layer2) announce(e *entry) {
	_ = d.host.transmitFrom(e.want.Interface, announcement, e.want.Addr) // the next one may get out
}

func (e *entry) advance(now time.Time) {
	for e.sent++; e.sent < len(burstAt); e.sent++ {
		if next := e.start.Add(burstAt[e.sent]); next.After(now) {
			e.next = next
			return
		}
	}
	e.next = now.Add(Refresh)
}

// ask sends one probe and waits for an interval.
func (d *Layer2) ask(e *entry, now time.Time) {
	if d.host.transmitFrom(e.want.Interface, probe, e.want.Addr) != nil {
		e.wait, e.err = time.Time{}, "cannot send"
		signal(d.changed)
		return
	}
	e.probes++
	e.wait = now.Add(probeInterval)
	if e.probes < e.least() {
		e.wait = now.Add(max(probeInterval, e.want.Lasts/probeCount))
	}
}

// least is how many probes a series has at least.
func (e *entry) least() int {
	if e.want.Lasts > 0 {
		return probeCount + 1
	}
	return probeCount
}

// finish ends the running series.
func (d *Layer2) finish(e *entry, r model.ProbeResult) {
	r.Series, r.Done, r.Rivals, r.At = e.series, true, e.heard.Rivals, time.Now()
	e.result, e.wait = r, time.Time{}
	signal(d.changed)
}

// receive reads the socket, which fills up while the process is frozen.
func (d *Layer2) receive(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-d.frames:
			if d.p.Wait() != nil {
				continue
			}
			d.take(f)
		}
	}
}

func (d *Layer2) take(h heard) {
	f := h.frame
	if d.host.owns(f.mac) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[f.addr]
	if e == nil || e.want.Interface != h.iface {
		return
	}
	uses := f.kind == reply || f.kind == announcement
	d.alive()
	if !uses && e.want.Respond && e.on && d.responds() {
		d.host.replyTo(h.iface, f.mac, f.addr)
	}
	switch {
	case f.kind == request:
	case !e.wait.IsZero() && uses:
		d.finish(e, model.ProbeResult{Answered: true, By: f.mac})
	case !e.wait.IsZero():
		e.heard.Meet(f.mac)
	case e.on && uses:
		d.dispute(e, f.mac)
	}
	signal(d.wake)
}

// dispute notes another host that uses an announced VIP.
func (d *Layer2) dispute(e *entry, by model.MAC) {
	now := time.Now()
	fresh := e.conflicts == 0 || e.foreign != by
	e.conflicts++
	e.foreign = by
	if fresh || now.Sub(e.told) >= defendInterval {
		e.told = now
		signal(d.changed)
	}
	if e.defend.IsZero() {
		e.defend = now.Add(defendDelay)
		if earliest := e.defended.Add(defendInterval); e.defend.Before(earliest) {
			e.defend = earliest
		}
	}
}

// run is the timer of all entries.
func (d *Layer2) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(d.due())
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
			continue
		case <-timer.C:
		}
		if d.p.Wait() != nil {
			<-ctx.Done()
			return
		}
		d.fire()
	}
}

// due is the time to the earliest deadline.
func (d *Layer2) due() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := time.Hour
	for _, e := range d.entries {
		for _, t := range [...]time.Time{e.next, e.wait, e.defend} {
			if !t.IsZero() {
				next = min(next, time.Until(t))
			}
		}
	}
	return max(next, 0)
}

func (d *Layer2) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.alive()
	for _, e := range d.entries {
		if past(e.wait, now) {
			d.step(e, now)
		}
		scheduled, defence := past(e.next, now), past(e.defend, now)
		if !scheduled && !defence {
			continue
		}
		if scheduled && now.Sub(e.next) > maxLate || defence && now.Sub(e.defend) > maxLate || !now.Before(d.validUntil) {
			e.next, e.defend = time.Time{}, time.Time{} // waits for a decision
			continue
		}
		d.announce(e)
		if defence {
			e.defend, e.defended = time.Time{}, now
		}
		if scheduled {
			e.advance(now)
		}
	}
}

// step goes on with a series whose interval is over. Silence proves nothing if
// the process did not run.
func (d *Layer2) step(e *entry, now time.Time) {
	switch {
	case !d.host.usable(e.want.Interface):
		e.wait, e.err = time.Time{}, "no carrier"
		signal(d.changed)
	case e.probes < e.least(), now.Sub(e.wait) > probeLate:
		d.ask(e, now)
	default:
		d.finish(e, model.ProbeResult{})
	}
}

func past(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }
