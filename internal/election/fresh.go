package election

import (
	"time"

	"lbd.dev/lbd/internal/model"
)

// fresh tells whether nobody ever owned the VIP as far as this node knows. Nobody
// misses it, so there is time to leave it to the node that it belongs to: when many
// nodes start at once, those that are first would have more than their share.
func (s *step) fresh() bool { return s.nextEpoch() == 1 }

// unheard tells whether a better ranked node that is alive has not said yet whether
// it may own the VIP.
func (s *step) unheard() bool {
	if len(s.in.Eligible) >= len(s.in.Members) {
		return false // all have
	}
	order := rankingOf(s.in.VIP.Name)
	self := order.score(s.candidate(s.in.Self))
	for n, m := range s.in.Members {
		if m.State != model.MemberAlive || !m.Late.IsZero() || m.Draining || said(&m, s.in.VIP) {
			continue
		}
		if order.score(s.candidate(n)).better(self) {
			return true
		}
	}
	return false
}

// said tells whether the word of a member about a VIP will stand: a node that has
// just started knows neither its group nor the health of its services.
func said(m *model.Member, vip *model.VIP) bool {
	word, told := m.Standing[vip.Addr]
	return told && word.Class() != model.ClassWaiting
}

// apart is how far apart the turns of the candidates are.
func (s *step) apart() time.Duration {
	if !s.fresh() {
		return Stagger
	}
	return min(Stagger+time.Duration(max(0, s.in.Fresh-1))*FirstTurn, FirstTurnMax)
}

// crowded is the same where many that are not bound await their turn.
func (s *step) crowded() time.Duration {
	if !s.in.VIP.Unbound {
		return Stagger
	}
	return time.Duration(1+s.in.Crowd) * Stagger
}
