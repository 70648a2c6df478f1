package layer2

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/model"
)

var wantBurst = []time.Duration{0, 50 * ms, 200 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms}

func TestBurstThenRefresh(t *testing.T) {
	for name, vip := range map[string]netip.Addr{"ARP": vip4, "ND": vip6} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				got := h.apply(announceVIP(vip))[vip]
				if !got.Announcing || got.Err != "" || got.Interface != "eth0" {
					t.Errorf("report %+v", got)
				}
				if n := len(h.k.sent()); n != 1 {
					t.Fatalf("%d frames when Apply returned, want 1", n)
				}
				want := gratuitous(ownMAC, vip)
				if !bytes.Equal(h.k.sent()[0].frame, want) {
					t.Errorf("frame\n got %x\nwant %x", h.k.sent()[0].frame, want)
				}
				time.Sleep(100 * time.Second)
				times := h.announced()
				if len(times) < 9 || !slices.Equal(times[:7], wantBurst) {
					t.Fatalf("sent at %v, want %v first", times, wantBurst)
				}
				for i := 7; i < len(times); i++ {
					gap := times[i] - times[i-1]
					if gap < 27*time.Second || gap > 33*time.Second {
						t.Errorf("refresh after %v", gap)
					}
				}
				if s := h.d.Stats(); int(s.Announcements) != len(times) || s.Errors != 0 {
					t.Errorf("stats %+v for %d frames", s, len(times))
				}
			})
		})
	}
}

func TestUnchangedApplySendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		for range 100 { // every 30 ms: between, before and after the moments of a burst
			h.apply(announceVIP(vip4), announceVIP(vip6))
			time.Sleep(30 * ms)
		}
		if n := len(h.k.sent()); n != 2*6 {
			t.Errorf("%d frames in 3 s, want 12", n)
		}
		if h.k.opened != 2 {
			t.Errorf("%d sockets opened, want 2", h.k.opened)
		}
	})
}

func TestHigherBurstStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(announceVIP(vip4))
		time.Sleep(10 * time.Second)
		again := announceVIP(vip4)
		again.Burst = 1
		h.apply(again)
		time.Sleep(5 * time.Second)
		times := h.announced()
		if len(times) != 14 || times[7] != 10*time.Second || times[8] != 10*time.Second+50*ms {
			t.Errorf("sent at %v", times)
		}
	})
}

func TestNothingIsSaidAfterTheDecisionIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.valid = 300 * ms
		h.apply(announceVIP(vip4))
		h.k.hear(gratuitous(rivalMAC, vip4)) // defended at 100 ms
		time.Sleep(5 * time.Second)
		h.k.hear(gratuitous(rivalMAC, vip4))
		time.Sleep(5 * time.Second)
		want := []time.Duration{0, 50 * ms, 100 * ms, 200 * ms}
		if times := h.k.times(); !slices.Equal(times, want) {
			t.Fatalf("sent at %v, want %v", times, want)
		}
		h.apply(announceVIP(vip4)) // the decision stands after all
		if times := h.k.times(); len(times) != 5 {
			t.Errorf("sent at %v, want one more", times)
		}
		if !h.apply(announceVIP(vip4))[vip4].Announcing {
			t.Error("not announcing any more")
		}
	})
}

func TestOldDecisionIsNotAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.valid = -ms
		a, err := h.try(announceVIP(vip4))
		if err == nil || a.VIPs[vip4].Announcing || len(h.k.sent()) != 0 {
			t.Errorf("%v %+v %d frames", err, a.VIPs[vip4], len(h.k.sent()))
		}
	})
}

func TestLateAnnouncementIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(announceVIP(vip4), announceVIP(vip4b))
		time.Sleep(600 * ms)
		n := len(h.k.sent())
		h.k.sending(func([]byte) error { // at 1 s: the process does not run for 1.5 s
			h.k.sending(nil)
			time.Sleep(1500 * ms)
			return nil
		})
		time.Sleep(3 * time.Second)
		// The first VIP sent at 1 s, the second was late and waits.
		for _, e := range h.k.sent()[n:] {
			if p, _ := arp.Parse(e.frame); p.SPA != firstSender(h, n) {
				t.Errorf("%v announced at %v", p.SPA, e.at)
			}
		}
		before := len(h.k.sent())
		h.apply(announceVIP(vip4), announceVIP(vip4b))
		if got := len(h.k.sent()) - before; got < 1 {
			t.Error("the next Apply does not go on")
		}
	})
}

func firstSender(h *harness, n int) netip.Addr {
	p, _ := arp.Parse(h.k.sent()[n].frame)
	return p.SPA
}

// TestYields: a VIP whose successor has been told yields; what is
// heard of the successor is told at once.
func TestYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		yielding := announceVIP(vip4)
		yielding.Yield = true
		h.apply(yielding)
		time.Sleep(5 * time.Second)
		before := len(h.k.sent())
		for range 3 {
			h.k.hear(gratuitous(rivalMAC, vip4))
			time.Sleep(100 * ms)
			if !h.changed() {
				t.Error("Changed did not fire")
			}
		}
		time.Sleep(2 * time.Second)
		if n := len(h.k.sent()) - before; n != 0 {
			t.Errorf("defended %d times", n)
		}
		if got := h.apply(yielding)[vip4]; got.Conflicts != 3 || got.Foreign != rivalMAC {
			t.Errorf("report %+v", got)
		}
	})
}

