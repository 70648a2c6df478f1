package layer2

import (
	"errors"
	"fmt"
	"time"

	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/model"
)

const (
	// defaultStandstill is what the others need at the least, see
	// Options.Standstill.
	defaultStandstill = 44 * time.Millisecond
	// standstillMore is the part of a successor's probe series that is allowed for
	// on top of that.
	standstillMore = 2 * probeInterval
	// maxAnswers bounds the answers for one VIP in a second, maxAnswersAll those for
	// all together: a LAN of thousands of hosts that all ask at once is served, a
	// flood does not take this process from its other work. Who is not answered asks
	// again a second later.
	maxAnswers    = 1000
	maxAnswersAll = 10_000
)

// Why the driver does not answer although it is asked to.
var (
	errLapsed  = errors.New("did not run for a while, waits for a decision that knows of it")
	errTooLate = errors.New("would begin too late, the wire has to be asked again")
)

// meter counts the answers in one second.
type meter struct {
	since time.Time
	n     int
}

// over counts one more; it is true if that is too many.
func (m *meter) over(now time.Time, limit int) bool {
	if now.Sub(m.since) >= time.Second {
		*m = meter{since: now}
	}
	m.n++
	return m.n > limit
}

// responder is whether this process may answer by itself, and how much it does.
type responder struct {
	known   uint64 // lapses that the last decision knew of
	lapsed  uint64 // those of the clock that were acted on
	answers meter
}

// answer answers for an entry that nothing is bound for. The kernel cannot be asked
// to fall silent when this process does not run, so whether it has run comes first.
func (d *Driver) answer(e *entry, m *message, now time.Time) {
	d.alive()
	if !e.burst.on || !now.Before(d.validUntil) {
		return
	}
	if e.answers.over(now, maxAnswers) || d.responder.answers.over(now, maxAnswersAll) {
		d.counters.dropped.Add(1)
		return
	}
	if err := d.send(e.port, m.reply(e)); err != nil {
		d.counters.errors.Add(1)
		return // who has asked asks again; a broken port is noticed by the next announcement
	}
	d.counters.answers.Add(1)
}

// alive looks at the clock. If the process has not run for so long that another node
// may have taken what it answers for, nothing is answered or announced any more until
// a decision knows of that. Whatever has arrived meanwhile is read, and not answered.
func (d *Driver) alive() {
	lapses := d.clock.look()
	if lapses == d.responder.lapsed {
		return
	}
	d.responder.lapsed = lapses
	n := 0
	for _, e := range d.entries {
		if e.want.Respond {
			e.quiet()
			d.queue.update(e)
			n++
		}
	}
	d.log.Info("stood still, answers for nothing until the wire was asked", "vips", n)
	d.notify()
}

// mayStart tells why an entry must not begin to respond.
func (d *Driver) mayStart(e *entry, now time.Time) error {
	before := e.want.StartBefore
	switch {
	case !e.want.Respond:
		return nil
	case d.responder.known != d.responder.lapsed:
		return errLapsed
	case e.tooLate && e.lateBurst == e.want.Burst, !e.burst.on && !before.IsZero() && now.After(before):
		e.tooLate, e.lateBurst = true, e.want.Burst
		return errTooLate
	}
	e.tooLate = false
	return nil
}

// applyGroups joins the solicited-node groups of what is probed, to which the probes
// of a rival are sent, and of what this process answers for: the kernel is only a
// member for what is bound. A switch that snoops MLD, and a network card, pass what
// somebody is a member of.
func (d *Driver) applyGroups(s *scene) {
	groups := make(map[Group]struct{})
	respond := false
	for i := range s.want.L2 {
		w := &s.want.L2[i]
		if w.Addr.Is4() || w.Mode != model.L2Probe && !w.Respond {
			continue
		}
		if l, ok := s.links[w.Interface]; ok {
			groups[Group{l.Index, nd.SolicitedNode(w.Addr)}] = struct{}{}
			respond = respond || w.Respond
		}
	}
	switch err := d.kernel.Listen(groups); {
	case err == nil:
	case respond: // who does not know the VIP yet may ask in vain
		d.counters.errors.Add(1)
		s.errs = append(s.errs, fmt.Errorf("solicitations may go unheard: %w", err))
	default:
		// The probes still work, only a rival may go unheard.
		d.log.Debug("rivals may go unheard", "err", err)
	}
}
