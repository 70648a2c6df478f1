package layer2

import (
	"testing"
	"testing/synctest"
	"time"
)

// pausingKernel takes its time to tell whether an interface can send.
type pausingKernel struct {
	*fakeKernel
	pause time.Duration
}

func (k *pausingKernel) Ready(l Link) error {
	time.Sleep(k.pause)
	return k.fakeKernel.Ready(l)
}

// TestLateConclusionGivesWay: series that end in time but are judged late, since the kernel took
// its time to tell whether the questions could leave, go on only as far as few enough run, as those do
// whose end was noticed late.
func TestLateConclusionGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.byHand()
		slow := &pausingKernel{fakeKernel: h.k}
		h.d.kernel = slow
		h.apply(manyProbes(firstSeries)...)
		for range probeCount - 1 {
			time.Sleep(probeInterval)
			h.d.fire()
		}
		before := len(h.k.sent())
		time.Sleep(probeInterval)
		slow.pause = probeLate + ms
		h.d.fire()
		slow.pause = 0
		waits, runs := 0, 0
		for a, e := range h.d.entries {
			switch {
			case e.result.Done:
				t.Errorf("%s: judged by %+v", a, e.result)
			case e.series.waits && e.series.sent == 0:
				waits++
			case e.series.running() && e.series.sent == probeCount+1:
				runs++
			}
		}
		if sent := len(h.k.sent()) - before; sent != leastSeries || runs != leastSeries || waits != firstSeries-leastSeries {
			t.Errorf("%d probes were sent, %d series go on and %d wait, want %d, %d and %d",
				sent, runs, waits, leastSeries, leastSeries, firstSeries-leastSeries)
		}
	})
}
