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

// TestQuestionOfANode: who asks for another host says who asks, for a switch may drop a
// question without a sender; who asks for a VIP does not, for its neighbours might learn it.
func TestQuestionOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		from := netip.MustParseAddr("10.0.0.11")
		q := probeVIP(vip4, 7)
		q.From = from
		h.apply(q, probeVIP(vip4b, 7))
		sent := h.k.sent()
		for _, want := range [][]byte{arp.Request(ownMAC, from, vip4), arp.Probe(ownMAC, vip4b)} {
			if !slices.ContainsFunc(sent, func(e event) bool { return bytes.Equal(e.frame, want) }) {
				t.Errorf("sent %v, not %x", sent, want)
			}
		}
	})
}

func TestProbeSilent(t *testing.T) {
	for name, vip := range map[string]netip.Addr{"ARP": vip4, "ND": vip6} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				if got := h.apply(probeVIP(vip, 7))[vip]; got.Probe.Done || got.Announcing || got.Silent {
					t.Errorf("report %+v", got)
				}
				want := arp.Probe(ownMAC, vip4)
				if vip == vip6 {
					want = nd.Probe(ownMAC, ll.Addr(), vip6, h.d.nonce)
					if _, ok := h.k.joined[Group{2, nd.SolicitedNode(vip6)}]; !ok {
						t.Error("deaf for the probes of a rival")
					}
				}
				if sent := h.k.sent(); len(sent) != 1 || !bytes.Equal(sent[0].frame, want) {
					t.Fatalf("sent %v, want %x", sent, want)
				}
				time.Sleep(45*ms - time.Nanosecond)
				synctest.Wait()
				if h.changed() {
					t.Error("ended early")
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if !h.changed() {
					t.Fatal("did not end")
				}
				got := h.apply(probeVIP(vip, 7))[vip].Probe
				if r := (model.ProbeResult{Series: 7, Done: true, At: got.At}); got != r || got.At != h.k.start.Add(45*ms) {
					t.Errorf("result %+v", got)
				}
				time.Sleep(time.Minute)
				h.apply(probeVIP(vip, 7)) // no new series
				if want := []time.Duration{0, 15 * ms, 30 * ms}; !slices.Equal(h.k.times(), want) {
					t.Errorf("probed at %v, want %v", h.k.times(), want)
				}
				if s := h.d.Stats(); s.Probes != 3 || s.ProbesSilent != 1 || s.ProbesAnswered != 0 {
					t.Errorf("stats %+v", s)
				}
				h.apply(probeVIP(vip, 8))
				if n := len(h.k.sent()); n != 4 {
					t.Errorf("%d probes after a new series began", n)
				}
			})
		})
	}
}

// TestProbeLasts: a series that is asked to last goes on asking until the time is over,
// hears rivals all the while, and one whose end is noticed late asks once more.
func TestProbeLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		long := probeVIP(vip4, 7)
		long.Lasts = 150 * ms
		h.apply(long)
		time.Sleep(60 * ms)
		h.k.hear(rivalProbe(model.MAC{2, 0, 0, 0, 0, 9}, vip4))
		time.Sleep(105*ms - time.Nanosecond)
		synctest.Wait()
		if h.changed() {
			t.Error("ended early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		got := h.apply(long)[vip4].Probe
		if want := (model.ProbeResult{Series: 7, Done: true, Rivals: [model.MaxRivals]model.MAC{{2, 0, 0, 0, 0, 9}}, At: h.k.start.Add(165 * ms)}); got != want {
			t.Errorf("result %+v, want %+v", got, want)
		}
		if want := []time.Duration{0, 50 * ms, 100 * ms, 150 * ms}; !slices.Equal(h.k.times(), want) {
			t.Errorf("probed at %v, want %v", h.k.times(), want)
		}
	})
}

