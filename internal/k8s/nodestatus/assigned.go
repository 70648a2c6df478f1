package nodestatus

import (
	"maps"
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/model"
)

// How the events about VIPs that this node begins to announce are paced. There is one after a
// look at most, assignedBurst in a row, and then one every assignedEvery: when a node dies that
// had a thousand VIPs, the others take their time to say so, and a hundred nodes together leave
// the API server alone.
const (
	assignedBurst = 25
	assignedEvery = 5 * time.Second
	// assignedPause is the time between two events about one address.
	assignedPause = time.Minute
)

// assignment is the VIP of an object.
type assignment struct {
	kind, name string
	addr       netip.Addr
}

// assignments choose the VIPs that events tell of. Nothing is queued: what is due follows from
// who owns the VIPs now, so a VIP that has moved on is not told any more.
type assignments struct {
	// known are the VIPs of this node of which no event is to tell, with their epochs; nil
	// before the first look.
	known map[assignment]uint64
	told  map[netip.Addr]time.Time // when an event told of an address, for assignedPause
	// tokens are the events that may be sent now, and earned is when the last token was added.
	tokens  int
	earned  time.Time
	list    []model.VIPStatus // that of the last look
	waiting bool              // something in it is due, and could not be told yet
}

// next returns the VIP that an event is to tell of now; nil: none. Of several it is the one that
// has been as it is for longest, so that what flaps keeps nothing else waiting.
//
// The VIPs that the node owns at its first look are no news, announced or not: the daemon was
// restarted. It first looks when it is settled, which is after the cluster was read: until then it
// resumes what it had. By BGP all nodes announce, so nothing is assigned.
func (a *assignments) next(self model.NodeName, settled bool, all []model.VIPStatus, now time.Time) *model.VIPStatus {
	if first := a.known == nil; first && !settled || !first && !a.waiting && model.SameList(a.list, all) {
		return nil
	}
	a.earn(now)
	due := a.due(self, all)
	a.list, a.waiting = all, len(due) > 0
	var v *model.VIPStatus
	for _, d := range due {
		if _, paused := a.told[d.VIP.Addr]; !paused && a.tokens > 0 && (v == nil || d.Since.Before(v.Since)) {
			v = d
		}
	}
	if v == nil {
		return nil
	}
	if a.tokens == assignedBurst {
		a.earned = now
	}
	a.tokens--
	a.known[assignmentOf(v)] = v.Epoch
	if a.told == nil {
		a.told = make(map[netip.Addr]time.Time)
	}
	a.told[v.VIP.Addr] = now
	return v
}

// due returns the VIPs that the node announces and that are not known. What it does not own any
// more, or what is not there any more, is known no longer.
func (a *assignments) due(self model.NodeName, all []model.VIPStatus) (due []*model.VIPStatus) {
	known := make(map[assignment]uint64, len(a.known))
	for i := range all {
		v := &all[i]
		if v.BGP || v.Owner != self {
			continue
		}
		k := assignmentOf(v)
		epoch, had := a.known[k]
		if a.known == nil { // the first look
			epoch, had = v.Epoch, true
		}
		if had {
			known[k] = epoch
		}
		if v.Announced && (!had || epoch != v.Epoch) {
			due = append(due, v)
		}
	}
	a.known = known
	return due
}

// earn adds the tokens that are due, and forgets the addresses that may be told of again.
func (a *assignments) earn(now time.Time) {
	for a.tokens < assignedBurst && now.Sub(a.earned) >= assignedEvery {
		a.tokens++
		a.earned = a.earned.Add(assignedEvery)
	}
	maps.DeleteFunc(a.told, func(_ netip.Addr, at time.Time) bool { return now.Sub(at) >= assignedPause })
}

func assignmentOf(v *model.VIPStatus) assignment {
	return assignment{v.VIP.Kind, v.VIP.Name, v.VIP.Addr}
}
