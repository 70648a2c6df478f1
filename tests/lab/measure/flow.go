package measure

import (
	"slices"
	"time"
)

// Echoes are the round trips of some connections in a stretch of time.
type Echoes struct {
	From Time            `json:"f"`
	To   Time            `json:"t"`
	RTT  []time.Duration `json:"r"`
	// Lost are connections that have ended since the start.
	Lost int `json:"l,omitempty"`
}

// RTTs are the round trips of the stretches that lie in [from, to).
func RTTs(all []Echoes, from, to Time) (rtt []time.Duration, lost int) {
	for _, e := range all {
		if e.From >= from && e.To < to {
			rtt, lost = append(rtt, e.RTT...), e.Lost
		}
	}
	return rtt, lost
}

// Quantile is the value below which the share q of the durations lies, by nearest
// rank; 0 if there is none.
func Quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(d))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

// Sent is what a connection took from its sender in a stretch of time.
type Sent struct {
	From  Time  `json:"f"`
	To    Time  `json:"t"`
	Bytes int64 `json:"b"`
}

// Rate is what was sent in the stretches that lie in [from, to), in bit/s.
func Rate(all []Sent, from, to Time) float64 {
	var bytes int64
	var d time.Duration
	for _, s := range all {
		if s.From >= from && s.To < to {
			bytes, d = bytes+s.Bytes, d+s.To.Sub(s.From)
		}
	}
	if d == 0 {
		return 0
	}
	return float64(bytes) * 8 / d.Seconds()
}

// Rules is a change of a whole table of nftables.
type Rules struct {
	At     Time   `json:"t"`
	Family string `json:"f,omitempty"` // ip, ip6, arp, else a number
	Table  string `json:"n,omitempty"`
	Del    bool   `json:"d,omitempty"`
	Missed bool   `json:"m,omitempty"` // the kernel dropped messages
}