func TestProbeAnswered(t *testing.T) {
	reply := arp.Announcement(rivalMAC, vip4)
	reply[21] = 2 // a reply
	for name, tc := range map[string]struct {
		vip   netip.Addr
		frame []byte
	}{
		"request": {vip4, gratuitous(rivalMAC, vip4)},
		"reply":   {vip4, reply},
		"ND":      {vip6, gratuitous(rivalMAC, vip6)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				h.apply(probeVIP(tc.vip, 1))
				h.k.hear(gratuitous(ownMAC, tc.vip)) // not foreign
				time.Sleep(3 * ms)
				h.k.hear(tc.frame)
				if !h.changed() {
					t.Fatal("did not end at once")
				}
				got := h.apply(probeVIP(tc.vip, 1))[tc.vip].Probe
				want := model.ProbeResult{Series: 1, Done: true, Answered: true, By: rivalMAC, At: h.k.start.Add(3 * ms)}
				if got != want {
					t.Errorf("result %+v, want %+v", got, want)
				}
				time.Sleep(time.Second)
				if n := len(h.k.sent()); n != 1 {
					t.Errorf("%d probes, want 1", n)
				}
			})
		})
	}
}

// TestProbeHearsRivals: each of the first few that ask is told once, whatever its hardware
// address, and no host is that makes up more of them.
func TestProbeHearsRivals(t *testing.T) {
	for name, vip := range map[string]netip.Addr{"ARP": vip4, "ND": vip6} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				h.apply(probeVIP(vip, 1))
				for _, m := range []model.MAC{otherMAC, rivalMAC, otherMAC, ownMAC} {
					h.k.hear(rivalProbe(m, vip))
				}
				time.Sleep(time.Second)
				got := h.apply(probeVIP(vip, 1))[vip].Probe
				if want := [model.MaxRivals]model.MAC{otherMAC, rivalMAC}; !got.Done || got.Answered || got.Rivals != want {
					t.Errorf("result %+v", got)
				}
				h.apply(probeVIP(vip, 2))
				for i := range byte(100) {
					h.k.hear(rivalProbe(model.MAC{2, 0, 0, 0, 1, i}, vip))
				}
				time.Sleep(time.Second)
				if got = h.apply(probeVIP(vip, 2))[vip].Probe; got.Rivals[model.MaxRivals-1] != (model.MAC{2, 0, 0, 0, 1, model.MaxRivals - 1}) {
					t.Errorf("of many: %+v", got)
				}
			})
		})
	}
}

// An answer that waits in the socket when the last timer fires counts.
func TestProbeReadsBeforeItConcludes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(probeVIP(vip4, 1))
		time.Sleep(40 * ms)
		h.k.arrive(gratuitous(rivalMAC, vip4)) // and no reader runs
		time.Sleep(10 * ms)
		if got := h.apply(probeVIP(vip4, 1))[vip4].Probe; !got.Answered || got.By != rivalMAC {
			t.Errorf("result %+v", got)
		}
	})
}

// A process that did not run during the last interval asks once more.
func TestProbeOfAStarvedProcessIsExtended(t *testing.T) {
	for name, tc := range map[string]struct {
		stall time.Duration
		want  []time.Duration
	}{
		"in time enough": {34 * ms, []time.Duration{0, 15 * ms, 30 * ms}},
		"late":           {36 * ms, []time.Duration{0, 15 * ms, 30 * ms, 66 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				h.apply(probeVIP(vip4, 1))
				time.Sleep(20 * ms)
				// The timer goroutine stands still from the announcement at 30 ms on.
				stall := true
				h.k.sending(func(frame []byte) error {
					if p, _ := arp.Parse(frame); stall && p.SPA == vip4b {
						stall = false
						time.Sleep(tc.stall)
					}
					return nil
				})
				h.d.mu.Lock() // an announcement due just after the third probe
				e := &entry{want: announceVIP(vip4b), port: h.d.entries[vip4].port}
				h.d.validUntil = time.Now().Add(time.Hour)
				e.burst = burst{on: true, start: h.k.start, next: h.k.start.Add(30*ms + 1)}
				h.d.entries[vip4b] = e
				h.d.queue.update(e)
				h.d.mu.Unlock()
				h.d.rouse()
				time.Sleep(200 * ms)
				var probes []time.Duration
				for _, s := range h.k.sent() {
					if p, _ := arp.Parse(s.frame); p.Probe() {
						probes = append(probes, s.at.Truncate(ms))
					}
				}
				if !slices.Equal(probes, tc.want) {
					t.Errorf("probed at %v, want %v", probes, tc.want)
				}
				if e := h.entry(vip4); !e.result.Done || e.result.At.Before(h.k.start.Add(tc.want[len(tc.want)-1]+probeInterval)) {
					t.Errorf("result %+v", e.result)
				}
			})
		})
	}
}

