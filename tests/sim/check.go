package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/internal/address"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/lbdtest"
	"lbd.dev/lbd/internal/model"
)

const (
	// lookEvery is how often the invariants are checked.
	lookEvery = 5 * time.Millisecond
	// handoverOverlap bounds a planned overlap of two owners.
	handoverOverlap = time.Second
	// orphanOverlap bounds one whose old owner, or a successor that had bound the
	// address, has died or stopped running in the middle of it: the rest of the
	// lifetime, and how late the kernel may be. No rule of the election can prevent
	// that: make before break means that both have the address.
	orphanOverlap = address.Lifetime + 300*time.Millisecond
	// reads is how long a daemon that has just gone on may take to read that its
	// successor has the VIP, to decide and to fall silent.
	reads = 50 * time.Millisecond
	// plannedWithin is how long after a successor was named it may begin to
	// answer: the decision, gossip, and election.ConsentHolds.
	plannedWithin = 400 * time.Millisecond
	// promisedHeal is for how long two owners that meet after a cut may both answer.
	promisedHeal = 150 * time.Millisecond
	// repeated is how long it takes if the claims were told during a cut that was too
	// short for memberlist, and the two first successors, who get heartbeats, are not
	// there: until an owner tells its claims again, once a second. Datagrams get lost
	// in these runs, so three repeats are allowed for.
	repeated = 3500 * time.Millisecond
	// disputeOverlap is for how long two owners that gossip keeps apart may both answer on
	// one wire once each has found that the other one is gone: until one of them announces
	// the address again anyway, election.DisputeFor from the first frame that the other
	// one hears, and a series of probes.
	disputeOverlap = refresh + election.DisputeFor + 1500*time.Millisecond
	// refresh is how often an owner announces in the long run, on average, see package layer2.
	refresh = 30 * time.Second
	// minorityPatience is how long an isolated node may take to find that it has
	// no majority: memberlist probes the others one after the other, more slowly
	// the fewer answer.
	minorityPatience = 40 * time.Second
)

// monitor watches a cluster all the time.
type monitor struct {
	client   *lbdtest.Host
	stranger *lbdtest.Host
	stop     chan struct{}
	ended    chan struct{}
	clashes  map[clash]*overlap
	exposed  map[netip.Addr]int // samples that were judged
	unbound  map[string]bool    // told
}

type clash struct {
	addr netip.Addr
	pair [2]string
}

type overlap struct {
	since time.Time
	told  bool
}

func (m *monitor) start(c *Cluster, client *lbdtest.Host) {
	m.client, m.stop, m.ended, m.clashes = client, make(chan struct{}), make(chan struct{}), map[clash]*overlap{}
	m.exposed, m.unbound = map[netip.Addr]int{}, map[string]bool{}
	go func() {
		defer close(m.ended)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-m.stop:
				return
			case <-tick.C:
			}
			m.look(c)
			m.lookBGP(c)
		}
	}()
}

func (m *monitor) end() {
	close(m.stop)
	<-m.ended
}

// look judges every pair of machines that answer for one address on one wire.
func (m *monitor) look(c *Cluster) {
	now := map[clash]bool{}
	for a, s := range c.Net.Clashes() {
		if !c.l2(netip.PrefixFrom(a, a.BitLen())) {
			continue
		}
		for _, p := range s.Clashes {
			if slices.Contains(p[:], "stranger") {
				continue // not lbd's doing; see TestForeignHost
			}
			k := clash{a, p}
			now[k] = true
			o := m.clashes[k]
			if o == nil {
				o = &overlap{since: s.At}
				m.clashes[k] = o
			}
			if !o.told && !m.excused(c, k, o) {
				o.told = true
				c.failf("%s and %s both answer for %s since %s", p[0], p[1], a, time.Since(o.since))
			}
		}
	}
	for k := range m.clashes {
		if !now[k] {
			delete(m.clashes, k)
		}
	}
}

