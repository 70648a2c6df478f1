package gobgp

import (
	"fmt"
	"maps"
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
	// floodWindow is the time in which prefixes add up, also those of a session that has
	// ended meanwhile.
	floodWindow = 10 * time.Second
	// peerBurst is how many prefixes a router may send in it besides some times its limit,
	// and masterBurst how many a master may: it has little to say.
	peerBurst   = 1000
	masterBurst = 250
	// again is how often the whole limit may come.
	again = 10
	// crowdBurst is how many prefixes each of as many masters as a listener may have can
	// send besides its limit of both families, if all do: after a restart all come at
	// once. Whoever has many addresses need not send much from each.
	crowdBurst = 10
	// gaugeEvery is how many prefixes must have come between two looks at them.
	gaugeEvery = 500
	// othersMost is how many messages may come between two looks that are no updates, and
	// othersEvery how often there is one. Requests for all paths again fill the memory if
	// the answers are not read.
	othersMost  = 200
	othersEvery = time.Second
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
	others map[netip.Addr]uint64 // other messages of the session at the last look
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
	return maps.Clone(g.sent)
}

// forget is for whoever was closed for it.
func (g *gauge) forget(addr netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sent, addr)
}

// tooMany are those who have sent too many messages since the last look that are no updates.
func (g *gauge) tooMany(known map[netip.Addr]*api.Peer) (who []netip.Addr) {
	before := g.others
	g.others = make(map[netip.Addr]uint64, len(known))
	for addr, k := range known {
		got := k.GetState().GetMessages().GetReceived()
		n := got.GetTotal() - min(got.GetTotal(), got.GetUpdate())
		if g.others[addr] = n; n > before[addr]+othersMost {
			who = append(who, addr)
		}
	}
	return who
}

// sender is what somebody has sent, and may send.
type sender struct {
	sent, most uint64
	listener   string // of a master
	crowd      uint64 // what all masters of the listener may send
}

// flooder is who has sent most, if that is too much by itself or together with the other masters of
// its listener; else invalid.
func flooder(all map[netip.Addr]sender) (worst netip.Addr) {
	of := make(map[string]uint64)
	for _, f := range all {
		of[f.listener] += f.sent
	}
	for addr, f := range all {
		tooMuch := f.sent > f.most || f.listener != "" && of[f.listener] > f.crowd
		if tooMuch && f.sent > all[worst].sent {
			worst = addr
		}
	}
	return worst
}

// dropFlooders closes the sessions of those who flood; it tells whether there are any. s.mu is held.
func (s *Speaker) dropFlooders(now time.Time) (dropped bool) {
	all := make(map[netip.Addr]sender)
	for addr, n := range s.gauge.counts() {
		if p := s.peerAt(addr); p != nil {
			all[addr] = sender{sent: n, most: peerBurst + again*uint64(p.conf.MaxPrefixes)}
		} else if conf := s.listeners.conf(addr); conf != nil {
			most := uint64(conf.MaxPrefixes)
			all[addr] = sender{n, masterBurst + again*most, conf.Name, bgp.MaxMasters * (crowdBurst + 2*most)}
		}
	}
	if addr := flooder(all); addr.IsValid() {
		dropped = s.dropFlooder(addr, now, fmt.Sprintf("%d prefixes in %v", all[addr].sent, floodWindow))
	}
	if now.Sub(s.gauge.looked) < othersEvery {
		return dropped
	}
	s.gauge.looked = now
	for _, addr := range s.gauge.tooMany(s.list("")) {
		dropped = s.dropFlooder(addr, now, fmt.Sprintf("over %d messages in %v", othersMost, othersEvery)) || dropped
	}
	return dropped
}

// dropFlooder closes the session of one; it tells whether there was any. s.mu is held.
func (s *Speaker) dropFlooder(addr netip.Addr, now time.Time, sent string) bool {
	s.gauge.forget(addr)
	p := s.peerAt(addr)
	switch {
	case p == nil:
		s.log.Warn("a master sends more than it may; its BGP session ended",
			"listener", s.listeners.of(addr), "address", addr, "sent", sent, "kept_out_for", overLimit)
		s.keepOut(addr, keptOut{now.Add(overLimit), fmt.Sprintf("sent more than it may, %s, and is kept out for %v", sent, overLimit)})
	case p.in:
		s.log.Debug("session closed: too many messages", "peer", p.conf.Name, "sent", sent)
		p.fail(fmt.Sprintf("closed by this node: the peer sends the same again and again, or asks for it; next try in %v", overLimit))
		s.leave(p)
		p.tryAt(now.Add(overLimit))
	default:
		return false
	}
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
func (s *Speaker) keepOut(addr netip.Addr, is keptOut) {
	s.listeners.learned.forget(addr)
	for range keepOutTries {
		s.dropMaster(addr)
		// What comes from a neighbour that is down the server closes at once.
		err := s.server.AddPeer(s.ctx, &api.AddPeerRequest{Peer: &api.Peer{
			Conf: &api.PeerConf{NeighborAddress: addr.String(), AdminDown: true}, Transport: &api.Transport{PassiveMode: true},
		}})
		if err == nil {
			s.listeners.out[addr] = is
			return
		}
		s.log.Debug("master not kept out", "address", addr, "err", err)
	}
}

// keepOutTries is more than one since a master may be back between the two steps.
const keepOutTries = 3

// letIn ends that for those who have been kept out for long enough; it tells whether there were any.
// s.mu is held.
func (s *Speaker) letIn(now time.Time) (any bool) {
	for addr, is := range s.listeners.out {
		if !now.Before(is.until) {
			s.dropMaster(addr)
			delete(s.listeners.out, addr)
			any = true
		}
	}
	return any
}
