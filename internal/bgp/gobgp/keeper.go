package gobgp

import (
	"net/netip"
	"sync"
	"time"

	"lbd.dev/lbd/internal/bgp"
	"lbd.dev/lbd/internal/wake"
)

// After a session ends the server waits for 5 s before it tries again, which
// nothing can change. So the keeper takes the peer away and gives it anew: at once
// after a session that has held, later and later if the peer refuses.
const (
	refusedMin = 200 * time.Millisecond
	refusedMax = 5 * time.Second
	// held is how long a session must last for the next failure to count as the
	// first.
	held = 5 * time.Second
	// overLimit is how long a peer is left alone that sent too many prefixes or
	// updates.
	overLimit = 30 * time.Second
	// unsigned is how long a peer is kept out whose key the kernel refused.
	unsigned = 30 * time.Second
	// openWait is how long a peer may take for its OPEN. The server would give it
	// 240 s.
	openWait = 30 * time.Second
	// openSlow is after which time people are told that it has not come. Routers
	// send theirs with the connection.
	openSlow = 3 * time.Second
	// askAgain is the least time between two diagnoses of a peer; askSoon is the
	// pause within one.
	askAgain = 30 * time.Second
	askSoon  = 6 * time.Second
)

// retries are when the server is given a peer again.
type retries struct {
	refused int // failures since the session last held
	due     time.Time
}

// pause is how long to wait after a failure, and counts it.
func (r *retries) pause() time.Duration {
	d := time.Duration(0)
	if r.refused > 0 {
		d = min(refusedMin<<min(r.refused-1, 10), refusedMax)
	}
	r.refused++
	return d
}

// tryAfter counts a failure, and has the peer wait for it, at least for so long.
func (r *retries) tryAfter(now time.Time, least time.Duration) {
	r.due = now.Add(max(r.pause(), least))
}

// tryAt sets when the peer is tried, whatever failed; zero: no more by itself.
func (r *retries) tryAt(due time.Time) { r.due = due }

// forgive has the next failure count as the first.
func (r *retries) forgive() { r.refused = 0 }

// inbox takes events from the server, which must never wait. It is bounded by
// what a peer can cause between two turns of the keeper; updates are not in it.
type inbox struct {
	mu   sync.Mutex
	live map[netip.Addr]*peer
	life map[netip.Addr]int
	news []news
	kick chan struct{}
}

type news struct {
	p    *peer
	life int
	event
}

// expect begins a new life of a peer; what was said of an earlier one is void.
func (b *inbox) expect(addr netip.Addr, p *peer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life == nil {
		b.life = make(map[netip.Addr]int)
	}
	b.live[addr], b.life[addr] = p, p.number
}

func (b *inbox) forget(addr netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.live, addr)
	delete(b.life, addr)
}

// has tells whether an address is that of a peer with its own object.
func (b *inbox) has(addr netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live[addr] != nil
}

func (b *inbox) put(addr netip.Addr, e event) {
	b.mu.Lock()
	if p := b.live[addr]; p != nil {
		b.news = append(b.news, news{p, b.life[addr], e})
	}
	b.mu.Unlock()
	wake.Up(b.kick)
}

func (b *inbox) take() []news {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.news
	b.news = nil
	return out
}

// wake has the keeper look at its timers.
func (s *Speaker) wake() { wake.Up(s.inbox.kick) }

// keep runs until Close.
func (s *Speaker) keep() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.inbox.kick:
		case <-timer.C:
		}
		s.mu.Lock()
		news := s.drain()
		now := time.Now()
		s.dropStrangers(now)
		news = s.letIn(now) || news
		news = s.settle() || news
		news = s.dropFlooders(now) || news
		news = s.tend(now) || news
		next := s.next()
		s.mu.Unlock()
		if news {
			s.changed()
		}
		timer.Reset(next)
	}
}

// drain works off what the server said; it tells whether a session changed.
func (s *Speaker) drain() bool {
	changed := false
	for _, n := range s.inbox.take() {
		if n.p.in && n.life == n.p.number {
			changed = s.handle(n.p, n.event) || changed
		}
	}
	return changed
}

