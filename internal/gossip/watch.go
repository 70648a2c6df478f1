package gossip

import (
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/model"
)

const (
	// beatsMissed intervals, and a fifth for jitter, without a heartbeat make a
	// node late.
	beatsMissed = 3
	// minStall is the least delay of a timer that counts as a stall of this host;
	// shorter ones are usual scheduling.
	minStall = 10 * time.Millisecond
	// firstBeat is how long the owner of a VIP has for its first heartbeat to a node that
	// has become a successor: it has to hear of that first, in a large group by gossip.
	firstBeat = 3 * time.Second
)

// watch follows the heartbeats of one node.
type watch struct {
	inc, seq  uint64
	expecting bool
	awaiting  bool // for the first heartbeat, see await
	interval  time.Duration
	deadline  time.Time
	rearmed   bool
	late      time.Time
	lease     time.Time // end of the lease by the last heartbeat
	last      time.Time

	received, missed, lates uint64

	silence silence
}

// takeBeats reads all heartbeats that have come.
func (t *turn) takeBeats() {
	for {
		p, ok := t.g.beatbox.pop()
		if !ok {
			return
		}
		_, body, err := open(p.msg)
		var b wireBeat
		if err == nil {
			b, err = t.g.beatsRead.decode(body)
		}
		if err != nil {
			t.g.count.refuse(err)
			continue
		}
		t.takeBeat(&b, p.at)
	}
}

func (t *turn) takeBeat(b *wireBeat, at time.Time) {
	g := t.g
	name := model.NodeName(b.Name)
	if name == g.name {
		g.count.invalid.Add(1)
		return
	}
	w := g.watches[name]
	if w != nil && b.Inc == w.inc && b.Seq <= w.seq {
		g.count.old.Add(1) // overtaken by a later one
		return
	}
	known := g.table.still() && g.beatsMerged.known(b.Entries, g.stateNow(), at)
	if !known {
		m := g.table.merge(&wireRecord{Name: b.Name, Inc: b.Inc, Entries: b.Entries}, at)
		t.after(name, m)
		if m.stale != 0 {
			return
		}
	}
	n := g.table.nodes[name]
	if n == nil {
		return
	}
	if n.head.Left {
		g.count.old.Add(1) // overtaken by its goodbye
		return
	}
	if w == nil {
		w = &watch{}
		g.watches[name] = w
	}
	w.beat(b, at)
	g.sender.inStep()
	g.timely(n, w)
	if !n.present {
		g.join.met(n.addr)
		if n.beating == b.Final {
			n.beating = !b.Final
			g.table.delta.member(name)
		}
	}
	if !known && !t.answer(name, b.Entries, at) && g.table.still() {
		g.beatsMerged.merged(b.Entries, g.stateNow(), at)
	}
}

// timely tells whether heartbeats are expected, and none is overdue.
func (w *watch) timely(now time.Time) bool {
	return w.expecting && w.late.IsZero() && now.Before(w.deadline)
}

// beat notes a heartbeat.
func (w *watch) beat(b *wireBeat, at time.Time) {
	if w.expecting && b.Inc == w.inc {
		w.missed += min(b.Seq-w.seq-1, 1000)
	}
	w.received++
	w.inc, w.seq, w.last = b.Inc, b.Seq, at
	w.late, w.rearmed = time.Time{}, false
	w.expecting, w.awaiting = !b.Final, false
	w.interval = time.Duration(b.Interval) * time.Millisecond
	w.deadline = at.Add(beatsMissed*w.interval + w.interval/5)
	w.lease = time.Time{}
	if b.Lease > 0 {
		w.lease = at.Add(time.Duration(b.Lease) * time.Millisecond)
	}
}

// timely publishes that a node is not late (any more). The end of its lease is
// published with it only then, because it changes with each heartbeat.
func (g *Gossip) timely(n *node, w *watch) {
	if !n.late.IsZero() {
		w.silence.ended(g.log, n.name, n.late, w.last)
		n.late, n.leaseEnd, n.back = time.Time{}, w.lease, w.last
		g.table.delta.member(n.name)
	}
}

// expectNothing ends a watch: the node began a new life or left.
func (g *Gossip) expectNothing(n *node) {
	w := g.watches[n.name]
	if w == nil {
		return
	}
	w.expecting, w.awaiting, w.late, w.silence.said = false, false, time.Time{}, false
	if !n.late.IsZero() || n.beating {
		n.late, n.beating = time.Time{}, false
		g.table.delta.member(n.name)
	}
}

