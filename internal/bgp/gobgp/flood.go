package gobgp

import (
	"sync/atomic"
	"time"

	"github.com/osrg/gobgp/v3/pkg/server"
)

// The server queues what it receives without bound, so a peer that sends faster
// than the server can refuse would fill the memory, however few its prefixes are.
// The queue is seen by how long messages wait in it; then the peer that sends most
// is closed.
const (
	behindLimit = 200 * time.Millisecond
	// behindRow is how many messages in a row must have waited for so long. A
	// process that was frozen finds some.
	behindRow = 20 // and each time so many more
	// floodRate is how many updates in a second a peer must have sent to be closed.
	// The server is also late when the node computes, or tells a router all paths.
	floodRate = 500
	// stateChange is the wait of a message without a time.
	stateChange = time.Hour
)

// gauge is told by the server how long each message waited.
type gauge struct {
	row    int // of the server's goroutine
	behind atomic.Bool
	wake   func()
	looked time.Time // when peer.updatesSeen was true; Speaker.mu guards it
}

// look tells whether the numbers of updates are to be noted: a rate needs time.
func (g *gauge) look(now time.Time) bool {
	if now.Sub(g.looked) < time.Second {
		return false
	}
	g.looked = now
	return true
}

// Observe implements server.FSMTimingHook.
func (g *gauge) Observe(op server.FSMOperation, _, waited time.Duration) {
	switch {
	case op != server.FSMMessage || waited > stateChange:
	case waited < behindLimit:
		g.row = 0
	default:
		if g.row++; g.row%behindRow == 0 {
			g.behind.Store(true)
			g.wake()
		}
	}
}

// dropFlooder closes the session that sends most, and too much, if the server falls
// behind; it tells whether it did. s.mu is held.
func (s *Speaker) dropFlooder() bool {
	if !s.gauge.behind.Swap(false) {
		return false
	}
	var worst *peer
	known, now := s.list(""), time.Now()
	most := uint64(floodRate * max(1, now.Sub(s.gauge.looked).Seconds()))
	again := s.gauge.look(now)
	for _, p := range s.peers {
		if k := known[p.conf.Address]; k != nil && p.in {
			got := k.GetState().GetMessages().GetReceived().GetUpdate()
			if n := got - p.updatesSeen; n > most {
				worst, most = p, n
			}
			if again {
				p.updatesSeen = got
			}
		}
	}
	if worst == nil {
		return false
	}
	s.log.Debug("session closed: too many updates", "peer", worst.conf.Name, "updates", most)
	worst.fail(floodWords())
	s.leave(worst)
	worst.tryAt(time.Now().Add(overLimit))
	return true
}
