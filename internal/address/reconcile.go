package address

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// ensure binds every hold that is missing, if that is not a return from the
// dead. The survey must be younger than anything the holds know. With stale set
// the decision is out of date and nothing is bound. It tells whether anything with
// the lifetime of the driver was.
func (d *Driver) ensure(ctx context.Context, s *survey, stale bool) (created bool) {
	var ops []*Op
	var targets []*hold
	for _, h := range d.holds.list {
		if index, ok := d.bindable(h, s, stale); ok {
			ops = append(ops, &Op{Verb: Create, Addr: h.want.Addr, Index: index, Lifetime: h.lifetime})
			targets = append(targets, h)
		}
	}
	for i := 0; i < len(ops) && ctx.Err() == nil; i += batchSize {
		n := min(i+batchSize, len(ops))
		// The clock is read again: the batches before may have taken long.
		if d.outdated() {
			for _, h := range targets[i:] {
				h.err = errStale
			}
			break
		}
		held := make([]bool, n-i) // elsewhere on this host
		for j, o := range ops[i:n] {
			held[j] = s.has(o.Addr)
		}
		d.kernel.Change(ops[i:n])
		for j, o := range ops[i:n] {
			h := targets[i+j]
			created = d.created(h, o, s) && h.lifetime == d.lifetime || created
		}
		d.awaitLocal(targets[i:n])
		for j, h := range targets[i:n] {
			if h.serves() && !held[j] {
				d.cut.bound(h.want.Addr)
			}
		}
	}
	d.awaitDelivery() // last: what was bound now rests on something that ages fast
	return created
}

// awaitLocal waits until what was just bound is local, for all of it together. The
// wait is far shorter than what is left of any lifetime.
func (d *Driver) awaitLocal(holds []*hold) {
	deadline := time.Now().Add(localTimeout)
	for _, h := range holds {
		switch {
		case !h.there:
		case awaitLocal(d.kernel, h.want.Addr, h.index, deadline):
			h.undelivered = time.Time{}
		default:
			d.log.Warn("the kernel does not deliver to the VIP yet", "vip", h.want.Addr, "iface", h.want.Interface)
		}
	}
}

// awaitDelivery waits, a little at a time, for first bindings that are not local yet. They are not
// called bound meanwhile: in a planned move the owner goes on serving. But if the kernel takes
// very long they are, since nobody else may be faster, and what is there serves one day.
func (d *Driver) awaitDelivery() {
	deadline := time.Now().Add(localAgain)
	for _, h := range d.holds.list {
		switch {
		case !h.there || h.serves():
		case awaitLocal(d.kernel, h.want.Addr, h.index, deadline), time.Since(h.undelivered) >= localLate:
			h.undelivered, h.err = time.Time{}, nil
			d.cut.bound(h.want.Addr)
		default:
			h.err = errUndelivered
		}
	}
}

// bindable tells whether a hold is to be bound now, and on which interface. It
// latches what has expired.
func (d *Driver) bindable(h *hold, s *survey, stale bool) (index int, ok bool) {
	now := time.Now()
	switch {
	case h.expired:
		d.remove(s, h) // nothing unless the kernel has yet to do it
		return 0, false
	case h.there, h.tooLate:
		return 0, false
	case h.overdue(now):
		d.tooLate(s, h)
		return 0, false
	case h.fresh() && d.abandoned(slotOf(&h.want)):
		d.expire(s, h, "the lifetime ended before it could be renewed")
		return 0, false
	case !h.fresh() && h.lost(now):
		d.expire(s, h, "the lifetime ended while it was not renewed")
		return 0, false
	case stale:
		h.err = errStale
		return 0, false
	}
	index, err := d.index(s, h.want.Interface)
	if err != nil {
		h.err = explain(h.want, err)
		return 0, false
	}
	if e, taken := s.foreign[h.want.Addr]; taken {
		h.err = fmt.Errorf("is already configured on %s by somebody else", d.kernel.LinkName(e.Index))
		return 0, false
	}
	return index, true
}

// abandoned tells whether the last report still had the address, not renewed,
// and now it is gone without this process having unbound it. Whoever decided on
// that report believes that the address was held without a break.
func (d *Driver) abandoned(at slot) bool {
	for p := range d.told.ends {
		if slotAt(p.addr, p.index) == at {
			return true
		}
	}
	return false
}

// created notes the result of binding an address. A process that was frozen
// between its last look at the clock and the call may have bound what it had
// lost meanwhile: then it is unbound at once. It tells whether it is bound now.
func (d *Driver) created(h *hold, o *Op, s *survey) bool {
	if o.Err != nil {
		d.stats.errors.Add(1)
		h.err = explain(h.want, o.Err)
		return false
	}
	again, moved := !h.fresh(), h.index != o.Index
	lateAdd := again && h.late(o.After)
	overdueAdd := h.overdue(o.After.Add(-addSlack))
	staleAdd := !d.decision.validUntil.IsZero() && !o.After.Before(d.decision.validUntil)
	s.add(h.want.Addr, o.Index)
	switch {
	case lateAdd:
		d.expire(s, h, "the lifetime ended while it was being bound again")
		return false
	case overdueAdd:
		d.tooLate(s, h)
		return false
	case staleAdd:
		d.remove(s, h)
		h.err = errStale
		return false
	}
	why := "wanted"
	switch {
	case again && moved:
		why = "moved"
	case again:
		why = "bound again: somebody had removed it"
		d.stats.readds.Add(1)
	}
	h.held(o)
	if !again {
		h.undelivered = o.After
	}
	d.bound[place{h.want.Addr, o.Index}] = true
	d.log.Info("bound the VIP", "vip", h.want.Addr, "iface", h.want.Interface, "epoch", h.want.Epoch, "reason", why)
	return true
}

