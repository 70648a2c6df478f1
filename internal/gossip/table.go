package gossip

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
	"unique"

	"lbd.dev/lbd/internal/model"
)

const (
	// maxNodes bounds the nodes that are remembered.
	maxNodes = 4096
	// maxTotal bounds the entries of all nodes, some 150 bytes each.
	maxTotal = 1 << 20
	// forgetAfter is for how long a node that is gone, or an epoch of a VIP that
	// nobody mentions, is remembered.
	forgetAfter = time.Hour
)

// life orders what a node says: by incarnation, then by version.
type life struct{ inc, seq uint64 }

func (a life) after(b life) bool {
	return a.inc > b.inc || a.inc == b.inc && a.seq > b.seq
}

// entry is what one node last said about one VIP.
type entry struct {
	at       life
	gone     bool
	standing model.Reason
	known    bool // standing is a reason that this version knows
	epoch    uint64
	weak     bool
	holds    bool
	double   model.MAC // see model.Claim.Duplicate
	name     string    // of the VIP's object
	to       model.NodeName
	seen     uint64
	word     string // standing as it came, to pass it on unchanged
	degraded bool   // the same
}

// node is what is known of one other node: of its membership from memberlist,
// of its state from its record.
type node struct {
	name    model.NodeName
	addr    netip.AddrPort
	present bool // memberlist counts it as a member
	// goneSince is when it stopped being present; meaningless while it is.
	goneSince time.Time
	// back is when it was last heard again after it was late or not present; what it
	// said before is still known then.
	back time.Time

	inc, seq uint64
	known    bool
	headAt   life
	head     wireHead
	macs     []model.MAC
	// machines is nil if the node has said nothing of any in this life.
	machines *wireMachines
	drains   []model.MachineDrain // those of machines
	base     life                 // entries are complete up to here
	entries  map[netip.Addr]*entry

	// beating: its heartbeats arrive although memberlist counts it as dead.
	beating  bool
	heard    time.Time // answered wireAsk.Here
	late     time.Time
	leaseEnd time.Time // as published

	cache []byte // encoded record for push/pull, nil after a change
}

// alive tells whether the node takes part.
func (n *node) alive() bool { return (n.present || n.beating) && !n.head.Left }

func (n *node) state() model.MemberState {
	switch {
	case n.head.Left:
		return model.MemberLeft
	case n.present || n.beating:
		return model.MemberAlive
	}
	return model.MemberDead
}

// table is the memory of all other nodes, with the indexes that the View needs.
// Every change is noted in its delta until flush. It is not safe for concurrent
// use; Gossip.mu guards it.
type table struct {
	self     model.NodeName
	nodes    map[model.NodeName]*node
	claims   map[netip.Addr][]model.Claim
	eligible map[netip.Addr][]model.NodeName
	holders  map[netip.Addr][]model.NodeName
	seen     map[netip.Addr]seenEpoch
	total    int
	refused  uint64 // nodes and entries for which there was no room
	changes  uint64 // counts what was to be published but full exchanges
	delta    *delta
}

type seenEpoch struct {
	epoch uint64
	at    time.Time // last mentioned
}

func newTable(self model.NodeName) *table {
	return &table{
		self:     self,
		nodes:    map[model.NodeName]*node{},
		claims:   map[netip.Addr][]model.Claim{},
		eligible: map[netip.Addr][]model.NodeName{},
		holders:  map[netip.Addr][]model.NodeName{},
		seen:     map[netip.Addr]seenEpoch{},
		delta:    newDelta(),
	}
}

// node returns the node, making room for it if there is any.
func (t *table) node(name model.NodeName, now time.Time) *node {
	n := t.nodes[name]
	if n == nil {
		if len(t.nodes) >= maxNodes {
			t.refused++
			return nil
		}
		n = &node{name: name, goneSince: now, entries: map[netip.Addr]*entry{}}
		t.nodes[name] = n
		t.delta.member(name)
	}
	return n
}

// member takes what memberlist says of a node. It reports whether the node came
// alive by it.
func (t *table) member(name model.NodeName, addr netip.AddrPort, present bool, now time.Time) (came bool) {
	n := t.node(name, now)
	if n == nil || n.present == present && n.addr == addr {
		return false
	}
	came = present && !n.present
	if came && n.inc > 0 {
		n.back = now
	}
	if !present && n.present {
		n.goneSince = now
	}
	n.present, n.addr, n.beating = present, addr, false
	t.delta.member(name)
	return came
}

// merged says what a record brought.
type merged struct {
	// newer is the part that was not known; empty if all was.
	newer   wireRecord
	changed bool
	// stale: the node spoke itself, but of an earlier life than known, which is
	// the one of stale.
	stale   uint64
	newLife bool
}

