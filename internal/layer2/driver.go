// Package layer2 makes virtual IP addresses known on the local network: it
// announces them by gratuitous ARP (RFC 5227) and unsolicited neighbour
// advertisements (RFC 4861), asks the wire whether anybody else holds one,
// watches for others that use one, and silences the host for one that is being
// given up. The addresses themselves are bound, and answered for, by the kernel,
// see package address, or else this package answers for them.
package layer2

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

var _ announce.Extender = (*Driver)(nil)

// defaultSilence outlives the kernel lifetime of a VIP (3 s, which the kernel may look
// at a second late or more) also when this process ends and the last
// renewal was a third of it ago.
const defaultSilence = 9 * time.Second

// Options are what New needs.
type Options struct {
	// Logger is required.
	Logger *slog.Logger
	// SilenceLifetime is how long the kernel keeps a VIP silent after the last
	// renewal, which happens at a third of it; 9 s if zero. It must be longer than
	// the kernel lifetime of a VIP plus a third of itself, or a VIP could outlive
	// its silence.
	SilenceLifetime time.Duration
	// Standstill is how long this process may stand still before another node may
	// begin to take what it answers for itself; 44 ms, which the fastest heartbeats
	// need, if zero. The probes of the other node come on top.
	Standstill time.Duration
}

// Driver is the layer 2 part of a Desired. Its methods but Apply and Close are
// safe for concurrent use.
type Driver struct {
	log      *slog.Logger
	kernel   Kernel
	silence  silences
	nonce    nd.Nonce
	changed  chan struct{}
	counters counters
	clock    clock
	began    time.Time

	stop context.CancelFunc
	wg   sync.WaitGroup
	wake chan struct{} // the earliest deadline has changed

	mu         announce.Mutex
	entries    map[netip.Addr]*entry
	queue      queue
	backlog    backlog
	lines      map[string]*line // by interface
	conflicts  conflictNews
	ports      map[portKey]*openPort
	own        map[model.MAC]struct{} // of all interfaces of this host
	validUntil time.Time
	portless   bool // entries want a port that could not be opened
	told       report
	responder  responder
}

// New returns a driver whose timer runs until Close. It touches the network only
// in Apply and after it.
func New(o Options) *Driver {
	return NewOn(&linux{}, o)
}

// NewOn is New on a given kernel, which Close closes.
func NewOn(k Kernel, o Options) *Driver {
	lifetime := cmp.Or(o.SilenceLifetime, defaultSilence)
	d := newDriver(o.Logger, k)
	d.clock.allow(cmp.Or(o.Standstill, defaultStandstill) + standstillMore)
	for f := range d.silence.of {
		d.silence.of[f] = silence.New(k.Rules(Family(f), lifetime), lifetime, k.Mutex(), d.silenceLost)
	}
	return d
}

func newDriver(log *slog.Logger, k Kernel) *Driver {
	ctx, stop := context.WithCancel(context.Background())
	d := &Driver{
		log: log, kernel: k, stop: stop, began: time.Now(),
		changed: make(chan struct{}, 1),
		wake:    make(chan struct{}, 1),
		mu:      k.Mutex(),
		entries: make(map[netip.Addr]*entry),
		backlog: newBacklog(),
		lines:   make(map[string]*line),
		ports:   make(map[portKey]*openPort),
		clock:   clock{mu: k.Mutex(), limit: defaultStandstill + standstillMore, kick: make(chan struct{}, 1)},
	}
	_, _ = rand.Read(d.nonce[:]) // never fails
	d.wg.Go(func() { d.run(ctx) })
	d.wg.Go(func() { d.watch(ctx) })
	return d
}

func (d *Driver) Name() model.SinkName { return model.SinkLayer2 }

// Changed fires when a probe series has ended, a conflict was seen, or something
// failed between two calls of Apply.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Close stops sending and closes all sockets. A silence stays in force for its
// lifetime, see Cleanup.
func (d *Driver) Close(context.Context) error {
	d.stop()
	d.wg.Wait()
	var errs []error
	for _, s := range d.silence.of {
		errs = append(errs, s.Close())
	}
	d.closePorts()
	d.kernel.Close() // without the lock: readers may wait for it
	return errors.Join(errs...)
}

// Cleanup removes the nftables tables that a daemon left behind, and names them.
// Nothing is silent afterwards.
func Cleanup(context.Context) ([]string, error) { return silence.Cleanup() }

// Probe asks the wire once whether anybody holds addr on an interface, in about
// 50 ms. It returns an error if the question could not be put.
func Probe(ctx context.Context, logger *slog.Logger, iface string, addr netip.Addr) (model.ProbeResult, error) {
	d := New(Options{Logger: logger})
	defer func() { _ = d.Close(ctx) }()
	want := &model.Desired{L2: []model.L2Advert{{Addr: addr, Interface: iface, Mode: model.L2Probe, Series: 1}}}
	for {
		got, err := d.Apply(ctx, want)
		if err != nil {
			return model.ProbeResult{}, err
		}
		if r := got.VIPs[addr].Probe; r.Done {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return model.ProbeResult{}, fmt.Errorf("probe: %s on %q: %w", addr, iface, ctx.Err())
		case <-d.Changed():
		}
	}
}

func (d *Driver) notify() { wake.Up(d.changed) }

// silenceLost is told by a silence that could not be renewed.
func (d *Driver) silenceLost(err error) {
	d.counters.errors.Add(1)
	d.log.Debug("silence not renewed", "err", err)
	d.notify()
}

// Stats are totals since the driver was made.
type Stats struct {
	Announcements  uint64 // frames that announced a VIP, defences included
	Probes         uint64 // probe frames sent
	ProbesAnswered uint64 // probe series that ended because somebody holds the VIP
	ProbesSilent   uint64 // probe series that nobody answered
	Conflicts      uint64 // frames in which a foreign host used an announced VIP
	Defences       uint64 // announcements that answered a conflict
	Answers        uint64 // requests and solicitations that were answered
	Dropped        uint64 // those that were not, since there were too many
	Lapses         uint64 // times that the process stood still for too long to go on answering
	Errors         uint64 // frames, sockets and rules that failed
}

type counters struct {
	announcements, probes, answered, silent, conflicts, defences, answers, dropped, errors atomic.Uint64
}

// Stats returns the totals.
func (d *Driver) Stats() Stats {
	c := &d.counters
	return Stats{
		Announcements:  c.announcements.Load(),
		Probes:         c.probes.Load(),
		ProbesAnswered: c.answered.Load(),
		ProbesSilent:   c.silent.Load(),
		Conflicts:      c.conflicts.Load(),
		Defences:       c.defences.Load(),
		Answers:        c.answers.Load(),
		Dropped:        c.dropped.Load(),
		Lapses:         d.clock.count(),
		Errors:         c.errors.Load(),
	}
}
