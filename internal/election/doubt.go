package election

import (
	"fmt"
	"time"

	"lbd.dev/lbd/internal/model"
)

// doubtAsks is how many series in a row may meet another node that asks too. One that
// has missed this owner stops when it hears of it again.
const doubtAsks = 3

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

// beginDoubt asks the wire.
func (s *step) beginDoubt() {
	s.m.Asks, s.m.LostAt = 0, time.Time{} // it is no takeover
	s.askAnew()
}

// askAnew begins a series of probes in doubt.
func (s *step) askAnew() {
	s.m.Series++
	s.m.Interface = s.in.Interface
	s.enter(model.PhaseDoubt)
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
	switch why := s.in.Standing; {
	case s.in.Gone:
		s.letGo(model.ReasonNotSelected)
		return
	case s.beaten():
		s.lose()
		return
	case hard(why), s.m.Unbound && dead(why):
		s.letGo(why)
		return
	case !s.m.Unbound && s.expired():
		s.letGo(model.ReasonLeaseExpired)
		return
	case s.m.Interface != s.in.Interface:
		s.askAnew()
	}
	p := s.in.Layer2.Probe
	if s.in.Layer2.Gen < s.m.Gen || !p.Done || p.Series != s.m.Series {
		if s.cannotAsk() {
			s.detail = s.in.Layer2.Err
			s.giveUp()
		}
		return
	}
	switch {
	case p.Answered && (s.m.Dispute == nil || s.yieldsTo(p.By)):
		s.lose()
	case !p.Answered && p.Rival != (model.MAC{}) && s.m.Unbound:
		if s.m.Asks++; s.m.Asks >= doubtAsks {
			s.lose()
			return
		}
		s.askAnew()
	default:
		s.m.Asks = 0
		s.stay(p.At)
	}
}

// stay ends the doubt of an owner that the wire has confirmed at a moment.
func (s *step) stay(at time.Time) {
	s.m.Burst++
	if !s.m.Unbound {
		s.turn(model.PhaseOwner)
		return
	}
	s.m.AddBefore = at.Add(SilenceHolds)
	s.enter(model.PhaseOwner)
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
		n, _ := s.isMember(d.By)
		return fmt.Sprintf("%s uses it at %s and is not reached by gossip, asks whether it answers", n, d.By)
	}
	return "stood still, asks whether another node has taken it"
}
