package address

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/sockdiag"
	"lbd.dev/lbd/internal/wake"
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

// deaf is how many times in a row a peer must not have answered not to count: with
// the shortest timeout of the kernel, 200 ms that double, that takes 6 s.
const deaf = 5

// tally is how many connections to an address are open, how many of them are lively, and
// how many sockets there are besides of connections of this host with itself.
type tally struct{ open, lively, own int }

// unknown stands for what could not be counted, or was not.
var unknown = tally{-1, -1, -1}

// census is what is to be counted, and what was found.
type census struct {
	counts map[netip.Addr]tally
	// here are the addresses of this host besides those that lbd bound, elsewhere is
	// Desired.Elsewhere. Neither is ever changed.
	here      map[netip.Addr]Entry
	elsewhere map[netip.Addr][]netip.Addr
	parted    []sockdiag.Socket // those of elsewhere
}

// take adds up, for each address in counts, the open TCP connections to it.
// Connections that are forwarded to a container are not seen.
func (c *census) take(k Kernel) error {
	c.parted = nil
	if err := k.Sockets(sockdiag.Open, true, c.add); err != nil {
		return fmt.Errorf("connections: count: %w", err)
	}
	return nil
}

func (c *census) add(s sockdiag.Socket) {
	vip, peer := s.Local.Addr(), s.Remote.Addr()
	t, asked := c.counts[vip]
	if !asked {
		return
	}
	_, here := c.here[peer]
	switch {
	case here || peer == vip || peer.IsLoopback():
		t.own++
	case slices.Contains(c.elsewhere[vip], peer):
		c.parted = append(c.parted, s)
	case s.Unanswered < deaf:
		t.open++
		if s.Heard >= 0 && s.Heard < lively {
			t.lively++
		}
	}
	c.counts[vip] = t
}

// recount counts for the holds that linger and were not counted yet, and starts
// the polling; d.mu is held.
func (d *Driver) recount() {
	if c := d.census(true); len(c.counts) > 0 {
		wake.Up(d.tasks.linger)
		d.note(c, c.take(d.kernel))
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
	c := d.census(false)
	for _, h := range d.holds.list { // the newest one says how soon
		if h.want.Linger {
			if next := pollAfter(time.Since(h.lingers)); again == 0 || next < again {
				again = next
			}
		}
	}
	k := d.kernel
	d.mu.Unlock()
	if len(c.counts) == 0 {
		return 0
	}
	err := c.take(k)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.note(c, err) {
		d.fire()
	}
	return again
}

// census asks for every address whose connections are to be counted, or only for those
// that some hold has no count of.
func (d *Driver) census(uncounted bool) *census {
	c := &census{counts: make(map[netip.Addr]tally), here: d.here, elsewhere: d.decision.elsewhere}
	for _, h := range d.holds.list {
		if h.want.Linger && (!uncounted || h.connections == unknown) {
			c.counts[h.want.Addr] = tally{}
		}
	}
	return c
}

// note takes over counts, has connections cut that are parted from their other end, and
// tells whether any count changed. What could not be counted is unknown: -1. A connection
// is one to the address, whichever interface its packets come in by, so that both holds of
// an address get the same.
func (d *Driver) note(c *census, err error) (changed bool) {
	if err != nil {
		d.stats.errors.Add(1)
		d.log.Debug("cannot count connections", "err", err)
	}
	d.cut.sever(c.parted)
	for _, h := range d.holds.list {
		n, counted := c.counts[h.want.Addr]
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