func TestProbeThatCannotBeSentProvesNothing(t *testing.T) {
	carrier := "interface \"eth0\": has no carrier"
	for name, tc := range map[string]struct {
		vip     netip.Addr
		prepare func(h *harness)
		err     string
		mend    func(h *harness)
	}{
		"send fails": {
			vip4,
			func(h *harness) { h.k.sending(func([]byte) error { return syscall.ENETDOWN }) },
			"network is down",
			func(h *harness) { h.k.sending(nil) },
		},
		"not permitted": {
			vip6,
			func(h *harness) { h.k.sending(func([]byte) error { return syscall.EPERM }) },
			"operation not permitted",
			func(h *harness) { h.k.sending(nil) },
		},
		"no carrier": {
			vip4,
			func(h *harness) {
				l := h.k.ifs["eth0"]
				l.Carrier = false
				h.k.ifs["eth0"] = l
			},
			carrier,
			func(h *harness) {
				l := h.k.ifs["eth0"]
				l.Carrier = true
				h.k.ifs["eth0"] = l
			},
		},
		"tentative": {
			vip6,
			func(h *harness) { h.k.addrs[0].Usable = false },
			"has no usable IPv6 link-local address",
			func(h *harness) { h.k.addrs[0].Usable = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				tc.prepare(h)
				a, err := h.try(probeVIP(tc.vip, 1))
				time.Sleep(time.Second)
				if got := a.VIPs[tc.vip]; err == nil || got.Probe.Done || !strings.Contains(got.Err, tc.err) {
					t.Fatalf("%v, report %+v", err, got)
				}
				if a, err = h.try(probeVIP(tc.vip, 1)); err == nil || a.VIPs[tc.vip].Probe.Done {
					t.Fatalf("%v, report %+v", err, a.VIPs[tc.vip])
				}
				tc.mend(h)
				h.apply(probeVIP(tc.vip, 1))
				time.Sleep(time.Second)
				if got := h.apply(probeVIP(tc.vip, 1))[tc.vip]; !got.Probe.Done || got.Err != "" {
					t.Errorf("report %+v", got)
				}
			})
		})
	}
}

func TestProbeFailsWhenTheCarrierGoesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(probeVIP(vip4, 1))
		h.k.breaks(syscall.ENETDOWN) // nobody tells
		time.Sleep(time.Second)
		if !h.changed() {
			t.Error("Changed did not fire")
		}
		if e := h.entry(vip4); e.result.Done || e.err == "" {
			t.Errorf("result %+v, error %q", e.result, e.err)
		}
	})
}

func TestProbeBecomesAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(probeVIP(vip4, 1))
		time.Sleep(50 * ms)
		got := h.apply(announceVIP(vip4))[vip4]
		if !got.Announcing || !got.Probe.Done {
			t.Errorf("report %+v", got)
		}
		if h.k.opened != 1 {
			t.Error("opened another socket")
		}
	})
}

func TestManyVIPs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		var l2 []model.L2Advert
		for i := range 1000 {
			l2 = append(l2, announceVIP(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})))
		}
		h.apply(l2...)
		time.Sleep(5 * time.Second)
		if n := len(h.announced()); n < 4000 || n > 4500 {
			t.Errorf("%d announcements, the pace allows some 4200", n)
		}
		h.apply(l2[:10]...)
		time.Sleep(5 * time.Second) // what waited for its turn has gone
		synctest.Wait()
		if len(h.d.queue) != 10 || len(h.d.entries) != 10 || h.d.lines["eth0"].count() != 0 {
			t.Errorf("%d deadlines, %d turns and %d entries are left", len(h.d.queue), h.d.lines["eth0"].count(), len(h.d.entries))
		}
	})
}
