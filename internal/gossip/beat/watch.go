package beat

import (
	"log/slog"
	"maps"
	"time"

	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
)

const (
	// missed intervals, and a fifth for jitter, without a heartbeat make a node late.
	missed = 3
	// minStall is the least delay of a timer that counts as a stall of this host;
	// shorter ones are usual scheduling.
	minStall = 10 * time.Millisecond
	// FirstBeat is how long the owner of a VIP has for its first heartbeat to a node that
	// has become a successor: it has to hear of that first, in a large group by gossip.
	FirstBeat = 3 * time.Second
)

// lateAfter is how long after its last heartbeat a node is late.
func lateAfter(interval time.Duration) time.Duration { return missed*interval + interval/5 }

// LateAtLeast is how long after a node stops its heartbeats may be late, at the earliest:
// the last one may have been due when it stopped.
func LateAtLeast(interval time.Duration) time.Duration { return lateAfter(interval) - interval }

// Watches follow the heartbeats of all nodes. They are not safe for concurrent use.
type Watches struct {
	log      *slog.Logger
	interval time.Duration // of this node, and so of others until they tell theirs
	nodes    map[model.NodeName]*watch
	owners   map[model.NodeName]bool // see Await
	first    map[model.NodeName]bool // see Await
	stalls   uint64
	second   time.Time // that is running, for mostSuspicions
	told     int       // suspicions in it
}

// watch follows the heartbeats of one node.
type watch struct {
	inc, seq  uint64
	expecting bool
	awaiting  bool // for the first heartbeat, see Await
	interval  time.Duration
	deadline  time.Time
	rearmed   bool
	late      time.Time
	lease     time.Time // end of the lease by the last heartbeat
	last      time.Time

	received, missed, lates uint64

	silence   silence
	suspicion suspicion
}

// NewWatches returns one that watches nobody.
func NewWatches(interval time.Duration, log *slog.Logger) *Watches {
	return &Watches{log: log, interval: interval, nodes: map[model.NodeName]*watch{}}
}

// Overtaken tells whether a later heartbeat than this one has come.
func (ws *Watches) Overtaken(b *record.Beat) bool {
	w := ws.nodes[model.NodeName(b.Name)]
	return w != nil && b.Inc == w.inc && b.Seq <= w.seq
}

// Take notes a heartbeat. It tells whether the node was late, and until when its lease runs
// by this heartbeat.
func (ws *Watches) Take(b *record.Beat, at time.Time) (wasLate bool, leaseEnd time.Time) {
	name := model.NodeName(b.Name)
	w := ws.watch(name)
	since := w.late
	w.beat(b, at)
	if since.IsZero() {
		return false, w.lease
	}
	w.silence.ended(ws.log, name, since, at)
	return true, w.lease
}

func (ws *Watches) watch(name model.NodeName) *watch {
	w := ws.nodes[name]
	if w == nil {
		w = &watch{}
		ws.nodes[name] = w
	}
	return w
}

// beat notes a heartbeat.
func (w *watch) beat(b *record.Beat, at time.Time) {
	after := time.Duration(0)
	if w.expecting && b.Inc == w.inc {
		w.missed += min(b.Seq-w.seq-1, 1000)
		if b.Seq == w.seq+1 && w.late.IsZero() {
			after = at.Sub(w.last)
		}
	}
	w.received++
	w.inc, w.seq, w.last = b.Inc, b.Seq, at
	w.late, w.rearmed = time.Time{}, false
	w.expecting, w.awaiting = !b.Final, false
	w.interval = time.Duration(b.Interval) * time.Millisecond
	w.deadline = at.Add(lateAfter(w.interval))
	w.suspicion.beat(after, w.interval)
	w.lease = time.Time{}
	if b.Lease > 0 {
		w.lease = at.Add(time.Duration(b.Lease) * time.Millisecond)
	}
}

