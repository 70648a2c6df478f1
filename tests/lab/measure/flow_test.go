package measure_test

import (
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

func TestFlows(t *testing.T) {
	echoes := []measure.Echoes{
		{From: 0, To: 100 * ms, RTT: []time.Duration{9}},
		{From: 100 * ms, To: 200 * ms, RTT: []time.Duration{3, 1}},
		{From: 200 * ms, To: 300 * ms, RTT: []time.Duration{2}, Lost: 1},
		{From: 300 * ms, To: 400 * ms, RTT: []time.Duration{9}, Lost: 2},
	}
	rtt, lost := measure.RTTs(echoes, 50*ms, 350*ms) // stretches that are partly outside do not count
	if len(rtt) != 3 || lost != 1 {
		t.Errorf("%v, %d lost, want three and 1", rtt, lost)
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 2, 0.99: 3, 1: 3} {
		if got := measure.Quantile(rtt, q); got != want {
			t.Errorf("quantile %v of %v: %d, want %d", q, rtt, got, want)
		}
	}
	sent := []measure.Sent{{From: 0, To: 100 * ms, Bytes: 1 << 40}, {From: 100 * ms, To: 200 * ms, Bytes: 1000}, {From: 200 * ms, To: 400 * ms, Bytes: 2000}}
	if got := measure.Rate(sent, 50*ms, 500*ms); got != 80_000 {
		t.Errorf("%v bit/s, want 80000", got)
	}
	if got := measure.Rate(sent, 500*ms, 600*ms); got != 0 {
		t.Errorf("%v bit/s of nothing, want 0", got)
	}
}
