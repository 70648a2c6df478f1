package bfd

import (
	"maps"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/sockfilter"
)

const (
	retryPort = time.Second // until a port that could not be opened is tried again
	calmWait  = time.Second // the longest that packets without news wait to be read
	rounds    = 8           // batches in a row before sending has its turn
)

// listener is what receives the packets for a port, or could not be opened.
//
// Nearly all packets say that nothing has changed. They have to be read before the
// end of the Detection Time, and when they came is known from the kernel, so the
// thread need not wake for each of them: they go to a socket of their own, which
// is read whenever the thread is awake.
type listener struct {
	urgent socket // what calm does not get
	calm   socket // packets that say no more than Up; closed where the kernel cannot sort
	err    error  // why urgent is closed
	retry  time.Time
	users  int // sessions
}

// socket is one that packets are read from.
type socket struct {
	fd    int       // -1: closed
	empty time.Time // when it was last seen empty
	lost  uint32    // packets dropped for want of room since it was opened
}

func (s *listener) open(p port) {
	now := time.Now()
	s.retry = now.Add(retryPort)
	s.urgent, s.calm = socket{-1, now, 0}, socket{-1, now, 0}
	if s.urgent.fd, s.err = listen(p); s.err == nil {
		s.calm.fd = split(s.urgent.fd, p)
	}
}

func (s *listener) close() {
	shut(&s.urgent.fd)
	shut(&s.calm.fd)
}

// receivers are the listeners of all sessions.
type receivers struct {
	ports  map[port]*listener
	bufs   [2]*inbound // of the two sockets of a port
	opened bool        // sockets were, since the last rest
	unread bool        // packets were left in the sockets
	held   bool        // sessions are about to come: close no port
}

// take takes over listeners that were opened elsewhere, and ends the hold.
func (r *receivers) take(fresh map[port]*listener) {
	maps.Copy(r.ports, fresh)
	r.opened, r.held = r.opened || len(fresh) > 0, false
}

// problems is what is wrong with ports that sessions need, always in the same
// order.
func (r *receivers) problems() (errs []error) {
	for _, p := range ports {
		if s := r.ports[p]; s != nil && s.users > 0 {
			errs = append(errs, s.err)
		}
	}
	return errs
}

// split opens a second socket for the port of urgent, which gets the packets
// whose State is Up and that neither poll, nor answer a poll, nor ask for Demand
// mode: RFC 5880 section 4.1. It returns -1 if that cannot be had.
//
// The first socket was bound without SO_REUSEPORT, so that a port in use by somebody
// else is still found out. The order in which sockets are bound is their number.
func split(urgent int, p port) int {
	share := option{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1}
	calm, err := -1, unix.SetsockoptInt(urgent, share.level, share.name, share.value)
	if err == nil {
		calm, err = listen(p, share)
	}
	if err == nil {
		const flags, up = 0xf3, 0xc0 // Sta, P, F, D, M
		err = sockfilter.Attach(calm, unix.SO_ATTACH_REUSEPORT_CBPF,
			bpf.LoadAbsolute{Off: 1, Size: 1}, // a packet without it is for urgent
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: flags},
			bpf.JumpIf{Val: up, SkipFalse: 1},
			bpf.RetConstant{Val: 1},
			bpf.RetConstant{Val: 0},
		)
	}
	if err == nil {
		return calm
	}
	shut(&calm)
	_ = unix.SetsockoptInt(urgent, share.level, share.name, 0)
	return -1
}

// settled tells whether packets that say no more than Up are no news to any session
// of a port.
func (l *loop) settled(p port) bool {
	if l.sockets.unread || len(l.table.byDiscr) > many {
		return false
	}
	for _, w := range l.table.byDiscr {
		if w.port() == p && w.m.state != Up {
			return false
		}
	}
	return true
}

// group is the sessions that send at the same time.
type group struct {
	at time.Time
	n  int
}

// meet returns when a session sends that may do so from least to most: with those that were the
// last to choose a time, or as the first of a new group at own. Those that sent together choose
// one after the other, so they stay together.
func (l *loop) meet(least, most, own time.Time) time.Time {
	if g := &l.group; g.n < together && !g.at.Before(least) && !g.at.After(most) {
		g.n++
		return g.at
	}
	l.group = group{own, 1}
	return own
}

// drain receives what waits in the sockets, and tells whether it got to the
// end. A flood is left for later, so that sending goes on.
//
// Sessions answer when all that waited was read, not packet by packet: what a
// late thread finds is a history, and only where it ends is of interest to the
// peer. An answer to each step would make the peer take as many.
func (l *loop) drain() (empty bool) {
	empty = true
	for p, s := range l.sockets.ports {
		if s.urgent.fd < 0 {
			if !time.Now().Before(s.retry) {
				s.open(p)
				l.sockets.opened = true
			}
			continue
		}
		empty = l.read(p, s) && empty
		l.answer()
	}
	l.sockets.unread = !empty
	return empty
}

// read receives what waits at a port, in the order in which it came. The urgent
// packets are taken out first: those without news that were sent before them are
// there then, and not found to be left when a session has long gone Down.
func (l *loop) read(p port, s *listener) (empty bool) {
	lanes := [2]lane{{socket: &s.urgent, buf: l.sockets.bufs[0], since: s.urgent.empty}, {socket: &s.calm, buf: l.sockets.bufs[1], since: s.calm.empty}}
	for {
		var first *lane
		for i := range lanes {
			a := &lanes[i]
			if a.fill(l) && (first == nil || a.head.before(&first.head)) {
				first = a
			}
		}
		if first == nil {
			return lanes[0].done && lanes[1].done
		}
		at := first.head.arrived(first.now, first.since)
		if first.lossy {
			at = first.now
		}
		l.receive(&first.head, p, s.urgent.fd, at, first.now)
		first.ready = false
	}
}

// lane is a socket while it is read.
type lane struct {
	*socket
	buf   *inbound
	since time.Time // when it was last seen empty before

	round   int
	now     time.Time // when the batch was received
	lossy   bool      // packets that came after the batch were lost
	next, n int       // of the batch
	head    datagram  // the next one, if ready
	ready   bool
	done    bool // it was seen empty
}

// fill has the next packet ready, if there is one.
func (a *lane) fill(l *loop) bool {
	if a.ready {
		return true
	}
	if a.next == a.n && !a.refill(l) {
		return false
	}
	a.head, a.ready = a.buf.get(a.next), true
	a.next++
	return true
}

func (a *lane) refill(l *loop) bool {
	if a.fd < 0 {
		a.done = true
	}
	if a.done || a.round == rounds {
		return false
	}
	a.now = time.Now()
	n, err := a.buf.receive(a.fd)
	a.lossy = a.round == 0 && n == batch && l.overflowed(a.socket)
	a.done = n < batch || err != nil
	if a.done {
		a.empty = a.now
	}
	a.round++
	a.next, a.n = 0, n
	return n > 0
}

// overflowed tells whether a long queue has lost packets since last asked. They
// were newer than those that wait, and that is not the fault of the peers: what
// waits counts as heard now.
func (l *loop) overflowed(s *socket) bool {
	lost, err := dropCount(s.fd)
	if err != nil || lost == s.lost {
		return false
	}
	l.stats.Overflow += uint64(lost - s.lost)
	s.lost = lost
	return true
}
