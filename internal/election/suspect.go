package election

import "lbd.dev/lbd/internal/model"

// MostSuspected is for how many VIPs at once the wire is asked when a heartbeat of their
// owners is missed. It bounds what a starved machine asks without a cause; an owner of more
// loses the others as soon as it is late.
const MostSuspected = 64

// missed tells whether the owner of the VIP is late, or about to be and this node asks the
// wire already.
func (s *step) missed() bool { return s.late(s.best.Owner) || s.suspects() }

// suspects tells whether this node asks because a heartbeat was missed. Only the first
// successor does, and only for what a kernel answers for: the daemon of an owner that is
// starved answers as late as it sends heartbeats. An answer is good until the next heartbeat.
func (s *step) suspects() bool {
	since := s.in.Members[s.best.Owner].Suspect
	if since.IsZero() || s.in.VIP.Unbound || s.m.Unbound || s.in.Enough || s.rankUpTo(s.best.Owner, 1) > 0 {
		return false
	}
	s.suspected = true
	return !since.Equal(s.m.Answered)
}

// quiet tells whether nobody is to see that this node, waiting or probing, asks the wire: the
// owner is not late.
func (s *step) quiet() bool {
	asks := s.m.Phase == model.PhaseWaiting || s.m.Phase == model.PhaseProbing
	return asks && s.best.Epoch != 0 && !s.late(s.best.Owner)
}

// early tells whether the takeover began because one heartbeat was missed.
func (s *step) early() bool {
	since := s.in.Members[s.m.From].Suspect
	return !since.IsZero() && since.Equal(s.m.LostAt)
}

// holdsBack tells whether a silent wire is not enough yet: a second heartbeat must be missed,
// and the network must carry something, which was not asked before the VIP was. A silence that
// is about to be too old is sought again.
func (s *step) holdsBack() bool {
	if !s.early() {
		return false
	}
	s.urgent = true
	if s.in.Unasked && !s.quiet() {
		// Others ask soon, too, so there must be no pause between a series and the claim: from
		// here on it is a takeover like any other.
		s.m.LostAt = s.in.Now
		s.enter(model.PhaseWaiting)
		return true
	}
	if !s.in.Unasked && (!s.quiet() || s.in.Members[s.m.From].Missing) {
		return false
	}
	until := s.in.Layer2.Probe.At.Add(SilenceHolds / 2)
	if s.in.Now.Before(until) {
		s.at(until)
	} else {
		s.ask(model.PhaseProbing)
	}
	return true
}
