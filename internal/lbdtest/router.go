package lbdtest

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// HoldTime is after how long of silence a router without BFD gives a session up.
	// It counts from the moment at which the peer was last able to speak, which is
	// the worst case.
	HoldTime = 9 * time.Second
	// DetectTime is the same with BFD, whose sessions end with the daemon.
	DetectTime = 300 * time.Millisecond
	// routerTick is how often a router looks at its sessions.
	routerTick = 5 * time.Millisecond
	// A session that ended is tried again after this.
	connectMin, connectMax = 10 * time.Millisecond, 3 * time.Second
)

// RouterKind says how a router learns that a node is gone, and whether it keeps
// paths over a restart.
type RouterKind string

// The kinds of routers.
const (
	RouterPlain    RouterKind = "plain"    // hold time only
	RouterBFD      RouterKind = "bfd"      // DetectTime
	RouterGraceful RouterKind = "graceful" // hold time, and RFC 4724
)

// Router is a BGP router on a wire: it has a table of paths for each machine.
type Router struct {
	Name string
	Kind RouterKind

	net    *Net
	lan    string
	mu     sync.Mutex
	tables map[string]*table
	events []RouterEvent
	// refused are the machines that it has no session with.
	refused map[string]bool
	stop    chan struct{}
	ended   chan struct{}
}

// RouterEvent is a change of what a router knows of a path.
type RouterEvent struct {
	At     time.Time
	Node   string
	Prefix netip.Prefix
	// Path is whether it has one, Shutdown that it carries GRACEFUL_SHUTDOWN.
	Path, Shutdown bool
}

// Unbound is a path to a machine whose kernel has no address in the prefix.
type Unbound struct {
	Node   string
	Prefix netip.Prefix
	Since  time.Time // the path or the loss of the last address, whichever is later
	// Cut is when the router last could not reach the machine, or it lost power.
	Cut time.Time
	// Frozen is when the daemon of the session last was frozen, Dead that it was
	// killed, and Restart how long the router then keeps the path.
	Frozen  time.Time
	Dead    bool
	Restart time.Duration
}

// table is what a router has from one machine.
type table struct {
	host    *Host
	session *peering
	paths   map[netip.Prefix]bool // shutdown
	// stale: paths of a session that ended, until then.
	stale       time.Time
	boot        int
	cut, frozen time.Time
	unbound     map[netip.Prefix]time.Time
}

// peering is one session, which belongs to a process.
type peering struct {
	p          *Process
	boot       int
	graceful   bool
	restart    time.Duration
	restarting bool
	want       map[netip.Prefix]bool
	up         bool
	heard      time.Time
	again      time.Time
	changed    func()
}

// Router adds a router to a wire; Stop ends it.
func (n *Net) Router(name, lan string, kind RouterKind) *Router {
	n.Host(name).Attach("eth0", lan)
	r := &Router{Name: name, Kind: kind, net: n, lan: lan, tables: map[string]*table{}, refused: map[string]bool{}, stop: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		tick := time.NewTicker(routerTick)
		defer tick.Stop()
		for {
			select {
			case <-r.stop:
				return
			case <-tick.C:
				r.step(time.Now())
			}
		}
	}()
	return r
}

// Stop ends the router.
func (r *Router) Stop() {
	close(r.stop)
	<-r.ended
}

// Refuse has the router end its session with a machine, and begin none, or begin one again at once.
func (r *Router) Refuse(name string, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[name] = on
	if t := r.tables[name]; t != nil && t.session != nil {
		t.session.again = time.Now()
	}
}

// Has lists the machines to which the router has a path that holds the address,
// sorted.
func (r *Router) Has(a netip.Addr) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for name, t := range r.tables {
		for p := range t.paths {
			if p.Contains(a) {
				out = append(out, name)
				break
			}
		}
	}
	slices.Sort(out)
	return out
}

// Events are all changes of paths, oldest first.
func (r *Router) Events() []RouterEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Unbound lists the paths that lead to a kernel without the address.
func (r *Router) Unbound() (out []Unbound) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, t := range r.tables {
		for a, since := range t.unbound {
			u := Unbound{Node: name, Prefix: a, Since: since, Cut: t.cut, Frozen: t.frozen}
			if s := t.session; s != nil {
				u.Dead, u.Restart = s.p.isDead(), s.restart
			}
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b Unbound) int { return strings.Compare(a.Node+a.Prefix.String(), b.Node+b.Prefix.String()) })
	return out
}

func (r *Router) detect() time.Duration {
	if r.Kind == RouterBFD {
		return DetectTime
	}
	return HoldTime
}