// merge takes a record of another node, or a part of one. The newer of two
// statements wins, for the head and for each VIP by itself, in whatever order
// and by whatever way they come.
func (t *table) merge(r *wireRecord, now time.Time) merged {
	name := model.NodeName(r.Name)
	age := time.Duration(r.Age) * time.Second
	if t.nodes[name] == nil && age > forgetAfter {
		return merged{}
	}
	for i := range r.Entries { // whatever else is made of them
		t.see(r.Entries[i].Addr, max(r.Entries[i].Epoch, r.Entries[i].Seen), now)
	}
	fresh := t.nodes[name] == nil
	n := t.node(name, now)
	if n == nil {
		return merged{}
	}
	if fresh {
		n.goneSince = now.Add(-age)
	}
	if r.Inc < n.inc {
		if r.From == "" {
			return merged{stale: n.inc}
		}
		return merged{}
	}
	m := merged{newer: wireRecord{Name: r.Name, Inc: r.Inc, Seq: r.Seq}}
	if r.Inc > n.inc {
		m.newLife = n.inc != 0
		t.begin(n, r.Inc)
	}
	n.seq = max(n.seq, r.Seq)
	if r.Head != nil {
		if at := (life{r.Inc, r.Head.V}); !n.known || at.after(n.headAt) {
			t.setHead(n, at, r.Head)
			m.newer.Head, m.changed = r.Head, true
		}
	}
	if x := r.Machines; x != nil && (n.machines == nil || x.V > n.machines.V) {
		n.machines, n.drains, n.cache = x, x.drains(), nil
		t.delta.member(n.name)
		m.newer.Machines, m.changed = x, true
	}
	for i := range r.Entries {
		if t.take(n, r, &r.Entries[i]) {
			m.newer.Entries = append(m.newer.Entries, r.Entries[i])
			m.changed = true
		}
	}
	if base := (life{r.Inc, r.Full}); r.Full > 0 && base.after(n.base) {
		t.settle(n, r, base)
	}
	return m
}

// begin is a new life of the node: its claims stand until it says otherwise,
// because its kernel may still hold the addresses, but it may not take more.
func (t *table) begin(n *node, inc uint64) {
	n.inc, n.seq, n.cache = inc, 0, nil
	n.head.Left = false
	n.machines, n.drains = nil, nil
	for a, e := range n.entries {
		if e.known {
			old := *e
			e.known = false
			t.index(n, a, &old, e)
		}
	}
	t.delta.member(n.name)
}

func (t *table) setHead(n *node, at life, h *wireHead) {
	head := *h
	if len(head.MACs) == 0 {
		// It has just begun and does not know its links yet. Others relay to it by what it
		// said before.
		head.MACs, head.Addrs = n.head.MACs, n.head.Addrs
	}
	n.headAt, n.head, n.known, n.cache = at, head, true, nil
	n.macs = decodeMACs(head.MACs)
	t.delta.member(n.name)
}

// take stores one entry if it is newer than what is known.
func (t *table) take(n *node, r *wireRecord, w *wireEntry) bool {
	at := life{cmp.Or(w.Inc, r.Inc), w.V}
	if at.inc > r.Inc {
		return false
	}
	old := n.entries[w.Addr]
	if old != nil && !at.after(old.at) || old == nil && !at.after(n.base) {
		if old != nil && w.Seen > old.seen {
			old.seen, n.cache = w.Seen, nil
		}
		return false
	}
	if old == nil && (t.total >= maxTotal || len(n.entries) >= maxEntries) {
		t.refused++
		return false
	}
	e := &entry{at: at, gone: w.Gone, epoch: w.Epoch, to: model.NodeName(w.To), weak: w.Weak, holds: w.Holds, seen: w.Seen, word: w.Standing, degraded: w.Degraded}
	e.double, _ = parseMAC(w.Duplicate)
	e.name = unique.Make(w.Name).Value() // many nodes say the same
	if at.inc == n.inc {
		e.standing, e.known = decodeStanding(w.Standing, w.Degraded)
	}
	if e.gone {
		e.epoch, e.to, e.weak, e.holds, e.known = 0, "", false, false, false
	}
	if old == nil {
		t.total++
	}
	n.entries[w.Addr], n.cache = e, nil
	t.index(n, w.Addr, old, e)
	return true
}

// settle drops what a complete record no longer has.
func (t *table) settle(n *node, r *wireRecord, base life) {
	if n.base.seq == 0 {
		t.delta.member(n.name)
	}
	n.base, n.cache = base, nil
	listed := make(map[netip.Addr]bool, len(r.Entries))
	for i := range r.Entries {
		listed[r.Entries[i].Addr] = !r.Entries[i].Gone
	}
	for a, e := range n.entries {
		if !listed[a] && !e.at.after(base) {
			t.drop(n, a)
		}
	}
}

func (t *table) drop(n *node, a netip.Addr) {
	old := n.entries[a]
	delete(n.entries, a)
	t.total--
	t.index(n, a, old, nil)
}

