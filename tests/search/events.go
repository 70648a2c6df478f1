package search

import (
	"fmt"

	"lbd.dev/lbd/internal/model"
)

// Event is one thing that can happen.
type Event struct {
	Do     func(*World)
	format string
	args   []any
}

// Name is what happens, in words.
func (e Event) Name() string { return fmt.Sprintf(e.format, e.args...) }

// Events lists everything that can happen in this state. Faults use up the
// budget; everything else may happen at any time and in any order.
func (w *World) Events() []Event {
	var out []Event
	add := func(do func(*World), f string, a ...any) {
		out = append(out, Event{do, f, a})
	}
	for i := range w.size() {
		w.nodeEvents(i, add)
		for j := range w.size() {
			if i != j {
				w.pairEvents(i, j, add)
			}
		}
	}
	if w.faults > 0 {
		w.faultEvents(func(do func(*World), f string, a ...any) {
			add(func(w *World) { w.faults--; do(w) }, f, a...)
		})
	}
	if w.offWire >= 0 {
		add(func(w *World) { w.heal() }, "heal wire")
	}
	if w.offGossip >= 0 && !w.deaf {
		add(func(w *World) { w.offGossip = -1 }, "heal gossip")
	}
	return out
}

// nodeEvents are the passing of time, probes, and the kernel.
func (w *World) nodeEvents(i int, add func(func(*World), string, ...any)) {
	n := &w.n[i]
	if !n.up {
		if n.bound || n.lo {
			add(func(w *World) { w.n[i].bound, w.n[i].lo, w.n[i].silent = false, false, false }, "%s: kernel drops the address", names[i])
		}
		add(func(w *World) { w.restart(i) }, "%s: restart", names[i])
		return
	}
	if n.frozen {
		add(func(w *World) { w.thaw(i) }, "%s: thawed", names[i])
		return
	}
	if n.open {
		add(func(w *World) { w.n[i].open = false; w.decide(i, epoch0) }, "%s: connections end", names[i])
	}
	if n.lapse == 1 {
		add(func(w *World) { w.told(i) }, "%s: told that it was frozen", names[i])
	}
	if d := n.mem.Dispute; d != nil && !d.Since.Before(epoch0) {
		add(func(w *World) { w.lasts(i) }, "%s has heard another owner for long", names[i])
	}
	switch n.probe {
	case 1:
		add(func(w *World) { w.n[i].probe = 2; w.sendProbe(i) }, "%s: last probe", names[i])
	case 2:
		add(func(w *World) { w.n[i].probe = 3; w.decide(i, epoch0) }, "%s: series ends", names[i])
	}
	if !n.resumed || w.current(i) {
		add(func(w *World) { w.timer(i) }, "%s: timer", names[i])
	}
}

// pairEvents are messages and the failure detector of i about j.
func (w *World) pairEvents(i, j int, add func(func(*World), string, ...any)) {
	n, o := &w.n[i], &w.n[j]
	if n.frozen && o.runs() && w.linked(i, j) && n.waits[j] != o.tells && !n.waits[j].known {
		add(func(w *World) { w.n[i].waits[j] = w.n[j].tells }, "what %s says waits for %s", names[j], names[i])
	}
	if !n.runs() {
		return
	}
	if o.frozen && w.linked(i, j) && n.knows[j] != o.tells {
		add(func(w *World) { w.deliver(j, i) }, "%s hears what %s has said", names[i], names[j])
	}
	if w.fights(i, j) {
		add(func(w *World) { w.fight(i, j) }, "%s hears %s use the address", names[i], names[j])
	}
	if o.runs() && w.linked(i, j) {
		if n.knows[j] != o.tells {
			add(func(w *World) { w.deliver(j, i) }, "%s hears %s", names[i], names[j])
		}
		if n.dead[j] {
			add(func(w *World) { w.n[i].dead[j] = false; w.decide(i, epoch0) }, "%s sees %s alive", names[i], names[j])
		}
		if w.nervous && n.missed[j] && !n.late[j] {
			add(func(w *World) { w.n[i].missed[j] = false; w.decide(i, epoch0) }, "%s: a heartbeat of %s comes", names[i], names[j])
		}
		if w.misses(i, j) {
			add(func(w *World) { w.n[i].missed[j] = true; w.decide(i, epoch0) }, "%s misses a heartbeat of %s", names[i], names[j])
		}
		if n.late[j] {
			add(func(w *World) { w.n[i].late[j], w.n[i].missed[j] = false, false; w.decide(i, epoch0) }, "%s: heartbeats of %s come again", names[i], names[j])
		}
		return
	}
	if !n.dead[j] && n.knows[j].known {
		add(func(w *World) { w.n[i].dead[j] = true; w.decide(i, epoch0) }, "%s sees %s dead", names[i], names[j])
	}
	if w.misses(i, j) {
		add(func(w *World) { w.n[i].missed[j] = true; w.decide(i, epoch0) }, "%s misses the first heartbeats of %s", names[i], names[j])
	}
	if !n.late[j] && n.knows[j].claim.Epoch > 0 {
		add(func(w *World) { w.n[i].late[j] = true; w.decide(i, epoch0) }, "%s misses %s", names[i], names[j])
	}
}

