package record

import (
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/model"
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
	verdict  model.Verdict
}

// Node is what is known of one other node: of its membership from memberlist,
// of its state from its record, of its heartbeats. The Table alone changes it.
type Node struct {
	Name    model.NodeName
	Addr    netip.AddrPort
	Present bool // memberlist counts it as a member
	// GoneSince is when it stopped being present; meaningless while it is.
	GoneSince time.Time
	pulse     pulse

	inc, seq uint64
	known    bool
	headAt   life
	head     Head
	macs     []model.MAC
	// machines is nil if the node has said nothing of any in this life.
	machines *Machines
	drains   []model.MachineDrain // those of machines
	base     life                 // entries are complete up to here
	entries  map[netip.Addr]*entry
}

// Alive tells whether the node takes part.
func (n *Node) Alive() bool { return n.State() == model.MemberAlive }

// Left tells whether the node has said goodbye.
func (n *Node) Left() bool { return n.head.Left }

// Life is the incarnation of the node as it is known.
func (n *Node) Life() uint64 { return n.inc }

// State is what the node is to the group.
func (n *Node) State() model.MemberState {
	switch {
	case n.head.Left:
		return model.MemberLeft
	case n.Present || n.pulse.beating:
		return model.MemberAlive
	}
	return model.MemberDead
}

// Told is what a known node has said of these addresses, as a record to pass on.
func (t *Table) Told(n *Node, addrs []netip.Addr) Record {
	r := Record{Name: string(n.Name), From: string(t.self), Inc: n.inc, Seq: n.seq}
	for _, a := range addrs {
		r.Entries = append(r.Entries, n.wire(a))
	}
	return r
}

// All is what is known of a node, as a record to pass on. ok is false of a node that has said
// nothing, or has been gone for so long that others need not know of it.
func (t *Table) All(name model.NodeName, now time.Time) (r Record, ok bool) {
	n := t.nodes[name]
	if n == nil || n.inc == 0 {
		return Record{}, false
	}
	r = Record{Name: string(n.Name), From: string(t.self), Inc: n.inc, Seq: n.seq, Machines: n.machines}
	if !n.Present {
		age := now.Sub(n.GoneSince)
		if age > forgetAfter {
			return Record{}, false
		}
		r.Age = uint32(max(age, 0) / time.Second)
	}
	if n.base.inc == n.inc {
		r.Full = n.base.seq
	}
	if n.known && n.headAt.inc == n.inc {
		r.Head = new(n.head)
	}
	r.Entries = make([]Entry, 0, len(n.entries))
	for a := range n.entries {
		r.Entries = append(r.Entries, n.wire(a))
	}
	return r, true
}

// Knows tells whether all that a node said in this life up to a version is known but, maybe,
// what it said of Machines.
func (t *Table) Knows(name string, inc, seq uint64) bool {
	n := t.nodes[model.NodeName(name)]
	return n != nil && n.inc == inc && n.base.inc == inc && n.base.seq >= seq && n.headAt.inc == inc
}

// wire is one entry as it is passed on.
func (n *Node) wire(a netip.Addr) Entry {
	e := n.entries[a]
	w := Entry{Addr: a, V: e.at.seq, Gone: e.gone, Standing: e.word, Degraded: e.degraded, Epoch: e.epoch, To: string(e.to), Weak: e.weak, Holds: e.holds, Seen: e.seen, Duplicate: e.double.String(), Name: e.name, Servers: uint64(e.verdict.Servers), Out: Bits(e.verdict.Out)}
	if e.at.inc != n.inc {
		w.Inc = e.at.inc
	}
	return w
}