func TestNoConflictWith(t *testing.T) {
	for name, frame := range map[string][]byte{
		"own interface":     gratuitous(ownMAC, vip4),
		"own, other card":   gratuitous(otherMAC, vip4),
		"another address":   gratuitous(rivalMAC, vip4b),
		"probe":             rivalProbe(rivalMAC, vip4),
		"no sender":         gratuitous(model.MAC{}, vip4),
		"broadcast sender":  gratuitous(model.MAC{255, 255, 255, 255, 255, 255}, vip4),
		"client that asks":  nd.Probe(rivalMAC, ll.Addr(), vip6, nd.Nonce{})[:86],
		"solicitation":      rivalProbe(rivalMAC, vip6),
		"garbage":           bytes.Repeat([]byte{0x08, 6}, 40),
		"shorter than that": {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				h.k.ifs["eth1"] = Link{Name: "eth1", Index: 3, MAC: otherMAC, Up: true, Carrier: true}
				h.apply(announceVIP(vip4), announceVIP(vip6))
				h.k.hear(frame)
				got := h.apply(announceVIP(vip4), announceVIP(vip6))
				if got[vip4].Conflicts+got[vip6].Conflicts != 0 {
					t.Errorf("report %+v", got)
				}
			})
		})
	}
}

func TestSuccessorIsNotFought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(announceVIP(vip4))
		time.Sleep(5 * time.Second)
		n := len(h.k.sent())
		h.k.hear(gratuitous(rivalMAC, vip4)) // the successor announces
		time.Sleep(50 * ms)                  // its claim arrives
		h.apply(silentVIP(vip4))
		time.Sleep(time.Minute)
		if got := len(h.k.sent()); got != n {
			t.Errorf("%d frames after the successor spoke", got-n)
		}
	})
}

func TestSilenceComesFirstAndIsLiftedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(announceVIP(vip4))
		time.Sleep(10 * ms)
		if got := h.apply(silentVIP(vip4))[vip4]; !got.Silent || got.Announcing {
			t.Errorf("report %+v", got)
		}
		time.Sleep(time.Minute)
		if got := h.apply(announceVIP(vip4))[vip4]; got.Silent || !got.Announcing {
			t.Errorf("report %+v", got)
		}
		if got, want := h.k.whats(), []string{"send", "silence", "lift", "send"}; !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
		if len(h.k.ports) != 1 || h.k.opened != 2 {
			t.Errorf("%d sockets opened, want one for each time of announcing", h.k.opened)
		}
	})
}

func TestCannotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.s[0].failed = syscall.EOPNOTSUPP
		a, err := h.try(silentVIP(vip4), announceVIP(vip4b), silentVIP(vip6))
		if err == nil {
			t.Error("no error")
		}
		got := a.VIPs[vip4]
		if got.Silent || !strings.HasPrefix(got.Err, "cannot silence: ") {
			t.Errorf("report %+v", got)
		}
		if !a.VIPs[vip4b].Announcing || !a.VIPs[vip6].Silent {
			t.Errorf("the others suffer: %+v", a.VIPs)
		}
	})
}

func TestWhatIsStillSilentDoesNotSpeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(silentVIP(vip4))
		h.s[0].failed = syscall.EBUSY
		a, err := h.try(announceVIP(vip4))
		if err == nil || a.VIPs[vip4].Announcing || a.VIPs[vip4].Err == "" || len(h.k.sent()) != 0 {
			t.Errorf("%v %+v, %d frames", err, a.VIPs[vip4], len(h.k.sent()))
		}
		h.s[0].failed = nil
		if got := h.apply(announceVIP(vip4))[vip4]; !got.Announcing || got.Err != "" {
			t.Errorf("report %+v", got)
		}
	})
}

