package search

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// normalise maps states that differ only in counters and passed time onto one.
func (w *World) normalise() {
	w.rankEpochs()
	for i := range w.n {
		w.normaliseNode(i)
	}
}

// rankEpochs gives each epoch its place among all that there are.
func (w *World) rankEpochs() {
	// Places are few, and a decision adds one to the highest: a bit for each of 256 epochs is
	// enough. A higher epoch would be an index out of range, which ends the test.
	var there [4]uint64
	there[0] = 1
	w.eachEpoch(func(e *uint64) { there[*e/64] |= 1 << (*e % 64) })
	w.eachEpoch(func(e *uint64) {
		place := bits.OnesCount64(there[*e/64] & (1<<(*e%64) - 1))
		for _, below := range there[:*e/64] {
			place += bits.OnesCount64(below)
		}
		*e = uint64(place)
	})
}

// eachEpoch calls f for each epoch that there is.
func (w *World) eachEpoch(f func(*uint64)) {
	for i := range w.n {
		n := &w.n[i]
		f(&n.mem.Epoch)
		f(&n.mem.Held)
		f(&n.seen)
		f(&n.tells.claim.Epoch)
		f(&n.tells.seen)
		for j := range n.knows {
			f(&n.knows[j].claim.Epoch)
			f(&n.knows[j].seen)
			f(&n.waits[j].claim.Epoch)
			f(&n.waits[j].seen)
		}
	}
}

// normaliseNode is normalise for one node.
func (w *World) normaliseNode(i int) {
	m := &w.n[i].mem
	m.Gen, m.Burst = 1, 0
	m.Series = 0
	if w.n[i].probe > 0 {
		m.Series = 1
	}
	if m.Phase != model.PhaseDoubt { // there it bounds how long it lasts
		m.Asks = min(m.Asks, 1)
	}
	for _, t := range []*time.Time{&m.Until, &m.Deferred} {
		if t.After(epoch0) {
			*t = epoch0.Add(future)
		} else if !t.IsZero() {
			*t = epoch0
		}
	}
	if d := m.Dispute; d != nil {
		m.Dispute = &model.Dispute{By: d.By, Since: epoch0, Last: epoch0}
		if d.Since.Before(epoch0) {
			m.Dispute.Since = epoch0.Add(-future)
		}
	}
	if !m.Outclassed.IsZero() {
		m.Outclassed = epoch0
	}
	if !slices.Contains(w.n[i].missed[:], true) {
		m.Answered = time.Time{}
	}
	m.LostAt, m.Since, m.AddBefore, m.RelayUntil = epoch0, epoch0, time.Time{}, time.Time{}
	if b := &w.n[i].bgp; w.both {
		// Generation 0 is that of an earlier process.
		b.Gen, b.Epoch, b.Since, b.Reason = min(b.Gen, 1), 1, epoch0, 0
		b.Until, b.DrainEnd = normal(b.Until), normal(b.DrainEnd)
	}
	w.forget(i)
}

// normal maps a time onto past or future.
func normal(t time.Time) time.Time {
	switch {
	case t.IsZero():
		return t
	case t.After(epoch0):
		return epoch0.Add(future)
	}
	return epoch0
}

// forget drops what no decision and no check looks at any more.
func (w *World) forget(i int) {
	n := &w.n[i]
	m := &n.mem
	m.Reason = 0
	if !w.levels {
		m.Held = 0 // no node hands on what it was given
	}
	if !w.levels || m.Owner != names[i] {
		m.Owner = "" // who owns it counts for whether an owner was one before
	}
	if m.Lost != model.ReasonDriverError {
		m.Lost = 0
		if m.Deferred.Equal(epoch0) && len(m.Tried) == 0 {
			m.Deferred = time.Time{}
		}
	}
	switch m.Phase {
	case model.PhaseWaiting, model.PhaseProbing:
	case model.PhaseTaking, model.PhaseOwner:
		// For the check of planned overlaps.
		k := slices.Index(names[:], m.From)
		if k < 0 || !w.n[k].handsOver() {
			m.From = ""
		}
	default:
		m.From = ""
	}
	if !n.handsOver() {
		m.To = ""
	}
	if m.Phase == model.PhaseIdle {
		m.Until = time.Time{}
	}
	for j := range n.knows {
		n.knows[j].seen = 0 // it has gone into n.seen
	}
}