// index brings the claims, the eligible nodes and the standings in line with
// the change of an entry; old and e may be nil.
func (t *table) index(n *node, a netip.Addr, old, e *entry) {
	var was, is entry
	if old != nil {
		was = *old
	}
	if e != nil {
		is = *e
	}
	if was.epoch != is.epoch || was.to != is.to || was.weak != is.weak || was.double != is.double {
		list := slices.DeleteFunc(slices.Clone(t.claims[a]), func(c model.Claim) bool { return c.Owner == n.name })
		if is.epoch != 0 {
			list = append(list, model.Claim{Owner: n.name, Epoch: is.epoch, To: is.to, Weak: is.weak, Duplicate: is.double})
			slices.SortFunc(list, func(x, y model.Claim) int {
				return cmp.Or(cmp.Compare(y.Epoch, x.Epoch), cmp.Compare(x.Owner, y.Owner))
			})
		}
		put(t.claims, a, list)
		t.delta.claims[a] = list
	}
	if was.known != is.known || was.standing != is.standing || was.name != is.name {
		t.delta.standing(n.name, a, &is)
	}
	before, after := was.known && was.standing.Eligible(), is.known && is.standing.Eligible()
	if before != after {
		t.delta.eligible[a] = enlist(t.eligible, a, n.name, after)
	}
	if was.holds != is.holds {
		t.delta.holders[a] = enlist(t.holders, a, n.name, is.holds)
	}
}

// enlist puts a node into the list of an address, or takes it out, and returns the
// new list.
func enlist(lists map[netip.Addr][]model.NodeName, a netip.Addr, n model.NodeName, in bool) []model.NodeName {
	list := lists[a]
	i, found := slices.BinarySearch(list, n)
	switch {
	case in && !found:
		list = slices.Insert(slices.Clone(list), i, n)
	case !in && found:
		list = slices.Delete(slices.Clone(list), i, i+1)
	}
	put(lists, a, list)
	return list
}

func put[V any](m map[netip.Addr][]V, a netip.Addr, list []V) {
	if len(list) == 0 {
		delete(m, a)
	} else {
		m[a] = list
	}
}

// see notes an epoch that somebody mentioned.
func (t *table) see(a netip.Addr, epoch uint64, now time.Time) {
	if epoch == 0 {
		return
	}
	s, ok := t.seen[a]
	if !ok && len(t.seen) >= 2*maxEntries {
		t.refused++
		return
	}
	if epoch > s.epoch {
		s.epoch = epoch
		t.delta.seen[a] = epoch
	}
	s.at = now
	t.seen[a] = s
}

// beating returns, by owner, the VIPs for which another node that is alive has
// a claim that is not below the one that x told.
func (t *table) beating(x model.NodeName, told []wireEntry) map[model.NodeName][]netip.Addr {
	var out map[model.NodeName][]netip.Addr
	for i := range told {
		if told[i].Epoch == 0 {
			continue
		}
		for _, c := range t.claims[told[i].Addr] {
			if c.Owner == x || c.Epoch < told[i].Epoch || !t.nodes[c.Owner].alive() {
				continue
			}
			if out == nil {
				out = map[model.NodeName][]netip.Addr{}
			}
			out[c.Owner] = append(out[c.Owner], told[i].Addr)
		}
	}
	return out
}

// sweep forgets nodes and epochs that are long gone; mine tells the VIPs that
// this node knows itself.
func (t *table) sweep(now time.Time, mine func(netip.Addr) bool) {
	mentioned := map[netip.Addr]bool{}
	for name, n := range t.nodes {
		if !n.present && now.Sub(n.goneSince) > forgetAfter {
			for a := range n.entries {
				t.drop(n, a)
			}
			delete(t.nodes, name)
			t.delta.forget(name)
			continue
		}
		for a, e := range n.entries {
			if !e.gone {
				mentioned[a] = true
			}
		}
	}
	for a, s := range t.seen {
		switch {
		case mentioned[a] || mine(a):
			s.at = now
			t.seen[a] = s
		case now.Sub(s.at) > forgetAfter:
			delete(t.seen, a)
			t.delta.seen[a] = 0
		}
	}
}

// echo is what is known of a node, as a record to pass on.
func (t *table) echo(n *node) wireRecord {
	r := wireRecord{Name: string(n.name), From: string(t.self), Inc: n.inc, Seq: n.seq}
	if n.base.inc == n.inc {
		r.Full = n.base.seq
	}
	if n.known && n.headAt.inc == n.inc {
		r.Head = new(n.head)
	}
	r.Machines = n.machines
	r.Entries = make([]wireEntry, 0, len(n.entries))
	for a := range n.entries {
		r.Entries = append(r.Entries, n.wire(a))
	}
	return r
}

// wire is one entry as it is passed on.
func (n *node) wire(a netip.Addr) wireEntry {
	e := n.entries[a]
	w := wireEntry{Addr: a, V: e.at.seq, Gone: e.gone, Standing: e.word, Degraded: e.degraded, Epoch: e.epoch, To: string(e.to), Weak: e.weak, Holds: e.holds, Seen: e.seen, Duplicate: e.double.String(), Name: e.name}
	if e.at.inc != n.inc {
		w.Inc = e.at.inc
	}
	return w
}
