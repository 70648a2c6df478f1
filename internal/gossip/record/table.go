package record

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"
	"unique"

	"lbd.dev/lbd/internal/model"
)

const (
	// MaxNodes bounds the nodes that are remembered.
	MaxNodes = 4096
	// maxTotal bounds the entries of all nodes, some 150 bytes each.
	maxTotal = 1 << 20
	// forgetAfter is for how long a node that is gone, or an epoch of a VIP that
	// nobody mentions, is remembered.
	forgetAfter = time.Hour
)

// Table is the memory of all other nodes, with the indexes that the View needs.
// Every change is noted in its delta until Flush. It is not safe for concurrent
// use.
type Table struct {
	self     model.NodeName
	nodes    map[model.NodeName]*Node
	claims   map[netip.Addr][]model.Claim
	eligible map[netip.Addr][]model.NodeName
	holders  map[netip.Addr][]model.NodeName
	seen     map[netip.Addr]seenEpoch
	total    int
	refused  uint64 // nodes and entries for which there was no room
	delta    *Delta
}

type seenEpoch struct {
	epoch uint64
	at    time.Time // last mentioned
}

// NewTable is the memory of a node that knows nobody.
func NewTable(self model.NodeName) *Table {
	return &Table{
		self:     self,
		nodes:    map[model.NodeName]*Node{},
		claims:   map[netip.Addr][]model.Claim{},
		eligible: map[netip.Addr][]model.NodeName{},
		holders:  map[netip.Addr][]model.NodeName{},
		seen:     map[netip.Addr]seenEpoch{},
		delta:    newDelta(),
	}
}

// Node is what is known of a node, nil if nothing is.
func (t *Table) Node(name model.NodeName) *Node { return t.nodes[name] }

// Nodes are all that are known, in no order.
func (t *Table) Nodes() iter.Seq[*Node] { return maps.Values(t.nodes) }

// Alive counts the nodes that take part.
func (t *Table) Alive() int {
	count := 0
	for _, n := range t.nodes {
		if n.Alive() {
			count++
		}
	}
	return count
}

// Refused counts the nodes and entries for which there was no room.
func (t *Table) Refused() uint64 { return t.refused }

// meet returns the node, making room for it if there is any.
func (t *Table) meet(name model.NodeName, now time.Time) *Node {
	n := t.nodes[name]
	if n == nil {
		if len(t.nodes) >= MaxNodes {
			t.refused++
			return nil
		}
		n = &Node{Name: name, GoneSince: now, entries: map[netip.Addr]*entry{}}
		t.nodes[name] = n
		t.delta.member(name)
	}
	return n
}

// Member takes what memberlist says of a node. It reports whether the node came
// alive by it.
func (t *Table) Member(name model.NodeName, addr netip.AddrPort, present bool, now time.Time) (came bool) {
	n := t.meet(name, now)
	if n == nil || n.Present == present && n.Addr == addr {
		return false
	}
	came = present && !n.Present
	if came && n.inc > 0 {
		n.pulse.back = now
	}
	if !present && n.Present {
		n.GoneSince = now
	}
	n.Present, n.Addr, n.pulse.beating = present, addr, false
	t.delta.member(name)
	return came
}

// Merged says what a record brought.
type Merged struct {
	// Newer is the part that was not known; empty if all was.
	Newer   Record
	Changed bool
	// Stale: the node spoke itself, but of an earlier life than known, which is
	// the one of Stale.
	Stale   uint64
	NewLife bool
}

