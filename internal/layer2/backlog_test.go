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
		if n := len(h.d.backlog.waiting); n > 0 {
			t.Errorf("%d series wait", n)
		}
	})
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
