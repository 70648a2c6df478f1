package loopback

import (
	"maps"
	"time"

	"lbd.dev/lbd/internal/model"
)

// FlapWithin is within which time a session has to be lost twice to count as lost until it has
// passed again. It is longer than a session takes that is lost by the hold time each time it comes
// up. A session that is lost once, as when a router begins anew, counts as soon as it is back.
const FlapWithin = 15 * time.Second

// Losses goes on with the memory of sessions that were lost.
func Losses(was map[string]model.SessionLosses, report *model.Applied, now time.Time) map[string]model.SessionLosses {
	out := was
	for i := range report.Peers {
		p := &report.Peers[i]
		old := was[p.Name]
		if p.Flaps == old.Count {
			continue
		}
		next := model.SessionLosses{Count: p.Flaps, Last: old.Last, Before: old.Before}
		switch {
		case p.Flaps < old.Count: // counted anew
		case p.Flaps == old.Count+1:
			next.Last, next.Before = now, old.Last
		default:
			next.Last, next.Before = now, now
		}
		if out = maps.Clone(out); out == nil {
			out = make(map[string]model.SessionLosses)
		}
		out[p.Name] = next
	}
	return out
}

// steady is from when on a session that is there counts as such.
func (r *Routers) steady(peer string) time.Time {
	if x := r.Losses[peer]; x.Last.Sub(x.Before) < FlapWithin {
		return x.Last.Add(FlapWithin)
	}
	return time.Time{}
}

// Unheard is why no router hears of this node what peers are to hear: empty if one does. The second
// result is when the answer changes by itself; zero: never.
func (r *Routers) Unheard(peers []string, now time.Time) (why string, until time.Time) {
	why = "no router that is to hear of it has a session with this node"
	for _, peer := range peers {
		if r.session(peer).State != established {
			continue
		}
		steady := r.steady(peer)
		if !now.Before(steady) {
			return "", time.Time{}
		}
		if until.IsZero() {
			why = "the session with " + peer + " comes and goes"
		}
		until = model.Earliest(until, steady)
	}
	return why, until
}
