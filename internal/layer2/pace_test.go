package layer2

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/model"
)

// limited is what switches are told to let pass in a second.
const limited = 1000

// many are n VIPs in the order of their addresses.
func many(n int, from netip.Addr, one func(netip.Addr) model.L2Advert) []model.L2Advert {
	var l2 []model.L2Advert
	for a := from; len(l2) < n; a = a.Next() {
		l2 = append(l2, one(a))
	}
	return l2
}

// about is the address that a frame is about.
func about(t *testing.T, frame []byte) netip.Addr {
	t.Helper()
	if m, ok := nd.Parse(frame); ok {
		return m.Target
	}
	p, ok := arp.Parse(frame)
	if !ok {
		t.Fatalf("neither ARP nor ND: %x", frame)
	}
	return p.TPA
}

// busiest is the greatest number of frames in any second from begin on.
func busiest(events []event, begin time.Duration) (most int) {
	first := 0
	for i := range events {
		for events[first].at < begin || events[i].at-events[first].at >= time.Second {
			if first++; first > i {
				break
			}
		}
		most = max(most, i-first+1)
	}
	return most
}

// said is when an address was announced since the frame with the number from.
func (h *harness) said(a netip.Addr, from int) (at []time.Duration) {
	for _, e := range h.k.sent()[from:] {
		if about(h.T, e.frame) == a && !isQuestion(e.frame) {
			at = append(at, e.at)
		}
	}
	return at
}

// TestManyAreRepeatedAtAPace: what one node takes at once is announced at once; the rest of the
// bursts keeps the pace, ARP and ND together, and none is left out.
func TestManyAreRepeatedAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2500
		h := newHarness(t)
		defer h.close()
		h.apply(append(many(n/2, vip4, respondVIP), many(n/2, vip6, respondVIP)...)...)
		if sent := h.k.sent(); len(sent) != n || sent[n-1].at != 0 {
			t.Fatalf("%d first announcements, the last after %v", len(sent), sent[len(sent)-1].at)
		}
		time.Sleep(24 * time.Second)
		synctest.Wait()
		times, questions := map[netip.Addr]int{}, 0
		var last time.Duration
		for _, e := range h.k.sent() {
			if isQuestion(e.frame) {
				questions++
			} else if a := about(t, e.frame); times[a] < len(burstAt) {
				times[a]++
				last = e.at
			}
		}
		for a, got := range times {
			if got != len(burstAt) {
				t.Errorf("%s was announced %d times", a, got)
			}
		}
		if most := time.Duration(n*(len(burstAt)-1))*time.Second/paceRate + 1200*ms; len(times) != n || last > most {
			t.Errorf("%d were announced, the last for the last time after %v, want at most %v", len(times), last, most)
		}
		if most := busiest(h.k.sent(), ms); most > limited {
			t.Errorf("%d frames in a second", most)
		}
		if first := h.k.sent()[n].at; first < 900*ms {
			t.Errorf("repeated after %v, before the first announcements were made up for", first)
		}
		if questions != n {
			t.Errorf("%d questions for %d addresses", questions, n)
		}
	})
}

// TestFewKeepTheirMoments: the addresses of a control plane wait for nothing, also beside
// thousands of Services.
func TestFewKeepTheirMoments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		services := many(share, netip.MustParseAddr("10.1.0.1"), respondVIP)
		h.apply(services...)
		time.Sleep(300 * ms)
		synctest.Wait()
		few := many(20, vip4, announceVIP)
		from, at := len(h.k.sent()), time.Since(h.k.start)
		h.apply(append(services, few...)...)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for _, w := range few {
			said := h.said(w.Addr, from)
			if len(said) != len(burstAt) {
				t.Fatalf("%s was announced at %v", w.Addr, said)
			}
			for i, when := range said {
				if when-at != burstAt[i] {
					t.Errorf("%s was announced %v after it was taken, want %v", w.Addr, when-at, burstAt[i])
				}
			}
		}
		if most := busiest(h.k.sent()[from:], 0); most > limited {
			t.Errorf("%d frames in a second", most)
		}
	})
}

// TestManyBoundKeepThePace: of what is bound only a few need not wait.
func TestManyBoundKeepThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(many(share, vip4, announceVIP)...)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if most := busiest(h.k.sent(), ms); most > limited {
			t.Errorf("%d frames in a second", most)
		}
	})
}

