// Package lbdtest holds machines in memory for tests: kernels with addresses that
// expire and nftables that silence them, the wires between them with frames of ARP and
// neighbour discovery, clients that resolve addresses, and processes that can be frozen and
// killed. On them run the drivers of packages address and layer2; a driver and sources
// stand for those of bgp, link, config and health. It uses package time and channels only,
// so that whole clusters run in a synctest bubble: what may have to wait waits in a channel
// and never in a mutex, for which simulated time would stand still.
package lbdtest

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"lbd.dev/lbd/internal/layer2"
	"lbd.dev/lbd/internal/model"
)

// The delays of the simulated world; each is drawn anew.
const (
	frameMin, frameMax = 20 * time.Microsecond, 300 * time.Microsecond
	callMin, callMax   = 50 * time.Microsecond, 800 * time.Microsecond
	// An expired address is removed this much late (Linux: 10 to 250 ms as a rule).
	fuzzMin, fuzzMax = 10 * time.Millisecond, 250 * time.Millisecond
)

// Net is all machines and the wires between them. It is safe for concurrent use.
type Net struct {
	mu      sync.Mutex
	rng     *rand.Rand
	hosts   map[string]*Host
	order   []*Host // by name
	cut     map[[2]string]bool
	healed  time.Time
	history map[netip.Addr][]Sample
	// unbound are the addresses whose packets every machine takes although it has
	// not bound them, as those with kube-proxy do.
	unbound map[netip.Addr]bool
	nextMAC byte
	stopped bool
}

// Sample is who answers for an address from At on.
type Sample struct {
	At time.Time
	// Holders are the machines that answer on a working link, sorted: their kernels, or
	// a process for what is not bound.
	Holders []string
	// Clashes are the pairs of them that share a wire.
	Clashes [][2]string
	// Exposed are the holders that have the address on lo only.
	Exposed []string
	// Unserved are the clients that send to a machine which does not take the
	// packets, or do not know where to send.
	Unserved []string
}

// NewNet returns an empty world whose delays follow from the seed.
func NewNet(seed uint64) *Net {
	return &Net{
		rng:     rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15)),
		hosts:   map[string]*Host{},
		cut:     map[[2]string]bool{},
		history: map[netip.Addr][]Sample{},
		unbound: map[netip.Addr]bool{},
	}
}

// SetUnbound makes every machine take the packets of addresses without having them.
func (n *Net) SetUnbound(addrs ...netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addrs {
		n.unbound[a] = true
	}
}

// between draws a duration. The net is locked.
func (n *Net) between(low, high time.Duration) time.Duration {
	return low + time.Duration(n.rng.Int64N(int64(high-low)))
}

// call is how long one system call takes.
func (n *Net) call() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.between(callMin, callMax)
}

// Host adds a machine that is on and has no interface yet.
func (n *Net) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &Host{
		net: n, name: name, on: true,
		addrs: map[place]*held{}, tables: map[layer2.Family]bool{}, quiet: map[netip.Addr]time.Time{},
		conns: map[netip.Addr]int{}, neigh: map[netip.Addr]model.MAC{},
		watchers: map[*watcher]struct{}{}, sockets: map[*socket]struct{}{}, responders: map[netip.Addr]*responder{},
	}
	n.order = slices.DeleteFunc(n.order, func(o *Host) bool { return o.name == name })
	n.order = append(n.order, h)
	slices.SortFunc(n.order, func(a, b *Host) int { return strings.Compare(a.name, b.name) })
	n.hosts[name] = h
	return h
}

// Partition cuts the wires between the groups; machines in no group hear all.
// Nobody loses carrier.
func (n *Net) Partition(groups ...[]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, g := range groups {
		for _, other := range groups[i+1:] {
			for _, a := range g {
				for _, b := range other {
					n.cut[pair(a, b)] = true
				}
			}
		}
	}
	n.changed()
}

