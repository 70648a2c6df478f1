package gossip

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	// repeatsFrom is from how many bytes on a full exchange is looked up: that of a few
	// VIPs is read faster than it is worth.
	repeatsFrom = 32 << 10
	// repeatsFor is how long a full exchange is not read again. It is read once more
	// then, should an answer to it have been lost. Two live owners of a VIP do not wait
	// for that: each tells the other with every heartbeat.
	repeatsFor = 2 * time.Minute
	// mostRepeats bounds how many are known.
	mostRepeats = 64
)

// state is of what a full exchange is news to.
type state struct{ inc, seq, table uint64 }

// state changes with all that is told and known.
func (g *Gossip) state() state {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stateNow()
}

// stateNow is state; the lock is held.
func (g *Gossip) stateNow() state {
	s := state{table: g.table.changes}
	s.inc, s.seq = g.own.version()
	return s
}

// repeats knows the full exchanges of late. With thousands of VIPs each is a megabyte,
// and reading it, several times in ten seconds, most of what an idle daemon costs.
type repeats struct {
	mu   sync.Mutex
	seed maphash.Seed
	seen map[uint64]repeat // by sum
}

// repeat is a full exchange: what it was news to, and until when it need not be read
// again; the zero value for one that is too small to be looked up.
type repeat struct {
	sum   uint64
	state state
	until time.Time
}

// known tells whether the same was merged a while ago, and nothing has changed since: to
// read it again would change nothing either. If not, merged takes what is returned.
func (r *repeats) known(body []byte, s state, now time.Time) (repeat, bool) {
	if len(body) < repeatsFrom {
		return repeat{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seed, r.seen = maphash.MakeSeed(), map[uint64]repeat{}
	}
	this := repeat{maphash.Bytes(r.seed, body), s, now.Add(repeatsFor)}
	was, ok := r.seen[this.sum]
	return this, ok && was.state == s && now.Before(was.until)
}

// merged notes what need not be read again. What was dropped on its way there is read
// when it comes once more.
func (r *repeats) merged(this repeat) {
	if this == (repeat{}) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) >= mostRepeats {
		clear(r.seen)
	}
	r.seen[this.sum] = this
}
