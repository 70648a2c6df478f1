package forward

import (
	"strings"
	"testing"
	"time"
)

// TestQuartiles of figures that come in any order.
func TestQuartiles(t *testing.T) {
	var rounds []*round
	for _, n := range []float64{5, 1, 4, 2, 3} {
		rounds = append(rounds, &round{busy: n})
	}
	if got := quartiles(rounds, 0, func(o *round) float64 { return o.busy }); got != "3 (2-4)" {
		t.Error(got)
	}
	if got := quartiles(rounds[:2], 1, func(o *round) float64 { return o.busy }); got != "3.0 (2.0-4.0)" {
		t.Error(got)
	}
	if got := quartiles(rounds[:1], 0, func(o *round) float64 { return o.busy }); got != "5 (5-5)" {
		t.Error(got)
	}
}

// TestReport: ratios are those within a round, and what is missed is said.
func TestReport(t *testing.T) {
	one := func(slow float64) *round {
		of := func(x float64) figures {
			return figures{down: 1e9 * slow * x, up: 2e9 * slow * x, connects: 1000 * slow * x, p50: time.Millisecond, p99: time.Duration(float64(2*time.Millisecond) / x)}
		}
		return &round{figures: map[string]figures{direct: of(1), byLBD: of(0.92), byProxy: of(0.5)}, busy: 0.9}
	}
	r := &results{options: &options{runs: 2}, version: "2.6", rounds: map[string][]*round{"IPv6": {one(1), one(10)}}, errors: []string{"a fault"}}
	got := report(r)
	for _, want := range []string{
		"## IPv6, forwarded", "| lbd | 5.1 (3.0-7.1) | 92 (92-92) | 10.1 (6.0-14.3) | 92 (92-92) |", "| HAProxy | ", " | 50 (50-50) | ",
		"connects at least 70 %: yes; p99 at most 0.3 ms more: yes", "Not measured: a fault", "Busy: 90 (90-90)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "IPv4, forwarded") {
		t.Error("a family without rounds has a table")
	}
	slow := r.rounds["IPv6"]
	for _, o := range slow {
		f := o.figures[byLBD]
		f.up /= 2
		o.figures[byLBD] = f
	}
	if got := report(r); !strings.Contains(got, "up at least 90 %: **no**") {
		t.Error(got)
	}
}