// Heal ends every partition.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.cut) > 0 {
		clear(n.cut)
		n.healed = time.Now()
	}
	n.changed()
}

// Healed is when a partition ended last; zero if never.
func (n *Net) Healed() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.healed
}

// Connected tells whether two machines share a working wire.
func (n *Net) Connected(a, b string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.hosts[a].ports {
		for _, q := range n.hosts[b].ports {
			if n.reach(p, q) {
				return true
			}
		}
	}
	return false
}

func pair(a, b string) [2]string {
	if b < a {
		a, b = b, a
	}
	return [2]string{a, b}
}

// reach tells whether frames of p arrive at q. The net is locked.
func (n *Net) reach(p, q *port) bool {
	return p != q && p.lan == q.lan && p.up() && q.up() && !n.cut[pair(p.host.name, q.host.name)]
}

// Holders are the machines that answer for the address now.
func (n *Net) Holders(a netip.Addr) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.history[a]; len(s) > 0 {
		return s[len(s)-1].Holders
	}
	return nil
}

// History is who answered for the address, oldest first.
func (n *Net) History(a netip.Addr) []Sample { return n.HistoryFrom(a, 0) }

// HistoryFrom is History without the oldest samples, as many as skip says.
func (n *Net) HistoryFrom(a netip.Addr, skip int) []Sample {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.history[a]
	return slices.Clone(h[min(skip, len(h)):])
}

// Clashes is the newest sample of each address for which two machines answer on one wire; nil if
// there is none.
func (n *Net) Clashes() map[netip.Addr]Sample {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out map[netip.Addr]Sample
	for a, s := range n.history {
		if last := &s[len(s)-1]; len(last.Clashes) > 0 {
			if out == nil {
				out = map[netip.Addr]Sample{}
			}
			out[a] = *last
		}
	}
	return out
}

// changed looks at every address that anybody has or had. The net is locked.
func (n *Net) changed() {
	seen := map[netip.Addr]bool{}
	for a := range n.history {
		seen[a] = true
	}
	for _, h := range n.hosts {
		for at := range h.addrs {
			seen[at.addr] = true
		}
		for a := range h.responders {
			seen[a] = true
		}
	}
	for a := range seen {
		n.look(a)
	}
}

// look adds a sample if something about the address has changed. The net is
// locked.
func (n *Net) look(a netip.Addr) {
	s := Sample{At: time.Now()}
	var holding []*port
	for _, h := range n.order {
		if ports := h.answering(a); len(ports) > 0 {
			holding = append(holding, ports...)
			s.Holders = append(s.Holders, h.name)
			if h.exposed(a) {
				s.Exposed = append(s.Exposed, h.name)
			}
		}
	}
	for i, p := range holding {
		for _, q := range holding[:i] {
			if p.host != q.host && n.reach(p, q) {
				s.Clashes = append(s.Clashes, pair(p.host.name, q.host.name))
			}
		}
	}
	for _, h := range n.order {
		if h.client && !n.served(h, a) {
			s.Unserved = append(s.Unserved, h.name)
		}
	}
	old := n.history[a]
	if len(old) > 0 {
		last := &old[len(old)-1]
		if slices.Equal(last.Holders, s.Holders) && slices.Equal(last.Clashes, s.Clashes) && slices.Equal(last.Exposed, s.Exposed) && slices.Equal(last.Unserved, s.Unserved) {
			return
		}
		if last.At.Equal(s.At) { // nothing lasts for no time
			*last = s
			return
		}
	}
	n.history[a] = append(old, s)
}

// Foreign tells whether a machine has the address without lbd's mark.
func (n *Net) Foreign(a netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.hosts {
		for at, x := range h.addrs {
			if at.addr == a && !x.mark {
				return true
			}
		}
	}
	return false
}

// Stop ends the clients' asking, so that nothing is left to happen.
func (n *Net) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopped = true
}
