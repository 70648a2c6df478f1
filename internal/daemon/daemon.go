// Package daemon holds the loop: facts come in from sources, one goroutine owns
// the View, Decide turns it into a Desired, drivers are told, and what they
// report is the next fact.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/decide"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/source"
)

const (
	// tick is how often the loop turns without a cause: it renews what drivers
	// may do by themselves (decide.Grace) and feeds the watchdog.
	tick = 500 * time.Millisecond
	// stopTimeout bounds the handing over at the end; the systemd unit allows a
	// little more.
	stopTimeout = 12 * time.Second
	// stopAlone is how long a stopping daemon looks for a successor that does not
	// exist before it leaves its VIPs to their lifetime.
	stopAlone = 300 * time.Millisecond
	// farewellTimeout bounds the last round through the drivers.
	farewellTimeout = 2 * time.Second
)

// Options of a Daemon. All but Extras and Beat are required.
type Options struct {
	Logger  *slog.Logger
	Metrics prometheus.Registerer
	Node    model.NodeName
	Version string
	Sources []source.Source
	Drivers []announce.Driver // closed in reverse order
	// Unable goes into View.Unable.
	Unable string
	// Extras complete a status with what only an adapter knows. They are called on
	// the loop and must not block.
	Extras []func(*v1alpha1.NodeStatus)
	// Beat is called once per turn of the loop, before it: the watchdog.
	Beat func()
}

// Daemon is the loop and its parts.
type Daemon struct {
	opts    Options
	log     *slog.Logger
	changes chan func(*model.View)
	done    chan struct{} // closed when the loop has ended
	started time.Time
	runners []*announce.Runner
	metrics *metrics

	// Below: owned by the loop.
	view   model.View
	last   model.Desired // newest decision
	sent   model.Desired // newest that the drivers were given
	sentAt time.Time     // when all were told last
	links  map[string]model.Link
	moved  uint64 // generation of the newest decision whose reports are waited for
	news   bool   // since the last turn, worth a decision
	turned time.Time
	pace   pace
	stop   stop
	noted  noted
	events timeline

	ready atomic.Bool
	beat  atomic.Int64 // nanoseconds from View.Started to the last turn
	brief summaryStatus
}

// New returns a daemon that Run starts.
func New(o Options) (*Daemon, error) {
	if o.Logger == nil || o.Metrics == nil || o.Node == "" {
		return nil, errors.New("daemon: logger, metrics and node name are required")
	}
	d := &Daemon{
		opts: o, log: o.Logger,
		changes: make(chan func(*model.View), 256),
		done:    make(chan struct{}),
		started: time.Now(),
		events:  newTimeline(),
		noted:   noted{members: map[model.NodeName]lastSeen{}, sessions: map[string]session{}, vips: vipLog{map[vipKey]*vipSaid{}, map[*vipSaid]bool{}}, clashes: map[netip.Addr]clash{}},
	}
	d.view = model.View{
		Self: o.Node, Started: d.started, Unable: o.Unable,
		Synced:  map[model.SourceName]bool{},
		Links:   map[string]model.Link{},
		Health:  map[string]model.HealthState{},
		Applied: map[model.SinkName]model.Applied{},
	}
	for _, src := range o.Sources {
		d.view.Synced[src.Name()] = false // there is one, and it has not delivered
	}
	d.view.Now = d.started
	d.note(v1alpha1.Event{Kind: v1alpha1.EventDaemon, To: "started", Detail: o.Version})
	d.metrics = newMetrics(o.Metrics, o.Version)
	for _, dr := range o.Drivers {
		d.runners = append(d.runners, announce.NewRunner(dr, o.Logger, d.reported))
	}
	return d, nil
}

func (d *Daemon) publish(change func(*model.View)) {
	d.hand(func(v *model.View) {
		was, read := reflect.ValueOf(v.Links).Pointer(), v.Synced[model.SourceLink]
		change(v)
		onlyLinks := reflect.ValueOf(v.Links).Pointer() != was && read
		d.news = d.news || !onlyLinks || !d.sameLinks()
	})
}

// hand gives a change to the loop.
func (d *Daemon) hand(change func(*model.View)) {
	select {
	case d.changes <- change:
	case <-d.done:
	}
}

// reported takes the report of a driver into the View. One that says what the one
// before said is no reason to decide, unless somebody waits for its generation.
func (d *Daemon) reported(name model.SinkName, got model.Applied) {
	d.hand(func(v *model.View) {
		old, known := v.Applied[name]
		v.Applied[name] = got
		if !known || old.Gen < d.moved || !sameReport(&old, &got) {
			d.news = true
		}
	})
}

// Run works until ctx ends, then hands everything over and stops its parts in
// reverse order. An error of a source that cannot go on ends it too.
func (d *Daemon) Run(ctx context.Context) error {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var sources, drivers sync.WaitGroup
	for _, s := range d.opts.Sources {
		sources.Go(func() {
			if err := s.Run(work, d.publish); err != nil && work.Err() == nil {
				cancel(fmt.Errorf("%s: %w", s.Name(), err))
			}
		})
	}
	errs := make([]error, len(d.runners))
	stops := make([]context.CancelFunc, len(d.runners))
	ends := make([]chan struct{}, len(d.runners))
	for i, r := range d.runners {
		var c context.Context
		c, stops[i] = context.WithCancel(context.WithoutCancel(ctx))
		ends[i] = make(chan struct{})
		drivers.Go(func() {
			defer close(ends[i])
			errs[i] = r.Run(c)
		})
	}
	d.loop(ctx, work)
	close(d.done)
	err := context.Cause(work)
	cancel(nil)
	for i := len(d.runners) - 1; i >= 0; i-- {
		stops[i]()
		<-ends[i]
	}
	sources.Wait()
	drivers.Wait()
	return errors.Join(append(errs, err)...)
}

