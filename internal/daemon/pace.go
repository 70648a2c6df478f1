package daemon

import (
	"reflect"
	"time"

	"lbd.dev/lbd/internal/model"
)

const (
	// relook is how often a decision is made although nothing asks for one. One that
	// takes long is made again after lookShare times as long, but at most after relookMax.
	relook    = 5 * time.Second
	relookMax = 20 * time.Second
	lookShare = 1000
	// longRest bounds the pause between two decisions: with it a silence of the wire
	// is still good when it is used, see election.SilenceHolds.
	longRest = 20 * time.Millisecond
	// quick is how long a decision may take without a pause after it.
	quick = time.Millisecond
)

// pace says when decisions are made. With thousands of VIPs each one takes
// milliseconds, which nobody should spend on none or on one after the other.
type pace struct {
	at    time.Time     // of the last decision
	held  bool          // it was the same as the one before
	until time.Time     // when the next one may be made
	look  time.Duration // after how long it is made again without a cause
}

// decided notes a decision, from its begin to its end with all that follows, and
// whether it was the same as the one before: then the next one would be, too, for as
// long as no fact comes and Desired.Wake has not come.
func (p *pace) decided(from, to time.Time, same bool) {
	p.at, p.held, p.until = from, same, time.Time{}
	took := to.Sub(from)
	if took > quick {
		p.until = to.Add(min(took, longRest))
	}
	p.look = max(relook, min(lookShare*took, relookMax))
}

// still tells whether the last decision holds without new facts.
func (p *pace) still(last *model.Desired, now time.Time) bool {
	// The others are asked again and again while this node may take something.
	return p.held && !last.Group.Ask && now.Sub(p.at) < p.look && (last.Wake.IsZero() || now.Before(last.Wake))
}

// rest is how long to wait for more facts before the next decision. A decision about
// thousands of VIPs costs the same for one fact as for a hundred.
func (p *pace) rest(now time.Time) time.Duration { return p.until.Sub(now) }

// sameMemory tells at a glance whether a decision has left everything as it was.
func sameMemory(a, b *model.Memory) bool {
	return a.Learned.Same(&b.Learned) && sameMap(a.VIPs, b.VIPs) && sameMap(a.BGP, b.BGP) && a.Settled == b.Settled && a.Heard == b.Heard && a.SettleBase.Equal(b.SettleBase) &&
		a.Awaited.Equal(b.Awaited) && a.Stalls == b.Stalls && a.Lapses == b.Lapses && a.RouterID == b.RouterID && a.Proxy.Mode == b.Proxy.Mode && a.Proxy.Gone.Equal(b.Proxy.Gone) && sameMap(a.Losses, b.Losses)
}

// sameMap tells whether two maps are one, or both empty.
func sameMap[K comparable, V any](a, b map[K]V) bool {
	return len(a) == len(b) && (len(a) == 0 || reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer())
}