// tend gives the server the peers whose pause is over.
func (s *Speaker) tend(now time.Time) bool {
	changed := false
	for _, p := range s.peers {
		switch {
		case s.closing || p.ended != nil:
		case !p.in && !p.due.IsZero() && !now.Before(p.due):
			s.enter(p)
			changed = true
		case p.in && p.state == bgp.OpenSent && now.Sub(p.entered) >= openWait:
			p.fail(p.openWords(openWait))
			s.leave(p)
			p.tryAfter(now, 0)
			changed = true
		case p.waits() && now.Sub(p.entered) >= openSlow:
			p.slow = true
			changed = p.fail(p.openWords(openSlow)) || changed
		}
	}
	return changed
}

// next is when tend has something to do.
func (s *Speaker) next() time.Duration {
	next := time.Hour
	for _, p := range s.peers {
		if !p.in && !p.due.IsZero() {
			next = min(next, max(time.Until(p.due), 0))
		}
		if p.in && p.state == bgp.OpenSent {
			next = min(next, max(time.Until(p.entered.Add(openWait)), 0))
		}
		if p.waits() {
			next = min(next, max(time.Until(p.entered.Add(openSlow)), 0))
		}
	}
	if due, any := s.listeners.arriving.due(); any {
		next = min(next, max(time.Until(due), 0))
	}
	for _, is := range s.listeners.out {
		next = min(next, max(time.Until(is.until), 0))
	}
	return min(next, s.looks())
}

// handle takes one event of a peer; it tells whether the session changed.
func (s *Speaker) handle(p *peer, e event) bool {
	switch e.kind {
	case dialFailed:
		return p.unreached(e.err)
	case md5Failed:
		s.leave(p) // it would get in without a key
		p.tryAt(time.Now().Add(unsigned))
		return p.fail(keyError(e.err).Error())
	case localMismatch:
		return p.fail("the peer connected to another address of this node than the source address of the session")
	case noticeSent:
		p.said, p.heard = sentWords(e.notice, &p.conf), false
	case noticeHeard:
		p.said, p.heard = receivedWords(e.notice, &p.conf), true
	case asnHeard:
		return s.hearASN(p, e.asn)
	case stateChanged:
		return s.move(p, e)
	}
	return false
}

// move takes a change of state.
func (s *Speaker) move(p *peer, e event) bool {
	if e.outgoing && p.accepted {
		return false // the other connection counts
	}
	p.accepted = !e.outgoing && e.new >= bgp.OpenSent
	now := time.Now()
	if e.new != bgp.Idle {
		p.move(e.new, now)
		p.said, p.heard = "", false
		switch e.new {
		case bgp.OpenSent:
			p.slow = false
			p.await()
		case bgp.Established:
			p.restarting = false
			p.accepts()
			s.log.Debug("session established", "peer", p.conf.Name)
			s.extend(p, s.awaitUp(p.conf.Address, now.Add(upWait)))
			s.catchUp(p)
		}
		return true
	}
	lasted := now.Sub(p.entered)
	wasUp := p.state == bgp.Established
	p.lost()
	if p.ended != nil {
		select {
		case <-p.ended:
		default:
			close(p.ended)
		}
		return true
	}
	limited := p.said == limitWords(&p.conf)
	unknown := p.blame(e)
	s.leave(p)
	if wasUp && lasted >= held {
		p.forgive()
	}
	switch {
	case limited:
		p.tryAt(now.Add(overLimit))
	case unknown && !p.conf.Passive && !p.restarting && now.After(p.askAt):
		// A router that keeps paths over a restart takes any OPEN for that of the next
		// session, and this one would have it drop them (RFC 4724 section 4.2).
		life := p.number
		s.wg.Go(func() { s.diagnose(p, life) }) // goes on with p
	default:
		p.tryAfter(now, 0)
		if !p.due.After(now) {
			s.enter(p)
		}
	}
	return true
}
