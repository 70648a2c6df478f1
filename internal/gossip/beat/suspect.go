package beat

import (
	"time"

	"lbd.dev/lbd/internal/model"
)

const (
	// steady is how many times the usual lateness of heartbeats on a path one of them may be
	// late before it counts as missed, as in the retransmission timer of TCP (RFC 6298).
	steady = 4
	// smooth is the weight of the past in that lateness, as in the jitter of RTP (RFC 3550).
	smooth = 16
	// leadTime is how long before the second heartbeat is missed the wire is asked at the
	// earliest: a series of probes takes 45 ms, and an answer from before is worth less.
	leadTime = 50 * time.Millisecond
	// mostSuspicions is how many suspicions are told in a second. Each may have a node ask
	// for as many VIPs as election.MostSuspected with three probes each: together less than
	// the 1000 ARP frames a second to which switches limit a port.
	mostSuspicions = 4
)

// suspicion is what comes before a node is late: one and two missed heartbeats.
type suspicion struct {
	lateness time.Duration // usual one of heartbeats that arrive
	misses   int           // told so far; two are all
	passed   bool          // it was not told, because there were too many
	stalled  bool          // this host stood still since the last heartbeat
	more     time.Duration // so that the deadlines are later by this

	asked, unasked uint64 // suspicions
}

// beat notes a heartbeat that came a time after the last one, which is 0 if that says nothing:
// others were lost between the two, or the node was late, which is an outage and no jitter.
func (s *suspicion) beat(after, interval time.Duration) {
	if after > 0 {
		s.lateness += (min(max(after-interval, 0), interval) - s.lateness) / smooth
	}
	s.misses, s.passed, s.stalled, s.more = 0, false, false, 0
}

// after is how long after a heartbeat the next miss is noticed.
func (s *suspicion) after(interval time.Duration) time.Duration {
	slack := min(max(interval/5, steady*s.lateness), interval)
	second := 2*interval + slack
	if s.misses > 0 {
		return second + s.more
	}
	return max(interval+slack, second-leadTime) + s.more
}

// Suspect is a node of which a heartbeat was missed; it is not late yet.
type Suspect struct {
	Name  model.NodeName
	Twice bool // two were
}

// Suspects returns of whom a first or a second heartbeat was missed, among those whose
// successor this node is, and when the next one will be, zero if there is none. If this host
// itself stood still, each gets one more interval, once.
func (ws *Watches) Suspects(now time.Time) (news []Suspect, next time.Time) {
	for name := range ws.first {
		w := ws.nodes[name]
		if w == nil || !w.expecting || !w.late.IsZero() {
			continue
		}
		s := &w.suspicion
		if s.passed || s.misses == 2 {
			continue
		}
		due := w.last.Add(s.after(w.interval))
		if behind := now.Sub(due); behind > max(w.interval/2, minStall) && !s.stalled {
			s.stalled, s.more = true, behind+w.interval
			due = now.Add(w.interval)
		}
		if !now.Before(due) {
			if s.misses == 0 && !ws.suspicious(now) {
				s.passed = true
				s.unasked++
				continue
			}
			if s.misses++; s.misses == 1 {
				s.asked++
			}
			news = append(news, Suspect{name, s.misses == 2})
			if s.misses == 2 {
				continue
			}
			due = w.last.Add(s.after(w.interval))
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return news, next
}

// suspicious tells whether one more suspicion may be told, and counts it.
func (ws *Watches) suspicious(now time.Time) bool {
	if now.Sub(ws.second) >= time.Second || now.Before(ws.second) {
		ws.second, ws.told = now, 0
	}
	if ws.told == mostSuspicions {
		return false
	}
	ws.told++
	return true
}

// Suspected tells whether it was told that a heartbeat of the node was missed, and none has
// come since.
func (ws *Watches) Suspected(name model.NodeName) bool {
	w := ws.nodes[name]
	return w != nil && w.suspicion.misses > 0
}
