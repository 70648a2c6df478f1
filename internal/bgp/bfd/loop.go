package bfd

import (
	"errors"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	together   = 16                     // sessions, at most, that send in one wake
	many       = 256                    // sessions, beyond which it costs more to look at all of them than it saves
	lateness   = 2 * time.Millisecond   // from which on the own thread is to blame
	lookAgain  = time.Millisecond       // after which a late thread reads its sockets once more
	floodLimit = 100 * time.Millisecond // so long may packets that keep coming defer the end of a Detection Time
)

// loop is the thread that all sessions live on. Only the thread touches it, but
// for what is marked.
type loop struct {
	changed func()       // never waits
	news    chan<- event // for the log; full: forgotten
	orders  orders

	sockets receivers
	queue   queue
	group   group
	table   table
	ifaces  interfaces
	heard   []*watch // sessions with packets received and not yet answered
	stats   Stats
	wakes   uint64
	rest    *rest // nil if it cannot be had
	alarm   alarm
	dropped bool // a session was dropped since the last sweep
	leaving bool // end with the last session
	stopped bool
}

// orders are what the thread is to do for other goroutines. Any goroutine uses
// them, and wakes the thread.
type orders struct {
	ops  chan func(now time.Time)
	wake int           // eventfd that tells of ops
	done chan struct{} // closed when the thread has ended
}

// event is a change of state, for the log.
type event struct {
	key      Key
	from, to State
	diag     Diag
	remote   State
	trouble  error // a packet could not be sent; then nothing else is set
}

func newLoop(changed func(), news chan<- event) (*loop, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &loop{
		changed: changed, news: news,
		orders:  orders{make(chan func(time.Time), 16), wake, make(chan struct{})},
		sockets: receivers{ports: map[port]*listener{}, bufs: [2]*inbound{new(inbound), new(inbound)}},
		table:   table{map[uint32]*watch{}, map[netip.Addr][]*watch{}},
		ifaces:  interfaces{},
	}, nil
}

// do runs f on the thread and waits for it. It returns false if the thread has
// ended.
func (o *orders) do(f func(now time.Time)) bool {
	ran := make(chan struct{})
	select {
	case o.ops <- func(now time.Time) { f(now); close(ran) }:
	case <-o.done:
		return false
	}
	one := [8]byte{1}
	_, _ = unix.Write(o.wake, one[:]) // full means that it is awake already
	select {
	case <-ran:
		return true
	case <-o.done:
		return false
	}
}

// obey runs the orders, on the thread.
func (o *orders) obey() {
	var count [8]byte
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(o.wake), uintptr(unsafe.Pointer(&count)), 8)
	for {
		select {
		case f := <-o.ops:
			f(time.Now())
		default:
			return
		}
	}
}

// close ends do for good. The thread has ended.
func (o *orders) close() { _ = unix.Close(o.wake) }

// run is the thread. It waits for sockets, orders and the next deadline at once, in a
// system call of its own or, while there is time, in Go's network poller.
func (l *loop) run() {
	runtime.LockOSThread() // never unlocked: the thread, and its timer slack, end here
	defer close(l.orders.done)
	defer close(l.news)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	l.rest, _ = newRest()
	for !l.stopped {
		if due := l.wait(); !due.IsZero() {
			now := time.Now()
			l.delayed(now.Sub(due), now)
		}
		l.wakes++
		l.orders.obey()
		l.turn(l.drain())
		l.sweep()
	}
	if l.rest != nil {
		_ = l.rest.close()
	}
	for _, s := range l.sockets.ports {
		s.close()
	}
	for _, w := range l.table.byDiscr {
		w.out.close()
	}
}

// wait returns when there is something to do, and since when there is, if that
// is a deadline. It looks at nothing: what comes while the thread waits to run
// again is found by drain.
func (l *loop) wait() (due time.Time) {
	var all [1 + 2*4]unix.PollFd
	fds, next := l.awaited(all[:0])
	if l.rests(time.Now()) {
		err := l.rest.watch(fds, l.sockets.opened)
		l.sockets.opened = err != nil
		if err == nil {
			err = l.rest.until(next)
		}
		if err != nil {
			_ = l.rest.close()
			l.rest = nil
		}
	} else {
		if l.rest != nil {
			l.rest.leave()
		}
		var timeout *unix.Timespec
		if !next.IsZero() {
			t := unix.NsecToTimespec(int64(max(0, time.Until(next))))
			timeout = &t
		}
		_, _ = unix.Ppoll(fds, timeout, nil)
	}
	// A packet may have come before a thread that is late for its deadline runs.
	if next.IsZero() || time.Now().Before(next) {
		return time.Time{}
	}
	return next
}

// awaited is what the thread waits for: sockets, and the next deadline, zero
// without one. It always has the same order.
func (l *loop) awaited(fds []unix.PollFd) (_ []unix.PollFd, next time.Time) {
	await := func(fd int) { fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}) }
	earliest := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	await(l.orders.wake)
	if len(l.queue) > 0 {
		earliest(l.queue[0].deadline)
	}
	for _, p := range ports {
		s := l.sockets.ports[p]
		switch {
		case s == nil:
			continue
		case s.urgent.fd < 0:
			earliest(s.retry)
			continue
		}
		await(s.urgent.fd)
		switch {
		case s.calm.fd < 0:
		case l.settled(p):
			earliest(s.calm.empty.Add(calmWait))
		default:
			await(s.calm.fd)
		}
	}
	return fds, next
}

