// Package notify runs programs when an address comes to this node or leaves it, as the notify
// scripts of keepalived are. Programs and addresses are those of the node's files: an object of
// a cluster runs no program.
//
// Nobody waits for a program but the end of the daemon, and that for StopWait. The programs of
// one address run one after the other. While one runs, only the newest state of the address is
// remembered, so that the last state that is told is the one that holds.
package notify

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

const (
	// most is how many programs run at a time. The node may take over hundreds of addresses at
	// once, and has more important things to do then.
	most = 8
	// StopWait is how long the end of the daemon waits for programs. The kernel keeps an address
	// without a successor for 2 s at least; a daemon that is restarted has to be back by then.
	StopWait = time.Second
	// killWait is how long it waits for those that it has killed.
	killWait = 200 * time.Millisecond
)

// Options are what a Driver needs from outside. Logger and Node are required.
type Options struct {
	Logger *slog.Logger
	Node   model.NodeName
	// Run runs a command until it ends or ctx does, with variables NAME=value added to its
	// environment, and returns the end of its output. nil: a process does.
	Run func(ctx context.Context, command []string, variables ...string) (output string, err error)
}

// Result counts runs of programs.
type Result struct {
	VIP string // name of the object
	OK  bool   // the program ended with status 0 in time
}

// Driver tells programs the states that decisions give to addresses. All methods are safe for
// concurrent use.
type Driver struct {
	opts    Options
	changed chan struct{}
	slots   chan struct{} // of the programs that run
	running context.Context
	kill    context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex
	targets map[netip.Addr]*target // those that a program is to be told of
	closing bool
	runs    map[Result]uint64
}

var _ announce.Extender = (*Driver)(nil)

// New returns a Driver without programs.
func New(opts Options) *Driver {
	if opts.Run == nil {
		opts.Run = run
	}
	d := &Driver{
		opts: opts, changed: make(chan struct{}, 1), slots: make(chan struct{}, most),
		targets: make(map[netip.Addr]*target), runs: make(map[Result]uint64),
	}
	d.running, d.kill = context.WithCancel(context.Background())
	return d
}

func (*Driver) Name() model.SinkName { return model.SinkNotify }

func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Extend implements announce.Extender: what has not changed is not told.
func (*Driver) Extend(time.Time) bool { return true }

// SetPrograms replaces the programs, which are defaulted and valid, and the VIPs of files. A
// program that was there before is not told again what it knows. An address that is not in the
// files any more is told as one that the node does not have.
func (d *Driver) SetPrograms(programs []v1alpha1.NotifySpec, vips []model.VIP) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.targets {
		t.gone = true
	}
	for i := range vips {
		v := &vips[i]
		t := d.targets[v.Addr]
		if t == nil {
			t = &target{addr: v.Addr}
			d.targets[v.Addr] = t
		}
		t.name = v.Name
		t.concern(programs)
		t.gone = len(t.commands) == 0
	}
	for a, t := range d.targets {
		if t.gone && t.fact.state == v1alpha1.NotifyOwner {
			t.fact = fact{state: v1alpha1.NotifyStandby, reason: model.ReasonRemoved}
		}
		if d.wake(t); t.gone && !t.working {
			delete(d.targets, a)
		}
	}
	wake.Up(d.changed) // new ones are to be told
}

// Apply implements announce.Driver. It starts what is to be told and does not wait for it.
func (d *Driver) Apply(_ context.Context, want *model.Desired) (model.Applied, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !want.Synced {
		return model.Applied{}, nil
	}
	for _, t := range d.targets {
		if t.gone {
			continue
		}
		if f := look(want, d.opts.Node, t); f.state != "" {
			t.fact = f
			d.wake(t)
		}
	}
	return model.Applied{}, nil
}

// Close implements announce.Driver: it waits for programs, and kills those that take too long.
func (d *Driver) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closing = true
	d.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		d.workers.Wait()
		close(ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, StopWait)
	defer cancel()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	d.kill()
	select {
	case <-ended:
	case <-time.After(killWait):
	}
	return nil
}

// Runs returns how many programs have ended, by VIP and result.
func (d *Driver) Runs() map[Result]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.runs)
}

// wake has the programs of an address run that have something to be told, unless one does.
func (d *Driver) wake(t *target) {
	if t.working || d.closing || t.due() == nil {
		return
	}
	t.working = true
	d.workers.Go(func() { d.work(t) })
}

// work runs the programs of an address one after the other, until each knows the state.
func (d *Driver) work(t *target) {
	for {
		select {
		case d.slots <- struct{}{}:
		case <-d.running.Done():
			return
		}
		d.mu.Lock()
		c := t.due()
		if c == nil {
			if t.working = false; t.gone {
				delete(d.targets, t.addr)
			}
			d.mu.Unlock()
			<-d.slots
			return
		}
		t.told[c.key] = t.fact.state
		name, variables := t.name, t.variables(d.opts.Node)
		f := t.fact
		d.mu.Unlock()
		d.tell(c, f, name, t.addr, variables)
		<-d.slots
	}
}

// tell runs a program.
func (d *Driver) tell(c *command, f fact, name string, addr netip.Addr, variables []string) {
	ctx, cancel := context.WithTimeout(d.running, c.Timeout.Duration)
	defer cancel()
	began := time.Now()
	output, err := d.opts.Run(ctx, c.Command, variables...)
	log := d.opts.Logger.With("vip", name, "address", addr, "state", string(f.state), "command", c.Command[0], // its arguments may be secrets

		"took", time.Since(began).Round(time.Millisecond))
	switch {
	case err == nil:
		log.Info("notified")
	case d.running.Err() != nil:
		log.Warn("notify program killed, since the daemon ends", "output", output)
	default:
		log.Warn("notify program failed", "err", err, "output", output)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs[Result{VIP: name, OK: err == nil}]++
}

// command is a program as one address has it.
type command struct {
	*v1alpha1.NotifySpec
	key string // tells it apart from others
}

func newCommand(n *v1alpha1.NotifySpec) command {
	parts := append(slices.Clone(n.Command), "")
	for _, s := range n.States {
		parts = append(parts, string(s))
	}
	return command{n, strings.Join(parts, "\x00")} // which no argument has
}
