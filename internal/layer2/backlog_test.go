package layer2

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/model"
)

// manyProbes asks for a series for each of n VIPs.
func manyProbes(n int) []model.L2Advert {
	var l2 []model.L2Advert
	for i := range n {
		l2 = append(l2, probeVIP(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 1))
	}
	return l2
}

const lasting = 150 * ms // as election.DoubtFor

// manyInDoubt asks for n VIPs for which this node has answered.
func manyInDoubt(n int) []model.L2Advert {
	l2 := unbound(manyProbes(n))
	for i := range l2 {
		l2[i].Lasts = lasting
	}
	return l2
}

func unbound(l2 []model.L2Advert) []model.L2Advert {
	for i := range l2 {
		l2[i].Unbound = true
	}
	return l2
}

// done counts the series that have ended.
func done(vips map[netip.Addr]model.AppliedVIP) (n int) {
	for _, v := range vips {
		if v.Probe.Done {
			n++
		}
	}
	return n
}

// Thousands of VIPs are asked for a few at a time.
func TestManyProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		l2 := manyProbes(2000)
		h.apply(l2...)
		for range 20 { // decisions that come meanwhile change nothing
			time.Sleep(100 * time.Millisecond)
			h.apply(l2...)
		}
		if n := done(h.apply(l2...)); n != len(l2) {
			t.Errorf("%d of %d series have ended after 2 s", n, len(l2))
		}
		asked, at := map[netip.Addr]int{}, map[time.Duration]int{}
		for _, e := range h.k.sent() {
			asked[netip.AddrFrom4([4]byte(e.frame[38:42]))]++
			if at[e.at.Truncate(probeInterval)]++; at[e.at.Truncate(probeInterval)] > mostSeries {
				t.Fatalf("more than %d frames within %v", mostSeries, probeInterval)
			}
		}
		for a, n := range asked {
			if n != probeCount {
				t.Errorf("%s was asked for %d times, want %d", a, n, probeCount)
			}
		}
		if n := len(h.d.backlog.short.first); n > 0 {
			t.Errorf("%d series wait", n)
		}
	})
}

// What a standstill has put in doubt is silent until the wire was asked: that ends
// soon, without a flood, however many there are.
func TestManyInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		l2 := manyInDoubt(5000)
		h.apply(l2...)
		for range 40 { // decisions that come meanwhile change nothing
			time.Sleep(100 * time.Millisecond)
			h.apply(l2...)
		}
		if n := done(h.apply(l2...)); n != len(l2) {
			t.Errorf("%d of %d series have ended after 4 s", n, len(l2))
		}
		at := map[time.Duration]int{}
		for _, e := range h.k.sent() {
			if at[e.at.Truncate(probeInterval)]++; at[e.at.Truncate(probeInterval)] > 2*mostSeries*lastingShare {
				t.Fatalf("more than %d frames within %v", 2*mostSeries*lastingShare, probeInterval)
			}
		}
		if len(h.k.sent()) != len(l2)*(probeCount+1) {
			t.Errorf("%d probes for %d VIPs", len(h.k.sent()), len(l2))
		}
	})
}

// What is bound, such as the way to the API server, waits for none of the thousands
// that are not, neither for those in doubt nor for those that have no owner.
func TestBoundIsAskedForFirst(t *testing.T) {
	for name, l2 := range map[string][]model.L2Advert{"in doubt": manyInDoubt(5000), "no owner": unbound(manyProbes(5000))} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				h.apply(l2...)
				l2 := append(l2, probeVIP(vip4, 1))
				time.Sleep(20 * ms)
				h.apply(l2...)
				// A series that runs ends, then its own.
				time.Sleep(2 * probeCount * probeInterval)
				if got := h.apply(l2...); !got[vip4].Probe.Done || done(got) == len(l2) {
					t.Errorf("%+v, %d of %d have ended", got[vip4].Probe, done(got), len(l2))
				}
			})
		})
	}
}