// loop is the one goroutine that owns the View.
func (d *Daemon) loop(ctx, work context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop := ctx.Done()
	d.turned = time.Now()
	for {
		select {
		case <-work.Done():
			return
		case <-stop:
			stop = nil
			d.stop.deadline = time.Now().Add(stopTimeout)
			d.view.Stopping = true
			d.log.Info("stopping: handing everything over")
		case change := <-d.changes:
			change(&d.view)
			d.drain()
			if !d.news {
				continue
			}
			if rest := d.pace.rest(time.Now()); rest > 0 && !d.view.Stopping {
				timer.Reset(rest)
				continue
			}
		case <-timer.C:
		}
		if d.opts.Beat != nil {
			d.opts.Beat()
		}
		d.turn(time.Now())
		if d.view.Stopping && d.finished() {
			d.farewell()
			return
		}
		timer.Reset(d.pause())
	}
}

// drain applies every change that is already there, so that one decision covers
// them all.
func (d *Daemon) drain() {
	for range cap(d.changes) {
		select {
		case change := <-d.changes:
			change(&d.view)
		default:
			return
		}
	}
}

// pause is how long the loop may sleep.
func (d *Daemon) pause() time.Duration {
	p := tick
	if !d.last.Wake.IsZero() {
		p = min(p, time.Until(d.last.Wake))
	}
	if !d.stop.aloneTill.IsZero() {
		p = min(p, time.Until(d.stop.aloneTill))
	}
	return max(p, time.Millisecond)
}

// turn makes a decision if there may be another one than the last, and tells the
// drivers if there is news.
func (d *Daemon) turn(now time.Time) {
	gap := now.Sub(d.turned)
	if gap > model.ResumeLimit {
		d.view.Resumed = now
		d.news = true
	}
	if gap > model.StallLimit {
		d.view.Stalls++
		d.news = true
		d.metrics.stalls.Inc()
		d.log.Warn("the daemon did not run for a while; looking again at everything it held", "gap", gap.Round(time.Millisecond))
		d.events.add(v1alpha1.Event{Kind: v1alpha1.EventStall, Node: string(d.opts.Node), Time: now, Gap: gap.Round(time.Millisecond).String()})
	}
	d.turned = now
	d.view.Now = now
	if d.news || d.view.Stopping || !d.pace.still(&d.last, now) {
		d.decide(now)
	} else {
		d.goOn(now)
	}
	d.news = false
	d.events.fold(now)
	d.answer()
	d.beat.Store(int64(now.Sub(d.view.Started)))
}

func (d *Daemon) decide(now time.Time) {
	want := decide.Decide(&d.view)
	d.metrics.decisions.Observe(time.Since(now).Seconds())
	all := moved(d.view.Memory, want.Memory) || !d.sameLinks()
	if all {
		d.moved = want.Gen
	}
	d.observe(&want)
	same := model.SameList(d.last.Status, want.Status) && sameMemory(&d.view.Memory, &want.Memory)
	d.view.Memory, d.links = want.Memory, d.view.Links
	d.last = want
	told := d.tell(&want, all, now)
	d.ready.Store(want.Synced && want.Memory.Settled)
	d.pace.decided(now, time.Now(), same && !told)
}

// goOn is what is left of a turn in which only time has passed: the last decision
// holds for longer.
func (d *Daemon) goOn(now time.Time) {
	d.last.ValidUntil = now.Add(decide.Grace)
	d.tell(&d.last, false, now)
}

// tell gives a decision to the drivers that it asks for something else than before,
// or to all of them, and tells whether there is any. At each tick the others hear that
// it still holds.
func (d *Daemon) tell(want *model.Desired, all bool, now time.Time) bool {
	out := *want // drivers keep it; the loop goes on with its own
	due := now.Sub(d.sentAt) >= tick
	told := false
	for i, r := range d.runners {
		switch {
		case all || !equal(d.opts.Drivers[i].Name(), &out, &d.sent):
			r.Submit(&out)
			told = true
		case due:
			r.Extend(&out)
		}
	}
	if due || all {
		d.sentAt = now
	}
	if due || told {
		d.sent = out
	}
	return told
}

// Healthy is nil while the loop turns.
func (d *Daemon) Healthy() error {
	if gap := time.Since(d.started) - time.Duration(d.beat.Load()); gap > 3*time.Second {
		return fmt.Errorf("the loop has not turned for %s", gap.Round(time.Millisecond))
	}
	return nil
}

// Ready is nil once the node takes part in elections.
func (d *Daemon) Ready() error {
	if !d.ready.Load() {
		return errors.New("not settled: the node does not know its group yet")
	}
	return d.Healthy()
}

// SetDraining starts or ends handing everything over.
func (d *Daemon) SetDraining(ctx context.Context, on bool) error {
	return d.do(ctx, func() {
		if d.view.Draining != on {
			d.log.Info("drain", "draining", on)
		}
		d.view.Draining = on
	})
}

// do runs a function on the loop, which then decides, and waits for it.
func (d *Daemon) do(ctx context.Context, f func()) error {
	return d.look(ctx, func() { f(); d.news = true })
}

// look runs a function on the loop that is no reason to decide, and waits for it.
func (d *Daemon) look(ctx context.Context, f func()) error {
	ended := make(chan struct{})
	select {
	case d.changes <- func(*model.View) { f(); close(ended) }:
	case <-d.done:
		return errors.New("the daemon is stopping")
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-ended:
		return nil
	case <-d.done:
		return errors.New("the daemon is stopping")
	case <-ctx.Done():
		return ctx.Err()
	}
}