// Key identifies the state.
func (w *World) Key() string {
	b := make([]byte, 0, 256)
	b = append(b, byte(w.offWire+1), byte(w.offGossip+1), bit(w.healed), w.faults)
	for i := range w.n {
		b = w.n[i].key(b, w.open)
	}
	return string(b)
}

// key is all of a node that a decision and the checks look at.
func (n *node) key(b []byte, open bool) []byte {
	m := &n.mem
	b = append(b, bit(n.up), bit(n.draining), bit(n.sick), bit(n.bound)|bit(n.lo)<<1|bit(n.path)<<2|bit(n.exposed)<<3, bit(n.silent)|bit(n.responds)<<1|bit(n.frozen)<<2|n.lapse<<3, n.probe, bit(n.answered), n.rivals, n.foreign[5], byte(n.seen),
		byte(m.Phase), byte(m.Epoch), when(m.Until), when(m.Deferred), byte(m.Asks), byte(m.Lost), bit(m.Consented)|bit(m.Weak)<<1|bit(m.Hearing)<<2, bit(m.Contested), byte(len(m.Tried)))
	if open {
		b = append(b, bit(n.open)|bit(m.Kept)<<1|bit(m.Resume)<<2|bit(m.Silent)<<3)
	}
	b = append(b, byte(n.bgp.Phase), byte(n.bgp.Gen), when(n.bgp.Until), when(n.bgp.DrainEnd), byte(n.bgp.Lost))
	if m.Held > 0 {
		b = append(b, 'h', byte(m.Held))
	}
	if n.degraded || !m.Outclassed.IsZero() || m.Owner != "" {
		b = append(b, 'l', bit(n.degraded), when(m.Outclassed), bit(m.Owner != ""))
	}
	if d := m.Dispute; d != nil {
		b = append(b, 'd', d.By[5], bit(d.Since.Before(epoch0)), n.by[5])
	}
	b = append(b, m.From...)
	b = append(b, '/')
	b = append(b, m.To...)
	for _, t := range m.Tried {
		b = append(b, t...)
	}
	b = n.tells.key(b)
	if !m.Answered.IsZero() {
		b = append(b, 'a')
	}
	for j := range n.knows {
		b = append(n.knows[j].key(b), bit(n.dead[j]), bit(n.late[j])|bit(n.missed[j])<<1)
		if n.frozen {
			b = n.waits[j].key(b)
		}
	}
	return append(b, bit(n.resumed))
}

func (r *record) key(b []byte) []byte {
	b = append(b, byte(r.standing), bit(r.known), byte(r.claim.Epoch)<<1|bit(r.claim.Weak), byte(r.seen))
	b = append(b, r.claim.To...)
	return append(b, ';')
}

func bit(x bool) byte {
	if x {
		return 1
	}
	return 0
}

func when(t time.Time) byte {
	switch {
	case t.IsZero():
		return 0
	case t.After(epoch0):
		return 2
	}
	return 1
}

// String prints a state for people who look at a counterexample.
func (w *World) String() string {
	s := fmt.Sprintf("offWire=%d offGossip=%d healed=%v\n", w.offWire, w.offGossip, w.healed)
	for i := range w.n {
		n := &w.n[i]
		s += fmt.Sprintf("  %s up=%v frozen=%v lapse=%d responds=%v open=%v kept=%v resume=%v drain=%v sick=%v degraded=%v bound=%v lo=%v silent=%v bgp=%s probe=%d/%v phase=%s epoch=%d from=%q to=%q claim=%d>%s seen=%d",
			names[i], n.up, n.frozen, n.lapse, n.responds, n.open, n.mem.Kept, n.mem.Resume, n.draining, n.sick, n.degraded, n.bound, n.lo, n.silent, n.bgp.Phase, n.probe, n.answered, n.mem.Phase, n.mem.Epoch, n.mem.From, n.mem.To, n.tells.claim.Epoch, n.tells.claim.To, n.seen)
		for j := range n.knows {
			if i != j {
				s += fmt.Sprintf(" %s:{%s %d>%s dead=%v late=%v missed=%v}", names[j], n.knows[j].standing, n.knows[j].claim.Epoch, n.knows[j].claim.To, n.dead[j], n.late[j], n.missed[j])
			}
		}
		s += "\n"
	}
	return s
}
