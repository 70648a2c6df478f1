package election

import (
	"time"

	"lbd.dev/lbd/internal/model"
)

// run takes one step of the phase the node is in.
func (s *step) run() {
	switch s.m.Phase {
	case model.PhaseIdle:
		s.idle()
	case model.PhaseWaiting, model.PhaseProbing:
		s.ownerless()
	case model.PhaseTaking:
		s.taking()
	case model.PhaseOwner:
		s.owner()
	case model.PhaseHandover:
		s.handover()
	case model.PhaseReleasing:
		s.releasing()
	case model.PhaseUnbinding:
		s.unbinding()
	case model.PhaseDoubt:
		s.doubt()
	}
}

// idle: owned elsewhere, ownerless, or not for this node.
func (s *step) idle() {
	if s.in.Address.Gen > 0 && s.in.Address.Bound {
		s.adopt()
		return
	}
	if s.resume() || !s.mayOwn() {
		return
	}
	switch {
	case s.best.Epoch != 0 && s.consents():
		s.succeed()
	case s.best.Epoch != 0 && !s.missed():
		// Sticky: whoever owns the VIP keeps it.
	default:
		s.m.From = s.best.Owner
		s.m.LostAt = s.in.Now
		if late := s.in.Members[s.best.Owner].Late; !late.IsZero() {
			s.m.LostAt = late
		} else if s.best.Epoch != 0 {
			s.m.LostAt = s.in.Members[s.best.Owner].Suspect
		}
		if s.m.From == "" {
			s.m.From = s.lastOwner()
		}
		s.m.Asks, s.m.Rival = 0, model.MAC{}
		s.m.Hearing = s.fresh()
		s.enter(model.PhaseWaiting)
	}
}

// consents tells whether the owner names this node as its successor. Consent counts once:
// a node that has owned the VIP since, and has handed it on, may not have heard yet that
// the claim with which it was named is over. Consent that reaches a node which stood still
// may be out of date: it leaves the VIP to its owner, or asks the wire if the owner is not
// heard either. The word of an owner that is not heard since then does not become newer by
// waiting.
func (s *step) consents() bool {
	if s.best.To != s.in.Self || s.best.Epoch < s.m.Held {
		return false
	}
	if s.in.Resumed.IsZero() {
		return true
	}
	until := s.in.Resumed.Add(StaleWords)
	if s.in.Now.Before(until) {
		s.at(until)
		return false
	}
	late := s.in.Members[s.best.Owner].Late
	return late.IsZero() || !late.Before(until)
}

// lastOwner is the dead node with the highest claim, "" without any.
func (s *step) lastOwner() model.NodeName {
	var last model.Claim
	for _, c := range s.in.Claims {
		if c.Owner != s.in.Self && (last.Epoch == 0 || s.beats(c, last)) {
			last = c
		}
	}
	return last.Owner
}

// adopt deals with an address that carries lbd's mark although this process has
// not bound it: an earlier process of this node owned the VIP and its lifetime
// has not ended. As long as the kernel answers for it nobody else can have taken
// it on this wire, so it is kept without a question; if somebody has a claim all
// the same, theirs is the newer one.
func (s *step) adopt() {
	// What the earlier process had silenced it had handed over.
	s.m.Silent = s.in.Layer2.Silent
	handed := s.m.Silent && s.in.Keep && !s.in.Gone && !s.impossible()
	// What somebody else has falls silent at once: it is unbound only when all sources
	// have delivered, or this process has bound it.
	if handed || s.best.Epoch != 0 {
		s.m.Interface = s.in.Address.Interface
		s.m.Epoch, s.m.AddBefore = s.in.Seen, s.in.Now // only what is there is kept
		s.release(model.ReasonLostElection)
		return
	}
	s.m.Interface = s.in.Address.Interface
	if s.m.Silent || s.in.Gone || s.in.Address.Interface != s.in.Interface || !s.in.Standing.Adopts() {
		s.m.Lost = s.in.Standing
		s.enter(model.PhaseUnbinding)
		return
	}
	s.m.Epoch = s.nextEpoch()
	s.m.From, s.m.Consented, s.m.Weak = s.in.Self, false, false
	s.m.AddBefore = time.Time{}
	s.m.LostAt = s.in.Now
	s.m.Burst++
	s.enter(model.PhaseOwner)
}

// ownerless covers Waiting and Probing: this node may have to take the VIP.
func (s *step) ownerless() {
	if !s.mayOwn() {
		s.enter(model.PhaseIdle)
		return
	}
	if s.best.Epoch != 0 {
		if s.consents() {
			s.succeed()
			return
		}
		if !s.missed() || s.quiet() && s.best.Owner != s.m.From {
			s.enter(model.PhaseIdle)
			return
		}
	}
	if s.m.Phase == model.PhaseWaiting {
		s.waiting()
	} else {
		s.probing()
	}
}

// waiting: for the turn, or to ask again.
func (s *step) waiting() {
	if s.m.Hearing {
		if end := s.m.LostAt.Add(FirstWord); s.fresh() && s.in.Now.Before(end) && s.unheard() {
			s.at(end)
			return
		}
		s.m.Hearing, s.m.LostAt = false, s.in.Now
	}
	until := s.m.Until
	if s.m.Asks == 0 && until.IsZero() {
		n, _ := s.ahead()
		until = s.m.LostAt.Add(time.Duration(n) * max(s.apart(), s.crowded()))
	}
	if s.in.Now.Before(until) {
		s.at(until)
		return
	}
	if !s.quiet() {
		if s.urgent = true; s.in.Busy || s.in.Unasked {
			return // the end of a series is cause for a decision
		}
	}
	s.ask(model.PhaseProbing)
}

