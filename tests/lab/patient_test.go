package lab_test

import (
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

const (
	// standstill is for how long a machine that lets nobody run says nothing of lbd.
	standstill = 250 * time.Millisecond
	// starved is the busy share of the machine above which a client may time out before anybody
	// had the time to answer it.
	starved = 0.9
	// most is how often something is measured at most.
	most = 4
)

// turns are those of all tests here.
var turns measure.Turns

// patient measures, and again, while no other test measures, if something was broken on a machine that
// was too busy to tell. It returns what was broken in the end.
func patient(t *testing.T, measured func(attempt int) (broken []string, tooBusy bool)) (broken []string) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		var again bool
		turns.Attempt(attempt, func() { broken, again = measured(attempt) })
		if len(broken) == 0 || !again || attempt == most {
			return broken
		}
		t.Log("the run does not count, since the machine was too busy:", broken)
	}
}

// errorEach makes each an error of the test.
func errorEach(t *testing.T, broken []string) {
	t.Helper()
	for _, b := range broken {
		t.Error(b)
	}
}

// tooBusy tells that a run says more of the machine than of lbd: it let nobody run for that long, or had
// no idle time.
func tooBusy(o *lab.Outcome, still time.Duration) bool { return o.Stood >= still || o.Load > starved }