// Merge takes a record of another node, or a part of one. The newer of two
// statements wins, for the head and for each VIP by itself, in whatever order
// and by whatever way they come.
func (t *Table) Merge(r *Record, now time.Time) Merged {
	name := model.NodeName(r.Name)
	age := time.Duration(r.Age) * time.Second
	if t.nodes[name] == nil && age > forgetAfter {
		return Merged{}
	}
	for i := range r.Entries { // whatever else is made of them
		t.See(r.Entries[i].Addr, max(r.Entries[i].Epoch, r.Entries[i].Seen), now)
	}
	fresh := t.nodes[name] == nil
	n := t.meet(name, now)
	if n == nil {
		return Merged{}
	}
	if fresh {
		n.GoneSince = now.Add(-age)
	}
	if r.Inc < n.inc {
		if r.From == "" {
			return Merged{Stale: n.inc}
		}
		return Merged{}
	}
	m := Merged{Newer: Record{Name: r.Name, Inc: r.Inc, Seq: r.Seq}}
	if r.Inc > n.inc {
		m.NewLife = n.inc != 0
		t.begin(n, r.Inc)
	}
	n.seq = max(n.seq, r.Seq)
	if r.Head != nil {
		if at := (life{r.Inc, r.Head.V}); !n.known || at.after(n.headAt) {
			t.setHead(n, at, r.Head)
			m.Newer.Head, m.Changed = r.Head, true
		}
		if r.Head.Format > n.head.Format { // members of the release before pass it on without
			n.head.Format = r.Head.Format
			t.delta.member(n.Name)
		}
	}
	if x := r.Machines; x != nil && (n.machines == nil || x.V > n.machines.V) {
		n.machines, n.drains = x, x.drains()
		t.delta.member(n.Name)
		m.Newer.Machines, m.Changed = x, true
	}
	for i := range r.Entries {
		if t.take(n, r, &r.Entries[i]) {
			m.Newer.Entries = append(m.Newer.Entries, r.Entries[i])
			m.Changed = true
		}
	}
	if base := (life{r.Inc, r.Full}); r.Full > 0 && base.after(n.base) {
		t.settle(n, r, base)
	}
	return m
}

// begin is a new life of the node: its claims stand until it says otherwise,
// because its kernel may still hold the addresses, but it may not take more.
func (t *Table) begin(n *Node, inc uint64) {
	n.inc, n.seq = inc, 0
	n.head.Left, n.head.Format = false, 0
	n.machines, n.drains = nil, nil
	for a, e := range n.entries {
		if e.known {
			old := *e
			e.known = false
			t.index(n, a, &old, e)
		}
	}
	t.delta.member(n.Name)
}

func (t *Table) setHead(n *Node, at life, h *Head) {
	head := *h
	head.Format = max(h.Format, n.head.Format) // of this life
	if len(head.MACs) == 0 {
		// It has just begun and does not know its links yet. Others relay to it by what it
		// said before.
		head.MACs, head.Addrs = n.head.MACs, n.head.Addrs
	}
	n.headAt, n.head, n.known = at, head, true
	n.macs = decodeMACs(head.MACs)
	t.delta.member(n.Name)
}

// take stores one entry if it is newer than what is known.
func (t *Table) take(n *Node, r *Record, w *Entry) bool {
	at := life{cmp.Or(w.Inc, r.Inc), w.V}
	if at.inc > r.Inc {
		return false
	}
	old := n.entries[w.Addr]
	if old != nil && !at.after(old.at) || old == nil && !at.after(n.base) {
		if old != nil && w.Seen > old.seen {
			old.seen = w.Seen
		}
		return old != nil && at == old.at && t.judge(n, old, w)
	}
	if old == nil && (t.total >= maxTotal || len(n.entries) >= MaxEntries) {
		t.refused++
		return false
	}
	e := &entry{at: at, gone: w.Gone, epoch: w.Epoch, to: model.NodeName(w.To), weak: w.Weak, holds: w.Holds, seen: w.Seen, word: w.Standing, degraded: w.Degraded}
	e.double, _ = parseMAC(w.Duplicate)
	e.verdict = model.Verdict{Servers: uint32(w.Servers), Out: string(w.Out)}
	e.name = unique.Make(w.Name).Value() // many nodes say the same
	if at.inc == n.inc {
		e.standing, e.known = decodeStanding(w.Standing, w.Degraded)
	}
	if e.gone {
		e.epoch, e.to, e.weak, e.holds, e.known, e.verdict = 0, "", false, false, false, model.Verdict{}
	}
	if old == nil {
		t.total++
	}
	n.entries[w.Addr] = e
	t.index(n, w.Addr, old, e)
	return true
}

