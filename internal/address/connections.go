package address

import (
	"fmt"
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/sockdiag"
)

const (
	// lingerPoll is how often connections are counted when a binding begins to linger.
	// A count lists every TCP socket of the host, and a binding may linger for days.
	lingerPoll = 250 * time.Millisecond
	// lingerShare is how much of the time that it has lingered may pass until the next
	// count, lingerRest at most.
	lingerShare = 40
	lingerRest  = 5 * time.Second
	// lively is how recently a connection must have got a packet to count: one
	// that gets none has moved to another node, or has ended without saying so.
	lively = time.Second
)

// tally is how many connections to an address are open, and how many of them are
// lively.
type tally struct{ open, lively int }

// unknown stands for what could not be counted, or was not.
var unknown = tally{-1, -1}

// countConnections adds up, for each address in counts, the open TCP connections
// to it, and those that got a packet within the last second. Connections that are
// forwarded to a container are not seen.
func countConnections(counts map[netip.Addr]tally) error {
	err := sockdiag.TCP(sockdiag.Open, true, func(s sockdiag.Socket) {
		t, asked := counts[s.Local.Addr()]
		if !asked {
			return
		}
		t.open++
		if s.Heard >= 0 && s.Heard < lively {
			t.lively++
		}
		counts[s.Local.Addr()] = t
	})
	if err != nil {
		return fmt.Errorf("connections: count: %w", err)
	}
	return nil
}

// recount counts for the holds that linger and were not counted yet, and starts
// the polling; d.mu is held.
func (d *Driver) recount() {
	if counts := d.lingering(true); len(counts) > 0 {
		signal(d.linger)
		d.note(counts, countConnections(counts))
	}
}

// pollAfter is how long to wait for the next count of what has lingered for so long.
func pollAfter(lingered time.Duration) time.Duration {
	return min(max(lingerPoll, lingered/lingerShare), lingerRest)
}

// poll counts for every hold that lingers and tells when to do so again; zero if there
// is none.
func (d *Driver) poll() (again time.Duration) {
	d.mu.Lock()
	counts := d.lingering(false)
	for _, h := range d.list { // the newest one says how soon
		if h.want.Linger {
			if next := pollAfter(time.Since(h.lingers)); again == 0 || next < again {
				again = next
			}
		}
	}
	d.mu.Unlock()
	if len(counts) == 0 {
		return 0
	}
	err := countConnections(counts)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.note(counts, err) {
		d.fire()
	}
	return again
}

// lingering returns a zero for every address whose connections are to be counted,
// or only for those that some hold has no count of.
func (d *Driver) lingering(uncounted bool) map[netip.Addr]tally {
	counts := make(map[netip.Addr]tally)
	for _, h := range d.list {
		if h.want.Linger && (!uncounted || h.connections == unknown) {
			counts[h.want.Addr] = tally{}
		}
	}
	return counts
}

// note takes over counts and tells whether any changed. What could not be
// counted is unknown: -1. A connection is one to the address, whichever interface
// its packets come in by, so that both holds of an address get the same.
func (d *Driver) note(counts map[netip.Addr]tally, err error) (changed bool) {
	if err != nil {
		d.stats.errors.Add(1)
		d.log.Debug("cannot count connections", "err", err)
	}
	for _, h := range d.list {
		n, counted := counts[h.want.Addr]
		if !counted || !h.want.Linger {
			continue
		}
		if err != nil {
			n = unknown
		}
		changed = changed || h.connections != n
		h.connections = n
	}
	return changed
}