// addSlack is how much later than Binding.AddBefore a call may return.
const addSlack = 20 * time.Millisecond

// tooLate gives a binding up that rests on something too old, and makes sure that
// the address is not there.
func (d *Driver) tooLate(s *survey, h *hold) {
	h.tooLate, h.err = true, nil
	d.log.Info("not bound: the wire was asked too long ago", "vip", h.want.Addr, "iface", h.want.Interface, "epoch", h.want.Epoch)
	d.remove(s, h)
}

// expire latches the dead man's switch for a hold and makes sure that the
// address is gone.
func (d *Driver) expire(s *survey, h *hold, why string) {
	h.expired, h.err = true, nil
	d.stats.expirations.Add(1)
	d.log.Info("the VIP has expired", "vip", h.want.Addr, "iface", h.want.Interface, "epoch", h.want.Epoch, "reason", why)
	d.remove(s, h)
}

// remove unbinds a hold wherever the survey saw it; without a survey, where it
// is bound.
func (d *Driver) remove(s *survey, h *hold) {
	places := []int{h.index}
	if s != nil {
		places = places[:0]
		for _, e := range s.own[slotOf(&h.want)] {
			places = append(places, e.Index)
		}
	}
	h.there = false
	for _, index := range places {
		if err := d.unbind(s, h.want.Addr, index); err != nil {
			h.there = h.there || index == h.index
			h.err = explain(h.want, err)
		}
	}
}

// prune unbinds what carries lbd's mark and is not wanted: at once what this
// process bound, and what an earlier one left only after every source has
// delivered. A VIP that moves keeps its old place until it is at the new one.
func (d *Driver) prune(s *survey) []error {
	var errs []error
	d.resetClients(s)
	for _, at := range d.unwanted(s) {
		h := d.holds.at[at]
		for _, e := range slices.Clone(s.own[at]) {
			switch {
			case h == nil && !d.decision.synced && !d.bound[place{at.addr, e.Index}]:
				continue // a leftover that may yet be wanted
			case h != nil && (!h.there || e.Index == h.index):
				continue
			}
			if err := d.unbind(s, at.addr, e.Index); err != nil {
				errs = append(errs, fmt.Errorf("vip %q: unbind: %w", at.addr, err))
			}
		}
	}
	maps.DeleteFunc(d.bound, func(p place, _ bool) bool {
		return !slices.ContainsFunc(s.own[slotAt(p.addr, p.index)], func(e Entry) bool { return e.Index == p.index })
	})
	return errs
}

// resetClients ends what is still open to addresses that lingered and are about to go, and are
// not those of somebody else as well. Their new owner answers a client only when that sends
// something, and one that watches an API never does.
func (d *Driver) resetClients(s *survey) {
	maps.DeleteFunc(d.holds.givenUp, func(addr netip.Addr, _ bool) bool {
		_, stays := s.foreign[addr]
		return stays || d.holds.at[slot{addr, false}] != nil || d.holds.at[slot{addr, true}] != nil
	})
	if len(d.holds.givenUp) > 0 {
		d.cut.resetClients(d.holds.givenUp)
		clear(d.holds.givenUp)
	}
}

// unwanted are the slots with anything that prune may have to unbind, in order.
func (d *Driver) unwanted(s *survey) []slot {
	var out []slot
	for at, entries := range s.own {
		h := d.holds.at[at]
		if h == nil || h.there && slices.ContainsFunc(entries, func(e Entry) bool { return e.Index != h.index }) {
			out = append(out, at)
		}
	}
	slices.SortFunc(out, slot.compare)
	return out
}

// unbind removes one address and takes it out of the survey. That it was not
// there is a success.
func (d *Driver) unbind(s *survey, addr netip.Addr, index int) error {
	o := &Op{Verb: Remove, Addr: addr, Index: index}
	d.kernel.Change([]*Op{o})
	if gone(o.Err) {
		s.drop(addr, index)
		if !d.has(s, addr) {
			d.cut.unbound(addr)
		}
		d.log.Info("unbound the VIP", "vip", addr, "iface", d.kernel.LinkName(index))
		return nil
	}
	d.stats.errors.Add(1)
	return o.Err
}

// has tells whether an address is bound anywhere on this host, by the survey or, without
// one, by what the holds know.
func (d *Driver) has(s *survey, addr netip.Addr) bool {
	if s != nil {
		return s.has(addr)
	}
	lan, lo := d.holds.at[slot{addr, false}], d.holds.at[slot{addr, true}]
	return lan != nil && lan.there || lo != nil && lo.there
}

// gone tells whether the result of a removal means that the address is not there.
func gone(err error) bool {
	return err == nil || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV)
}

func (s *survey) add(addr netip.Addr, index int) {
	at := slotAt(addr, index)
	s.own[at] = append(s.own[at], Entry{Prefix: netip.PrefixFrom(addr, addr.BitLen()), Index: index, Valid: Forever})
}

func (s *survey) drop(addr netip.Addr, index int) {
	if s == nil {
		return
	}
	at := slotAt(addr, index)
	s.own[at] = slices.DeleteFunc(s.own[at], func(e Entry) bool { return e.Index == index })
	if len(s.own[at]) == 0 {
		delete(s.own, at)
	}
}