func (m *monitor) excused(c *Cluster, k clash, o *overlap) bool {
	if h := c.Net.Healed(); !h.IsZero() && time.Since(h) <= c.opts.Heal {
		return true
	}
	if c.disputed(k, o) {
		return true
	}
	for _, name := range k.pair {
		n := c.nodes[name]
		// What is not bound ends with its daemon.
		orphan := (!n.running() || n.frozen || time.Since(n.thawed) <= reads) && !c.unbound(k.addr)
		yielded, named := n.handing(k.addr)
		limit := handoverOverlap
		switch {
		case !yielded.IsZero() && o.since.Sub(yielded) <= plannedWithin:
			if orphan {
				limit = orphanOverlap
			}
		case !named.IsZero() && orphan && o.since.Sub(named) <= orphanOverlap:
			limit = orphanOverlap
		default:
			continue
		}
		if time.Since(o.since) <= limit {
			return true
		}
	}
	return false
}

// disputed: no gossip goes between the two, so that they know of each other by the wire
// only, see election.DisputeFor; or it does again, and they are about to hear.
func (c *Cluster) disputed(k clash, o *overlap) bool {
	a, b := c.nodes[k.pair[0]], c.nodes[k.pair[1]]
	if c.talks(a, b) {
		return o.since.Before(c.rejoined) && time.Since(c.rejoined) <= c.opts.Heal
	}
	return time.Since(maxTime(o.since, c.unheard.Add(minorityPatience))) <= disputeOverlap+election.DisputeLong // if one does not know the other
}

// unbound tells whether no node binds the address.
func (c *Cluster) unbound(a netip.Addr) bool {
	return slices.ContainsFunc(c.opts.VIPs, func(v model.VIP) bool { return v.Addr == a && v.Unbound })
}

// Quiet lets nothing happen for a while and checks how that ends: every VIP has
// the holders that it should, nobody has an address that he should not, and what
// nothing happened to did not move.
func (c *Cluster) Quiet(d time.Duration) {
	time.Sleep(d)
	c.settled()
}

// settled checks the present state.
func (c *Cluster) settled() {
	holders := map[netip.Addr][]string{}
	for _, v := range c.vips {
		for _, h := range c.Net.Holders(v.Addr) {
			if h != "stranger" {
				holders[v.Addr] = append(holders[v.Addr], h)
			}
		}
	}
	for _, v := range c.vips {
		if v.L2 {
			c.held(v, holders[v.Addr])
			c.stuck(v, holders[v.Addr])
		}
	}
	c.settledBGP()
	for _, n := range c.all() {
		for _, a := range n.Host.Addresses() {
			if c.unbound(a) {
				c.failf("%s has bound %s", n.Name, a)
			}
			if !slices.Contains(holders[a], n.Name) && !n.unplugged {
				c.failf("%s still has %s", n.Name, a)
			}
		}
	}
	clear(c.touched)
	clear(c.owners)
	for a, h := range holders {
		if len(h) == 1 {
			c.owners[a] = h[0]
		}
	}
}

// held checks who holds a VIP. Nodes that are connected by wire or gossip, in
// however many steps, know of each other; those that share a wire share one
// holder.
func (c *Cluster) held(v model.VIP, holders []string) {
	if c.Net.Foreign(v.Addr) {
		return
	}
	for _, group := range c.components(func(a, b *Node) bool { return c.Net.Connected(a.Name, b.Name) || c.talks(a, b) }) {
		able := false
		var here []string
		for _, n := range group {
			able = able || c.able(n, v)
			if slices.Contains(holders, n.Name) {
				here = append(here, n.Name)
				if !c.able(n, v) && !c.tolerable(n, v) && !c.unaware(n, v) {
					c.failf("%s holds %s but must not", n.Name, v.Addr)
				}
			}
		}
		if able && len(here) == 0 {
			c.failf("nobody of %s holds %s", names(group), v.Addr)
		}
	}
	for _, group := range c.components(func(a, b *Node) bool { return c.Net.Connected(a.Name, b.Name) }) {
		var here []string
		for _, n := range group {
			if slices.Contains(holders, n.Name) {
				here = append(here, n.Name)
			}
		}
		if len(here) > 1 {
			c.failf("%s hold %s on one wire", strings.Join(here, " and "), v.Addr)
		}
	}
}

