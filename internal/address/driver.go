// Package address binds VIPs to interfaces with a finite lifetime that it keeps
// renewing. A daemon that was killed, frozen or has no valid decision stops
// renewing, and the kernel removes the VIPs by itself: a dead man's switch.
package address

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

var _ announce.Extender = (*Driver)(nil)

const (
	// Lifetime is the default of Options.Lifetime. It is renewed at a third, so
	// that an address which is renewed in time has at least two seconds left.
	Lifetime = 3 * time.Second
	// MinLifetime is the shortest lifetime: the kernel counts whole seconds, and
	// one would leave no time for a late renewal.
	MinLifetime = 2 * time.Second
	// margin is how long before the end of its lifetime an address counts as
	// expired. It covers the clock tick by which the kernel may be early
	// (ADDRCONF_TIMER_FUZZ, 20 ms) and the time of the call itself.
	margin = 150 * time.Millisecond
)

// Options configures a Driver.
type Options struct {
	Logger *slog.Logger
	// Lifetime is the valid lifetime in the kernel of a binding that does not ask
	// for another: whole seconds, at least MinLifetime; 0 means Lifetime. The kernel removes an address 0.01 to 0.25 s
	// after it, and up to 1 s after it if it has removed or changed another one
	// less than a second before (ADDRCONF_TIMER_FUZZ_MAX).
	Lifetime time.Duration
}

// Driver is the address driver. Apply must not be called concurrently with
// itself; everything else is safe for concurrent use.
type Driver struct {
	log      *slog.Logger
	lifetime time.Duration
	stats    counters
	changed  chan struct{} // one pending report
	tasks    tasks
	cut      *cutter
	// missing: an address is wanted, not expired, and not there or not delivered to yet.
	missing atomic.Bool

	mu       announce.Mutex // held during calls to the kernel
	kernel   Kernel         // nil after Close
	decision decision
	holds    holds
	told     report
	beats    map[time.Duration]time.Time // next renewal of all holds with a lifetime
	bound    map[place]bool              // bound or adopted by this process
	here     map[netip.Addr]Entry        // see census
}

// decision is what the last Apply was told beside the bindings.
type decision struct {
	validUntil time.Time
	synced     bool
	elsewhere  map[netip.Addr][]netip.Addr // see census
}

// tasks are the goroutines of the driver, and what they are woken for.
type tasks struct {
	sync.WaitGroup
	cancel context.CancelFunc
	repair chan struct{} // one pending look at the kernel
	linger chan struct{} // one pending count of connections
	paced  chan struct{} // one pending look at the beats
}

// place is an address on an interface.
type place struct {
	addr  netip.Addr
	index int
}

// New opens the sockets and starts renewing, with nothing bound as yet. Close
// ends it.
func New(opt Options) (*Driver, error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	d, err := NewOn(k, opt)
	if err != nil {
		k.Close()
		return nil, err
	}
	return d, nil
}

// NewOn is New on a given kernel, which Close closes.
func NewOn(k Kernel, opt Options) (*Driver, error) {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	opt.Lifetime = cmp.Or(opt.Lifetime, Lifetime)
	if opt.Lifetime < MinLifetime || opt.Lifetime%time.Second != 0 {
		return nil, fmt.Errorf("lifetime: %s is not a whole number of seconds of at least %s", opt.Lifetime, MinLifetime)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Driver{
		log:      opt.Logger,
		lifetime: opt.Lifetime,
		changed:  make(chan struct{}, 1),
		tasks:    tasks{cancel: cancel, repair: make(chan struct{}, 1), linger: make(chan struct{}, 1), paced: make(chan struct{}, 1)},
		cut:      newCutter(opt.Logger, k),
		mu:       k.Mutex(),
		kernel:   k,
		holds:    holds{givenUp: make(map[netip.Addr]bool)},
		beats:    map[time.Duration]time.Time{opt.Lifetime: time.Now().Add(opt.Lifetime / 3)},
		bound:    make(map[place]bool),
	}
	d.tasks.Go(func() { d.keep(ctx) })
	d.tasks.Go(func() { d.watch(ctx) })
	d.tasks.Go(func() { d.cut.run(ctx) })
	return d, nil
}

func (d *Driver) Name() model.SinkName { return model.SinkAddress }

// Changed fires when an address expired or was removed by somebody else, and
// when a count of connections changed.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Stats returns the counters since New.
func (d *Driver) Stats() Stats { return d.stats.read() }

// Close stops renewing and releases the sockets. What is bound stays bound for
// the rest of its lifetime.
func (d *Driver) Close(context.Context) error {
	d.tasks.cancel()
	d.tasks.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kernel != nil {
		d.kernel.Close()
		d.kernel = nil
	}
	return nil
}

// Apply binds what is wanted and unbinds what is not. The report holds every
// wanted VIP and every address with lbd's mark. Bound means bound on the wanted
// interface; a VIP that is still on another one has only Interface and Expires.
// What is on lo is in Applied.Loopback, all else in Applied.VIPs; a VIP may be
// wanted, and be, in both.
func (d *Driver) Apply(ctx context.Context, want *model.Desired) (model.Applied, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kernel == nil {
		return model.Applied{}, errors.New("address driver: apply: closed")
	}
	begin := time.Now()
	d.decision = decision{want.ValidUntil, want.Synced, want.Elsewhere}
	if d.holds.accept(want.Bind, d.lifetime) {
		d.pace()
	}
	for _, a := range want.Spared {
		delete(d.holds.givenUp, a)
	}
	s, err := d.look()
	if err != nil {
		d.stats.errors.Add(1)
		applied := d.report(nil)
		applied.Err = err.Error()
		return applied, err
	}
	d.observeAll(s)
	created := d.ensure(ctx, s, d.outdated())
	again := d.renew(ctx, func(lifetime time.Duration) time.Time {
		if created && lifetime == d.lifetime {
			return begin // let all end together: the kernel looks for ended ones once a second
		}
		return begin.Add(-lifetime / 3)
	})
	if again != nil {
		s = again
	}
	err = errors.Join(ctx.Err(), fold(append(d.failures(), d.prune(s)...)))
	d.noteMissing()
	d.recount()
	applied := d.report(s)
	if err != nil {
		applied.Err = err.Error()
	}
	return applied, err
}

// Extend lets the driver renew for longer, if all is as it should be.
func (d *Driver) Extend(until time.Time) bool {
	if d.missing.Load() || !d.mu.TryLock() {
		return false
	}
	defer d.mu.Unlock()
	if d.kernel == nil || d.outdated() {
		return false
	}
	d.decision.validUntil = until
	return true
}

// outdated tells whether the decision is too old to bind anything. One without
// a limit is good for what Apply is asked for, but for no renewal.
func (d *Driver) outdated() bool {
	return !d.decision.validUntil.IsZero() && !time.Now().Before(d.decision.validUntil)
}

// fire asks for another Apply.
func (d *Driver) fire() { wake.Up(d.changed) }
