package layer2

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/model"
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

// TestHostsThatUseTheVIPInTurn: ten thousand frames a second, from two hosts in turn or from
// one that makes up an address for each, are news ten times a second, of however many VIPs;
// and the last one is told.
func TestHostsThatUseTheVIPInTurn(t *testing.T) {
	const seconds, frames = 2, 10_000
	for name, mac := range map[string]func(int) model.MAC{
		"two":  func(i int) model.MAC { return model.MAC{2, 0, 0, 0, 9, byte(i % 2)} },
		"many": func(i int) model.MAC { return model.MAC{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)} },
	} {
		for _, yields := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, yields %v", name, yields), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHarness(t)
					defer h.close()
					wants := []model.L2Advert{announceVIP(vip4), announceVIP(vip6)}
					for i := range wants {
						wants[i].Yield = yields
					}
					h.apply(wants...)
					time.Sleep(5 * time.Second)
					h.changed()
					news := 0
					for i := range seconds * frames {
						h.k.hear(gratuitous(mac(i), wants[i/2%len(wants)].Addr))
						time.Sleep(time.Second / frames)
						if h.changed() {
							news++
						}
					}
					most := seconds*10 + 1
					if yields {
						most += len(wants) // the successor of each is told at once
					}
					if news > most || news < most/2 {
						t.Errorf("told %d times in %d s", news, seconds)
					}
					h.changed()
					h.k.hear(gratuitous(rivalMAC, vip4))
					time.Sleep(conflictPause)
					synctest.Wait()
					if !h.changed() {
						t.Error("the last frame is not told")
					}
					if got := h.apply(wants...)[vip4].Foreign; got != rivalMAC {
						t.Errorf("foreign is %s, want %s", got, rivalMAC)
					}
				})
			})
		}
	}
}
