package election

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// crowd is a step of one node among many in all states, which waits for its turn.
func crowd(r *rand.Rand, nodes int, weights bool) *step {
	now := time.Unix(1000, 0)
	in := &Input{
		Node: &Node{Now: now, Self: "self", Members: map[model.NodeName]model.Member{}, Heaviest: model.DefaultWeight},
		VIP:  &model.VIP{Name: fmt.Sprintf("vip-%d", r.Uint32())},
	}
	for i := range nodes {
		n := model.NodeName(fmt.Sprintf("n%05d", i))
		in.Eligible = append(in.Eligible, n)
		m := model.Member{Name: n}
		switch r.IntN(8) {
		case 0:
			m.State = model.MemberDead
		case 1:
			m.Late = now
		case 2:
			continue // eligible before it is known
		}
		if weights {
			m.Weight = r.IntN(3) * model.DefaultWeight
		}
		in.Members[n] = m
	}
	if weights {
		in.Weight, in.Heaviest = model.DefaultWeight/2, 2*model.DefaultWeight
	}
	s := &step{in: in}
	s.m.From = in.Eligible[r.IntN(nodes)]
	s.m.LostAt = now.Add(-time.Duration(r.Int64N(int64(5 * time.Second))))
	return s
}

// better counts by the definition alone.
func (s *step) better() int {
	n := 0
	for _, e := range s.in.Eligible {
		m, known := s.in.Members[e]
		if e != s.m.From && (!known || m.State == model.MemberAlive && m.Late.IsZero()) &&
			Better(s.in.VIP.Name, Candidate{Node: e, Weight: m.Weight}, Candidate{Node: s.in.Self, Weight: s.in.Weight}) {
			n++
		}
	}
	return n
}

// TestTurnWithoutCountingAll: the turn comes when it would if all were counted, the
// next decision is never later than the turn, and small groups are counted in full.
func TestTurnWithoutCountingAll(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var come, capped int
	for i := range 4000 {
		s := crowd(r, 1+r.IntN(1+i%200), i%2 == 0)
		want := s.better()
		if got := s.rank(s.m.From); got != want {
			t.Fatalf("rank %d, want %d", got, want)
		}
		got, more := s.ahead()
		at, due := s.m.LostAt.Add(time.Duration(got)*Stagger), s.m.LostAt.Add(time.Duration(want)*Stagger)
		if s.in.Now.Before(at) != s.in.Now.Before(due) || at.After(due) {
			t.Fatalf("%v after the loss: turn by %d, want by %d", s.in.Now.Sub(s.m.LostAt), got, want)
		}
		if !more && got != want || more && got > want {
			t.Fatalf("%d ahead (more: %v), want %d", got, more, want)
		}
		if want < turnsAhead && more {
			t.Fatalf("%d not counted in full", want)
		}
		if !s.in.Now.Before(due) {
			come++
		}
		if more {
			capped++
		}
	}
	if come < 100 || capped < 100 {
		t.Errorf("%d turns had come, %d were not counted in full: the cases are too few", come, capped)
	}
}