// able tells whether the node may own the VIP.
func (c *Cluster) able(n *Node, v model.VIP) bool {
	return n.running() && !n.frozen && !n.unplugged && !n.draining && !n.stopping && (v.Check == "" || !n.sick) && c.quorum(n, v)
}

// tolerable: a drained node keeps a VIP that nobody else can take.
func (c *Cluster) tolerable(n *Node, v model.VIP) bool {
	if !n.running() || n.frozen || n.unplugged || v.Check != "" && n.sick || !c.quorum(n, v) {
		return false
	}
	for _, o := range c.all() {
		if o != n && c.able(o, v) && c.talks(n, o) {
			return false
		}
	}
	return true
}

// unaware: the node has not noticed yet that it has no majority.
func (c *Cluster) unaware(n *Node, v model.VIP) bool {
	v.Partition = model.PartitionAvailable
	return time.Since(c.parted) < minorityPatience && (c.able(n, v) || c.tolerable(n, v))
}

// quorum tells whether the node sees a majority if the VIP asks for one.
func (c *Cluster) quorum(n *Node, v model.VIP) bool {
	seen := 0
	for _, o := range c.all() {
		if o == n || o.running() && !o.frozen && c.talks(n, o) {
			seen++
		}
	}
	return v.Partition != model.PartitionQuorum || seen*2 > len(c.nodes)
}

// stuck checks that a VIP is where it was if nothing happened to its owner.
func (c *Cluster) stuck(v model.VIP, holders []string) {
	was, ok := c.owners[v.Addr]
	if !ok || c.touched[was] || !c.able(c.nodes[was], v) || v.Preempt || v.Partition == model.PartitionQuorum {
		return
	}
	if !slices.Contains(holders, was) {
		c.failf("%s went from %s to %v although nothing happened to %s", v.Addr, was, holders, was)
	}
}

// components groups the nodes that are connected.
func (c *Cluster) components(linked func(a, b *Node) bool) [][]*Node {
	var out [][]*Node
	seen := map[*Node]bool{}
	for _, n := range c.all() {
		if seen[n] {
			continue
		}
		seen[n] = true
		group := []*Node{n}
		for i := 0; i < len(group); i++ {
			for _, o := range c.all() {
				if !seen[o] && linked(group[i], o) {
					seen[o] = true
					group = append(group, o)
				}
			}
		}
		out = append(out, group)
	}
	return out
}

func names(group []*Node) string {
	var out []string
	for _, n := range group {
		out = append(out, n.Name)
	}
	return strings.Join(out, " ")
}

// Owner is the one machine that answers for the address.
func (c *Cluster) Owner(a netip.Addr) string {
	h := c.Net.Holders(a)
	if len(h) != 1 {
		c.failf("%v answer for %s, not one", h, a)
		return ""
	}
	return h[0]
}

// Gap is the longest time from the moment on for which the client was not served.
func (c *Cluster) Gap(a netip.Addr, from time.Time) time.Duration {
	var gap time.Duration
	var since time.Time
	end := func(at time.Time) {
		if !since.IsZero() && at.After(from) {
			gap = max(gap, at.Sub(maxTime(since, from)))
		}
	}
	for _, s := range c.Net.History(a) {
		if bad := len(s.Unserved) > 0; bad && since.IsZero() {
			since = s.At
		} else if !bad {
			end(s.At)
			since = time.Time{}
		}
	}
	end(time.Now())
	return gap
}

// overlap is the longest time from the moment on for which two answered.
func (c *Cluster) overlap(a netip.Addr, from time.Time) time.Duration {
	var longest time.Duration
	var since time.Time
	for _, s := range c.Net.History(a) {
		switch two := len(s.Clashes) > 0 && !s.At.Before(from); {
		case two && since.IsZero():
			since = s.At
		case !two && !since.IsZero():
			longest = max(longest, s.At.Sub(since))
			since = time.Time{}
		}
	}
	return longest
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// State is who answers for what, for people.
func (c *Cluster) State() string {
	var b strings.Builder
	for _, v := range c.vips {
		fmt.Fprintf(&b, "%s %v\n", v.Addr, c.Net.Holders(v.Addr))
	}
	return b.String()
}
