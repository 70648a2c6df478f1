package gossip

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestReach: a visitor learns who listens and has the same key and label; the
// group does not take it for a member.
func TestReach(t *testing.T) {
	nodes := sockets(t)
	peers := []string{peerAddr(nodes[0].Addr()), peerAddr(nodes[1].Addr()), "127.0.0.14:9", "127.0.0.20:7947"}
	ask := func(key []byte, label string) []Reached {
		t.Helper()
		got, err := Reach(t.Context(), Options{
			Name: "visitor", BindAddr: netip.MustParseAddr("127.0.0.20"), Peers: peers, Keys: [][]byte{key}, Label: label,
		})
		if err != nil || len(got) != len(peers) {
			t.Fatal(got, err)
		}
		return got
	}
	got := ask(key1, "udp")
	if got[0].Err != nil || got[1].Err != nil || !errors.Is(got[2].Err, ErrNotListening) || !got[3].Self {
		t.Errorf("%+v", got)
	}
	for name, wrong := range map[string][]Reached{"key": ask(key2, "udp"), "label": ask(key1, "other")} {
		if wrong[0].Err == nil || errors.Is(wrong[0].Err, ErrNotListening) {
			t.Errorf("wrong %s: %+v", name, wrong[0])
		}
	}
	time.Sleep(300 * time.Millisecond) // several rounds of gossip
	for _, n := range nodes {
		if s := n.Stats(); s.Members[model.MemberAlive] != 2 || s.Members[model.MemberDead] != 0 {
			t.Errorf("%s: the visitor has become a member: %v", n.Addr(), s.Members)
		}
	}
}
