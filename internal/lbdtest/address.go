package lbdtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
)

const (
	// Lifetime is that of addresses in the kernel that ask for no other, as in
	// package address.
	Lifetime = 3 * time.Second
	// margin before its end an address counts as expired.
	margin = 150 * time.Millisecond
	// lateAdd is how long after Binding.AddBefore a fresh add may end.
	lateAdd = 20 * time.Millisecond
	// countEvery is how often connections are counted while one lingers.
	countEvery = 250 * time.Millisecond
)

// errStale: nothing is bound on the word of a decision that may be overtaken.
var errStale = errors.New("waits for a newer decision, the last one is out of date")

// Address stands for the driver of package address: lifetimes that it keeps up as
// long as its process runs and the decision is fresh, and latches that keep an
// address from returning from the dead.
type Address struct {
	host *Host
	p    *Process
	// lock is a channel because calls to the kernel take time.
	lock    chan struct{}
	changed chan struct{}
	repair  chan struct{}
	stop    context.CancelFunc
	unwatch func()
	done    chan struct{}
	fails   func(a netip.Addr) error

	holds      map[slot]*hold
	validUntil time.Time
	synced     bool
	mine       map[slot]bool // bound or adopted by this process
	ends       map[slot]bool // reported and not renewed
}

var _ announce.Driver = (*Address)(nil)

// hold is what is known of one binding under its present epoch.
type hold struct {
	want             model.Binding
	lifetime, set    time.Duration // wanted, and as the kernel was last told
	there, adopted   bool
	expired, late    bool      // latches
	bound, end, seen time.Time // see package address
	connections      int
	err              error
}

