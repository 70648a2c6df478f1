package election

import "lbd.dev/lbd/internal/model"

// turnsAhead is how far ahead turns are told apart. In a large group nearly every
// node has hundreds before it for nearly every VIP, and to count them all for all
// VIPs when nobody owns any would cost a second.
const turnsAhead = 4

// counted is what rankUpTo was asked and has found; limit 0: nothing.
type counted struct {
	from  model.NodeName
	limit int
	n     int
}

// ahead counts the nodes that have their turn before this one, as far as that
// matters now: up to those whose turn has come, and turnsAhead more. What is due
// now is the same as if all were counted; more tells that there may be more, so
// that this node has to count again before its turn.
func (s *step) ahead() (n int, more bool) {
	limit := turnsAhead + int(max(0, s.in.Now.Sub(s.m.LostAt))/Stagger)
	n = s.rankUpTo(s.m.From, limit)
	return n, n == limit
}

// next is the place of this node, 1 or 2, among the first two successors of the owner, by what
// it knows; see successors. It is 0 for any other node.
func (s *step) next() int {
	if s.best.Epoch == 0 || s.holds() || !s.mayOwn() {
		return 0
	}
	if n := s.rankUpTo(s.best.Owner, 2); n < 2 {
		return n + 1
	}
	return 0
}

// rank counts the nodes that go before this one for a VIP that from has lost.
func (s *step) rank(from model.NodeName) int { return s.rankUpTo(from, len(s.in.Eligible)+1) }

// rankUpTo is rank, but stops at limit.
func (s *step) rankUpTo(from model.NodeName, limit int) int {
	if c := s.counted; c.limit == limit && c.from == from {
		return c.n
	}
	order := rankingOf(s.in.VIP.Name)
	self := order.score(s.candidate(s.in.Self))
	least := s.least(&self)
	n := 0
	for _, e := range s.in.Eligible {
		if n == limit {
			break
		}
		// The hash costs less than to look the member up.
		if order.hash(e) < least {
			continue
		}
		m, known := s.in.Members[e]
		if e == from || known && (m.State != model.MemberAlive || !m.Late.IsZero()) {
			continue
		}
		if order.score(s.candidateOf(e, &m)).better(self) {
			n++
		}
	}
	s.counted = counted{from, limit, n}
	return n
}

// least is a hash below which no node goes before this one for the VIP; 0 where hashes do not say.
func (s *step) least(self *scored) uint64 {
	if s.in.Heaviest == 0 || s.in.VIP.Preference != nil || self.degraded {
		return 0
	}
	return self.least(s.in.Heaviest)
}