func TestInterfaceChanges(t *testing.T) {
	eth0 := Link{Name: "eth0", Index: 2, MAC: ownMAC, Up: true, Carrier: true}
	for name, tc := range map[string]struct {
		change func(l *Link)
		err    string
	}{
		"hardware address": {func(l *Link) { l.MAC = otherMAC }, ""},
		"made again":       {func(l *Link) { l.Index = 9 }, ""},
		"down":             {func(l *Link) { l.Up, l.Carrier = false, false }, `interface "eth0": is down`},
		"no carrier":       {func(l *Link) { l.Carrier = false }, `interface "eth0": has no carrier`},
		"not Ethernet":     {func(l *Link) { l.MAC = model.MAC{} }, `interface "eth0": is not an Ethernet interface`},
		"gone":             {func(l *Link) { l.Name = "" }, `interface "eth0": does not exist`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				onOther := announceVIP(vip4b)
				onOther.Interface = "eth1"
				h.k.ifs["eth1"] = Link{Name: "eth1", Index: 3, MAC: rivalMAC, Up: true, Carrier: true}
				h.apply(announceVIP(vip4), onOther)
				time.Sleep(5 * time.Second)
				n := len(h.k.sent())

				l := eth0
				tc.change(&l)
				delete(h.k.ifs, "eth0")
				if l.Name != "" {
					h.k.ifs["eth0"] = l
				}
				a, err := h.try(announceVIP(vip4), onOther)
				got := a.VIPs[vip4]
				if got.Err != tc.err || got.Announcing != (tc.err == "") || (err != nil) != (tc.err != "") {
					t.Errorf("%v, report %+v", err, got)
				}
				if !a.VIPs[vip4b].Announcing {
					t.Error("the other interface suffers")
				}
				if tc.err != "" {
					time.Sleep(time.Second)
					if len(h.k.sent()) != n {
						t.Error("sent on an interface that cannot")
					}
					h.k.ifs["eth0"] = eth0 // comes back
					h.apply(announceVIP(vip4), onOther)
					l = eth0
				}
				sent := h.k.sent()[n:]
				if len(sent) != 1 || !bytes.Equal(sent[0].frame, arp.Announcement(l.MAC, vip4)) {
					t.Errorf("sent %v, want one announcement of %s", sent, l.MAC)
				}
				time.Sleep(60 * ms)
				if len(h.k.sent()) != n+2 {
					t.Error("the burst does not go on")
				}
			})
		})
	}
}

func TestSendErrorIsToldAndMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(announceVIP(vip4))
		h.changed()
		h.k.sending(func([]byte) error { return syscall.ENXIO })
		time.Sleep(60 * ms) // the announcement at 50 ms fails
		if !h.changed() {
			t.Fatal("Changed did not fire")
		}
		a, err := h.try(announceVIP(vip4))
		if err == nil || a.VIPs[vip4].Announcing || !strings.Contains(a.VIPs[vip4].Err, "send") || a.Err == "" {
			t.Errorf("%v, report %+v", err, a)
		}
		h.k.sending(nil)
		if got := h.apply(announceVIP(vip4))[vip4]; !got.Announcing || got.Err != "" {
			t.Errorf("report %+v", got)
		}
		if h.k.opened != 3 {
			t.Errorf("%d sockets opened, want a new one after each failure", h.k.opened)
		}
	})
}

func TestGoneVIPIsQuietAndItsSocketClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(announceVIP(vip4), announceVIP(vip6))
		if got := h.apply(announceVIP(vip6)); len(got) != 1 {
			t.Errorf("report %+v", got)
		}
		time.Sleep(time.Minute)
		for _, e := range h.k.sent()[2:] {
			if _, ok := arp.Parse(e.frame); ok {
				t.Fatalf("announced at %v", e.at)
			}
		}
		if !h.k.ports[portKey{"eth0", 0}].closed || h.k.ports[portKey{"eth0", 1}].closed {
			t.Error("wrong sockets are closed")
		}
	})
}

func TestSpeakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		add := func(index int, prefix string, usable bool) {
			h.k.addrs = append(h.k.addrs, Address{index, netip.MustParsePrefix(prefix), usable})
		}
		h.k.addrs = nil
		add(2, "10.0.0.200/32", true) // the VIP itself
		add(2, "192.0.2.7/32", true)
		add(2, "10.0.0.5/24", true)
		add(2, "10.0.0.6/24", true)
		add(2, "172.16.0.5/16", true)
		add(3, "203.0.113.1/24", true)
		add(2, "fe80::9/64", false)
		add(2, "fe80::8/64", true)
		h.apply(silentVIP(vip4), silentVIP(vip6))
		var got []string
		for _, s := range h.s {
			for _, sp := range s.want.Speakers {
				got = append(got, sp.Interface+" "+sp.Addr.String()+" "+sp.Subnet.String())
			}
		}
		want := []string{
			"eth0 10.0.0.5 10.0.0.0/24", "eth0 172.16.0.5 172.16.0.0/16", "eth0 10.0.0.5 invalid Prefix",
			"eth0 fe80::8 invalid Prefix",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestExtend: announcements go on while the decision is extended. What is to be put
// right, or has to be renewed, is not.
func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.valid = time.Second
		until := func() time.Time { return time.Now().Add(time.Second) }
		vip := model.L2Advert{Addr: netip.MustParseAddr("10.0.0.200"), Interface: "eth0", Mode: model.L2Announce, Burst: 1}
		h.apply(vip)
		for range 60 {
			time.Sleep(500 * time.Millisecond)
			synctest.Wait() // while the driver announces it is not extended
			if !h.d.Extend(until()) {
				t.Fatal("not extended")
			}
		}
		if e := h.entry(vip.Addr); e.burst.next.IsZero() {
			t.Error("announcements have stopped")
		}
		time.Sleep(2 * time.Second)
		if h.d.Extend(until()) {
			t.Error("extended after the decision had ended")
		}
		for what, mode := range map[string]model.L2Mode{"a silence": model.L2Silent, "a question": model.L2Probe} {
			other := vip
			other.Mode, other.Series = mode, 1
			h.apply(other)
			if h.d.Extend(until()) {
				t.Errorf("%s was extended", what)
			}
		}
	})
}
