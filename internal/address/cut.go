package address

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"lbd.dev/lbd/internal/sockdiag"
	"lbd.dev/lbd/internal/wake"
)

// cutter ends connections that have lost their other end because an address was bound
// or unbound here. Their packets would go nowhere, and their clients might wait for an
// answer for ever; cut, they come back and reach who has the address now. It works
// beside the driver: it reads all sockets, and the table of connection tracking.
type cutter struct {
	log    *slog.Logger
	kernel Kernel
	wake   chan struct{}

	behind []sockdiag.Flow // clients that were challenged once; of run only
	warn   sync.Once       // that nothing can be cut

	mu sync.Mutex
	// turned are the addresses that were bound (true) or unbound, as last known.
	turned map[netip.Addr]bool
	parted []sockdiag.Socket // to be cut without a look
}

func newCutter(log *slog.Logger, k Kernel) *cutter {
	return &cutter{log: log, kernel: k, wake: make(chan struct{}, 1), turned: make(map[netip.Addr]bool)}
}

// bound cuts what this host and the clients behind it have open to the address on
// another host: their packets do not leave this host any more.
func (c *cutter) bound(a netip.Addr) { c.turn(a, true) }

// unbound cuts what this host has open to the address with itself.
func (c *cutter) unbound(a netip.Addr) { c.turn(a, false) }

func (c *cutter) turn(a netip.Addr, bound bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turned[a] = bound
	wake.Up(c.wake)
}

// sever cuts these.
func (c *cutter) sever(s []sockdiag.Socket) {
	if len(s) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parted = s // whoever counts finds all of them each time
	wake.Up(c.wake)
}

// run works until ctx ends, and then does what it was asked for before.
func (c *cutter) run(ctx context.Context) {
	again := time.NewTimer(challengeAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			c.work()
			return
		case <-c.wake:
			c.work()
			again.Reset(challengeAgain)
		case <-again.C:
			c.challenge(c.behind)
			c.behind = nil
		}
	}
}

func (c *cutter) work() {
	c.mu.Lock()
	turned, parted := c.turned, c.parted
	c.turned, c.parted = make(map[netip.Addr]bool), nil
	c.mu.Unlock()
	cut := c.destroy(parted, cutFor)
	if len(turned) > 0 {
		t, err := c.touching(turned)
		if err != nil {
			c.log.Warn("cannot look for connections that have lost their other end", "err", err)
			return
		}
		cut += c.destroy(t.own(turned), cutFor) + c.reset(turned, t)
	}
	if cut > 0 {
		c.log.Info("cut connections of this node to VIPs that have moved", "vips", slices.SortedFunc(maps.Keys(turned), netip.Addr.Compare), "connections", cut)
	}
}

const (
	// cutFor bounds one look of the goroutine that cuts.
	cutFor = 10 * time.Second
	// resetFor bounds how long resetClients holds up the driver. What is left by then is
	// reset when it sends.
	resetFor = 200 * time.Millisecond
)

// resetClients ends the connections to addresses that are still bound and about to go: the
// kernel tells each client by a reset. Unlike all else it is done at once, for without the
// address nothing can be sent.
func (c *cutter) resetClients(addrs map[netip.Addr]bool) {
	var open []sockdiag.Socket
	err := c.kernel.Sockets(sockdiag.Open, false, func(s sockdiag.Socket) {
		if addrs[s.Local.Addr()] {
			open = append(open, s)
		}
	})
	if err != nil {
		c.log.Warn("cannot reset the clients of VIPs that go", "err", err)
		return
	}
	if cut := c.destroy(open, resetFor); len(open) > 0 {
		c.log.Info("reset the clients of VIPs that go", "vips", slices.SortedFunc(maps.Keys(addrs), netip.Addr.Compare), "connections", cut, "left", len(open)-cut)
	}
}

