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
	behindRow = 20
	// stateChange is the wait of a message without a time.
	stateChange = time.Hour
)

// gauge is told by the server how long each message waited.
type gauge struct {
	row    int // of the server's goroutine
	behind atomic.Bool
	wake   func()
}

// Observe implements server.FSMTimingHook.
func (g *gauge) Observe(op server.FSMOperation, _, waited time.Duration) {
	switch {
	case op != server.FSMMessage || waited > stateChange:
	case waited < behindLimit:
		g.row = 0
	default:
		if g.row++; g.row == behindRow {
			g.behind.Store(true)
			g.wake()
		}
	}
}

// dropFlooder closes the session that sends most, if the server falls behind; it
// tells whether it did. s.mu is held.
func (s *Speaker) dropFlooder() bool {
	if !s.gauge.behind.Swap(false) {
		return false
	}
	var worst *peer
	most := uint64(0)
	known := s.list("")
	for _, p := range s.peers {
		if k := known[p.conf.Address]; k != nil && p.in {
			if n := k.GetState().GetMessages().GetReceived().GetUpdate() - p.updatesSeen; n > most {
				worst, most = p, n
			}
		}
	}
	if worst == nil {
		return false
	}
	s.log.Debug("session closed: too many updates", "peer", worst.conf.Name, "updates", most)
	worst.fail(floodWords())
	s.leave(worst)
	worst.due = time.Now().Add(overLimit)
	return true
}