// InTime tells whether heartbeats of the node are expected, and none is overdue.
func (ws *Watches) InTime(name model.NodeName, now time.Time) bool {
	w := ws.nodes[name]
	return w != nil && w.expecting && w.late.IsZero() && now.Before(w.deadline)
}

// ExpectNothing ends a watch: the node began a new life or left.
func (ws *Watches) ExpectNothing(name model.NodeName) {
	if w := ws.nodes[name]; w != nil {
		w.expecting, w.awaiting, w.late, w.silence.said = false, false, time.Time{}, false
	}
}

// Late is a node whose heartbeats have become overdue.
type Late struct {
	Name     model.NodeName
	LeaseEnd time.Time // by the last of them
}

// Deadlines returns who has become late and when the next deadline is, zero if there
// is none. If this host itself stood still, heartbeats may be waiting in the
// socket; then each node gets one more interval, once.
func (ws *Watches) Deadlines(now time.Time) (late []Late, next time.Time) {
	earliest := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for name, w := range ws.nodes {
		if w.late.IsZero() {
			if !w.expecting && !w.awaiting {
				continue
			}
			behind := now.Sub(w.deadline)
			if behind > max(w.interval/2, minStall) && !w.rearmed {
				w.rearmed, w.deadline = true, now.Add(w.interval)
				ws.stalls++
				behind = -w.interval
			}
			if behind < 0 {
				earliest(w.deadline)
				continue
			}
			w.late = now
			w.lates++
			late = append(late, Late{name, w.lease})
		}
		earliest(w.silence.lasts(ws.log, name, w, now))
	}
	return late, next
}

// Await expects heartbeats from those who own a VIP that this node is to take next, as far
// as they are alive. A daemon whose decisions stand still goes on being a member, so it must
// be missed even if it never had a reason to send heartbeats to this node before. It tells
// whether there is a new deadline. This node is the first successor of those in first.
func (ws *Watches) Await(owners, first []model.NodeName, now time.Time) (began bool) {
	was := ws.first
	ws.first = make(map[model.NodeName]bool, len(first))
	for _, name := range first {
		ws.first[name] = true
		began = began || !was[name]
	}
	known := make(map[model.NodeName]bool, len(owners))
	for _, name := range owners {
		known[name] = true
		w := ws.watch(name)
		if !ws.owners[name] && !w.expecting && w.late.IsZero() {
			w.awaiting, w.rearmed, w.interval, w.deadline = true, false, ws.interval, now.Add(FirstBeat)
			began = true
		}
	}
	for name := range ws.owners {
		if w := ws.nodes[name]; w != nil && !known[name] {
			w.awaiting = w.awaiting && !w.late.IsZero()
		}
	}
	ws.owners = known
	return began
}

// Missed are the nodes that are late or have not sent the first heartbeat yet, in no order.
func (ws *Watches) Missed() []model.NodeName {
	var out []model.NodeName
	for name, w := range ws.nodes {
		if w.awaiting || !w.late.IsZero() {
			out = append(out, name)
		}
	}
	return out
}

// Forget drops what is known of nodes that are not known any more.
func (ws *Watches) Forget(known func(model.NodeName) bool) {
	maps.DeleteFunc(ws.nodes, func(name model.NodeName, _ *watch) bool { return !known(name) })
}

// Stalls counts the times that this process did not run for longer than heartbeats allow.
func (ws *Watches) Stalls() uint64 { return ws.stalls }

// Counts are what is counted of one node's heartbeats.
type Counts struct {
	Received, Missed, Late uint64
	// Suspicions count how often a heartbeat was missed and the wire was asked, Unasked how
	// often it was not, because there were too many.
	Suspicions, Unasked uint64
	Last                time.Time // zero if none ever came
}

// Counts are those of a node.
func (ws *Watches) Counts(name model.NodeName) Counts {
	w := ws.nodes[name]
	if w == nil {
		return Counts{}
	}
	return Counts{w.received, w.missed, w.lates, w.suspicion.asked, w.suspicion.unasked, w.last}
}
