package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
	"lbd.dev/lbd/tests/lab/measure"
)

const (
	// writeEvery is how often the clients of these tests write.
	writeEvery = 200 * time.Millisecond
	// calm is how long after a fault is over the clients still write.
	calm = 3 * time.Second
	// A computer that lets nobody run for so long, or that has no idle time, says nothing
	// of lbd.
	standstill = 250 * time.Millisecond
	starved    = 0.9
)

// turns are those of all tests here.
var turns measure.Turns

// unlessBusy does what a test is about: the fault of run must keep the promise that its
// result would say is broken. If it is broken while the computer stood still or had no
// idle time, it is done again, twice at most, while no other test measures. c is
// made whole in between; it may be nil where run does so.
func unlessBusy(t *testing.T, c *cluster.Cluster, run func() (broken []string)) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		var broken []string
		var stood time.Duration
		var load float64
		turns.Attempt(attempt, func() {
			cpu, err := measure.ReadCPU()
			must(t, err)
			stop := measure.Standstill()
			broken = run()
			stood = stop()
			now, err := measure.ReadCPU()
			must(t, err)
			load = measure.Load(cpu, now)
		})
		t.Logf("load %.0f %%, stood still for %v", 100*load, stood.Round(time.Millisecond))
		if len(broken) == 0 {
			return
		}
		if attempt < 3 && (stood >= standstill || load > starved) {
			t.Log("the run does not count, since the computer was too busy:", broken)
			if c != nil {
				must(t, heal(t, c))
			}
			continue
		}
		for _, b := range broken {
			t.Error(b)
		}
		return
	}
}

// writing has clients write through the VIP while something is done to its owner, and
// for a while after, and tells what they saw from just before it.
func writing(t *testing.T, c *cluster.Cluster, what string, do func(owner *cluster.Machine)) seen {
	t.Helper()
	owner, err := c.WaitOwner(t.Context(), time.Minute, c.Machines...)
	must(t, err)
	w, err := c.Write(t.Context(), writeEvery)
	must(t, err)
	defer w.Stop()
	pause(t, 2*time.Second)
	from := measure.Now().Add(-time.Second)
	do(owner)
	pause(t, calm)
	to := measure.Now()
	s := seen{what: what, Reach: w.Reach(from, to), gap: w.LongestGap(from, to)}
	t.Logf("%s: %d of %d writes failed %v, outage %v, longest time without a successful write %v", what, s.Failed, s.Attempts, s.Errors,
		s.Outage.Round(time.Millisecond), s.gap.Round(time.Millisecond))
	return s
}

// seen is what the clients saw while something was done.
type seen struct {
	measure.Reach
	what string
	gap  time.Duration // the longest time without the end of a successful write
}

// within tells what is broken if no write may fail for longer than outage.
func (s seen) within(outage time.Duration) []string {
	if s.Attempts == 0 {
		return []string{s.what + ": nobody wrote"}
	}
	if s.Outage > outage || s.Never {
		return []string{fmt.Sprintf("%s: an outage of %v, never over: %v, want at most %v", s.what, s.Outage, s.Never, outage)}
	}
	return nil
}

// moved tells what is broken if requests to a Service may only fail while its address moves: by
// default one that is open in that moment may be reset, see docs/kubernetes.md. Each of moves
// finds one open, or none.
func (s seen) moved(moves int) []string {
	resets := s.Errors["reset"]
	if s.Attempts == 0 || s.Failed > resets || resets > moves {
		return []string{fmt.Sprintf("%s: %d of %d requests failed %v, want none but %d that are reset in moves", s.what, s.Failed, s.Attempts, s.Errors, moves)}
	}
	return nil
}

// unharmed tells what is broken if no write may fail.
func (s seen) unharmed() []string {
	if s.Attempts == 0 || s.Failed > 0 {
		return []string{fmt.Sprintf("%s: %d of %d writes failed %v, want none", s.what, s.Failed, s.Attempts, s.Errors)}
	}
	return nil
}