// A VIP that is asked for in another way meanwhile has one turn, with those like it.
func TestBacklogChangesLane(t *testing.T) {
	b := newBacklog()
	e := &entry{series: series{lasts: lasting, waits: true}}
	b.add(e)
	e.series.lasts = 0
	b.add(e)
	if got := b.next(); len(got) != 1 || len(b.short.running) != 1 || len(b.lasting.running) != 0 {
		t.Errorf("%d begin; %d short and %d that last run", len(got), len(b.short.running), len(b.lasting.running))
	}
	e.series.wait, e.series.lasts = time.Now(), lasting
	if b.short.count() != 0 {
		t.Error("it still has a place among the short ones")
	}
}

// What is not wanted any more does not begin, and holds nobody up.
func TestProbesThatWaitAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(manyProbes(500)...)
		h.apply(probeVIP(vip4, 1))
		time.Sleep(100 * time.Millisecond)
		if got := h.apply(probeVIP(vip4, 1))[vip4]; !got.Probe.Done {
			t.Errorf("report %+v", got)
		}
		if n := len(h.k.sent()); n > (firstSeries+1)*probeCount {
			t.Errorf("%d frames were sent", n)
		}
	})
}

// Sending takes a while on a real network: the answers to the first probes of
// thousands must not come too late because of the last.
func TestManyProbesOnASlowNetwork(t *testing.T) {
	h := newHarness(t)
	defer h.close()
	h.valid = time.Minute
	h.k.sending(func([]byte) error {
		time.Sleep(100 * time.Microsecond)
		return nil
	})
	const enough = 100 // all of them take long on a busy machine
	l2 := manyProbes(600)
	h.apply(l2...)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		n := done(h.apply(l2...))
		if n >= enough {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d series have ended, want %d", n, len(l2), enough)
		}
	}
}

func TestBacklogGivesWay(t *testing.T) {
	b := newBacklog()
	for range 10 {
		b.ended(true)
	}
	if b.limit != leastSeries {
		t.Errorf("after series that ended late: limit %d, want %d", b.limit, leastSeries)
	}
	for range 1000 {
		b.ended(false)
	}
	if b.limit != mostSeries {
		t.Errorf("after series that ended in time: limit %d, want %d", b.limit, mostSeries)
	}
}

// byHand stops the goroutines of the driver: the test calls fire itself, and so decides
// how late that is.
func (h *harness) byHand() {
	h.d.stop()
	h.d.wg.Wait()
}

// What ended too late to prove anything goes on only as far as few enough run: the rest
// begins anew when it is its turn. All at once would be late again.
func TestLateProbesGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.byHand()
		h.apply(manyProbes(firstSeries)...)
		for range probeCount - 1 {
			time.Sleep(probeInterval)
			h.d.fire()
		}
		before := len(h.k.sent())
		if before != firstSeries*probeCount {
			t.Fatalf("%d probes before the end, want %d", before, firstSeries*probeCount)
		}
		time.Sleep(probeInterval + probeLate + ms)
		h.d.fire()
		waits, runs := 0, 0
		for _, e := range h.d.entries {
			switch {
			case e.series.waits && e.series.sent == 0 && e.series.number == 1:
				waits++
			case e.series.running() && e.series.sent == probeCount+1:
				runs++
			}
		}
		if sent := len(h.k.sent()) - before; sent != leastSeries || runs != leastSeries || waits != firstSeries-leastSeries {
			t.Errorf("%d probes were sent, %d series go on and %d wait, want %d, %d and %d",
				sent, runs, waits, leastSeries, leastSeries, firstSeries-leastSeries)
		}
		for range 100 { // and each has its turn
			time.Sleep(probeInterval)
			h.d.fire()
		}
		for a, e := range h.d.entries {
			if !e.result.Done || e.result.Answered {
				t.Errorf("%s: %+v", a, e.result)
			}
		}
	})
}

// Where sending takes so long that everything is due again before all was sent, fire
// leaves that to the next time, and with it the lock to others.
func TestFireHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.byHand()
		l2 := manyProbes(leastSeries)
		h.apply(l2...)
		sent := 0
		h.k.sending(func([]byte) error {
			if sent++; sent > 10*len(l2) {
				return errors.New("there is no end") // which ends it
			}
			time.Sleep(probeInterval)
			return nil
		})
		for range 5 {
			time.Sleep(probeInterval)
			sent = 0
			h.d.fire()
			if sent == 0 || sent > len(l2) {
				t.Fatalf("one call sent %d probes for %d VIPs", sent, len(l2))
			}
		}
	})
}
