package gobgp

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

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