// judge takes the verdict of an entry that was passed on without it, by a member that does not
// know the word.
func (t *Table) judge(n *Node, old *entry, w *Entry) bool {
	if w.Servers == 0 || old.verdict.Servers != 0 || old.gone {
		return false
	}
	e := *old
	e.verdict = model.Verdict{Servers: uint32(w.Servers), Out: string(w.Out)}
	n.entries[w.Addr] = &e
	t.index(n, w.Addr, old, &e)
	return true
}

// settle drops what a complete record no longer has.
func (t *Table) settle(n *Node, r *Record, base life) {
	if n.base.seq == 0 {
		t.delta.member(n.Name)
	}
	n.base = base
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

func (t *Table) drop(n *Node, a netip.Addr) {
	old := n.entries[a]
	delete(n.entries, a)
	t.total--
	t.index(n, a, old, nil)
}

// index brings the claims, the eligible nodes and the standings in line with
// the change of an entry; old and e may be nil.
func (t *Table) index(n *Node, a netip.Addr, old, e *entry) {
	var was, is entry
	if old != nil {
		was = *old
	}
	if e != nil {
		is = *e
	}
	if was.epoch != is.epoch || was.to != is.to || was.weak != is.weak || was.double != is.double || was.verdict != is.verdict {
		list := slices.DeleteFunc(slices.Clone(t.claims[a]), func(c model.Claim) bool { return c.Owner == n.Name })
		if is.epoch != 0 {
			list = append(list, model.Claim{Owner: n.Name, Epoch: is.epoch, To: is.to, Weak: is.weak, Duplicate: is.double, Verdict: is.verdict})
			slices.SortFunc(list, func(x, y model.Claim) int {
				return cmp.Or(cmp.Compare(y.Epoch, x.Epoch), cmp.Compare(x.Owner, y.Owner))
			})
		}
		put(t.claims, a, list)
		t.delta.claims[a] = list
	}
	if was.known != is.known || was.standing != is.standing || was.name != is.name {
		t.delta.standing(n.Name, a, &is)
	}
	before, after := was.known && was.standing.Eligible(), is.known && is.standing.Eligible()
	if before != after {
		t.delta.eligible[a] = enlist(t.eligible, a, n.Name, after)
	}
	if was.holds != is.holds {
		t.delta.holders[a] = enlist(t.holders, a, n.Name, is.holds)
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

// See notes an epoch that somebody mentioned.
func (t *Table) See(a netip.Addr, epoch uint64, now time.Time) {
	if epoch == 0 {
		return
	}
	s, ok := t.seen[a]
	if !ok && len(t.seen) >= 2*MaxEntries {
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

// Outranking returns, by owner, the VIPs for which another node that is alive has
// a claim that is not below the one that x told.
func (t *Table) Outranking(x model.NodeName, told []Entry) map[model.NodeName][]netip.Addr {
	var out map[model.NodeName][]netip.Addr
	for i := range told {
		if told[i].Epoch == 0 {
			continue
		}
		for _, c := range t.claims[told[i].Addr] {
			if c.Owner == x || c.Epoch < told[i].Epoch || !t.nodes[c.Owner].Alive() {
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

// Sweep forgets nodes and epochs that are long gone; mine tells the VIPs that
// this node knows itself.
func (t *Table) Sweep(now time.Time, mine func(netip.Addr) bool) {
	mentioned := map[netip.Addr]bool{}
	for name, n := range t.nodes {
		if !n.Present && now.Sub(n.GoneSince) > forgetAfter {
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

// Claims are those for an address, the highest first.
func (t *Table) Claims(a netip.Addr) []model.Claim { return t.claims[a] }

// Format is the newest that all members read, as far as they have told; until one has, it is
// taken for one of the release before.
func (t *Table) Format() Format {
	f := Newest
	for _, n := range t.nodes {
		if !n.head.Left {
			f = min(f, max(n.head.Format, FormatJSON))
		}
	}
	return f
}

// AllKnow tells whether every live node that lists its keys lists this one. One that has
// not said anything yet does not count.
func (t *Table) AllKnow(fingerprint string) bool {
	for _, n := range t.nodes {
		if n.Alive() && len(n.head.Keys) > 0 && !slices.Contains(n.head.Keys, fingerprint) {
			return false
		}
	}
	return true
}
