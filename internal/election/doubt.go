package election

import (
	"fmt"
	"math"
	"time"

	"lbd.dev/lbd/internal/model"
)

// doubts tells whether the owner begins to doubt that it still has the VIP, see doubt.
// One that has not begun to answer on the consent of the former owner has nothing to
// stand by yet.
func (s *step) doubts() bool {
	if !s.m.Unbound || s.m.Consented || !s.expired() {
		return false
	}
	s.m.Dispute = nil
	s.beginDoubt()
	return true
}

func (s *step) beginDoubt() {
	s.m.Asks, s.m.LostAt = 0, time.Time{} // it is no takeover
	s.ask(model.PhaseDoubt)
}

// ask begins a series of probes in a phase.
func (s *step) ask(p model.Phase) {
	s.m.Series++
	s.m.Interface = s.in.Interface
	s.enter(p)
}

// doubt: this process stood still for so long that another node may have taken what it
// answers for, or another one is heard that does, see disputed. It stands by its claim, so
// that nobody begins to take it now, and asks the wire whether somebody else answers. What
// is not bound it does not answer for meanwhile.
func (s *step) doubt() {
	s.lapsed = false // what is known from now on is newer
	if s.m.Unbound && s.in.Lapsed {
		s.m.Dispute = nil
	}
	switch {
	case s.in.Gone:
		s.letGo(model.ReasonNotSelected)
		return
	case s.beaten():
		s.lose()
		return
	case s.impossible(), s.m.Unbound && s.dead():
		s.letGo(s.in.Standing)
		return
	case !s.m.Unbound && s.expired():
		s.letGo(model.ReasonLeaseExpired)
		return
	case s.m.Interface != s.in.Interface:
		s.ask(model.PhaseDoubt)
	}
	p := s.in.Layer2.Probe
	if s.in.Layer2.Gen < s.m.Gen || !p.Done || p.Series != s.m.Series {
		if s.cannotAsk() {
			s.detail = s.in.Layer2.Err
			s.giveUp()
		}
		return
	}
	s.judge(&p)
}

// judge ends the doubt by what the wire says, or asks once more: an answer may be made up,
// or be before that of the host that has the VIP, and one that asks too may take it. Of two
// that both ask again and again the better ranked one has it, if both know that.
func (s *step) judge(p *model.ProbeResult) {
	_, turns, met := s.rival(p.Rivals[:])
	met = met && s.m.Unbound && !p.Answered
	if p.Answered || met {
		if s.m.Asks++; s.m.Asks < asksAgain {
			s.m.Series++ // and what is known of the address stays known
			return
		}
	}
	s.m.Asks = 0
	if p.Answered && s.yieldsTo(p.By) || met && turns > 0 {
		s.lose()
		return
	}
	s.stay(p.At)
}

// stay ends the doubt of an owner that the wire has confirmed at a moment.
func (s *step) stay(at time.Time) {
	s.m.Burst++
	phase := model.PhaseOwner
	if s.m.To != "" { // which has not taken it, and is not asked for again
		phase, s.m.Conflicts = model.PhaseHandover, math.MaxUint64
	}
	if s.m.Unbound {
		s.m.AddBefore = at.Add(SilenceHolds)
		s.enter(phase)
	} else {
		s.turn(phase)
	}
	if s.m.To != "" {
		s.m.Until = s.in.Now.Add(HandoverTimeout)
	}
}

// lose leaves the VIP to the one that has it.
func (s *step) lose() {
	if s.m.Unbound {
		s.letGo(model.ReasonLostElection)
		return
	}
	s.release(model.ReasonLostElection)
}

// doubted is what the doubt is about, in words.
func (s *step) doubted() string {
	if d := s.m.Dispute; d != nil {
		if s.m.To != "" {
			return fmt.Sprintf("%s, the named successor, uses it at %s and has not claimed it yet, asks whether it answers", s.m.To, d.By)
		}
		n, _ := s.isMember(d.By)
		return fmt.Sprintf("%s uses it at %s and is not reached by gossip, asks whether it answers", n, d.By)
	}
	return "stood still, asks whether another node has taken it"
}
