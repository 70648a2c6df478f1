package record

import (
	"time"

	"lbd.dev/lbd/internal/model"
)

// pulse is what heartbeats and questions tell of a known node. It goes into the View with
// its record.
type pulse struct {
	beating  bool      // they arrive although memberlist counts it as dead
	heard    time.Time // answered Ask.Here
	late     time.Time
	suspect  time.Time // when a heartbeat was missed; zero: none
	missing  bool      // and then a second one
	leaseEnd time.Time // as published
	// back is when it was last heard again after it was late or not present; what it
	// said before is still known then.
	back time.Time
}

// Heard notes that the node has answered a question.
func (t *Table) Heard(name model.NodeName, at time.Time) {
	if n := t.nodes[name]; n != nil {
		n.pulse.heard = at
		t.delta.member(name)
	}
}

// Late notes that heartbeats of the node are overdue; leaseEnd is by the last of them.
func (t *Table) Late(name model.NodeName, since, leaseEnd time.Time) {
	if n := t.nodes[name]; n != nil {
		n.pulse.beating = false
		n.pulse.late, n.pulse.leaseEnd = since, leaseEnd
		t.delta.member(name)
	}
}

// InTime notes that heartbeats of a node that was late arrive again. The end of its lease
// is published with it only then, because it changes with each heartbeat.
func (t *Table) InTime(name model.NodeName, since, leaseEnd time.Time) {
	if n := t.nodes[name]; n != nil {
		n.pulse.late, n.pulse.leaseEnd, n.pulse.back = time.Time{}, leaseEnd, since
		n.pulse.suspect, n.pulse.missing = time.Time{}, false
		t.delta.member(name)
	}
}

// Suspect notes that a heartbeat of the node was missed, and twice that a second one was; a
// zero time ends the suspicion.
func (t *Table) Suspect(name model.NodeName, now time.Time, twice bool) {
	n := t.nodes[name]
	if n == nil {
		return
	}
	if n.pulse.suspect.IsZero() || now.IsZero() {
		n.pulse.suspect = now
	}
	n.pulse.missing = twice
	t.delta.member(name)
}

// Beating notes whether heartbeats of a node arrive that memberlist counts as dead.
func (t *Table) Beating(name model.NodeName, on bool) {
	if n := t.nodes[name]; n != nil && n.pulse.beating != on {
		n.pulse.beating = on
		t.delta.member(name)
	}
}

// NotAwaited notes that no heartbeats of the node are due: it began a new life or left.
func (t *Table) NotAwaited(name model.NodeName) {
	if n := t.nodes[name]; n != nil && (!n.pulse.late.IsZero() || !n.pulse.suspect.IsZero() || n.pulse.beating) {
		n.pulse.late, n.pulse.beating = time.Time{}, false
		n.pulse.suspect, n.pulse.missing = time.Time{}, false
		t.delta.member(name)
	}
}
