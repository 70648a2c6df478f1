package gobgp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	api "github.com/osrg/gobgp/v4/api"

	"lbd.dev/lbd/internal/bgp"
)

// noWayLasts is for how long it counts that there is no way to a peer, while tries
// after it end without any answer.
const noWayLasts = 30 * time.Second

// silence is what is known of a peer that says nothing.
type silence struct {
	noWay       string // the last error of a connection to which there was no way
	noWayAt     time.Time
	slow        bool   // its OPEN is late, and people know
	dropsBefore uint64 // ttlDrops when the wait for it began
}

// await begins to wait for the peer to say something.
func (s *silence) await() { s.dropsBefore = ttlDrops() }

// unreached notes why a connection was not made; it tells whether that is news.
// While a host is gone some tries end without an answer and some since nobody has
// its address, as the kernel's neighbour table has it; the latter says more.
func (p *peer) unreached(err error) bool {
	words := dialWords(err, &p.conf)
	switch drops := p.dropWords(); {
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		p.noWay, p.noWayAt = words, time.Now()
	case isTimeout(err) && p.noWay != "" && p.lastError == p.noWay && time.Since(p.noWayAt) < noWayLasts:
		return false
	case isTimeout(err) && drops != "":
		words = fmt.Sprintf("no answer from %s that this node takes: %s", p.conf.Address, drops)
	}
	p.await()
	return p.fail(words)
}

// waits tells whether the OPEN of the peer is awaited and nobody was told yet that
// it is late.
func (p *peer) waits() bool { return p.in && p.state == bgp.OpenSent && !p.slow }

// openWords tells that no OPEN has come for a while.
func (p *peer) openWords(waited time.Duration) string {
	words := fmt.Sprintf("the peer accepted the connection but sent no OPEN for %v", waited)
	if drops := p.dropWords(); drops != "" {
		words += "; " + drops
	}
	return words
}

// dropWords tells that packets were dropped for their TTL since the last try began;
// empty if not. With TTL security a peer that is refused looks like one that says
// nothing, but the kernel counts what it drops, if not of whom.
func (p *peer) dropWords() string {
	if p.conf.MinTTL == 0 || ttlDrops() <= p.dropsBefore {
		return ""
	}
	return fmt.Sprintf("packets with a TTL below %d were dropped (TTL security): does the router send with TTL 255, "+
		"and is it no further away than configured?", p.conf.MinTTL)
}

// ttlDrops is how many packets the kernel has dropped in this network namespace
// since their TTL was below that of the socket (IP_MINTTL); 0 if it does not say.
func ttlDrops() uint64 {
	b, err := os.ReadFile("/proc/thread-self/net/netstat")
	if err != nil {
		return 0
	}
	return netstat(string(b), "TcpExt:", "TCPMinTTLDrop")
}

// netstat reads one counter: a line of names is followed by one of values.
func netstat(text, group, name string) uint64 {
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != group {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i, n := range names {
			if n == name && i < len(words) {
				v, _ := strconv.ParseUint(words[i], 10, 64)
				return v
			}
		}
		return 0
	}
	return 0
}

// arriving are masters that have connected and whose session has not come up yet, by when they
// did; zero if the attempt has failed. The server forgets by itself only those whose session was
// up: others would stay for minutes or for ever, fill the memory and take the room of masters.
type arriving struct {
	mu    sync.Mutex
	since map[netip.Addr]time.Time
	up    []netip.Addr // whose session has come up since settle
}

// arrivingMost is how many there are at most. Who has been there for longest gives way: a master
// that has something to say has said it.
const arrivingMost = bgp.MaxMasters

// hear notes the state of a master; it tells whether somebody has to go.
func (a *arriving) hear(addr netip.Addr, state bgp.State, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, known := a.since[addr]
	failed := known && at.IsZero()
	if a.since == nil {
		a.since = make(map[netip.Addr]time.Time)
	}
	switch {
	case state == bgp.Idle:
		a.since[addr] = time.Time{}
		return true
	case state == bgp.Established:
		delete(a.since, addr)
		a.up = append(a.up, addr)
		return true
	case state == bgp.Active && !failed, // after a failure the server only waits for it
		state == bgp.OpenSent && (failed || !known):
		a.since[addr] = now
	}
	return len(a.since) == 1 || len(a.since) > arrivingMost
}

func (a *arriving) forget(addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, addr)
}

// overdue takes out those that have failed or take too long, and the first ones if there are too many.
func (a *arriving) overdue(now time.Time) map[netip.Addr]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.since) == 0 {
		return nil
	}
	out := make(map[netip.Addr]time.Time)
	for addr, at := range a.since {
		if now.Sub(at) >= openWait {
			out[addr] = at
			delete(a.since, addr)
		}
	}
	for len(a.since) > arrivingMost {
		var first netip.Addr
		for addr, at := range a.since {
			if !first.IsValid() || at.Before(a.since[first]) {
				first = addr
			}
		}
		out[first] = a.since[first]
		delete(a.since, first)
	}
	return out
}

// due is when the next one takes too long.
func (a *arriving) due() (due time.Time, any bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range a.since {
		if at = at.Add(openWait); !any || at.Before(due) {
			due, any = at, true
		}
	}
	return due, any
}

// settle tells whether sessions of masters have come up.
func (s *Speaker) settle() bool {
	a := &s.listeners.arriving
	a.mu.Lock()
	up := a.up
	a.up = nil
	a.mu.Unlock()
	end := time.Now().Add(upWait) // for all of them
	for _, addr := range up {
		s.awaitUp(addr, end)
	}
	return len(up) > 0
}

// upWait is how long awaitUp may wait.
const upWait = 100 * time.Millisecond

// awaitUp waits a moment until a session is up in all of the server, which says so first. s.mu is held.
func (s *Speaker) awaitUp(addr netip.Addr, end time.Time) (known *api.Peer) {
	for {
		known = s.list(addr.String())[addr]
		if known.GetState().GetSessionState() != api.PeerState_SESSION_STATE_OPENCONFIRM || time.Now().After(end) {
			return known
		}
		time.Sleep(time.Millisecond)
	}
}

// dropStrangers has the server forget whoever is overdue. s.mu is held.
func (s *Speaker) dropStrangers(now time.Time) {
	for addr := range s.listeners.arriving.overdue(now) {
		known := s.list(addr.String())[addr]
		// Of one that has failed the server may not have noted yet what it has said.
		state := known.GetState().GetSessionState()
		if known.GetConf().GetPeerGroup() != "" && state != api.PeerState_SESSION_STATE_ESTABLISHED {
			s.log.Debug("master dropped before its session was up", "address", addr, "state", state)
			s.dropMaster(addr)
		}
	}
}
