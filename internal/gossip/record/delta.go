package record

import (
	"maps"
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/model"
)

// Delta is what changed since the last publication. It is applied on the
// daemon's goroutine and touches only the entries that changed; slices in the
// View are replaced, never written to.
type Delta struct {
	reset     bool // begin with an empty section
	synced    bool
	peers     *[]model.Peer // nil: unchanged
	exchanged time.Time
	members   map[model.NodeName]*memberDelta
	claims    map[netip.Addr][]model.Claim    // nil: none left
	eligible  map[netip.Addr][]model.NodeName // nil: none left
	holders   map[netip.Addr][]model.NodeName // nil: none left
	seen      map[netip.Addr]uint64           // 0: forgotten
}

type memberDelta struct {
	forget   bool
	fresh    bool // forgotten and met again: Standing begins empty
	head     bool // the fields other than Standing
	value    model.Member
	standing map[netip.Addr]standing
}

type standing struct {
	reason model.Reason
	known  bool
	name   string // of the VIP's object
}

func newDelta() *Delta {
	return &Delta{
		members:  map[model.NodeName]*memberDelta{},
		claims:   map[netip.Addr][]model.Claim{},
		eligible: map[netip.Addr][]model.NodeName{},
		holders:  map[netip.Addr][]model.NodeName{},
		seen:     map[netip.Addr]uint64{},
	}
}

func (d *Delta) empty() bool {
	return !d.reset && d.peers == nil && d.exchanged.IsZero() && len(d.members) == 0 &&
		len(d.claims) == 0 && len(d.eligible) == 0 && len(d.holders) == 0 && len(d.seen) == 0
}

// onlyExchanged tells whether there was a full exchange that brought nothing.
func (d *Delta) onlyExchanged() bool {
	bare := *d
	bare.exchanged = time.Time{}
	return bare.empty()
}

// Moved tells whether anything of a node as a whole is to be published.
func (t *Table) Moved() bool { return len(t.delta.members) > 0 }

// Still tells whether nothing is to be published, or only that there was a full
// exchange.
func (t *Table) Still() bool { return t.delta.onlyExchanged() }

// Peers replaces the configured peers.
func (t *Table) Peers(peers []model.Peer) { t.delta.peers = &peers }

// Exchanged notes a full exchange.
func (t *Table) Exchanged(at time.Time) { t.delta.exchanged = at }

func (d *Delta) of(name model.NodeName) *memberDelta {
	m := d.members[name]
	if m == nil {
		m = &memberDelta{}
		d.members[name] = m
	}
	return m
}

// member notes that the node changed as a whole.
func (d *Delta) member(name model.NodeName) {
	m := d.of(name)
	m.head, m.fresh, m.forget = true, m.fresh || m.forget, false
}

func (d *Delta) standing(name model.NodeName, a netip.Addr, e *entry) {
	m := d.of(name)
	if m.standing == nil {
		m.standing = map[netip.Addr]standing{}
	}
	m.standing[a] = standing{e.standing, e.known, e.name}
}

func (d *Delta) forget(name model.NodeName) {
	d.members[name] = &memberDelta{forget: true}
}

// Flush takes the delta for publication; nil if nothing changed.
func (t *Table) Flush() *Delta {
	d := t.delta
	if d.empty() {
		return nil
	}
	t.delta = newDelta()
	for name, m := range d.members {
		if n := t.nodes[name]; n != nil && m.head {
			m.value = n.member()
		}
	}
	return d
}

// Whole returns the complete state, and forgets what was to be published.
func (t *Table) Whole() *Delta {
	d := newDelta()
	d.reset = true
	d.exchanged = t.delta.exchanged
	maps.Copy(d.claims, t.claims)
	maps.Copy(d.eligible, t.eligible)
	maps.Copy(d.holders, t.holders)
	for a, s := range t.seen {
		d.seen[a] = s.epoch
	}
	for name, n := range t.nodes {
		m := d.of(name)
		m.head, m.value = true, n.member()
		for a, e := range n.entries {
			if e.known {
				d.standing(name, a, e)
			}
		}
	}
	t.delta = newDelta()
	return d
}

