package election

import (
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// A node that cannot tell whether it is cut off takes over weakly. Who has been dead for long
// says nothing of that: a group of two with an old name in it is a group of two.
func TestOldNamesDoNotMakeATakeoverWeak(t *testing.T) {
	now := time.Unix(10_000, 0)
	for _, c := range []struct {
		name  string
		other model.Member
		want  bool
	}{
		{"dead for ten minutes", model.Member{State: model.MemberDead, Gone: now.Add(-10 * time.Minute)}, false},
		{"gave up with the owner", model.Member{State: model.MemberDead, Gone: now.Add(time.Second)}, true},
		{"gave up a little before the owner", model.Member{State: model.MemberDead, Gone: now.Add(-5 * time.Second)}, true},
		{"alive and silent", model.Member{State: model.MemberAlive}, true},
		{"alive and heard", model.Member{State: model.MemberAlive, Heard: now.Add(time.Second)}, false},
		{"heard before the owner was missed", model.Member{State: model.MemberAlive, Heard: now.Add(-time.Millisecond)}, true},
		{"left", model.Member{State: model.MemberLeft}, false},
	} {
		s := step{
			in: &Input{Node: &Node{
				Now: now.Add(1500 * time.Millisecond), Self: "m1",
				Members: map[model.NodeName]model.Member{"m2": {State: model.MemberDead, Gone: now}, "m3": c.other},
			}},
			m: model.VIPMemory{Takeover: model.Takeover{From: "m2", LostAt: now}},
		}
		if got := s.alone(); got != c.want {
			t.Errorf("%s: alone is %v, want %v", c.name, got, c.want)
		}
	}
}