// destroy tells how many it ended in the time that it has.
func (c *cutter) destroy(sockets []sockdiag.Socket, within time.Duration) int {
	n, err := c.kernel.Destroy(sockets, time.Now().Add(within))
	if err != nil {
		c.warn.Do(func() {
			c.log.Warn("cannot cut connections that have lost their other end: their clients find out by themselves", "err", err)
		})
	}
	return n
}

// pair is the two ends of a connection, by the socket of one.
type pair struct{ local, remote netip.AddrPort }

// sockets are those of this host that have one of some addresses at either end.
type sockets map[pair]sockdiag.Socket

// touching lists them.
func (c *cutter) touching(addrs map[netip.Addr]bool) (sockets, error) {
	found := make(sockets)
	err := c.kernel.Sockets(sockdiag.Connections, false, func(s sockdiag.Socket) {
		_, local := addrs[s.Local.Addr()]
		_, remote := addrs[s.Remote.Addr()]
		if local || remote {
			found[pair{s.Local, s.Remote}] = s
		}
	})
	return found, err
}

// paired tells whether the other end is here too.
func (all sockets) paired(e pair) bool {
	_, here := all[pair{e.remote, e.local}]
	return here
}

// own are the sockets of connections of this host with itself to what was unbound.
func (all sockets) own(turned map[netip.Addr]bool) (out []sockdiag.Socket) {
	for e, s := range all {
		local, server := turned[e.local.Addr()]
		remote, client := turned[e.remote.Addr()]
		gone := server && !local || client && !remote
		if gone && (e.local.Addr() == e.remote.Addr() || all.paired(e)) {
			out = append(out, s)
		}
	}
	return out
}

// away are the sockets of clients of what was bound whose server is not here.
func (all sockets) away(turned map[netip.Addr]bool) sockets {
	out := make(sockets)
	for e, s := range all {
		if turned[e.remote.Addr()] && e.local.Addr() != e.remote.Addr() && !all.paired(e) {
			out[e] = s
		}
	}
	return out
}

const (
	// mostChallenged bounds how many clients are challenged at once. Most of what is
	// tracked may be long over.
	mostChallenged = 4096
	// challengeAgain is when they are challenged once more: a client answers no two
	// within 500 ms (net.ipv4.tcp_invalid_ratelimit), and the first may have been lost.
	challengeAgain = 600 * time.Millisecond
)

// challenge has clients that lost their connection reset, see sockdiag.Challenge.
func (c *cutter) challenge(behind []sockdiag.Flow) {
	for _, f := range behind {
		if err := c.kernel.Challenge(f.To, f.Seen); err != nil {
			c.log.Debug("cannot reset a client behind this host", "err", err)
		}
	}
}

// reset ends what was parted from its server by a bind, and tells how many of its own
// sockets that were. What connection tracking translates to another server goes on. Of
// the clients in other network namespaces behind this host, such as Pods, it knows no
// more than what is tracked; each is challenged, and that of a connection which nobody here has
// is reset by the answer of this kernel.
func (c *cutter) reset(turned map[netip.Addr]bool, all sockets) int {
	if !slices.Contains(slices.Collect(maps.Values(turned)), true) {
		return 0
	}
	lost := all.away(turned)
	var behind []sockdiag.Flow
	err := c.kernel.Tracked(func(a netip.Addr) bool { return turned[a] }, func(f sockdiag.Flow) {
		_, mine := lost[pair{f.From, f.To}]
		switch {
		case f.Translated:
			delete(lost, pair{f.From, f.To})
		case !mine && len(behind) < mostChallenged:
			behind = append(behind, f)
		}
	})
	if err != nil {
		c.log.Debug("cannot look for clients behind this host", "err", err)
	}
	c.challenge(behind)
	c.behind = append(c.behind, behind...)
	if len(lost) == 0 {
		return 0
	}
	// A connection that began meanwhile may have been listed by half.
	again, err := c.touching(turned)
	if err != nil {
		return 0
	}
	maps.DeleteFunc(lost, func(e pair, _ sockdiag.Socket) bool { return again.paired(e) })
	return c.destroy(slices.Collect(maps.Values(lost)), cutFor)
}
