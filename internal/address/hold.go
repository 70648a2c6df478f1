package address

import (
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// hold is what is known of one wanted binding under its present epoch. All times
// have a monotonic part; it stands still with the lifetimes of the kernel while
// the machine is suspended.
type hold struct {
	want     model.Binding
	lifetime time.Duration // that is wanted in the kernel
	index    int           // of the interface on which it is, or was last, bound
	there    bool
	// undelivered is since when the first binding waits for the kernel to deliver to it; zero:
	// it need not wait.
	undelivered time.Time
	// set is the lifetime that the kernel was last told; for an address that was
	// found there, the wanted one.
	set time.Duration
	// bound is until when the kernel certainly holds the address unless somebody
	// removes it: the time just before the last call that set the lifetime, plus
	// the lifetime. Zero: never bound under this epoch.
	bound time.Time
	// end is when the kernel removes it by its own reckoning: as bound, but
	// counted from just after the call.
	end time.Time
	// seen is when the kernel was last known to hold it.
	seen time.Time
	// adopted: found in the kernel and not renewed yet.
	adopted bool
	// expired is the latch of the dead man's switch: the lifetime ended, or may
	// have ended, while nobody renewed it. It stays until the epoch changes.
	expired bool
	// tooLate latches that Binding.AddBefore passed before the address was bound.
	tooLate bool
	// connections is the last count while lingering, else unknown.
	connections tally
	lingers     time.Time // since when it does
	err         error
}

// holds are those of the wanted bindings.
type holds struct {
	at   map[slot]*hold
	list []*hold // the same, in the order of the bindings
	// givenUp are addresses that lingered and are not wanted any more: prune resets what
	// is still open before it unbinds them.
	givenUp map[netip.Addr]bool
}

// accept takes over the wanted bindings, and tells whether they are others than before.
// What is not wanted any more is forgotten here and unbound by prune.
func (a *holds) accept(bind []model.Binding, lifetime time.Duration) bool {
	if slices.EqualFunc(bind, a.list, func(b model.Binding, h *hold) bool { return b == h.want }) {
		return false
	}
	was := a.at
	a.at, a.list = make(map[slot]*hold, len(bind)), a.list[:0]
	for _, b := range bind {
		at := slotOf(&b)
		if a.at[at] != nil {
			continue
		}
		h := was[at]
		if h == nil || h.want.Epoch != b.Epoch {
			next := &hold{connections: unknown}
			if h != nil {
				next.undelivered = h.undelivered // a new epoch does not make the kernel deliver
			}
			h = next
		}
		switch {
		case !b.Linger:
			h.connections = unknown
		case !h.want.Linger:
			h.lingers = time.Now()
		}
		h.want, h.lifetime = b, lifetime
		if b.Lifetime != 0 { // as the kernel can count it
			h.lifetime = max(b.Lifetime.Truncate(time.Second), MinLifetime)
		}
		a.at[at], a.list = h, append(a.list, h)
	}
	for at, h := range was {
		if a.at[at] == nil && h.want.Linger {
			a.givenUp[at.addr] = true
		}
	}
	return true
}

// fresh tells whether the address was never bound under this epoch, so that
// binding it is not a return from the dead.
func (h *hold) fresh() bool { return h.bound.IsZero() }

// overdue tells whether what a fresh binding rests on, a silence of the wire or the
// consent of the owner, has become too old.
func (h *hold) overdue(now time.Time) bool {
	return h.fresh() && !h.want.AddBefore.IsZero() && !now.Before(h.want.AddBefore)
}

// late tells whether the kernel may have removed the address, or is about to.
func (h *hold) late(now time.Time) bool { return !now.Before(h.bound.Add(-margin)) }

// lost tells whether an address that is missing must count as expired: its
// lifetime is over, or it has not been seen for so long that others may have
// found it gone.
func (h *hold) lost(now time.Time) bool {
	return h.late(now) || now.Sub(h.seen) > h.set/2
}

// due tells whether to renew a hold: if it was last renewed before the cutoff, or
// has another lifetime than is wanted.
func (h *hold) due(cutoff time.Time) bool {
	return h.adopted || h.set != h.lifetime || h.bound.Before(cutoff.Add(h.set))
}

// serves tells whether packets to the address reach this host, as far as is known.
func (h *hold) serves() bool { return h.there && h.undelivered.IsZero() }

// held notes a call that set the lifetime.
func (h *hold) held(o *Op) {
	h.there, h.adopted, h.err, h.index, h.set = true, false, nil, o.Index, o.Lifetime
	if !h.serves() {
		h.err = errUndelivered
	}
	h.bound, h.end, h.seen = o.Before.Add(o.Lifetime), o.After.Add(o.Lifetime), o.Before
}