// receive handles one packet that arrived at the time at.
func (l *loop) receive(d *datagram, p port, fd int, at, now time.Time) {
	pkt, err := Parse(d.payload)
	if err != nil {
		l.stats.Dropped[DropMalformed]++
		return
	}
	w, why := l.table.find(&pkt, d, p.multihop, func(w *watch) int {
		i := l.ifaces.index(w.key.Interface, fd, now, false)
		if i != d.index {
			i = l.ifaces.index(w.key.Interface, fd, now, true)
		}
		return i
	})
	switch {
	case w == nil:
		l.stats.Dropped[why]++
	case why != accepted:
		w.drops[why]++
	default:
		w.refused = w.m.receive(at, now, &pkt, d.payload)
		if w.refused != accepted {
			w.drops[w.refused]++
			return
		}
		w.in++
		w.second = false
		l.report(w)
		if !w.heard {
			w.heard = true
			l.heard = append(l.heard, w)
		}
	}
}

// answer settles the sessions that were heard.
func (l *loop) answer() {
	for i, w := range l.heard {
		l.heard[i] = nil
		w.heard = false
		l.settle(w, time.Now())
	}
	l.heard = l.heard[:0]
}

// turn does what is due. Nobody is declared dead while packets wait, unless
// they never end.
func (l *loop) turn(empty bool) {
	// What is to be looked at again is so in a later turn, once the sockets were read, even
	// if this one takes that long.
	begin := time.Now()
	for len(l.queue) > 0 {
		w, now := l.queue[0], time.Now()
		if begin.Before(w.deadline) {
			return
		}
		if end := w.m.expires(); !end.IsZero() && !now.Before(end) {
			late := now.Sub(end)
			switch {
			case !empty && late < floodLimit:
				l.send(w, now)
				l.queue.set(w, now.Add(lookAgain))
				continue
			case late > lateness && !w.second:
				// This thread did not run when it should have. What the peer sent
				// meanwhile may still be on its way through the kernel.
				w.second = true
				l.send(w, now)
				l.queue.set(w, now.Add(lookAgain))
				continue
			}
			w.second = false
			w.m.advance(now)
		}
		w.m.release(now)
		l.settle(w, now)
	}
}

// settle brings the world up to date with the machine of w.
func (l *loop) settle(w *watch, now time.Time) {
	l.report(w)
	l.send(w, now)
	if w.m.finished() {
		l.drop(w)
		return
	}
	l.queue.set(w, w.m.next())
}

// report tells of a change of state. Each one counts for those who watch, also
// one that is over before the peer gets an answer.
func (l *loop) report(w *watch) {
	s := w.m.state
	if s == w.state {
		return
	}
	e := event{key: w.key, from: w.state, to: s, diag: w.m.diag, remote: w.m.remote.State}
	w.state = s
	l.changed()
	l.tell(e)
}

// send sends all that the machine has to send.
func (l *loop) send(w *watch, now time.Time) {
	for {
		p, ok := w.m.transmit(now)
		if !ok {
			return
		}
		l.emit(w, &p, now)
	}
}

// emit sends one packet. The machine does not learn of a failure: on the wire it
// is a loss like any other.
func (l *loop) emit(w *watch, p *Packet, now time.Time) {
	var key []byte
	if w.m.set.auth != nil {
		key = w.m.set.auth.Key
	}
	var err error
	if w.out.fd < 0 {
		w.out.fd, err = source(w.key.Peer.Is6())
	}
	if err == nil {
		if i := l.ifaces.index(w.key.Interface, w.out.fd, now, w.trouble != nil); i != w.out.index {
			w.prepare(i)
		}
		if w.key.Interface != "" && w.out.index == 0 {
			err = errNoInterface
		} else {
			err = w.out.send(p, key)
		}
	}
	if err == nil {
		w.sent++
	}
	if (err == nil) != (w.trouble == nil) || err != nil && !errors.Is(err, w.trouble) {
		l.tell(event{key: w.key, trouble: err})
	}
	w.trouble = err
}

var errNoInterface = errors.New("no such interface")

// tell hands something to the log. A log that is slow must not hold up packets.
func (l *loop) tell(e event) {
	select {
	case l.news <- e:
	default:
	}
}

// add takes a session in. Its machine is new. The port it needs is there.
func (l *loop) add(w *watch, now time.Time) {
	l.table.add(w)
	l.sockets.ports[w.port()].users++
	l.settle(w, now)
}

// drop forgets a session.
func (l *loop) drop(w *watch) {
	l.queue.set(w, time.Time{})
	l.table.remove(w)
	w.out.close()
	l.sockets.ports[w.port()].users--
	l.dropped = true
}

// sweep closes what the sessions that are gone have left.
func (l *loop) sweep() {
	if l.leaving && len(l.table.byDiscr) == 0 {
		l.stopped = true
	}
	if !l.dropped || l.sockets.held {
		return
	}
	l.dropped = false
	clear(l.ifaces)
	for p, s := range l.sockets.ports {
		if s.users == 0 {
			s.close()
			delete(l.sockets.ports, p)
		}
	}
}
