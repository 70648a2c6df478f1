package lab

import (
	"fmt"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// Promise is what lbd promises for a scenario, as figures. A zero duration in
// Median, Worst, Gone and Successor means that nothing is promised.
type Promise struct {
	ID, Text      string
	Median, Worst time.Duration // of the outage after the fault
	NoFailure     bool          // no attempt fails after the fault
	Stays         bool          // the VIP does not move at the fault
	// Dual and DualAfter bound the time with two claimants, after the fault and
	// after its end. They are always checked.
	Dual, DualAfter time.Duration
	// Gone bounds the time until the kernel of the old owner has lost the VIP,
	// Successor the time from then to the first claim of another.
	Gone, Successor time.Duration
	// Calm: when the fault ends, the VIP does not move and no attempt fails.
	Calm bool
	// Open: every long-lived connection is alive at the end.
	Open bool
}

// PromiseFor is the promise for a scenario; fast is that of `detection: fast`.
func PromiseFor(scenario string, fast bool) Promise {
	crash := Promise{ID: "P1", Text: "outage: median <= 250 ms, worst <= 600 ms", Median: 250 * time.Millisecond, Worst: 600 * time.Millisecond}
	if fast {
		crash.Text, crash.Median = "outage: median <= 120 ms, worst <= 600 ms", 120*time.Millisecond
	}
	switch scenario {
	case "linkdown":
		return crash
	case "rejoin":
		crash.ID, crash.Calm = "P1, P6", true
		crash.Text += "; back: stays, 0 failed, no dual claim"
		return crash
	case "wirecut":
		crash.ID, crash.Calm, crash.DualAfter = "P1, P6", true, 150*time.Millisecond
		crash.Text += "; back: stays, 0 failed, dual claim <= 150 ms"
		return crash
	case "sigterm", "drain":
		// The two-sided overlap of a planned move is no dual claim by accident.
		return Promise{ID: "P2", Text: "0 failed", NoFailure: true, Dual: time.Second, Open: true}
	case "return":
		return Promise{ID: "P2", Text: "0 failed; back: stays, 0 failed", NoFailure: true, Dual: time.Second, Calm: true, DualAfter: 150 * time.Millisecond, Open: true}
	case "rolling": // it moves as often as there are nodes
		return Promise{ID: "P2", Text: "0 failed", NoFailure: true, Dual: 3 * time.Second, Open: true}
	case "sigkill", "sigstop":
		return Promise{ID: "P3", Text: "no dual claim; gone <= 4 s, successor <= 150 ms after", Gone: 4 * time.Second, Successor: 150 * time.Millisecond, Calm: scenario == "sigstop"}
	case "respawn", "restart":
		return Promise{ID: "P3", Text: "stays, 0 failed, no dual claim", Stays: true, NoFailure: true, Calm: true, Open: true}
	case "appdeath":
		return Promise{ID: "P4", Text: "outage: median <= 450 ms, worst <= 800 ms", Median: 450 * time.Millisecond, Worst: 800 * time.Millisecond, Dual: time.Second}
	case "apphang":
		return Promise{ID: "P4", Text: "outage <= 1500 ms", Worst: 1500 * time.Millisecond, Dual: time.Second}
	case "partition":
		return Promise{ID: "P5", Text: "stays, 0 failed, no dual claim", Stays: true, NoFailure: true, Calm: true, Open: true}
	}
	return Promise{}
}

// Broken lists how the runs break the promise; bounds of time are multiplied by
// slack. A median needs five runs, fewer are held to the worst alone.
func (p Promise) Broken(runs []*Outcome, slack float64) []string {
	var out []string
	limit := func(d time.Duration) time.Duration { return time.Duration(float64(d) * slack) }
	var outages []time.Duration
	for i, o := range runs {
		outages = append(outages, o.First.Reach.Outage)
		for _, b := range p.broken(o, limit) {
			out = append(out, fmt.Sprintf("run %d of %s (owner %s): %s", i+1, o.Scenario, o.Owner, b))
		}
	}
	s := measure.SpreadOf(outages)
	if p.Median > 0 && s.N >= 5 && s.Median > limit(p.Median) {
		out = append(out, fmt.Sprintf("median outage %v > %v", s.Median, limit(p.Median)))
	}
	return out
}

func (p Promise) broken(o *Outcome, limit func(time.Duration) time.Duration) []string {
	var out []string
	bad := func(is bool, format string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	r := o.First.Reach
	bad(r.Never, "the VIP was not served again (%d of %d attempts failed)", r.Failed, r.Attempts)
	bad(p.Worst > 0 && r.Outage > limit(p.Worst), "outage %v > %v", r.Outage, limit(p.Worst))
	bad(p.NoFailure && r.Failed > 0, "%d of %d attempts failed %v, outage %v", r.Failed, r.Attempts, r.Errors, r.Outage)
	bad(p.Open && o.Conns.Survived() < o.Conns.Open, "%d of %d long-lived connections are alive", o.Conns.Survived(), o.Conns.Open)
	bad(p.Stays && o.First.Takeover > 0, "another node claimed the VIP after %v", o.First.Takeover)
	bad(o.First.Dual > limit(p.Dual), "two claimants for %v", o.First.Dual)
	if p.Gone > 0 {
		bad(o.Gone < 0, "the kernel of %s still has the VIP", o.Owner)
		bad(o.Gone > limit(p.Gone), "the kernel of %s lost the VIP after %v > %v", o.Owner, o.Gone, limit(p.Gone))
		bad(o.First.Takeover == 0, "no successor")
		late := o.First.Takeover - o.Gone
		bad(o.Gone >= 0 && late > limit(p.Successor), "successor %v after the VIP was gone > %v", late, limit(p.Successor))
	}
	if o.Undone != 0 {
		s := o.Second
		bad(p.Calm && s.Reach.Failed > 0, "after the end of the fault: %d of %d attempts failed %v", s.Reach.Failed, s.Reach.Attempts, s.Reach.Errors)
		bad(p.Calm && s.Moved, "after the end of the fault the VIP moved: claimed by %v", s.Claimants)
		bad(s.Dual > limit(p.DualAfter), "after the end of the fault: two claimants for %v", s.Dual)
	}
	return out
}
