package layer2

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestConflictIsCountedToldAndDefendedOnceASecond(t *testing.T) {
	for name, vip := range map[string]netip.Addr{"ARP": vip4, "ND": vip6} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				h.apply(announceVIP(vip))
				time.Sleep(5 * time.Second)
				before := len(h.k.sent())
				for range 45 { // a frame every 100 ms for 4.5 s
					h.k.hear(gratuitous(rivalMAC, vip))
					time.Sleep(100 * ms)
				}
				times := h.k.times()[before:]
				want := []time.Duration{5100 * ms, 6100 * ms, 7100 * ms, 8100 * ms, 9100 * ms}
				if !slices.Equal(times, want) {
					t.Errorf("defended at %v, want %v", times, want)
				}
				if !h.changed() {
					t.Error("Changed did not fire")
				}
				got := h.apply(announceVIP(vip))[vip]
				if got.Conflicts != 45 || got.Foreign != rivalMAC || !got.Announcing {
					t.Errorf("report %+v", got)
				}
				if s := h.d.Stats(); s.Conflicts != 45 || s.Defences != 5 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

// TestConflictIsToldEachTime: another owner defends the VIP once a second, and some
// frames come a moment early.
func TestConflictIsToldEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(announceVIP(vip4))
		for i := range 5 {
			time.Sleep(990 * ms)
			h.changed()
			h.k.hear(gratuitous(rivalMAC, vip4))
			synctest.Wait()
			if !h.changed() {
				t.Errorf("frame %d is not told", i+1)
			}
		}
	})
}
