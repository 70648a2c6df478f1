package gossip

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lbd.dev/lbd/internal/gossip/memnet"
	"lbd.dev/lbd/internal/model"
)

// TestPartitionHealsByItself cuts the owner off, once for so short that
// memberlist still remembers the other side as dead, once for longer.
func TestPartitionHealsByItself(t *testing.T) {
	for _, hold := range []time.Duration{0, time.Minute} {
		bubble(t, func(l *lab) {
			l.net.SetLatency(time.Millisecond)
			a, b, c := l.start(1), l.start(2), l.start(3)
			l.joined(5 * time.Second)
			a.claim(vip1, 3, "m2", "m3")
			b.standby(vip1)
			c.standby(vip1)
			time.Sleep(time.Second)
			l.net.Partition([]netip.Addr{addr(1)}, []netip.Addr{addr(2), addr(3)})
			late := l.within(time.Second, "owner late", func() bool { return !b.other("m1").Late.IsZero() && !c.other("m1").Late.IsZero() })
			b.claim(vip1, 4, "m3")
			dead := l.within(20*time.Second, "both sides see the other dead", func() bool {
				return len(a.alive()) == 0 && !slices.Contains(b.alive(), "m1") && !slices.Contains(c.alive(), "m1")
			})
			if got := a.claims(vip1); len(got) != 0 {
				t.Fatalf("m1 heard %v through a partition", got)
			}
			a.apply(func(gs *model.GroupState) { gs.Weight++ })
			time.Sleep(hold)
			if got := b.claims(vip1); !slices.Equal(got, []model.Claim{{Owner: "m1", Epoch: 3}}) {
				t.Errorf("claim of the dead node: %v", got)
			}
			l.net.Heal()
			// The heartbeats of m1 never stopped, so the answer comes within one.
			claim := l.within(time.Second, "the lower claim learns of the higher one", func() bool {
				return slices.Contains(a.claims(vip1), model.Claim{Owner: "m2", Epoch: 4})
			})
			if claim > 60*time.Millisecond {
				t.Errorf("lower claim learnt of the higher one after %v", claim)
			}
			healed := l.joined(2 * time.Second)
			t.Logf("hold %v: late after %v, dead after %v; healed: claim after %v, members after %v", hold, late, dead, claim, claim+healed)
			if !b.other("m1").Late.IsZero() {
				t.Errorf("m1 is late after the heal")
			}
		})
	}
}

// TestJoinAfterAPartitionWithoutHeartbeats is the same for nodes that have
// nothing to send to each other.
func TestJoinAfterAPartitionWithoutHeartbeats(t *testing.T) {
	bubble(t, func(l *lab) {
		for i := 1; i <= 4; i++ {
			l.start(i)
		}
		l.joined(5 * time.Second)
		for _, m := range l.nodes {
			m.SetPeers(nil) // those that have been members are remembered
		}
		l.net.Partition([]netip.Addr{addr(1), addr(2)}, []netip.Addr{addr(3), addr(4)})
		time.Sleep(2 * time.Minute)
		if got := l.nodes["m4"].alive(); !slices.Equal(got, []model.NodeName{"m3"}) {
			t.Fatalf("m4 sees %v", got)
		}
		l.net.Heal()
		t.Logf("members after %v", l.joined(8*time.Second))
	})
}

// TestHeartbeatFindsThePeer has a heartbeat arrive from somebody who is not a
// member: that is the moment to join, whatever the backoff says.
func TestHeartbeatFindsThePeer(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		a.claim(vip1, 1, "m2")
		for range 6 {
			time.Sleep(2 * time.Second)
			l.net.Partition([]netip.Addr{addr(1)}, []netip.Addr{addr(2)})
			l.within(20*time.Second, "dead", func() bool { return len(a.alive())+len(b.alive()) == 0 })
			time.Sleep(30 * time.Second)
			l.net.Heal()
			l.joined(1300 * time.Millisecond) // a dial into the partition may still hang for a second
		}
	})
}

// TestPacketsBlockedStreamsNot is a firewall that was opened for TCP only: the
// other node must not pass for alive, and the log must say what is wrong, once.
func TestPacketsBlockedStreamsNot(t *testing.T) {
	bubble(t, func(l *lab) {
		var out syncBuffer
		l.net.Block(addr(1), addr(2), memnet.Packets)
		l.net.Block(addr(2), addr(1), memnet.Packets)
		a := l.start(1, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
		l.start(2)
		time.Sleep(time.Minute)
		joins, alive := a.Stats().Joins, 0
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			alive += len(a.alive())
		}
		t.Logf("alive for %d %% of a minute, %d joins", alive/6, a.Stats().Joins-joins)
		if alive > 300 {
			t.Errorf("alive for %d %% of the time", alive/6)
		}
		if n := strings.Count(out.String(), "is its UDP port blocked?"); n != 1 {
			t.Errorf("said %d times:\n%s", n, out.String())
		}
	})
}

// syncBuffer is a buffer for a log of several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
