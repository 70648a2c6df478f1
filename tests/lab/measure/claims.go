package measure

import (
	"cmp"
	"slices"
	"time"
)

// AskEvery is how often the observer asks for each VIP.
const AskEvery = 20 * time.Millisecond

// claimGap is the longest pause between two claims of one host that still count
// as one stretch: two unanswered asks and some slack.
const claimGap = 3 * AskEvery

// FrameKind says what a frame on the wire means for a VIP.
type FrameKind string

// The kinds. Answer and Announce are claims.
const (
	// Answer is an ARP reply or a solicited neighbour advertisement.
	Answer FrameKind = "answer"
	// Announce is any other ARP frame whose sender protocol address is the VIP, or
	// an unsolicited neighbour advertisement for it.
	Announce FrameKind = "announce"
	// Ask is the observer's own question.
	Ask FrameKind = "ask"
)

// Frame is one event on the wire.
type Frame struct {
	At   Time      `json:"t"`
	Kind FrameKind `json:"k"`
	VIP  string    `json:"v"`
	MAC  string    `json:"m,omitempty"`
}

// Claim reports whether the frame says that its sender holds the VIP.
func (f Frame) Claim() bool { return f.Kind == Answer || f.Kind == Announce }

// Stretch is a time in which one host claimed a VIP without pause.
type Stretch struct {
	MAC      string
	From, To Time
}

// Claims returns the stretches of every claimant of the VIP in [from, to),
// sorted by their beginning.
func Claims(frames []Frame, vip string, from, to Time) []Stretch {
	var out []Stretch
	open := map[string]int{} // by MAC: index of its last stretch
	for _, f := range frames {
		if f.VIP != vip || !f.Claim() || f.At < from || f.At >= to {
			continue
		}
		if i, ok := open[f.MAC]; ok && f.At.Sub(out[i].To) <= claimGap {
			out[i].To = max(out[i].To, f.At)
			continue
		}
		open[f.MAC] = len(out)
		out = append(out, Stretch{MAC: f.MAC, From: f.At, To: f.At})
	}
	slices.SortFunc(out, func(a, b Stretch) int { return cmp.Compare(a.From, b.From) })
	return out
}

// Claimants lists the hardware addresses that claimed the VIP in [from, to).
func Claimants(frames []Frame, vip string, from, to Time) []string {
	var macs []string
	for _, s := range Claims(frames, vip, from, to) {
		if !slices.Contains(macs, s.MAC) {
			macs = append(macs, s.MAC)
		}
	}
	return macs
}

// Takeover is when a host other than old first claimed the VIP at or after from.
func Takeover(frames []Frame, vip, old string, from Time) (Time, bool) {
	for _, f := range frames {
		if f.VIP == vip && f.Claim() && f.MAC != old && f.At >= from {
			return f.At, true
		}
	}
	return 0, false
}

// LastClaim is the last claim of the host in [from, to).
func LastClaim(frames []Frame, vip, mac string, from, to Time) (Time, bool) {
	var last Time
	for _, f := range frames {
		if f.VIP == vip && f.Claim() && f.MAC == mac && f.At >= from && f.At < to {
			last = max(last, f.At)
		}
	}
	return last, last != 0
}

// Dual is for how long two or more hosts claimed the VIP in [from, to). A claim
// within the stretch of another host counts for one question at least.
func Dual(frames []Frame, vip string, from, to Time) time.Duration {
	var both []Stretch
	s := Claims(frames, vip, from, to)
	for i, a := range s {
		for _, b := range s[i+1:] {
			if a.MAC == b.MAC || b.From > a.To {
				continue
			}
			end := min(a.To, b.To)
			both = append(both, Stretch{From: b.From, To: max(end, b.From.Add(AskEvery))})
		}
	}
	return union(both)
}

func union(s []Stretch) time.Duration {
	slices.SortFunc(s, func(a, b Stretch) int { return cmp.Compare(a.From, b.From) })
	var sum time.Duration
	var end Time
	for _, x := range s {
		from := max(x.From, end)
		if x.To > from {
			sum += x.To.Sub(from)
			end = x.To
		}
	}
	return sum
}
