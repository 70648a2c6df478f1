package forward

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"lbd.dev/lbd/internal/sockdiag"
)

// Source is an address that a server sees in place of clients.
type Source struct {
	Addr netip.Addr
	Counted
}

// Ports are those of a source that connections to one server have taken, those at their end among
// them. HalfOpen are those of TCP whose client has not answered the server yet.
type Ports struct{ Taken, HalfOpen int }

// allPorts is how many the kernel chooses from for a client that has a port from 1024 on.
const allPorts = 1<<16 - 1024

// Used is the share of all that are taken.
func (p Ports) Used() float64 { return min(float64(p.Taken)/allPorts, 1) }

const (
	// scarce is the share of the table, or of ports, from which on it is said, as by the alerts. Of the
	// table it is said until it is below plenty.
	scarce, plenty = 0.9, 0.85
	// lookEvery is how often it is looked for what new connections lack.
	lookEvery = 10 * time.Second
	// droppedFor is how long it is said that packets were dropped.
	droppedFor = time.Minute
	// maxSaid bounds what is said of ports.
	maxSaid = 5
)

// tracked is what connection tracking has at one time.
type tracked struct {
	entries, limit uint64
	drops          sockdiag.Drops
	ports          map[Source]Ports
}

// shortage is what is remembered of what new connections have lacked.
type shortage struct {
	known  bool // drops
	drops  sockdiag.Drops
	nearly bool
	full   time.Time // until then it is said
	ports  bool      // some were scarce
}

// asks tells whether the ports are to be counted, which takes time: while some are scarce, or when
// packets were dropped for want of one.
func (s *shortage) asks(now sockdiag.Drops) bool {
	return s.ports || s.known && now.Clashed > s.drops.Clashed
}

// step says what new connections lack. In the words there is no number that changes.
func (s *shortage) step(now time.Time, is *tracked) (lacks []string) {
	if share := float64(is.entries) / float64(max(is.limit, 1)); share > scarce || share < plenty {
		s.nearly = share > scarce
	}
	// A clash is counted in both. What is in the first alone found no room in the table.
	if all, clashed := is.drops.All-s.drops.All, is.drops.Clashed-s.drops.Clashed; s.known && all > clashed {
		s.full = now.Add(droppedFor)
	}
	s.known, s.drops = true, is.drops
	switch {
	case now.Before(s.full):
		lacks = append(lacks, "the kernel's table of connections is full, and new connections are dropped: raise net.netfilter.nf_conntrack_max, or stop who fills it")
	case s.nearly:
		lacks = append(lacks, "the kernel's table of connections is over 90 % full; when it is full new connections are dropped: raise net.netfilter.nf_conntrack_max")
	}
	ports := portsLack(is.ports)
	s.ports = len(ports) > 0
	return append(lacks, ports[:min(len(ports), maxSaid)]...)
}

// portsLack says which sources have few ports left, sorted.
func portsLack(ports map[Source]Ports) (lacks []string) {
	for at, p := range ports {
		if p.Used() <= scarce {
			continue
		}
		why := "more sourceAddresses have more ports"
		if p.HalfOpen > p.Taken/2 {
			why = "most of them are half open, as in a flood of SYN packets: lower net.netfilter.nf_conntrack_tcp_timeout_syn_recv and nf_conntrack_tcp_timeout_syn_sent"
		}
		lacks = append(lacks, fmt.Sprintf("over 90 %% of the ports of %s are taken by connections to %s (%s), and new ones are dropped when no port is found: %s", at.Addr, at.Server, at.Protocol, why))
	}
	slices.Sort(lacks)
	return lacks
}

// watcher has what Watch has found last.
type watcher struct {
	mu     sync.Mutex
	lacks  []string
	memory shortage // of Watch alone
}

// Lacks says what new connections of this node lacked when Watch looked last.
func (d *Driver) Lacks() []string {
	d.watcher.mu.Lock()
	defer d.watcher.mu.Unlock()
	return d.watcher.lacks
}

// Watch looks for what new connections lack until the context ends, and logs it when it begins and
// when it is over. It may run while other methods do.
func (d *Driver) Watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		d.look(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look is one look.
func (d *Driver) look(now time.Time) {
	is, ok := tracked{}, false
	if is.entries, is.limit, ok = sockdiag.Table(); !ok {
		return
	}
	is.drops, _ = sockdiag.Dropped()
	w := &d.watcher
	if w.memory.asks(is.drops) {
		counts, err := d.Count()
		if err != nil {
			d.log.Debug("ports of sources cannot be counted", "err", err)
		}
		is.ports = counts.Ports
	}
	lacks := w.memory.step(now, &is)
	for _, l := range lacks {
		if !slices.Contains(w.lacks, l) {
			d.log.Warn("new connections lack room", "reason", l)
		}
	}
	for _, l := range w.lacks {
		if !slices.Contains(lacks, l) {
			d.log.Info("new connections have room again", "reason", l)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lacks = lacks
}
