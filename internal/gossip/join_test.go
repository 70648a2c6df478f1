package gossip

import (
	"context"
	"net/netip"
	"testing"
)

// Host names among the peers are looked up before anything is published: the first state that a
// node tells has the right number of peers.
func TestPeersAreLookedUpAtTheStart(t *testing.T) {
	g, _ := offline(t)
	g.self = netip.MustParseAddrPort("192.0.2.1:7946")
	j, err := newJoiner(g, []string{"localhost", "192.0.2.2"})
	if err != nil {
		t.Fatal(err)
	}
	j.resolveAll(context.Background())
	for _, p := range j.others() {
		if len(p.Addrs) != 1 {
			t.Errorf("%s has the addresses %v", p.Host, p.Addrs)
		}
	}
	if n := len(j.others()); n != 2 {
		t.Errorf("%d peers", n)
	}
}
