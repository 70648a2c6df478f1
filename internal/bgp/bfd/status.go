package bfd

import (
	"cmp"
	"slices"
	"time"
)

// Status is what a session is about, at one moment.
type Status struct {
	Key                Key
	State, RemoteState State // RemoteState: as last heard; Down if not heard
	Diag, RemoteDiag   Diag  // why the last change to Down
	Since              time.Time
	EverUp             bool   // false: it never came up
	Transitions        uint64 // changes to Up and from Up

	// What was agreed on with the peer, RFC 5880 section 6.8.2 and 6.8.4: the
	// time between two packets to and from the peer, and without one until it is
	// lost; 0 as long as it was not heard.
	Transmit, Receive, Detection time.Duration

	LocalDiscr, RemoteDiscr uint32
	In, Out                 uint64 // packets accepted and sent
	Dropped                 Drops
	// LastError is why nothing can be received, why the last packet could not be
	// sent, or, unless Up, why the last one of the peer was not taken; empty: all
	// works.
	LastError string
}

// PathFailed tells whether the session says that the path is broken: it was Up
// and is not, and nobody took it down by intent. A peer that says AdminDown, or
// one that never had BFD, says nothing about the path: RFC 5882 section 4.2.
func (s *Status) PathFailed() bool {
	return s.EverUp && s.State != Up && s.State != AdminDown && s.RemoteState != AdminDown
}

// Status returns all sessions, sorted by Key.
func (m *Manager) Status() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.loop == nil {
		return nil
	}
	all := make([]Status, 0, len(m.wanted))
	m.loop.orders.do(func(time.Time) {
		for _, e := range m.wanted {
			all = append(all, m.loop.status(e.w))
		}
	})
	slices.SortFunc(all, func(a, b Status) int { return a.Key.compare(b.Key) })
	return all
}

func (k Key) compare(o Key) int {
	return cmp.Or(k.Peer.Compare(o.Peer), cmp.Compare(k.Interface, o.Interface),
		k.Local.Compare(o.Local), cmp.Compare(k.String(), o.String()))
}

// status runs on the thread.
func (l *loop) status(w *watch) Status {
	m := w.m
	s := Status{
		Key: w.key, State: m.state, RemoteState: m.remote.State, Diag: m.diag, RemoteDiag: m.remote.Diag,
		Since: m.since, EverUp: m.everUp, Transitions: m.transitions,
		LocalDiscr: m.localDiscr, RemoteDiscr: m.remote.MyDiscr,
		In: w.in, Out: w.sent, Dropped: w.drops,
	}
	if p := l.sockets.ports[w.port()]; p.err != nil {
		s.LastError = p.err.Error()
	} else if w.trouble != nil {
		s.LastError = w.trouble.Error()
	} else if m.state != Up {
		s.LastError = w.refused.words()
	}
	if m.remote.MyDiscr != 0 {
		s.Transmit, s.Receive = m.interval(), max(m.terms.usedRx, m.remote.DesiredMinTx)
		s.Detection = m.detection()
	}
	return s
}

// Stats is about the thread and about packets that belong to no session.
type Stats struct {
	Dropped  Drops         // of packets that belong to no session
	Overflow uint64        // packets lost because the thread did not run
	Lateness time.Duration // the worst since it began
}

// Stats returns the figures since the first session began.
func (m *Manager) Stats() (s Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.loop == nil {
		return s
	}
	m.loop.orders.do(func(time.Time) { s = m.loop.stats })
	return s
}

// Reason is why a received packet was dropped. None is fatal: anybody can send
// to a port.
type Reason uint8

// The reasons.
const (
	accepted      Reason = iota
	DropMalformed        // Parse refused it
	DropNoSession        // no session has its discriminator, or expects its sender
	DropTTL              // it came from farther away than the session allows, RFC 5881 section 5
	DropAddress          // sender or destination are not those of the session
	DropInterface        // it came in elsewhere
	DropAuth             // without the authentication of the session, or with a wrong hash
	DropSequence         // authentic, but the sequence number says that it is old
	reasons
)

// String is a word for a log or the label of a metric.
func (r Reason) String() string {
	return pick(uint8(r), "accepted", "malformed", "no_session", "ttl", "address", "interface", "authentication", "sequence")
}

// words tells who has to set up what, if authentication is the reason.
func (r Reason) words() string {
	switch r {
	case DropAuth:
		return "the authentication of the peer's packets is not that of the session: type, key ID and key must be the same on both ends"
	case DropSequence:
		return "the peer's packets are authentic but have an old sequence number"
	}
	return ""
}

// Drops counts dropped packets by Reason.
type Drops [reasons]uint64

// Sum is the number of all of them.
func (d *Drops) Sum() (n uint64) {
	for r := DropMalformed; r < reasons; r++ {
		n += d[r]
	}
	return n
}
