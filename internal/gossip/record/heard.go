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
		t.delta.member(name)
	}
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
	if n := t.nodes[name]; n != nil && (!n.pulse.late.IsZero() || n.pulse.beating) {
		n.pulse.late, n.pulse.beating = time.Time{}, false
		t.delta.member(name)
	}
}