// First makes this the first change that the source delivers.
func (d *Delta) First(peers []model.Peer) *Delta {
	d.peers, d.synced = &peers, true
	return d
}

// member is the node as the View has it, without Standing.
func (n *Node) member() model.Member {
	m := model.Member{
		Name: n.Name, Addr: n.Addr.Addr(), State: n.State(), Known: n.known, Told: n.base.seq > 0,
		Draining: n.head.Draining, Settled: n.head.Settled, Rules: n.head.Rules,
		Weight: n.head.Weight, Version: n.head.Version, MACs: n.macs, Addrs: n.head.Addrs, Hears: n.head.Hears,
		Heard: n.pulse.heard, Late: n.pulse.late, Suspect: n.pulse.suspect, Missing: n.pulse.missing, LeaseEnd: n.pulse.leaseEnd, Back: n.pulse.back,
		Drained: n.head.Drained, Drains: n.drains,
	}
	if !n.Present {
		m.Gone = n.GoneSince
	}
	if n.machines != nil {
		m.Manager, m.Partial = n.machines.Manager, n.machines.Partial
	}
	return m
}

// Apply makes the change. It runs on the daemon's goroutine.
func (d *Delta) Apply(v *model.View) {
	g := &v.Gossip
	if d.reset {
		*g = model.Gossip{
			Peers: g.Peers, Configured: g.Configured,
			Exchanged: g.Exchanged,
			Members:   make(map[model.NodeName]model.Member, len(d.members)),
			Claims:    make(map[netip.Addr][]model.Claim, len(d.claims)),
			Eligible:  make(map[netip.Addr][]model.NodeName, len(d.eligible)),
			Holders:   make(map[netip.Addr][]model.NodeName, len(d.holders)),
			Seen:      make(map[netip.Addr]uint64, len(d.seen)),
		}
	}
	if d.peers != nil {
		g.Peers, g.Configured = len(*d.peers), *d.peers
	}
	if !d.exchanged.IsZero() {
		g.Exchanged = d.exchanged
	}
	for name, m := range d.members {
		m.apply(g.Members, name)
	}
	replace(g.Claims, d.claims)
	replace(g.Eligible, d.eligible)
	if g.Holders == nil && len(d.holders) > 0 {
		g.Holders = make(map[netip.Addr][]model.NodeName, len(d.holders))
	}
	replace(g.Holders, d.holders)
	for a, epoch := range d.seen {
		if epoch == 0 {
			delete(g.Seen, a)
		} else {
			g.Seen[a] = epoch
		}
	}
	if d.synced {
		if v.Synced == nil {
			v.Synced = map[model.SourceName]bool{}
		}
		v.Synced[model.SourceGossip] = true
	}
}

func (m *memberDelta) apply(members map[model.NodeName]model.Member, name model.NodeName) {
	if m.forget {
		delete(members, name)
		return
	}
	value, ok := members[name]
	if !ok || m.head {
		kept, names := value.Standing, value.Names
		value = m.value
		if !m.fresh {
			value.Standing, value.Names = kept, names
		}
	}
	if value.Standing == nil {
		value.Standing = make(map[netip.Addr]model.Reason, len(m.standing))
	}
	for a, s := range m.standing {
		if s.known {
			value.Standing[a] = s.reason
		} else {
			delete(value.Standing, a)
		}
		switch {
		case !s.known || s.name == "":
			delete(value.Names, a)
		case value.Names == nil:
			value.Names = map[netip.Addr]string{a: s.name}
		default:
			value.Names[a] = s.name
		}
	}
	members[name] = value
}

func replace[V any](dst, src map[netip.Addr][]V) {
	for a, list := range src {
		put(dst, a, list)
	}
}