// deadlines publishes who is late and returns the next deadline, zero if there
// is none. If this host itself stood still, heartbeats may be waiting in the
// socket; then each node gets one more interval, once.
func (g *Gossip) deadlines(now time.Time) (next time.Time) {
	for name, w := range g.watches {
		if !w.late.IsZero() {
			if due := w.silence.lasts(g.log, name, w, now); !due.IsZero() && (next.IsZero() || due.Before(next)) {
				next = due
			}
			continue
		}
		if !w.expecting && !w.awaiting {
			continue
		}
		behind := now.Sub(w.deadline)
		if behind > max(w.interval/2, minStall) && !w.rearmed {
			w.rearmed, w.deadline = true, now.Add(w.interval)
			g.count.stalls.Add(1)
			behind = -w.interval
		}
		if behind < 0 {
			if next.IsZero() || w.deadline.Before(next) {
				next = w.deadline
			}
			continue
		}
		n := g.table.nodes[name]
		if n == nil {
			w.expecting, w.awaiting = false, false
			continue
		}
		w.late = now
		n.beating = false
		w.lates++
		n.late, n.leaseEnd = now, w.lease
		g.table.delta.member(name)
		if due := w.silence.lasts(g.log, name, w, now); next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next
}

// await expects heartbeats from those who own a VIP that this node is to take next. A
// daemon whose decisions stand still goes on being a member, so it must be missed even
// if it never had a reason to send heartbeats to this node before.
func (g *Gossip) await(owners []model.NodeName, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	began := false
	known := make(map[model.NodeName]bool, len(owners))
	for _, name := range owners {
		n := g.table.nodes[name]
		if n == nil || !n.alive() {
			continue
		}
		known[name] = true
		w := g.watches[name]
		if w == nil {
			w = &watch{}
			g.watches[name] = w
		}
		if !g.owners[name] && !w.expecting && w.late.IsZero() {
			w.awaiting, w.rearmed, w.interval, w.deadline = true, false, g.profile.beat, now.Add(firstBeat)
			began = true
		}
	}
	for name := range g.owners {
		if w := g.watches[name]; w != nil && !known[name] {
			w.awaiting = w.awaiting && !w.late.IsZero()
		}
	}
	g.owners = known
	if began {
		signal(g.wake)
	}
}

// takeQuestion answers, or takes note of an answer.
func (t *turn) takeQuestion(a wireAsk, at time.Time) {
	name := model.NodeName(a.Name)
	switch {
	case a.Here:
		if to := t.g.addrOf(name); to != nil {
			t.queue(to, encode(typeAsk, wireAsk{Name: string(t.g.name), Yes: true}))
		}
	case a.Yes:
		if n := t.g.table.nodes[name]; n != nil {
			n.heard = at
			t.g.table.delta.member(name)
		}
	default:
		t.takeAsk(name)
	}
}

// askEvery bounds how often the others are asked whether they are there.
const askEvery = 30 * time.Millisecond

// askSome is how many of them are asked at least; one answer is enough.
const askSome = 8

// askAll asks others whether they are there: those that are named, and in a large group any
// to make up the number.
func (g *Gossip) askAll(named []model.NodeName, now time.Time) {
	if now.Sub(g.asked) < askEvery {
		return
	}
	g.asked = now
	msg := encode(typeAsk, wireAsk{Name: string(g.name), Here: true})
	g.mu.Lock()
	all := g.small(now) // in the random order of a map
	g.mu.Unlock()
	for _, to := range asked(all, named) {
		g.sendLater(to, msg)
	}
}

// asked are those of all that are asked: the named ones, and others up to askSome.
func asked(all []*memberlist.Node, named []model.NodeName) []*memberlist.Node {
	first := 0
	for i, to := range all {
		if slices.Contains(named, model.NodeName(to.Name)) {
			all[first], all[i] = to, all[first]
			first++
		}
	}
	return all[:min(len(all), max(first, askSome))]
}

// takeAsk answers a node that misses heartbeats from this one: either the next
// of them does, or it is told that there are none. Without a decision that is young
// enough this node says neither, for it does not know.
func (t *turn) takeAsk(name model.NodeName) {
	p := t.g.sender.plan.Load()
	if p != nil {
		if !time.Now().Before(p.validUntil) {
			return
		}
		for i := range p.targets {
			if p.targets[i].name == name {
				return
			}
		}
	}
	if to := t.g.addrOf(name); to != nil {
		select {
		case t.g.sender.last <- to:
		default:
		}
	}
}
