package bgp

import (
	"testing"

	"lbd.dev/lbd/internal/bgp/bfd"
	"lbd.dev/lbd/internal/model"
)

// countingBFD counts how often it is asked.
type countingBFD struct {
	*fakeBFD
	asked int
}

func (b *countingBFD) Apply(want []bfd.Session) error {
	b.asked++
	return b.fakeBFD.Apply(want)
}

// TestBFDIsAskedOnce: each Apply asks for the BFD sessions once, but for the one that finds a BGP
// session that is new: its BFD session does not wait for the next turn.
func TestBFDIsAskedOnce(t *testing.T) {
	b := newBed(t, "", peer("a", "10.0.0.1", profile(false)), peer("b", "10.0.0.2", profile(false)), peer("c", "10.0.0.3"))
	counts := &countingBFD{fakeBFD: b.bfd}
	b.Driver.bfd = counts
	apply := func(when string, asked, sessions int) {
		t.Helper()
		counts.asked = 0
		if _, err := b.Apply(t.Context(), &b.want); err != nil {
			t.Error(err)
		}
		if counts.asked != asked || len(b.bfd.want) != sessions {
			t.Errorf("%s: asked %d times for %d sessions, want %d and %d", when, counts.asked, len(b.bfd.want), asked, sessions)
		}
	}
	apply("before BGP", 1, 0)
	apply("without a session", 1, 0)
	b.speaker.session("c", established)
	apply("a session without BFD", 1, 0)
	b.speaker.session("a", established)
	apply("a new session", 2, 1)
	apply("it is known", 1, 1)
	b.speaker.session("a", Session{State: Active})
	apply("it is lost", 1, 1)
	b.want.BGP.Peers = []model.BGPPeer{peer("c", "10.0.0.3")}
	apply("only one without BFD", 1, 0)
}
