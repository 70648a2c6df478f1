package gossip

import (
	"time"

	"lbd.dev/lbd/internal/model"
)

const (
	// beatsMissed intervals, and a fifth for jitter, without a heartbeat make a
	// node late.
	beatsMissed = 3
	// minStall is the least delay of a timer that counts as a stall of this host;
	// shorter ones are usual scheduling.
	minStall = 10 * time.Millisecond
)

// watch follows the heartbeats of one node.
type watch struct {
	inc, seq  uint64
	expecting bool
	interval  time.Duration
	deadline  time.Time
	rearmed   bool
	late      time.Time
	lease     time.Time // end of the lease by the last heartbeat
	last      time.Time

	received, missed, lates uint64
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
	w.expecting = !b.Final
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
		n.late, n.leaseEnd, n.back = time.Time{}, w.lease, w.last
		g.table.delta.member(n.name)
		g.log.Info("heartbeats arrive again", "peer", n.name)
	}
}

// expectNothing ends a watch: the node began a new life or left.
func (g *Gossip) expectNothing(n *node) {
	w := g.watches[n.name]
	if w == nil {
		return
	}
	w.expecting, w.late = false, time.Time{}
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
		if !w.expecting || !w.late.IsZero() {
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
			w.expecting = false
			continue
		}
		w.late = now
		n.beating = false
		w.lates++
		n.late, n.leaseEnd = now, w.lease
		g.table.delta.member(name)
		g.log.Info("heartbeats are overdue", "peer", name, "last", now.Sub(w.last))
	}
	return next
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

// askSome is how many of them are asked; one answer is enough.
const askSome = 8

// askAll asks others, any of them in a large group, whether they are there.
func (g *Gossip) askAll(now time.Time) {
	if now.Sub(g.asked) < askEvery {
		return
	}
	g.asked = now
	msg := encode(typeAsk, wireAsk{Name: string(g.name), Here: true})
	g.mu.Lock()
	all := g.small(now)
	g.mu.Unlock()
	for _, to := range all[:min(len(all), askSome)] { // in the random order of a map
		g.sendLater(to, msg)
	}
}

// takeAsk answers a node that misses heartbeats from this one: either the next
// of them does, or it is told that there are none.
func (t *turn) takeAsk(name model.NodeName) {
	p := t.g.sender.plan.Load()
	if p != nil {
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