// misses tells whether node i may miss a heartbeat of j at any moment, as on a path with jitter
// or a starved host. One node does so at a time, or there would be too many states.
func (w *World) misses(i, j int) bool {
	for k := range w.size() {
		if w.n[k].missed != ([N]bool{}) {
			return false
		}
	}
	n := &w.n[i]
	return w.nervous && !n.late[j] && n.knows[j].claim.Epoch > 0
}

// faultEvents are what must not happen too often at once.
func (w *World) faultEvents(add func(func(*World), string, ...any)) {
	for i := range w.size() {
		n := &w.n[i]
		if w.levels {
			add(func(w *World) { w.n[i].degraded = !w.n[i].degraded; w.decide(i, epoch0) }, "%s: degraded=%v", names[i], !n.degraded)
			continue
		}
		if n.runs() {
			add(func(w *World) { w.crash(i, true) }, "%s: daemon killed", names[i])
			add(func(w *World) { w.crash(i, false) }, "%s: power lost", names[i])
		}
		if w.deaf {
			continue
		}
		if w.unbound && n.runs() {
			add(func(w *World) { w.n[i].frozen = true }, "%s: frozen", names[i])
		}
		if n.runs() {
			add(func(w *World) { w.n[i].draining = !w.n[i].draining; w.decide(i, epoch0) }, "%s: drain=%v", names[i], !n.draining)
			add(func(w *World) { w.n[i].sick = !w.n[i].sick; w.decide(i, epoch0) }, "%s: sick=%v", names[i], !n.sick)
		}
		if w.offWire < 0 {
			add(func(w *World) { w.offWire = int8(i) }, "cut wire of %s", names[i])
		}
		if w.offGossip < 0 {
			add(func(w *World) { w.offGossip = int8(i) }, "cut gossip of %s", names[i])
		}
		for j := range w.size() {
			if i != j && n.runs() && !n.late[j] && n.knows[j].claim.Epoch > 0 {
				add(func(w *World) { w.n[i].late[j] = true; w.decide(i, epoch0) }, "%s misses %s for no reason", names[i], names[j])
			}
			if i != j && n.runs() && !n.dead[j] && n.knows[j].known {
				add(func(w *World) { w.n[i].dead[j] = true; w.decide(i, epoch0) }, "%s sees %s dead for no reason", names[i], names[j])
			}
		}
	}
}

// fights tells whether owner i may hear that j has the VIP, and has not yet: each of them
// defends it whenever it hears the other one. If claims can reach i they are there sooner
// than that lasts long enough, and so has j yielded if it is to and knows i.
func (w *World) fights(i, j int) bool {
	n := &w.n[i]
	return n.runs() && n.mem.Phase == model.PhaseOwner && n.dead[j] && n.foreign != macs[j] &&
		w.wired(i, j) && !w.linked(i, j) && w.answers(i) && w.answers(j) &&
		(macs[j].Compare(macs[i]) < 0 || !w.n[j].knows[i].known)
}

func (w *World) fight(i, j int) {
	w.n[i].foreign = macs[j]
	w.decide(i, epoch0)
}

// lasts: node i has heard another owner for as long as it takes to ask the wire for it.
func (w *World) lasts(i int) {
	d := *w.n[i].mem.Dispute
	d.Since = epoch0.Add(-future)
	w.n[i].mem.Dispute = &d
	w.decide(i, epoch0)
}

// dispute lets a node hear other owners for long.
func (w *World) dispute(i int) {
	for j := range w.n {
		if i != j && w.fights(i, j) {
			w.fight(i, j)
		}
	}
	if w.n[i].runs() && w.n[i].mem.Dispute != nil {
		w.lasts(i)
	}
}

