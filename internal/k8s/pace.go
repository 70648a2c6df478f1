package k8s

import "time"

// How work is paced that a writer of objects can cause at will, such as the agent of a tenant.
const (
	// PaceLeast is the shortest time between the end of such work and the next of its kind.
	PaceLeast = 250 * time.Millisecond
	// PaceTimes is how many times as long as the work took that time is at least: it takes a
	// twentieth of a processor at most, however much there is to be done.
	PaceTimes = 20
)

// Pace says when work is to be done again. The zero Pace says: now. It is not safe for
// concurrent use.
type Pace struct{ next time.Time }

// Done notes work that has begun then and is over now.
func (p *Pace) Done(began, now time.Time) {
	p.next = now.Add(max(PaceLeast, PaceTimes*now.Sub(began)))
}

// Wait is how long the next work has to wait; 0: it does not.
func (p *Pace) Wait(now time.Time) time.Duration { return max(0, p.next.Sub(now)) }