// TestNothingIsSaidOfWhatWasLost: what waited for its turn and is another node's by then is not
// sent, and what was taken anew meanwhile begins anew.
func TestNothingIsSaidOfWhatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		l2 := many(share, vip4, respondVIP)
		h.apply(l2...)
		time.Sleep(5 * time.Second) // questions wait, too
		synctest.Wait()
		kept, anew := l2[share/2:], l2[share-1].Addr
		kept[len(kept)-1].Burst++
		from, at := len(h.k.sent()), time.Since(h.k.start)
		h.apply(kept...)
		if said := h.said(anew, from); len(said) != 1 || said[0] != at {
			t.Errorf("a new burst begins at %v, want %v", said, at)
		}
		lost := map[netip.Addr]bool{}
		for _, w := range l2[:share/2] {
			lost[w.Addr] = true
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		for _, e := range h.k.sent()[from:] {
			if a := about(t, e.frame); lost[a] {
				t.Fatalf("%s was announced at %v", a, e.at)
			}
		}
		if said := h.said(anew, from); len(said) != len(burstAt) {
			t.Errorf("a new burst has announcements at %v", said)
		}
		if h.d.mu.Lock(); h.d.lines["eth0"].count() != 0 {
			t.Errorf("%d wait", h.d.lines["eth0"].count())
		}
		h.d.mu.Unlock()
	})
}

// TestDefenceWaitsForNoRepetition: a conflict over an address is answered in time while
// thousands of repetitions wait, and so is the question for another one.
func TestDefenceWaitsForNoRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		l2 := many(share, vip4, respondVIP)
		h.apply(l2...)
		time.Sleep(300 * ms)
		synctest.Wait()
		asked := probeVIP(vip6, 1)
		asked.Unbound = true
		from, at := len(h.k.sent()), time.Since(h.k.start)
		h.apply(append(l2, asked)...)
		h.k.hear(gratuitous(rivalMAC, vip4))
		time.Sleep(200 * ms)
		synctest.Wait()
		if said := h.said(vip4, from); len(said) != 1 || said[0]-at != defendDelay {
			t.Errorf("defended at %v, the conflict was at %v", said, at)
		}
		if r := h.entry(vip6).result; !r.Done || r.At.Sub(h.k.start)-at > 50*ms {
			t.Errorf("probed since %v: %+v", at, r)
		}
	})
}

// TestInterfacesHaveTheirOwnPace: one interface holds up no other.
func TestInterfacesHaveTheirOwnPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.k.ifs["eth1"] = Link{Name: "eth1", Index: 3, MAC: otherMAC, Up: true, Carrier: true}
		other := respondVIP(vip4)
		other.Interface = "eth1"
		h.apply(append(many(share, vip4b, respondVIP), other)...)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		said := h.said(vip4, 0)
		if len(said) != len(burstAt) || said[1] > burstAt[1]+ms || said[6] > burstAt[6]+ms {
			t.Errorf("announced at %v", said)
		}
	})
}

// TestRefreshesOfThousands: as many addresses as the pace just allows are all refreshed and asked
// for, within the interval and what they waited for the bursts.
func TestRefreshesOfThousands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		h := newHarness(t)
		defer h.close()
		h.apply(many(n, netip.MustParseAddr("10.1.0.1"), respondVIP)...)
		time.Sleep(2 * time.Minute) // the bursts take 75 s, the questions 12 s
		synctest.Wait()
		from := len(h.k.sent())
		time.Sleep(refreshInterval + refreshJitter)
		synctest.Wait()
		refreshed, asked := map[netip.Addr]bool{}, map[netip.Addr]bool{}
		for _, e := range h.k.sent()[from:] {
			if isQuestion(e.frame) {
				asked[about(t, e.frame)] = true
			} else {
				refreshed[about(t, e.frame)] = true
			}
		}
		if len(refreshed) != n || len(asked) != n {
			t.Errorf("%d of %d were refreshed, %d asked for", len(refreshed), n, len(asked))
		}
		if most := busiest(h.k.sent(), ms); most > limited {
			t.Errorf("%d frames in a second", most)
		}
	})
}

// TestNothingWaitsForEver: where addresses are taken all the time, faster than the pace, those of before
// are repeated all the same, and refreshes come in the end.
func TestNothingWaitsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		l2 := many(400, vip4, respondVIP)
		h.apply(l2[:1]...)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for range 400 { // 80 s, 2000 a second
			for i := range l2[1:] {
				l2[1+i].Burst++
			}
			h.apply(l2...)
			time.Sleep(200 * ms)
		}
		synctest.Wait()
		if said := h.said(vip4, 0); len(said) <= len(burstAt) {
			t.Errorf("announced at %v, want a refresh", said)
		}
	})
}

