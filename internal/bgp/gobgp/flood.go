package gobgp

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/server"
)

// The server queues what it receives without bound, so whoever sends faster than the
// server can refuse would fill the memory, however few its prefixes are. The server
// counts what comes in, and logs each update that it takes from a queue: the
// difference waits. Whoever has most in its queue is closed, if that is too much.
const (
	// queueMost is how many messages of a router may wait, which may have a table.
	queueMost = 1000
	// masterMost is how many of a master may: it has little to say.
	masterMost = 250
	// crowdMost is how many of all masters of a listener may: whoever has many
	// addresses need not send much from each.
	crowdMost = 2000
	// gaugeEvery is how many messages the server must have read between two looks, and
	// gaugeAfter is the least time. Sessions that begin have fewer.
	gaugeEvery = 20
	gaugeAfter = 500 * time.Millisecond
	// refreshWindow is the time in which requests for all paths add up.
	refreshWindow = time.Minute
)

// gauge is told by the server of each message.
type gauge struct {
	wake func()
	due  atomic.Bool // a look

	mu     sync.Mutex
	looked time.Time
	since  int                   // messages after that
	taken  map[netip.Addr]uint64 // updates from a queue, in this session
	// refreshes are the requests for all paths that each had sent when the window began.
	refreshes map[netip.Addr]uint64
	window    time.Time
}

// Observe implements server.FSMTimingHook.
func (g *gauge) Observe(op server.FSMOperation, _, _ time.Duration) {
	if op != server.FSMMessage {
		return
	}
	g.mu.Lock()
	g.since++
	look := g.since >= gaugeEvery && time.Since(g.looked) >= gaugeAfter
	if look {
		g.looked, g.since = time.Now(), 0
	}
	g.mu.Unlock()
	if look {
		g.due.Store(true)
		g.wake()
	}
}

// take notes that an update was taken from a queue.
func (g *gauge) take(addr netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.taken == nil {
		g.taken = make(map[netip.Addr]uint64)
	}
	g.taken[addr]++
}

// begin notes that a session has come up, of which the server counts anew.
func (g *gauge) begin(addr netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.taken, addr)
	delete(g.refreshes, addr)
}

// waiting is how many messages of each neighbour wait. Of those that ask for all paths again the
// server does not say when it takes them: those of the last minute or less count.
func (g *gauge) waiting(known map[netip.Addr]*api.Peer, now time.Time) map[netip.Addr]uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	anew := now.Sub(g.window) >= refreshWindow
	if anew {
		g.window, g.refreshes = now, make(map[netip.Addr]uint64, len(known))
	}
	out := make(map[netip.Addr]uint64, len(known))
	for addr, k := range known {
		got := k.GetState().GetMessages().GetReceived()
		if anew {
			g.refreshes[addr] = got.GetRefresh()
		}
		out[addr] = got.GetRefresh() - min(got.GetRefresh(), g.refreshes[addr]) + got.GetUpdate() - min(got.GetUpdate(), g.taken[addr])
	}
	for addr := range g.taken {
		if known[addr] == nil {
			delete(g.taken, addr)
		}
	}
	return out
}

// flooder is who has most in its queue, if that is too much by itself or together with the other
// masters of its listener; else invalid. Crowds are the listeners of masters.
func flooder(waiting map[netip.Addr]uint64, crowds map[netip.Addr]string) (worst netip.Addr, most uint64) {
	of := make(map[string]uint64)
	for addr, crowd := range crowds {
		of[crowd] += waiting[addr]
	}
	for addr, n := range waiting {
		tooMuch := n > queueMost
		if crowd, is := crowds[addr]; is {
			tooMuch = n > masterMost || of[crowd] > crowdMost
		}
		if tooMuch && n > most {
			worst, most = addr, n
		}
	}
	return worst, most
}

// dropFlooder closes the session of whoever floods; it tells whether it did. s.mu is held.
func (s *Speaker) dropFlooder() bool {
	if !s.gauge.due.Swap(false) {
		return false
	}
	known, crowds := s.list(""), make(map[netip.Addr]string)
	for addr, k := range known {
		if group := k.GetConf().GetPeerGroup(); group != "" {
			crowds[addr] = group
		}
	}
	addr, n := flooder(s.gauge.waiting(known, time.Now()), crowds)
	if crowds[addr] != "" {
		s.log.Warn("a master sends faster than it can be read; its BGP session ended",
			"listener", s.listeners.of(addr), "address", addr, "waiting", n, "kept_out_for", overLimit)
		s.keepOut(addr, time.Now().Add(overLimit))
		return true
	}
	for _, p := range s.peers {
		if p.in && p.conf.Address == addr {
			s.log.Debug("session closed: too many messages", "peer", p.conf.Name, "waiting", n)
			p.fail(floodWords())
			s.leave(p)
			p.tryAt(time.Now().Add(overLimit))
			return true
		}
	}
	return false
}

// keepOut ends the session of a master without a look at what it has sent and nobody has read,
// and takes no other one from its address for a while. s.mu is held.
func (s *Speaker) keepOut(addr netip.Addr, until time.Time) {
	s.listeners.learned.forget(addr)
	for range keepOutTries {
		s.dropMaster(addr)
		// What comes from a neighbour that is down the server closes at once.
		err := s.server.AddPeer(s.ctx, &api.AddPeerRequest{Peer: &api.Peer{
			Conf: &api.PeerConf{NeighborAddress: addr.String(), AdminDown: true}, Transport: &api.Transport{PassiveMode: true},
		}})
		if err == nil {
			s.listeners.out[addr] = until
			return
		}
		s.log.Debug("master not kept out", "address", addr, "err", err)
	}
}

// keepOutTries is more than one since a master may be back between the two steps.
const keepOutTries = 3

// letIn ends that for those who have been kept out for long enough. s.mu is held.
func (s *Speaker) letIn(now time.Time) {
	for addr, until := range s.listeners.out {
		if !now.Before(until) {
			s.dropMaster(addr)
			delete(s.listeners.out, addr)
		}
	}
}