// probing: a series of probes runs, or has just ended.
func (s *step) probing() {
	if s.m.Interface != s.in.Interface { // moved to another interface: ask there
		s.ask(model.PhaseProbing)
	}
	p := s.in.Layer2.Probe
	if s.in.Layer2.Gen < s.m.Gen || !p.Done || p.Series != s.m.Series {
		s.urgent = s.early() && (!s.quiet() || s.in.Members[s.m.From].Missing) // known before the series ends
		if !s.quiet() {
			s.unanswerable()
		}
		return
	}
	if p.Answered && s.quiet() {
		s.m.Answered = s.in.Members[s.best.Owner].Suspect
		s.enter(model.PhaseIdle)
		return
	}
	if p.Answered {
		s.m.Asks++
		s.m.Rival = model.MAC{}
		s.m.Holder = p.By
		s.enter(model.PhaseWaiting)
		s.m.Until = s.askAgain()
		s.at(s.m.Until)
		return
	}
	if turns := s.stepsBack(p.Rivals[:]); turns > 0 {
		s.m.Asks = 0
		s.enter(model.PhaseWaiting)
		s.m.Until = s.in.Now.Add(turns)
		s.at(s.m.Until)
		return
	}
	if !s.holdsBack() {
		s.take(s.m.From, false)
	}
}

// unanswerable waits for the result of a series. One that cannot be sent has none:
// after a while this node steps back, so that nobody counts on it.
func (s *step) unanswerable() {
	if !s.cannotAsk() {
		return
	}
	s.m.Lost, s.m.LostDetail = model.ReasonDriverError, s.in.Layer2.Err
	s.m.Deferred = s.in.Now.Add(DriverPause)
	s.enter(model.PhaseIdle)
	s.at(s.in.Now) // the standing has changed
}

// cannotAsk tells whether the series could not be sent for longer than DriverPatience.
func (s *step) cannotAsk() bool {
	err := s.in.Layer2.Err
	switch {
	case err == "":
		s.m.Until = time.Time{}
		return false
	case s.m.Until.IsZero():
		s.m.Until = s.in.Now.Add(DriverPatience)
	case !s.in.Now.Before(s.m.Until):
		return true
	}
	s.detail = err
	s.at(s.m.Until)
	return false
}

// askAgain says when to send the next series for a VIP that still answers.
func (s *step) askAgain() time.Time {
	now := s.in.Now
	rank := s.rank(s.m.From)
	pause := min(AskMin<<min(s.m.Asks-1, 8), AskMax)
	lease := s.in.Members[s.m.From].LeaseEnd
	if rank > 0 {
		// The first successor asks closely; the others only take over from it.
		pause = max(pause, AskMax) + time.Duration(rank)*Stagger
	}
	next := now.Add(pause)
	if lease.IsZero() {
		return next
	}
	open, end := lease.Add(-LeaseBefore), lease.Add(LeaseAfter)
	if rank > 0 {
		// Not while the first one asks closely: two who ask at once hold each other up.
		if turn := end.Add(time.Duration(rank) * Stagger); next.After(open) && next.Before(turn) {
			return turn
		}
		return next
	}
	switch {
	case now.Before(open) && next.After(open):
		return open
	case !now.Before(open) && now.Before(end):
		return now.Add(AskClose)
	}
	return next
}

// succeed takes the VIP from an owner that names this node, unless nobody may hear it here.
// That owner is well, and names another one soon.
func (s *step) succeed() {
	if s.urgent = true; !s.in.Unasked && !s.in.Hushed {
		s.take(s.best.Owner, true)
	}
}

// take claims the VIP: bind it first, then announce it.
func (s *step) take(from model.NodeName, consented bool) {
	s.m.From = from
	s.m.Weak = !consented && s.alone()
	s.m.Epoch = s.nextEpoch()
	if s.m.Weak && s.m.Epoch > 1 {
		s.m.Epoch--
	}
	s.m.Interface = s.in.Interface
	s.m.Consented = consented
	s.m.AddBefore = s.in.Layer2.Probe.At.Add(SilenceHolds)
	s.m.RelayUntil = time.Time{}
	if consented {
		s.m.RelayUntil = s.in.Now.Add(RelayFor)
		s.m.LostAt = s.in.Now
		s.m.AddBefore = s.in.Now.Add(ConsentHolds)
	}
	s.m.Asks, s.m.Rival = 0, model.MAC{}
	s.m.Contested = false
	s.m.To, s.m.Tried, s.m.Deferred, s.m.Lost = "", nil, time.Time{}, 0
	s.m.Burst++
	s.enter(model.PhaseTaking)
	s.m.Until = s.in.Now.Add(DriverPatience)
}

// taking: claimed, waiting for the address to be bound.
func (s *step) taking() {
	switch {
	case s.in.Gone || !s.in.Standing.Eligible():
		s.letGo(s.in.Standing)
	case s.beaten():
		s.letGo(model.ReasonLostElection)
	case s.m.Interface != s.in.Interface:
		s.m.Interface = s.in.Interface
		s.m.Gen = s.in.Gen
	case s.bound() && !s.in.Hold:
		s.m.Resume = false
		s.turn(model.PhaseOwner)
	case s.expired(), s.in.Address.Gen >= s.m.Gen && s.in.Address.TooLate:
		// Not run for a while since the wire was asked: ask again.
		s.letGo(model.ReasonLeaseExpired)
	case !s.in.Now.Before(s.m.Until):
		s.giveUp()
	default:
		s.detail = s.in.Address.Err
		s.at(s.m.Until)
	}
}
