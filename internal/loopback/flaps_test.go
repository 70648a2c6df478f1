package loopback

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lbd.dev/lbd/internal/model"
)

// sessions are those of a node with two routers, one decision after the other.
type sessions struct {
	Routers
	now    time.Time
	losses map[string][]time.Time
}

func newSessions() *sessions {
	s := &sessions{now: start, losses: map[string][]time.Time{}}
	s.Report.Peers = []model.PeerReport{{Name: "a", State: established}, {Name: "b", State: established}}
	return s
}

// set has a session lost, or established.
func (s *sessions) set(i int, up bool) {
	s.Report.Peers = slices.Clone(s.Report.Peers)
	p := &s.Report.Peers[i]
	if p.State == established && !up {
		p.Flaps++
		s.losses[p.Name] = append(s.losses[p.Name], s.now)
	}
	p.State = map[bool]string{true: established, false: "Active"}[up]
}

// unheard decides.
func (s *sessions) unheard() (bool, time.Time) {
	s.Losses = Losses(s.Losses, &s.Report, s.now)
	why, until := s.Unheard([]string{"a", "b"}, s.now)
	return why != "", until
}

// damped tells whether the last loss of a session is one of two that came soon after each other.
func (s *sessions) damped(peer string) bool {
	all := s.losses[peer]
	n := len(all)
	return n > 1 && all[n-1].Sub(all[n-2]) < FlapWithin && s.now.Sub(all[n-1]) < FlapWithin
}

// Whatever sessions do, a node is heard by one that is there and was not lost twice of late, and by no
// other. So the first loss counts at once, and its end too. Without news nothing changes before the
// node is woken.
func TestFlaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSessions()
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			s.now = s.now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			s.set(rapid.IntRange(0, 1).Draw(t, "router"), rapid.Bool().Draw(t, "up"))
			got, until := s.unheard()
			want := !slices.ContainsFunc(s.Report.Peers, func(p model.PeerReport) bool { return p.State == established && !s.damped(p.Name) })
			if got != want {
				t.Fatalf("unheard is %v, want %v: %v, lost at %v", got, want, s.Report.Peers, s.losses)
			}
			there := slices.ContainsFunc(s.Report.Peers, func(p model.PeerReport) bool { return p.State == established })
			if (got && there) == until.IsZero() || !until.IsZero() && !until.After(s.now) {
				t.Fatalf("unheard is %v until %v at %v", got, until, s.now)
			}
			if at := s.now; !until.IsZero() {
				s.now = until.Add(-1)
				if still, _ := s.unheard(); !still {
					t.Fatal("it changes before its time")
				}
				s.now = until
				if still, _ := s.unheard(); still {
					t.Fatal("it does not change when it should")
				}
				s.now = at
			}
		}
	})
}

// Decisions may miss that a session was there, and a peer that is configured anew is counted anew.
func TestLosses(t *testing.T) {
	report := func(flaps uint64) *model.Applied {
		return &model.Applied{Peers: []model.PeerReport{{Name: "a", Flaps: flaps}, {Name: "b"}}}
	}
	if m := Losses(nil, report(0), start); m != nil {
		t.Errorf("%v without a loss", m)
	}
	later := start.Add(time.Second)
	once := Losses(nil, report(1), start)
	for name, c := range map[string]struct {
		flaps uint64
		want  model.SessionLosses
	}{
		"the same":      {1, model.SessionLosses{Count: 1, Last: start}},
		"another":       {2, model.SessionLosses{Count: 2, Last: later, Before: start}},
		"more than one": {3, model.SessionLosses{Count: 3, Last: later, Before: later}},
		"counted anew":  {0, model.SessionLosses{Last: start}},
	} {
		if got := Losses(once, report(c.flaps), later); len(got) != 1 || got["a"] != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if once["a"] != (model.SessionLosses{Count: 1, Last: start}) {
		t.Errorf("the memory of before has changed: %+v", once)
	}
	if n := testing.AllocsPerRun(10, func() { Losses(once, report(1), later) }); n > 1 { // that of the report
		t.Errorf("%v allocations although nothing changed", n)
	}
}
