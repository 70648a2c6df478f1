package bgp

import (
	"reflect"
	"testing"

	"lbd.dev/lbd/internal/bgp/bfd"
)

// TestBFDStats: the counters are read when they are asked for, whatever was last
// reported, and belong to peers.
func TestBFDStats(t *testing.T) {
	b := newBed(t, "", peer("z", "198.51.100.1", profile(true)), peer("a", "198.51.100.2", profile(true)), peer("none", "198.51.100.3"))
	if got := b.BFDStats(); got != nil {
		t.Errorf("before: %+v", got)
	}
	b.apply("start, add z held, add a held, add none")
	var drops bfd.Drops
	drops[bfd.DropTTL], drops[bfd.DropAuth] = 3, 5
	b.bfd.mu.Lock() // nobody is told
	b.bfd.status[b.want.BGP.Peers[0].Address] = bfd.Status{State: bfd.Up, In: 70, Out: 71, Transitions: 3, Dropped: drops}
	b.bfd.status[b.want.BGP.Peers[1].Address] = bfd.Status{State: bfd.Down, In: 9, Out: 12, Transitions: 2}
	b.bfd.mu.Unlock()
	none := map[string]uint64{"malformed": 0, "no_session": 0, "ttl": 0, "address": 0, "interface": 0, "authentication": 0, "sequence": 0}
	some := map[string]uint64{"malformed": 0, "no_session": 0, "ttl": 3, "address": 0, "interface": 0, "authentication": 5, "sequence": 0}
	want := []BFDStats{
		{Peer: "a", In: 9, Out: 12, Ups: 1, Downs: 1, Dropped: none},
		{Peer: "z", Up: true, In: 70, Out: 71, Ups: 2, Downs: 1, Dropped: some},
	}
	if got := b.BFDStats(); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}