// open makes a session the one of a machine. Paths of an earlier one that the
// router has not given up yet wait for what the new one says.
func (r *Router) open(h *Host, s *peering) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tables[h.name]
	if t == nil {
		t = &table{host: h, paths: map[netip.Prefix]bool{}, unbound: map[netip.Prefix]time.Time{}}
		r.tables[h.name] = t
	}
	r.look(t, time.Now())
	if old := t.session; old != nil && old.up {
		t.stale = old.heard.Add(r.detect())
	}
	s.boot = h.boots()
	s.again = time.Now().Add(r.net.after(connectMin, connectMax))
	t.session, t.boot = s, s.boot
}

// tell replaces what a session advertises.
func (r *Router) tell(s *peering, paths map[netip.Prefix]bool) (up bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.want = paths
	return s.up
}

// cease ends a session with a NOTIFICATION.
func (r *Router) cease(h *Host, s *peering) {
	reached := r.net.Connected(h.name, r.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tables[h.name]
	if t == nil || t.session != s {
		return
	}
	if s.up && !reached { // it will time out
		t.stale = s.heard.Add(r.detect())
	} else {
		r.set(t, nil)
	}
	t.session = nil
}

// step looks at every machine.
func (r *Router) step(now time.Time) {
	r.mu.Lock()
	var changed []func()
	for _, name := range slices.Sorted(maps.Keys(r.tables)) {
		t := r.tables[name]
		s := t.session
		was := s != nil && s.up
		r.look(t, now)
		if s != nil && s.up != was {
			changed = append(changed, s.changed)
		}
		r.check(t, now)
	}
	r.mu.Unlock()
	for _, f := range changed {
		f()
	}
}

// look lets a session live or end.
func (r *Router) look(t *table, now time.Time) {
	reached := r.net.Connected(t.host.name, r.Name)
	boot := t.host.boots()
	if !reached || boot != t.boot {
		t.cut, t.boot = now, boot
	}
	if !t.stale.IsZero() && !now.Before(t.stale) {
		t.stale = time.Time{}
		r.set(t, nil)
	}
	s := t.session
	if s == nil {
		return
	}
	dead, runs := s.p.isDead(), s.p.Running()
	if !dead && !runs {
		t.frozen = now
	}
	same := boot == s.boot // or the kernel has forgotten the connection
	switch refused := r.refused[t.host.name]; {
	case refused:
		s.up = false
		r.set(t, nil)
	case s.up && reached && same && runs:
		s.heard = now
		r.set(t, s.want)
	case s.up && reached && same && dead: // TCP closes
		s.up = false
		if s.graceful {
			t.stale = now.Add(s.restart)
		} else {
			r.set(t, nil)
		}
	case s.up && now.Sub(s.heard) >= r.detect():
		s.up, s.again = false, now.Add(r.net.after(connectMin, connectMax))
		r.set(t, nil)
	case !s.up && reached && same && runs && !now.Before(s.again):
		s.up, s.heard, t.stale = true, now, time.Time{}
		if !s.graceful || !s.restarting {
			r.set(t, nil) // the Forwarding State bit is not set
		}
		s.restarting = false
		r.set(t, s.want) // with End-of-RIB
	}
}

// set makes these the paths of a machine.
func (r *Router) set(t *table, want map[netip.Prefix]bool) {
	note := func(a netip.Prefix, path, shutdown bool) {
		r.events = append(r.events, RouterEvent{At: time.Now(), Node: t.host.name, Prefix: a, Path: path, Shutdown: shutdown})
	}
	for a := range t.paths {
		if _, ok := want[a]; !ok {
			delete(t.paths, a)
			note(a, false, false)
		}
	}
	for a, shutdown := range want {
		if had, ok := t.paths[a]; !ok || had != shutdown {
			t.paths[a] = shutdown
			note(a, true, shutdown)
		}
	}
}

// check notes which paths lead to a kernel without an address in the prefix.
func (r *Router) check(t *table, now time.Time) {
	for a := range t.unbound {
		if _, ok := t.paths[a]; !ok || t.host.has(a) {
			delete(t.unbound, a)
		}
	}
	for a := range t.paths {
		if _, known := t.unbound[a]; !known && !t.host.has(a) {
			t.unbound[a] = now
		}
	}
}

// has tells whether the machine has an address in the prefix, on a wire or on lo.
func (h *Host) has(p netip.Prefix) bool {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if a := p.Addr(); p.IsSingleIP() {
		_, x := h.wired(a)
		return x != nil || h.onLoopback(a) || h.on && h.net.unbound[a]
	}
	for at, x := range h.addrs {
		if x != nil && p.Contains(at.addr) {
			return true
		}
	}
	for a, is := range h.net.unbound {
		if is && h.on && p.Contains(a) {
			return true
		}
	}
	return false
}

// boots counts how often the machine has got power.
func (h *Host) boots() int {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.booted
}

// after draws a duration.
func (n *Net) after(low, high time.Duration) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.between(low, high)
}

func (p *Process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}
