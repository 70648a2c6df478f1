package measure

import (
	"fmt"
	"slices"
	"time"
)

// Spread is the least, the middle and the greatest of some durations.
type Spread struct {
	Min, Median, Max time.Duration
	N                int
}

// SpreadOf sums up durations. The median of an even number is the mean of the
// two in the middle.
func SpreadOf(d []time.Duration) Spread {
	if len(d) == 0 {
		return Spread{}
	}
	s := slices.Sorted(slices.Values(d))
	n := len(s)
	return Spread{Min: s[0], Median: (s[(n-1)/2] + s[n/2]) / 2, Max: s[n-1], N: n}
}

// String gives whole milliseconds: "min / median / max".
func (s Spread) String() string {
	if s.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%d / %d / %d", s.Min.Milliseconds(), s.Median.Milliseconds(), s.Max.Milliseconds())
}

// Percentiles are p50 and p99 in milliseconds, by nearest rank.
func Percentiles(d []time.Duration) string {
	if len(d) == 0 {
		return "-"
	}
	s := slices.Sorted(slices.Values(d))
	at := func(p int) int64 { return s[(len(s)*p+99)/100-1].Milliseconds() }
	return fmt.Sprintf("%d / %d", at(50), at(99))
}

// Counts gives the least, the middle and the greatest: "min / median / max".
func Counts(n []int) string {
	if len(n) == 0 {
		return "-"
	}
	s := slices.Sorted(slices.Values(n))
	return fmt.Sprintf("%d / %d / %d", s[0], s[len(s)/2], s[len(s)-1])
}
