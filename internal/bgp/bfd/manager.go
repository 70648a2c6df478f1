package bfd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// ErrClosed is returned by a Manager that was closed.
var ErrClosed = errors.New("BFD is closed")

// Manager runs sessions. Its methods may be called from any goroutine.
type Manager struct {
	log     *slog.Logger
	changed func()

	mu     sync.Mutex
	closed bool
	loop   *loop // nil before the first session
	wanted map[Key]*entry
	whole  bool // every port was open when wanted was last applied: it stays so
}

// entry is a session and its part on the thread.
type entry struct {
	want Session
	w    *watch // only the thread looks into it
}

// New returns a Manager without sessions. changed is called whenever a session
// has changed its state, on the thread that sends and receives, at once: it
// must return at once and must not call the Manager.
func New(log *slog.Logger, changed func()) *Manager {
	if changed == nil {
		changed = func() {}
	}
	return &Manager{log: log, changed: changed, wanted: map[Key]*entry{}}
}

// Apply makes want the sessions that run. One that is there already goes on,
// with other settings if they differ, without a flap: new intervals are agreed
// on by a Poll Sequence (RFC 5880 section 6.8.3). One that is missing tells its
// peer AdminDown, section 6.8.16, and is forgotten.
//
// The error names every session that is refused, and every further one for the
// same; one that ran before goes on as it was, and the others are taken over. It
// also says which port is not open, as long as
// it is not; the sessions are taken over, and the port is tried again every second.
func (m *Manager) Apply(want []Session) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, refused := m.normal(want)
	switch {
	case m.closed:
		return ErrClosed
	case m.loop == nil && len(next) == 0:
		return refused
	case m.loop == nil:
		if err := m.start(); err != nil {
			return errors.Join(refused, err)
		}
	case m.whole && m.runs(next):
		return refused // the thread need not wake for it
	}
	// Sockets are opened here. The thread has packets to send.
	fresh := m.prepare(next)
	var errs []error
	ok := m.loop.orders.do(func(now time.Time) {
		for _, w := range m.adopt(next, now) {
			m.loop.quit(w, now)
		}
		errs = m.loop.welcome(fresh, now)
	})
	if !ok {
		return ErrClosed
	}
	problem := errors.Join(errs...)
	m.whole = problem == nil
	return errors.Join(refused, problem)
}

func (m *Manager) runs(next map[Key]Session) bool {
	return maps.EqualFunc(next, m.wanted, func(s Session, e *entry) bool { return s.same(&e.want) })
}

// normal returns the sessions that can be, and what is wrong with the others. One
// of those that ran before stays as it was.
func (m *Manager) normal(want []Session) (map[Key]Session, error) {
	next := make(map[Key]Session, len(want))
	var errs []error
	for _, s := range want {
		s, err := s.normal()
		if err != nil {
			errs = append(errs, err)
			e := m.wanted[s.key()]
			if e == nil {
				continue
			}
			s = e.want
		}
		if _, twice := next[s.key()]; twice {
			errs = append(errs, fmt.Errorf("BFD session with %s: given twice", s.key()))
			continue
		}
		next[s.key()] = s
	}
	return next, errors.Join(errs...)
}

// start starts the thread and the goroutine that logs for it.
func (m *Manager) start() error {
	news := make(chan event, 1024)
	l, err := newLoop(m.changed, news)
	if err != nil {
		return fmt.Errorf("BFD: %w", err)
	}
	m.loop = l
	go l.run()
	go m.report(news)
	return nil
}

func (m *Manager) report(news <-chan event) {
	for e := range news {
		log := m.log.With("session", e.key.String())
		switch {
		case e.trouble != nil:
			log.Warn("BFD packets cannot be sent", "error", e.trouble)
		case e.to == e.from:
			log.Info("BFD packets can be sent again")
		default:
			log.Info("BFD session changed", "from", e.from, "to", e.to, "diagnostic", e.diag, "remote", e.remote)
		}
	}
}

// arrivals is what the thread is to take in.
type arrivals struct {
	ports    map[port]*listener
	sessions []*entry
}

// prepare opens sockets for what is new in next. A port may be open already.
func (m *Manager) prepare(next map[Key]Session) (fresh arrivals) {
	fresh.ports = map[port]*listener{}
	var open map[port]*listener // or tried; they stay so until welcome
	m.loop.orders.do(func(time.Time) { m.loop.sockets.held, open = true, maps.Clone(m.loop.sockets.ports) })
	for k, s := range next {
		if m.wanted[k] != nil {
			continue
		}
		w := &watch{key: k, minTTL: s.MinTTL, slot: -1, state: Down}
		w.out.fd, w.trouble = source(k.Peer.Is6())
		w.prepare(0)
		e := &entry{s, w}
		fresh.sessions = append(fresh.sessions, e)
		m.wanted[k] = e
		if p := w.port(); open[p] == nil && fresh.ports[p] == nil {
			fresh.ports[p] = new(listener)
			fresh.ports[p].open(p)
		}
	}
	return fresh
}

// adopt runs on the thread. It gives sessions that stay their new settings, and
// returns those that go.
func (m *Manager) adopt(next map[Key]Session, now time.Time) (gone []*watch) {
	for k, e := range m.wanted {
		s, stays := next[k]
		switch {
		case !stays:
			gone = append(gone, e.w)
			delete(m.wanted, k)
		case e.w.m != nil && !e.want.same(&s):
			e.want, e.w.minTTL = s, s.MinTTL
			e.w.m.change(now, s.settings())
			m.loop.settle(e.w, now)
		}
	}
	return gone
}

func (s *Session) settings() settings {
	return settings{s.Transmit, s.Receive, s.Multiplier, s.Passive, s.Auth}
}

// quit runs on the thread. It ends a session the polite way.
func (l *loop) quit(w *watch, now time.Time) {
	w.m.disable(now)
	w.state = AdminDown // the caller knows
	l.settle(w, now)
}

// welcome runs on the thread. It takes in new sessions, and returns what is
// wrong with the ports.
func (l *loop) welcome(fresh arrivals, now time.Time) (errs []error) {
	l.sockets.take(fresh.ports)
	for _, e := range fresh.sessions {
		for _, o := range l.table.byPeer[e.w.key.Peer] {
			if o.key == e.w.key {
				l.drop(o) // it was still saying good-bye
			}
		}
		discr := uint32(0)
		for discr == 0 || l.table.byDiscr[discr] != nil {
			discr = rand.Uint32()
		}
		e.w.m = newMachine(now, e.want.settings(), discr, rand.Uint32(), rand.Float64)
		e.w.m.meet = l.meet
		l.add(e.w, now)
	}
	l.dropped = true
	return l.sockets.problems()
}

// Close tells all peers AdminDown and ends. It returns when they have answered
// or were told often enough, about a second at most, or with ctx.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	l := m.loop
	if m.closed || l == nil {
		m.closed = true
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	l.orders.do(func(now time.Time) {
		l.leaving = true
		for _, w := range l.all() {
			if w.m.state != AdminDown {
				l.quit(w, now)
			}
		}
	})
	m.mu.Unlock()
	var err error
	select {
	case <-l.orders.done:
	case <-ctx.Done():
		err = ctx.Err()
		l.orders.do(func(time.Time) { l.stopped = true })
		<-l.orders.done
	}
	l.orders.close()
	return err
}

// all runs on the thread: every session, those that say good-bye too.
func (l *loop) all() []*watch { return slices.Collect(maps.Values(l.table.byDiscr)) }
