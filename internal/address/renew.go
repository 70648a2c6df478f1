package address

import (
	"context"
	"slices"
	"time"
)

// keep renews at a third of each lifetime, puts back what was removed, and counts
// connections, until ctx ends. It does not wait for anybody's Apply, and it does
// nothing of itself once the last decision is out of date.
func (d *Driver) keep(ctx context.Context) {
	tick := time.NewTimer(d.rest())
	defer tick.Stop()
	poll := time.NewTimer(lingerPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.renewAll(ctx)
			tick.Reset(d.rest())
		case <-d.tasks.paced:
			tick.Reset(d.rest())
		case <-d.tasks.repair:
			d.putBack(ctx)
		case <-d.tasks.linger:
			poll.Reset(lingerPoll)
		case <-poll.C:
			if again := d.poll(); again > 0 {
				poll.Reset(again)
			}
		}
	}
}

// renewAll renews all holds of the lifetimes whose beat it is, and of the others
// those for which the beat came while nothing could be renewed.
func (d *Driver) renewAll(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, renewals := d.condition(), d.stats.renewals.Load()
	now := time.Now()
	due := d.beat(now)
	d.renew(ctx, func(lifetime time.Duration) time.Time {
		if due[lifetime] {
			return now
		}
		return now.Add(-lifetime / 3)
	})
	if d.missing.Load() {
		d.lookAgain(ctx)
	}
	d.noteMissing()
	if d.condition() != before || d.stats.renewals.Load() != renewals {
		d.fire() // the ends of the lifetimes are news: heartbeats tell them
	}
}

// putBack looks at the kernel after it said that an address was removed.
func (d *Driver) putBack(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, leftovers := d.condition(), len(d.told.ends)
	d.lookAgain(ctx)
	d.noteMissing()
	if d.condition() != before || leftovers > 0 {
		d.fire()
	}
}

// lookAgain compares the holds with the kernel and binds what is missing, if the
// decision is not out of date. It returns what it saw, nil if it could not look.
func (d *Driver) lookAgain(ctx context.Context) *survey {
	s, err := d.look()
	if err != nil {
		d.stats.errors.Add(1)
		d.log.Debug("cannot look at the kernel", "err", err)
		return nil
	}
	d.observeAll(s)
	d.ensure(ctx, s, !time.Now().Before(d.decision.validUntil))
	return s
}

// renew sets the lifetime of every hold that was last renewed before the cutoff
// for its lifetime, all in one batch. What is too old to be renewed safely is latched as expired.
// If anything was not there it looks again and returns what it saw, else nil.
func (d *Driver) renew(ctx context.Context, cutoff func(lifetime time.Duration) time.Time) *survey {
	var due []*hold
	now := time.Now()
	for _, h := range d.holds.list {
		switch {
		case !h.there || h.expired:
		case !h.adopted && h.late(now):
			d.expire(nil, h, "it was not renewed in time")
		case h.due(cutoff(h.lifetime)):
			due = append(due, h)
		}
	}
	failed := false
	for len(due) > 0 && ctx.Err() == nil && time.Now().Before(d.decision.validUntil) {
		n := min(len(due), batchSize)
		failed = d.renewBatch(due[:n]) || failed
		due = due[n:]
	}
	if failed {
		return d.lookAgain(ctx)
	}
	return nil
}

// renewBatch tells whether any renewal failed. The clock is read after the call
// too: if the old lifetime had ended by then, a kernel that does not keep the
// rule of renewFlags may have bound the address anew.
func (d *Driver) renewBatch(due []*hold) (failed bool) {
	now := time.Now()
	ops, targets := make([]*Op, 0, len(due)), make([]*hold, 0, len(due))
	for _, h := range due {
		if !h.adopted && h.late(now) {
			d.expire(nil, h, "it was not renewed in time")
			continue
		}
		ops = append(ops, &Op{Verb: Renew, Addr: h.want.Addr, Index: h.index, Lifetime: h.lifetime})
		targets = append(targets, h)
	}
	d.kernel.Change(ops)
	for i, o := range ops {
		h, limit := targets[i], targets[i].bound
		if h.adopted {
			limit = h.end
		}
		switch {
		case o.Err != nil:
			// It is gone, or the kernel refuses; lookAgain finds out which.
			h.there, failed = false, true
		case !o.After.Before(limit):
			d.expire(nil, h, "the lifetime ended while it was being renewed")
		default:
			if h.adopted {
				d.log.Info("took over the VIP that was bound already", "vip", h.want.Addr, "iface", h.want.Interface, "epoch", h.want.Epoch)
			}
			h.held(o)
			d.stats.renewals.Add(1)
		}
	}
	return failed
}

// condition sums up what a report would say of the holds, apart from times and
// connections; a hold that was lost and bound again counts as a change.
type condition struct {
	serving, expired int
	readds           uint64
}

func (d *Driver) condition() condition {
	c := condition{readds: d.stats.readds.Load()}
	for _, h := range d.holds.list {
		if h.serves() {
			c.serving++
		}
		if h.expired {
			c.expired++
		}
	}
	return c
}

// noteMissing lets watch know whether a message about interfaces can matter.
func (d *Driver) noteMissing() {
	d.missing.Store(slices.ContainsFunc(d.holds.list, func(h *hold) bool { return !h.serves() && !h.expired }))
}
