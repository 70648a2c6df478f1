// Package measure turns what the agents of the lab saw into figures: outage,
// takeover, dual claim and what became of long-lived connections. It has no
// side effects, apart from reading clocks and /proc.
package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// Time is a reading of CLOCK_MONOTONIC in nanoseconds. All namespaces of one
// machine share that clock, so readings of different processes compare.
type Time int64

// Now reads the clock.
func Now() Time {
	var ts unix.Timespec
	// clock_gettime fails only for an unknown clock or a bad pointer.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return Time(ts.Nano())
}

// Sub is the time from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Add is the moment d after t.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Since is the time from t to now.
func Since(t Time) time.Duration { return Now().Sub(t) }
