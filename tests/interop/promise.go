package interop

import (
	"fmt"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// Promise is what lbd promises for one fault. Zero values promise nothing.
type Promise struct {
	Text string
	// Gone is within which time every router has dropped the next hop; Median is
	// the same for the median of five runs or more. After is what passes on purpose
	// before the withdrawal.
	Gone, Median, After time.Duration
	// Back is within which time after the end of the fault the node is a next hop
	// again.
	Back time.Duration
	// NoFailure: no attempt of the client fails.
	NoFailure bool
	// Outage bounds the longest time in which attempts failed.
	Outage time.Duration
	// Stays: no route changes.
	Stays bool
	// Hole is for how long a router may send to the node without the VIP.
	Hole time.Duration
	// Open: every long-lived connection of the other nodes and of this one lives. Others:
	// every one of the other nodes.
	Open, Others bool
}

// ShutdownDelay is the default of gracefulShutdownDelay.
const ShutdownDelay = 500 * time.Millisecond

// PromiseOf returns what lbd promises for a fault; without BFD and with graceful
// restart some faults are bounded by other timers.
func PromiseOf(fault string, s *LBD) Promise {
	p := promise(fault)
	const holdTime = 9200 * time.Millisecond // and what the router takes
	lost := fault == "linkdown" || fault == "sigstop" || fault == "sigkill" && s.GracefulRestart
	switch {
	case s.GracefulRestart && fault == "respawn":
		return Promise{Text: "no route changes, 0 failed, no connection lost", Stays: true, NoFailure: true, Open: true}
	case s.GracefulRestart && (fault == "sigkill" || fault == "sigterm"):
		return Promise{Text: "next hop gone <= restart time of 10 s, hole <= 100 ms; back <= 3 s; others kept", Gone: 11 * time.Second, Hole: HoleBound, NoFailure: true, Back: p.Back, Others: true}
	case s.NoBFD && lost:
		return Promise{Text: "next hop gone <= hold time of 9 s; back <= 3 s; others kept", Gone: holdTime, Outage: holdTime + time.Second, Back: p.Back, Others: true}
	}
	return p
}

// promise is that of lbd with BFD 100 ms x 3 and without graceful restart.
func promise(fault string) Promise {
	const back = 3 * time.Second
	switch fault {
	case "linkdown":
		return Promise{Text: "next hop gone: median <= 350 ms, worst <= 500 ms; back <= 3 s; others kept", Median: 350 * time.Millisecond, Gone: 500 * time.Millisecond, Outage: 600 * time.Millisecond, Back: back, Others: true}
	case "sigkill", "sigstop":
		return Promise{Text: "next hop gone <= 500 ms, 0 failed; back <= 3 s; all kept", Gone: 500 * time.Millisecond, NoFailure: true, Back: back, Open: true}
	case "sigterm", "drain":
		return Promise{Text: "next hop gone <= 150 ms after the delay of 500 ms, 0 failed; back <= 3 s; all kept", After: ShutdownDelay, Gone: 150 * time.Millisecond, NoFailure: true, Back: back, Open: true}
	case "appdeath":
		return Promise{Text: "next hop gone: median <= 450 ms, worst <= 800 ms; outage <= 50 ms; back <= 3 s; others kept", Median: 450 * time.Millisecond, Gone: 800 * time.Millisecond, Outage: 50 * time.Millisecond, Back: back, Others: true}
	case "apphang":
		return Promise{Text: "next hop gone <= 1.5 s; back <= 3 s; others kept", Gone: 1500 * time.Millisecond, Outage: 1800 * time.Millisecond, Back: back, Others: true}
	case "respawn":
		return Promise{Text: "0 failed; a next hop again <= 5 s after the kill; all kept", NoFailure: true, Back: 5 * time.Second, Open: true}
	case "clear":
		return Promise{Text: "0 failed; a next hop again <= 3 s after the reset; all kept", NoFailure: true, Back: back, Open: true}
	}
	return Promise{}
}

// Broken lists how a run breaks the promise; times are multiplied by slack.
func (p Promise) Broken(o *Outcome, slack float64) []string {
	var out []string
	bad := func(is bool, format string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	limit := func(d time.Duration) time.Duration { return time.Duration(float64(d) * slack) }
	if p.Gone > 0 {
		bad(o.Gone < 0, "a router kept the next hop")
		bad(o.Gone > p.After+limit(p.Gone), "next hop gone after %v > %v", o.Gone, p.After+limit(p.Gone))
	}
	if p.Back > 0 {
		bad(o.Back < 0, "the node is no next hop again")
		bad(o.Back > limit(p.Back), "next hop back after %v > %v", o.Back, limit(p.Back))
	}
	bad(p.NoFailure && o.First.Failed > 0, "%d of %d attempts failed %v, outage %v", o.First.Failed, o.First.Attempts, o.First.Errors, o.First.Outage)
	bad(o.Second.Failed > 0, "after the end of the fault: %d of %d attempts failed %v", o.Second.Failed, o.Second.Attempts, o.Second.Errors)
	bad(p.Outage > 0 && o.First.Outage > limit(p.Outage), "outage %v > %v", o.First.Outage, limit(p.Outage))
	bad(o.Hole > p.Hole, "for %v a router sent to a node without the VIP", o.Hole)
	bad(p.Stays && len(o.Changes) > 0, "next hops changed: %s", strings.Join(o.Changes, "; "))
	bad(p.Others && o.Others.Survived() < o.Others.Open, "long-lived connections of others: %+v", o.Others)
	bad(p.Open && o.Own.Survived()+o.Others.Survived() < o.Own.Open+o.Others.Open, "long-lived connections: own %+v, others %+v", o.Own, o.Others)
	return out
}

// BrokenBy lists how several runs break the promise, without slack. A median
// needs five runs.
func (p Promise) BrokenBy(runs []*Outcome) []string {
	var out []string
	var gone []time.Duration
	for i, o := range runs {
		gone = append(gone, o.Gone)
		for _, b := range p.Broken(o, 1) {
			out = append(out, fmt.Sprintf("run %d (%s): %s", i+1, o.Node, b))
		}
	}
	if s := measure.SpreadOf(gone); p.Median > 0 && s.N >= 5 && s.Median > p.Median {
		out = append(out, fmt.Sprintf("median of next hop gone: %v > %v", s.Median, p.Median))
	}
	return out
}

// HoleBound is for how long, at the most, a router may send packets for a VIP to
// a node whose kernel has dropped it, after a daemon with graceful restart was
// killed or froze. The router gives up after the restart time of 10 s at the
// latest, the address has 10 s left at the least; what is left is how late timers
// of kernel and router may be.
const HoleBound = 100 * time.Millisecond
