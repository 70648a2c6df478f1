package gobgp

import (
	"net/netip"
	"sync"
	"time"

	api "github.com/osrg/gobgp/v4/api"

	"lbd.dev/lbd/internal/bgp"
)

// The server reads from each session no faster than it can refuse, so a flood fills no
// memory, but it takes the processor. Nobody needs to send its prefixes again and again,
// so whoever does is closed.
const (
	// floodWindow is the time in which all counts.
	floodWindow = 10 * time.Second
	// peerBurst is how many prefixes a router may send in it besides some times its limit,
	// and masterBurst how many a master may: it has little to say.
	peerBurst   = 1000
	masterBurst = 250
	// again is how often the whole limit may come.
	again = 10
	// crowd is of how many masters at their limit all masters of a listener may have the
	// rate: whoever has many addresses need not send much from each.
	crowd = 8
	// othersMost is how many messages may come that are no updates. Requests for all
	// paths again fill the memory if the answers are not read.
	othersMost = 200
	// gaugeEvery is how many prefixes must have come between two looks at them, and
	// othersEvery how often the other messages are looked at.
	gaugeEvery  = 500
	othersEvery = floodWindow / 2
)

// gauge counts what comes in.
type gauge struct {
	wake func()

	mu    sync.Mutex
	began time.Time             // the window
	sent  map[netip.Addr]uint64 // prefixes in it
	since int                   // the last look
	due   bool                  // another one

	// These are the keeper's.
	others map[netip.Addr]uint64 // other messages when their window began
	window time.Time
	looked time.Time
}

// take notes that an update with so many prefixes was read.
func (g *gauge) take(addr netip.Addr, prefixes int, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.began) >= floodWindow {
		g.began, g.sent = now, make(map[netip.Addr]uint64)
	}
	n := max(prefixes, 1)
	g.sent[addr] += uint64(n)
	if g.since += n; g.since >= gaugeEvery {
		g.since, g.due = 0, true
		g.wake()
	}
}

// counts are the prefixes of all, if it is time for a look at them.
func (g *gauge) counts() map[netip.Addr]uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.due {
		return nil
	}
	g.due = false
	out := make(map[netip.Addr]uint64, len(g.sent))
	for addr, n := range g.sent {
		out[addr] = n
	}
	return out
}

// forget is for a session that ended.
func (g *gauge) forget(addr netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sent, addr)
}

// tooMany is who has sent too many messages that are no updates; invalid if nobody has.
func (g *gauge) tooMany(known map[netip.Addr]*api.Peer, now time.Time) (who netip.Addr) {
	anew := now.Sub(g.window) >= floodWindow
	if anew {
		g.window, g.others = now, make(map[netip.Addr]uint64, len(known))
	}
	for addr, k := range known {
		got := k.GetState().GetMessages().GetReceived()
		n := got.GetTotal() - min(got.GetTotal(), got.GetUpdate())
		if anew || n < g.others[addr] { // or it is another session
			g.others[addr] = n
		}
		if n-g.others[addr] > othersMost {
			who = addr
		}
	}
	return who
}

// sender is what somebody has sent, and may send.
type sender struct {
	sent, most uint64
	listener   string // of a master
}

// flooder is who has sent most, if that is too much by itself or together with the other masters of
// its listener; else invalid.
func flooder(all map[netip.Addr]sender) (worst netip.Addr) {
	of := make(map[string]uint64)
	for _, f := range all {
		of[f.listener] += f.sent
	}
	for addr, f := range all {
		tooMuch := f.sent > f.most || f.listener != "" && of[f.listener] > crowd*f.most
		if tooMuch && f.sent > all[worst].sent {
			worst = addr
		}
	}
	return worst
}

// dropFlooder closes the session of whoever floods; it tells whether it did. s.mu is held.
func (s *Speaker) dropFlooder(now time.Time) bool {
	all := make(map[netip.Addr]sender)
	for addr, n := range s.gauge.counts() {
		if p := s.peerAt(addr); p != nil {
			all[addr] = sender{sent: n, most: peerBurst + again*uint64(p.conf.MaxPrefixes)}
		} else if conf := s.listeners.conf(addr); conf != nil {
			all[addr] = sender{sent: n, most: masterBurst + again*uint64(conf.MaxPrefixes), listener: conf.Name}
		}
	}
	addr := flooder(all)
	if !addr.IsValid() && now.Sub(s.gauge.looked) >= othersEvery {
		s.gauge.looked = now
		addr = s.gauge.tooMany(s.list(""), now)
	}
	if !addr.IsValid() {
		return false
	}
	s.gauge.forget(addr)
	if p := s.peerAt(addr); p != nil {
		if !p.in {
			return false
		}
		s.log.Debug("session closed: too many messages", "peer", p.conf.Name, "prefixes", all[addr].sent, "in", floodWindow)
		p.fail(floodWords())
		s.leave(p)
		p.tryAt(now.Add(overLimit))
		return true
	}
	s.log.Warn("a master sends more than it may; its BGP session ended",
		"listener", s.listeners.of(addr), "address", addr, "prefixes", all[addr].sent, "in", floodWindow, "kept_out_for", overLimit)
	s.keepOut(addr, now.Add(overLimit))
	return true
}

// looks is when to look at the other messages again, if there is anybody who may send some. s.mu is held.
func (s *Speaker) looks() time.Duration {
	any := len(s.listeners.byName) > 0
	for _, p := range s.peers {
		any = any || p.in && p.state == bgp.Established
	}
	if !any {
		return time.Hour
	}
	return max(time.Until(s.gauge.looked.Add(othersEvery)), 0)
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
