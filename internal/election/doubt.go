package election

import (
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
	s.m.Asks, s.m.LostAt = 0, time.Time{} // it is no takeover
	s.askAnew()
	return true
}

// askAnew begins a series of probes in doubt.
func (s *step) askAnew() {
	s.m.Series++
	s.m.Interface = s.in.Interface
	s.enter(model.PhaseDoubt)
}

// doubt: this process stood still for so long that another node may have taken what it
// answers for. It stands by its claim, so that nobody begins to take it now, is silent,
// and answers again once the wire has shown that nobody else does.
func (s *step) doubt() {
	s.lapsed = false // what is known from now on is newer
	switch why := s.in.Standing; {
	case s.in.Gone:
		s.letGo(model.ReasonNotSelected)
		return
	case s.beaten():
		s.letGo(model.ReasonLostElection)
		return
	case hard(why), dead(why):
		s.letGo(why)
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
	case p.Answered:
		s.letGo(model.ReasonLostElection)
	case p.Rival != (model.MAC{}):
		if s.m.Asks++; s.m.Asks >= doubtAsks {
			s.letGo(model.ReasonLostElection)
			return
		}
		s.askAnew()
	default:
		s.m.Asks = 0
		s.m.AddBefore = p.At.Add(SilenceHolds)
		s.m.Burst++
		s.enter(model.PhaseOwner)
	}
}
