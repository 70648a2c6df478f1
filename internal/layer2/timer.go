package layer2

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
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
	if next.IsZero() {
		return time.Hour
	}
	return time.Until(next)
}

// rouse makes run look at the earliest deadline again.
func (d *Driver) rouse() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// fire does everything that is due by now. What falls due meanwhile is for the next
// time: where sending is slow there would be no end, and nobody else gets the lock.
func (d *Driver) fire() {
	var over []ending
	d.mu.Lock()
	d.stepConflicts(time.Now())
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
	d.mu.Unlock()
	if len(over) > 0 {
		d.conclude(over)
	}
}

// send puts a frame on the wire. An error that a new socket may mend marks the
// port as broken.
func (d *Driver) send(p *openPort, frame []byte) error {
	err := p.send(frame)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
		p.broken = true
	}
	return fmt.Errorf("interface %q: send: %w", p.link.name, err)
}

// fail stops what the entry was doing after an error between two calls of Apply;
// the next one tries again.
func (d *Driver) fail(e *entry, err error) {
	d.counters.errors.Add(1)
	if e.err == "" {
		d.log.Info("not on the wire", "vip", e.want.Addr, "iface", e.want.Interface, "err", err)
	}
	e.quiet()
	e.err = err.Error()
	d.notify()
}

// quiet stops announcing and probing.
func (e *entry) quiet() {
	e.burst, e.series, e.inquiry = burst{}, series{}, inquiry{}
	e.conflict.defend = time.Time{}
}
