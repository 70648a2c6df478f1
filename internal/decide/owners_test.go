package decide

import (
	"slices"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// Whoever takes a VIP next expects heartbeats of its owner; the third in the row does not,
// since the owner sends none to it, and neither does one that is drained.
func TestWhoExpectsHeartbeatsOfTheOwner(t *testing.T) {
	s := newStage(t)
	s.v.Self = "m3"
	s.run("member m1 alive", "member m9 alive", "standing m1 Standby", "standing m2 Standby", "claim m9 4")
	look := func(what string, want ...model.NodeName) {
		t.Helper()
		s.run("decide")
		if got := s.d.Group.Owners; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	look("third in the row")
	s.run("standing m2 Draining")
	look("second in the row", "m9")
	s.run("draining on")
	look("drained")
	s.run("draining off")
	look("drained no more", "m9")
	s.run("health down")
	look("not healthy")
}
