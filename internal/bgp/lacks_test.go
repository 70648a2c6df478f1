package bgp

import (
	"testing"

	"lbd.dev/lbd/internal/model"
)

// TestLacks: a peer that lacks something has no session and says why; the session begins with
// what was missing, and ends without it. Other peers go on.
func TestLacks(t *testing.T) {
	b := newBed(t, "", peer("a", "10.0.0.1"), peer("b", "10.0.0.2"))
	b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a", "b")}
	secret := func(key, lacks string) { b.want.BGP.Peers[0].Password, b.want.BGP.Peers[0].Lacks = key, lacks }
	report := func() model.PeerReport {
		t.Helper()
		got, err := b.Apply(t.Context(), &b.want)
		if err != nil || len(got.Peers) != 2 || got.Peers[0].Name != "a" {
			t.Fatalf("%+v, %v", got, err)
		}
		return got.Peers[0]
	}
	secret("", "its Secret does not exist")
	b.apply("start, set 203.0.113.1, add b")
	if r := report(); r.State != "Idle" || r.LastError != "its Secret does not exist" {
		t.Errorf("%+v", r)
	}
	secret("one", "")
	b.apply(`remove a "", add a`)
	if r := report(); r.State != "Active" || r.LastError != "" || b.speaker.peers["a"].Password != "one" {
		t.Errorf("%+v", r)
	}
	b.speaker.session("a", established)
	secret("two", "")
	b.apply(`remove a "", add a`)
	if b.speaker.peers["a"].Password != "two" {
		t.Error("the password of before")
	}
	secret("", "its Secret may not be read")
	b.apply(`remove a ""`)
	if r := report(); r.State != "Idle" || r.LastError != "its Secret may not be read" {
		t.Errorf("%+v", r)
	}
}
