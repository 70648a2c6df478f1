package lbdtest

import (
	"context"
	"errors"
	"sync"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/source"
)

// ErrKilled is what everything that belongs to a killed process returns.
var ErrKilled = errors.New("lbdtest: the process was killed")

// Process is the gate that all parts of one simulated process pass: frozen, they
// stop there; killed, they end there. Code between two gates runs on, as if the
// signal had come a moment later.
type Process struct {
	mu    sync.Mutex
	thaw  chan struct{} // nil: runs
	dead  chan struct{}
	hooks []func() // are called after each change
}

// NewProcess returns a process that runs.
func NewProcess() *Process { return &Process{dead: make(chan struct{})} }

// Freeze stops the process, as SIGSTOP does, once all that it has begun to do at this moment is
// done or waits for a call of the kernel.
func (p *Process) Freeze() {
	synctest.Wait()
	p.mu.Lock()
	if p.thaw == nil {
		p.thaw = make(chan struct{})
	}
	p.mu.Unlock()
	p.changed()
}

// onChange registers what is called when the process freezes, thaws or ends.
func (p *Process) onChange(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hooks = append(p.hooks, f)
}

func (p *Process) changed() {
	p.mu.Lock()
	hooks := p.hooks
	p.mu.Unlock()
	for _, f := range hooks {
		f()
	}
}

// Thaw lets it go on, as SIGCONT does.
func (p *Process) Thaw() {
	p.mu.Lock()
	if p.thaw != nil {
		close(p.thaw)
		p.thaw = nil
	}
	p.mu.Unlock()
	p.changed()
}

// Kill ends it without a word, as SIGKILL does.
func (p *Process) Kill() {
	p.mu.Lock()
	select {
	case <-p.dead:
	default:
		close(p.dead)
	}
	p.mu.Unlock()
	p.changed()
}

// Running tells whether it is neither frozen nor killed.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.dead:
		return false
	default:
		return p.thaw == nil
	}
}

// Wait returns when the process runs, or ErrKilled.
func (p *Process) Wait() error {
	for {
		p.mu.Lock()
		thaw := p.thaw
		p.mu.Unlock()
		select {
		case <-p.dead:
			return ErrKilled
		default:
		}
		if thaw == nil {
			return nil
		}
		select {
		case <-thaw:
		case <-p.dead:
			return ErrKilled
		}
	}
}

// sleep lets fake time pass in the process.
func (p *Process) sleep(d time.Duration) error {
	time.Sleep(d)
	return p.Wait()
}

// Driver puts the gate before the calls of a driver, and shows each Desired to
// seen, which may be nil.
func (p *Process) Driver(d announce.Driver, seen func(*model.Desired)) announce.Driver {
	return &gatedDriver{d, p, seen}
}

type gatedDriver struct {
	announce.Driver
	p    *Process
	seen func(*model.Desired)
}

func (g *gatedDriver) Apply(ctx context.Context, want *model.Desired) (model.Applied, error) {
	if err := g.p.Wait(); err != nil {
		return model.Applied{}, err
	}
	if g.seen != nil {
		g.seen(want)
	}
	got, err := g.Driver.Apply(ctx, want)
	return got, errors.Join(err, g.p.Wait())
}

// Extend is that of a driver that can.
func (g *gatedDriver) Extend(until time.Time) bool {
	e, can := g.Driver.(announce.Extender)
	return can && g.p.Running() && e.Extend(until)
}

// Source puts the gate before what a source publishes.
func (p *Process) Source(s source.Source) source.Source { return &gatedSource{s, p} }

type gatedSource struct {
	source.Source
	p *Process
}

func (g *gatedSource) Run(ctx context.Context, publish source.Publish) error {
	return g.Source.Run(ctx, func(change func(*model.View)) {
		if g.p.Wait() == nil {
			publish(change)
		}
	})
}

// Facts is a source whose facts a test sets. Each Set replaces the last one, and
// must therefore say all that the source knows. A killed process ends it with
// ErrKilled, and the daemon with it.
type Facts struct {
	name model.SourceName
	p    *Process

	mu   sync.Mutex
	last func(*model.View)
	news chan struct{}
}

var _ source.Source = (*Facts)(nil)

// NewFacts returns a source that begins with these facts; nil are none yet.
func NewFacts(p *Process, name model.SourceName, first func(*model.View)) *Facts {
	f := &Facts{name: name, p: p, last: first, news: make(chan struct{}, 1)}
	if first != nil {
		f.news <- struct{}{}
	}
	return f
}

// Set replaces the facts.
func (f *Facts) Set(change func(*model.View)) {
	f.mu.Lock()
	f.last = change
	f.mu.Unlock()
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// Name returns the name that NewFacts was given.
func (f *Facts) Name() model.SourceName { return f.name }

// Run publishes until ctx ends or the process is killed.
func (f *Facts) Run(ctx context.Context, publish source.Publish) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.p.dead:
			return ErrKilled
		case <-f.news:
		}
		if err := f.p.Wait(); err != nil {
			return err
		}
		f.mu.Lock()
		change := f.last
		f.mu.Unlock()
		publish(func(v *model.View) {
			change(v)
			v.Synced[f.name] = true
		})
	}
}

// NewLinks returns the source of the interfaces of a machine.
func NewLinks(p *Process, h *Host) *Facts {
	read := func() func(*model.View) {
		links := h.Links()
		return func(v *model.View) { v.Links = links }
	}
	f := NewFacts(p, model.SourceLink, read())
	h.watch(&watcher{links: func() { f.Set(read()) }})
	return f
}
