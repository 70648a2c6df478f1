package daemon

import (
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/model"
)

// lasting is how long a VIP must be on its way to be worth a line. On a host that is
// starved heartbeats come late several times a minute: the wire is asked, the owner
// answers, and all is as before.
const lasting = 2 * time.Second

// passing tells of a reason that ends by itself as soon as the wire has answered.
func passing(r model.Reason) bool {
	switch r {
	case model.ReasonProbing, model.ReasonWaitingTurn, model.ReasonWaitingForRelease:
		return true
	}
	return false
}

// vipKey tells the two ways apart by which an address may be announced.
type vipKey struct {
	addr netip.Addr
	bgp  bool
}

// vipLog decides which changes of VIPs are logged. What passes within a moment and ends
// where it began is only counted.
type vipLog struct {
	said map[vipKey]*vipSaid
	// held are those of them of which something waits; few of thousands.
	held map[*vipSaid]bool
}

func newVIPLog() vipLog { return vipLog{map[vipKey]*vipSaid{}, map[*vipSaid]bool{}} }

// vipSaid is what was logged of a VIP, and what waits.
type vipSaid struct {
	owner  model.NodeName
	reason model.Reason
	held   *model.VIPStatus // not logged yet, nil if nothing waits
	since  time.Time        // when it began to wait
	passed int              // how often something was held and not logged since the last line
}

// changed tells whether a change is to be logged now, and how many were not since the
// last line.
func (l vipLog) changed(s *model.VIPStatus, now time.Time) (passed int, say bool) {
	k := vipKey{s.VIP.Addr, s.BGP}
	said := l.said[k]
	switch {
	case said == nil:
		said = &vipSaid{}
		l.said[k] = said
	case passing(s.Reason):
		if said.held == nil {
			said.since = now
		}
		held := *s
		said.held, l.held[said] = &held, true
		return 0, false
	case said.held != nil && said.owner == s.Owner && said.reason == s.Reason:
		said.held = nil
		delete(l.held, said)
		said.passed++
		return 0, false
	}
	delete(l.held, said)
	return said.say(s), true
}

// due calls f for each VIP that has been on its way for so long that it is logged now.
func (l vipLog) due(now time.Time, f func(s *model.VIPStatus, passed int)) {
	for said := range l.held {
		if s := said.held; now.Sub(said.since) >= lasting {
			delete(l.held, said)
			f(s, said.say(s))
		}
	}
}

// say notes that a line is logged, and returns how many were not before it.
func (v *vipSaid) say(s *model.VIPStatus) (passed int) {
	passed = v.passed
	v.owner, v.reason, v.held, v.passed = s.Owner, s.Reason, nil, 0
	return passed
}

// forget drops a VIP that is configured no more.
func (l vipLog) forget(s *model.VIPStatus) {
	k := vipKey{s.VIP.Addr, s.BGP}
	delete(l.held, l.said[k])
	delete(l.said, k)
}