// TestRepetitionsGoOnWithoutCalm: frames that cannot wait, more than the pace, leave the others
// some.
func TestRepetitionsGoOnWithoutCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		first, storm := many(40, vip4, respondVIP), many(300, netip.MustParseAddr("10.1.0.1"), respondVIP)
		h.apply(first...)
		for range 50 { // 10 s, 1500 a second
			for i := range storm {
				storm[i].Burst++
			}
			h.apply(append(first, storm...)...)
			time.Sleep(200 * ms)
		}
		synctest.Wait()
		for _, w := range first {
			if said := h.said(w.Addr, 0); len(said) < 3 {
				t.Errorf("%s was announced at %v", w.Addr, said)
			}
		}
	})
}

// TestLateLineWaitsForADecision: a process that stood still says nothing of what waited.
func TestLateLineWaitsForADecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		l2 := many(share, vip4, announceVIP)
		h.apply(l2...)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		from, waited := 0, map[netip.Addr]bool{}
		h.k.sending(func([]byte) error { // with the lock
			if from == 0 {
				for _, x := range h.d.lines["eth0"].again {
					if !x.void() {
						waited[x.entry.want.Addr] = true
					}
				}
				from = len(h.k.sent()) + 1
				time.Sleep(2 * maxLate)
			}
			return nil
		})
		time.Sleep(4 * maxLate)
		synctest.Wait()
		if len(waited) < share/2 {
			t.Fatalf("only %d waited", len(waited))
		}
		for _, e := range h.k.sent()[from:] {
			if a := about(t, e.frame); waited[a] && !isQuestion(e.frame) {
				t.Fatalf("%s was announced at %v", a, e.at)
			}
		}
	})
}

// TestLine: the debt is a second at most, repetitions go before refreshes that are not much
// older, the oldest first, and who waits is looked at in time.
func TestLine(t *testing.T) {
	now := time.Now()
	l := &line{left: paceBurst, filled: now}
	for range 100_000 {
		l.pay(now)
	}
	if l.left != -paceDebt {
		t.Errorf("a debt of %v", l.left)
	}
	add := func(at time.Duration, refresh bool) {
		e := &entry{burst: burst{next: now.Add(at)}}
		l.add(turn{entry: e, due: e.burst.next, refresh: refresh}, now)
	}
	add(-refreshInterval-ms, true)
	add(-refreshInterval, true)
	add(0, false)
	add(ms, false)
	if n := l.look(now.Add(time.Second - ms)); n > 0 {
		t.Errorf("%d may go before a second is over", n)
	}
	if n := l.look(now.Add(time.Second + 10*ms)); n != 8 {
		t.Errorf("%d may go 10 ms later, want 8", n)
	}
	for i, want := range []time.Duration{-refreshInterval - ms, 0, -refreshInterval, ms} {
		if got, any := l.pop(); !any || got.due.Sub(now) != want {
			t.Errorf("number %d was due at %v, want %v", i, got.due.Sub(now), want)
		}
	}
	if _, any := l.pop(); any || l.count() != 0 || !l.next(now).IsZero() {
		t.Error("something waits for ever")
	}
}

// TestDelayedBurstGoesOn: neither a defence nor a pause without a decision cuts a burst short that
// waits in the line. What falls due in the pause itself may be left out.
func TestDelayedBurstGoesOn(t *testing.T) {
	for name, between := range map[string]func(h *harness, l2 []model.L2Advert){
		"all are contested": func(h *harness, l2 []model.L2Advert) {
			for _, w := range l2 {
				h.k.hear(gratuitous(rivalMAC, w.Addr))
			}
		},
		"nothing runs for 1.5 s": func(h *harness, l2 []model.L2Advert) {
			stood := false
			h.k.sending(func([]byte) error {
				if !stood {
					stood = true
					time.Sleep(1500 * ms)
				}
				return nil
			})
			time.Sleep(2 * time.Second)
			synctest.Wait()
			h.apply(l2...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				l2 := many(1200, netip.MustParseAddr("10.1.0.1"), respondVIP)
				h.apply(l2...)
				time.Sleep(1500 * ms)
				synctest.Wait()
				between(h, l2)
				time.Sleep(25 * time.Second) // before what is periodic
				synctest.Wait()
				short := 0
				for _, w := range l2 {
					if len(h.said(w.Addr, 0)) < len(burstAt)-2 {
						short++
					}
				}
				if short > 0 {
					t.Errorf("%d of %d were announced less than %d times", short, len(l2), len(burstAt)-2)
				}
			})
		})
	}
}