// deliver gives i the newest record of j; older ones that were not delivered are
// lost, which is what versions make of reordering.
func (w *World) deliver(j, i int) {
	n := &w.n[i]
	n.knows[j] = w.n[j].tells
	n.seen = max(n.seen, w.n[j].tells.seen, w.n[j].tells.claim.Epoch)
	w.decide(i, epoch0)
}

// crash ends a daemon; with its machine if the kernel goes too.
func (w *World) crash(i int, kernelStays bool) {
	n := &w.n[i]
	bound, lo, silent, exposed, open := n.bound, n.lo, n.silent, n.exposed, n.open
	*n = node{exposed: exposed}
	if kernelStays {
		n.bound, n.lo, n.silent, n.open = bound, lo, silent, open
	}
	w.normalise()
}

// restart begins a new process, which finds what its kernel still holds.
func (w *World) restart(i int) {
	n := &w.n[i]
	n.up = true
	w.decide(i, epoch0)
}

// thaw lets a frozen daemon go on. It answers for nothing, since its layer 2 has seen
// that it stood still, before it is told so.
func (w *World) thaw(i int) {
	n := &w.n[i]
	if !n.frozen {
		return
	}
	n.frozen, n.responds, n.lapse, n.resumed = false, false, 1, true
	if n.waits == ([N]record{}) {
		return
	}
	for j := range w.size() {
		if k := n.waits[j]; k.known {
			n.knows[j] = k
			n.seen = max(n.seen, k.seen, k.claim.Epoch)
		}
	}
	n.waits = [N]record{}
	w.decide(i, epoch0)
}

// timer lets all timers of a node end.
func (w *World) timer(i int) {
	w.n[i].resumed = false
	w.decide(i, epoch0.Add(2*future))
}

// current tells whether a node has heard all that others have to say. They say it once
// a second, so that one that stood still has before election.StaleWords is over.
func (w *World) current(i int) bool {
	for j := range w.size() {
		if i != j && w.n[j].runs() && w.linked(i, j) && w.n[i].knows[j] != w.n[j].tells {
			return false
		}
	}
	return true
}

// told brings a daemon the word that it stood still.
func (w *World) told(i int) {
	if n := &w.n[i]; n.lapse == 1 {
		n.lapse = 2
		w.decide(i, epoch0)
	}
}

// heal lets two sides meet that may both have an owner, or one that is about to
// take the VIP since nobody answered on its side.
func (w *World) heal() {
	w.offWire = -1
	w.healed = w.healed || w.answering() > 1 || w.probing()
}

func (w *World) probing() bool {
	for i := range w.n {
		if w.n[i].probe > 0 {
			return true
		}
	}
	return false
}

func (w *World) answering() int {
	k := 0
	for i := range w.n {
		if w.answers(i) {
			k++
		}
	}
	return k
}

// settleHeal ends the time in which two may answer.
func (w *World) settleHeal() {
	if w.healed && w.offWire < 0 && w.answering() <= 1 && !w.probing() {
		w.healed = false
	}
}

// Bad says what is wrong with a state; "" if nothing is.
func (w *World) Bad() string {
	if bad := w.Exposed(); bad != "" {
		return bad
	}
	for i := range w.n {
		for j := range i {
			if w.wired(i, j) && w.answers(i) && w.answers(j) && !w.healed && !w.planned(i, j) && !w.planned(j, i) {
				return fmt.Sprintf("%s and %s both answer on one wire", names[i], names[j])
			}
		}
	}
	return ""
}

// Exposed says who may have answered on the wire from lo; "" if nobody.
func (w *World) Exposed() string {
	for i := range w.n {
		if w.n[i].exposed {
			return fmt.Sprintf("%s may answer from lo", names[i])
		}
	}
	return ""
}

// planned: i hands over to j, which has just taken the VIP; that overlap is what
// make before break is about. If i has heard its successor, which may have handed it on by
// then, it asks the wire after election.ClaimFollows.
func (w *World) planned(i, j int) bool {
	a, b := &w.n[i].mem, &w.n[j].mem
	if !w.n[i].up || !w.n[j].up || !w.n[i].handsOver() {
		return false
	}
	return b.From == names[i] && a.To == names[j] || a.Dispute != nil
}

// handsOver: it has named a successor, and may ask the wire whether that one has the VIP.
func (n *node) handsOver() bool {
	return n.mem.Phase == model.PhaseHandover || n.mem.Phase == model.PhaseDoubt && n.mem.To != ""
}