// NewAddress returns the driver of a process on a machine.
func NewAddress(p *Process, h *Host) *Address {
	ctx, stop := context.WithCancel(context.Background())
	d := &Address{
		host: h, p: p, lock: make(chan struct{}, 1), changed: make(chan struct{}, 1), repair: make(chan struct{}, 1),
		stop: stop, done: make(chan struct{}), holds: map[slot]*hold{}, mine: map[slot]bool{}, ends: map[slot]bool{},
		fails: func(netip.Addr) error { return nil },
	}
	d.unwatch = h.watch(&watcher{removed: func(netip.Addr) { signal(d.repair) }})
	go d.keep(ctx)
	return d
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Fail makes every attempt to bind an address fail for which f returns an error.
// It must be set before the driver is used.
func (d *Address) Fail(f func(netip.Addr) error) { d.fails = f }

// Name returns model.SinkAddress.
func (d *Address) Name() model.SinkName { return model.SinkAddress }

// Changed fires when an address expired, was removed, or lingers.
func (d *Address) Changed() <-chan struct{} { return d.changed }

// Close stops renewing; what is bound stays for the rest of its lifetime.
func (d *Address) Close(context.Context) error {
	d.stop()
	<-d.done
	d.unwatch()
	return nil
}

// Apply binds what is wanted and unbinds what is not.
func (d *Address) Apply(_ context.Context, want *model.Desired) (model.Applied, error) {
	d.lock <- struct{}{}
	defer func() { <-d.lock }()
	if err := d.p.sleep(d.host.net.call()); err != nil {
		return model.Applied{}, err
	}
	d.validUntil, d.synced = want.ValidUntil, want.Synced
	d.accept(want)
	d.look()
	if err := d.ensure(); err != nil {
		return model.Applied{}, err
	}
	d.renew(false)
	d.prune()
	d.count()
	got := d.report()
	var errs []error
	for at, h := range d.holds {
		if h.err != nil {
			errs = append(errs, fmt.Errorf("vip %q: %w", at.addr, h.err))
		}
	}
	return got, cmp.Or(first(errs), d.p.Wait())
}

func first(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

// accept takes over what is wanted. Connections to what lingered, and is not wanted any more,
// end with it unless they are spared.
func (d *Address) accept(want *model.Desired) {
	wanted := map[slot]bool{}
	for _, b := range want.Bind {
		at := slotOn(b.Interface, b.Addr)
		wanted[at] = true
		h := d.holds[at]
		if h == nil || h.want.Epoch != b.Epoch {
			h = &hold{connections: -1}
			d.holds[at] = h
		}
		if !b.Linger {
			h.connections = -1
		}
		h.want, h.lifetime = b, cmp.Or(b.Lifetime, Lifetime)
	}
	for at, h := range d.holds {
		if wanted[at] {
			continue
		}
		delete(d.holds, at)
		if h.want.Linger && !wanted[slot{at.addr, !at.loopback}] && !slices.Contains(want.Spared, at.addr) {
			d.host.SetConnections(at.addr, 0)
		}
	}
}

// look compares the holds with the kernel and adopts what an earlier process or
// epoch has bound.
func (d *Address) look() {
	now := time.Now()
	own, _ := d.host.dump()
	for at, h := range d.holds {
		x, ok := own[at]
		h.there = ok && x.iface == h.want.Interface
		if !h.there {
			continue
		}
		h.seen, h.err = now, nil
		if h.bound.IsZero() { // the kernel tells whole seconds, rounded up
			left := (x.left + time.Second - 1).Truncate(time.Second)
			h.adopted, h.set = true, h.lifetime
			h.bound, h.end = now.Add(left-time.Second), now.Add(left)
			d.mine[at] = true
		}
	}
}

// ensure binds what is missing, if that is not a return from the dead.
func (d *Address) ensure() error {
	_, foreign := d.host.dump()
	for at, h := range d.holds {
		now := time.Now()
		fresh := h.bound.IsZero()
		switch {
		case h.there, h.expired, h.late:
			continue
		case fresh && d.ends[at], !fresh && (!now.Before(h.bound.Add(-margin)) || now.Sub(h.seen) > h.set/2):
			h.expired = true
			continue
		case fresh && !h.want.AddBefore.IsZero() && !now.Before(h.want.AddBefore):
			h.late = true
			continue
		case !d.validUntil.IsZero() && !now.Before(d.validUntil):
			h.err = errStale
			continue
		case foreign[at.addr]:
			h.err = errors.New("is already configured by somebody else")
			continue
		}
		if h.err = d.fails(at.addr); h.err != nil {
			continue
		}
		if err := d.create(at, h, fresh); err != nil {
			return err
		}
	}
	return nil
}

// create binds one address. The process may be frozen between its last look at
// the clock and the call.
func (d *Address) create(at slot, h *hold, fresh bool) error {
	if err := d.p.sleep(d.host.net.call()); err != nil {
		return err
	}
	before := time.Now()
	if h.err = d.host.bind(h.want.Interface, at.addr, h.lifetime); h.err != nil {
		return nil
	}
	switch after := time.Now(); {
	case !fresh && !after.Before(h.bound.Add(-margin)):
		d.host.unbind(at)
		h.expired = true
	case fresh && !h.want.AddBefore.IsZero() && after.After(h.want.AddBefore.Add(lateAdd)):
		d.host.unbind(at)
		h.late = true
	case !d.validUntil.IsZero() && !after.Before(d.validUntil):
		d.host.unbind(at)
		h.err = errStale
	default:
		h.held(before)
		d.mine[at] = true
	}
	return nil
}

func (h *hold) held(at time.Time) {
	h.there, h.adopted, h.err, h.set = true, false, nil, h.lifetime
	h.bound, h.end, h.seen = at.Add(h.set), at.Add(h.set), at
}

// due tells whether to renew a hold: after a third of its lifetime, if another one
// is wanted, and with the default lifetime at every tick.
func (h *hold) due(now time.Time, tick bool) bool {
	return h.adopted || h.set != h.lifetime || tick && h.set == Lifetime || h.bound.Sub(now) <= h.set-h.set/3
}

// renew sets the lifetime of what is due.
func (d *Address) renew(tick bool) {
	now := time.Now()
	for at, h := range d.holds {
		switch {
		case !h.there || h.expired:
		case !h.adopted && !now.Before(h.bound.Add(-margin)):
			d.host.unbind(at)
			h.there, h.expired = false, true
		case !now.Before(d.validUntil), !h.due(now, tick):
		case d.host.renew(h.want.Interface, at.addr, h.lifetime) != nil:
			h.there = false
			signal(d.repair)
		default:
			h.held(now)
		}
	}
}

// prune unbinds what is not wanted: at once what this process has bound, other
// leftovers once everything is known.
func (d *Address) prune() {
	own, _ := d.host.dump()
	for at := range own {
		if h := d.holds[at]; h == nil && (d.synced || d.mine[at]) || h != nil && h.expired {
			d.host.unbind(at)
			delete(d.mine, at)
		}
	}
}

func (d *Address) count() {
	d.host.net.mu.Lock()
	defer d.host.net.mu.Unlock()
	for at, h := range d.holds {
		if h.want.Linger {
			h.connections = d.host.conns[at.addr]
		}
	}
}

func (d *Address) report() model.Applied {
	out := model.Applied{VIPs: map[netip.Addr]model.AppliedVIP{}, Loopback: map[netip.Addr]model.AppliedVIP{}}
	part := func(at slot) map[netip.Addr]model.AppliedVIP {
		if at.loopback {
			return out.Loopback
		}
		return out.VIPs
	}
	own, _ := d.host.dump()
	clear(d.ends)
	for at, x := range own {
		if d.holds[at] == nil {
			part(at)[at.addr] = model.AppliedVIP{Bound: true, Interface: x.iface, Expires: time.Now().Add(x.left), Connections: -1, Sockets: -1}
			d.ends[at] = true
		}
	}
	for at, h := range d.holds {
		v := model.AppliedVIP{Bound: h.there, Expired: h.expired, TooLate: h.late, Connections: h.connections, Sockets: h.connections}
		if h.there {
			v.Interface, v.Expires = h.want.Interface, h.end
		}
		if h.err != nil {
			v.Err = h.err.Error()
		}
		part(at)[at.addr] = v
	}
	return out
}

// keep renews at a third of the default lifetime, what has a longer one at the first
// tick after a third of that, and puts back what was removed.
func (d *Address) keep(ctx context.Context) {
	defer close(d.done)
	tick := time.NewTicker(Lifetime / 3)
	defer tick.Stop()
	poll := time.NewTicker(countEvery)
	defer poll.Stop()
	for {
		renew := false
		select {
		case <-ctx.Done():
			return
		case <-d.p.dead:
			<-ctx.Done()
			return
		case <-tick.C:
			renew = true
		case <-d.repair:
		case <-poll.C:
			if !d.lingers(ctx) {
				continue
			}
		}
		if d.p.Wait() != nil {
			continue
		}
		select {
		case d.lock <- struct{}{}:
		case <-ctx.Done():
			return
		}
		d.work(renew)
		<-d.lock
	}
}

// work is one turn of keep.
func (d *Address) work(renew bool) {
	before := d.condition()
	if renew {
		d.renew(true)
	}
	d.look()
	if time.Now().Before(d.validUntil) {
		_ = d.ensure() // a killed process ends at its next gate
	}
	d.count()
	if d.condition() != before || len(d.ends) > 0 {
		signal(d.changed)
	}
}

func (d *Address) lingers(ctx context.Context) bool {
	select {
	case d.lock <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-d.lock }()
	for _, h := range d.holds {
		if h.want.Linger {
			return true
		}
	}
	return false
}

// condition sums up what a report would say, apart from times.
func (d *Address) condition() [4]int {
	var c [4]int
	for _, h := range d.holds {
		if h.there {
			c[0]++
		}
		if h.expired {
			c[1]++
		}
		if h.late {
			c[2]++
		}
		c[3] += h.connections
	}
	return c
}
