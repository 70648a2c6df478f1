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

// vipSaid is what was logged of a VIP, and what waits.
type vipSaid struct {
	owner  model.NodeName
	reason model.Reason
	held   *model.VIPStatus // not logged yet, nil if nothing waits
	since  time.Time        // when it began to wait
	lost   time.Time        // since when nobody is known to own it; zero while somebody is, and before
	passed int              // how often something was held and not logged since the last line
}

// vipChange is a change that is logged, from what was logged before.
type vipChange struct {
	first  bool // nothing was
	owner  model.NodeName
	reason model.Reason
	at     time.Time     // when it began
	gap    time.Duration // how long nobody was known to own it, if it has an owner again
	passed int           // how often something was held and not logged since
}

// changed tells whether a change is to be logged now.
func (l vipLog) changed(s *model.VIPStatus, now time.Time) (c vipChange, say bool) {
	k := vipKey{s.VIP.Addr, s.BGP}
	said := l.said[k]
	switch {
	case said == nil:
		said = &vipSaid{}
		l.said[k] = said
		c = said.say(s, now)
		c.first = true
		return c, true
	case s.Owner == "" && said.owner != "" && said.lost.IsZero():
		said.lost = now
	}
	switch {
	case passing(s.Reason):
		if said.held == nil {
			said.since = now
		}
		held := *s
		said.held, l.held[said] = &held, true
		return c, false
	case said.held != nil && said.owner == s.Owner && said.reason == s.Reason:
		said.held, said.lost = nil, time.Time{}
		delete(l.held, said)
		said.passed++
		return c, false
	}
	delete(l.held, said)
	return said.say(s, now), true
}

// due calls f for each VIP that has been on its way for so long that it is logged now.
func (l vipLog) due(now time.Time, f func(*model.VIPStatus, vipChange)) {
	for said := range l.held {
		if s := said.held; now.Sub(said.since) >= lasting {
			delete(l.held, said)
			f(s, said.say(s, said.since))
		}
	}
}

// say notes that a line is logged about what is so since then, and returns what it changes.
func (v *vipSaid) say(s *model.VIPStatus, since time.Time) vipChange {
	c := vipChange{owner: v.owner, reason: v.reason, at: since, passed: v.passed}
	if s.Owner != "" && !v.lost.IsZero() {
		c.gap, v.lost = since.Sub(v.lost), time.Time{}
	}
	v.owner, v.reason, v.held, v.passed = s.Owner, s.Reason, nil, 0
	return c
}

// forget drops a VIP that is configured no more.
func (l vipLog) forget(s *model.VIPStatus) {
	k := vipKey{s.VIP.Addr, s.BGP}
	delete(l.held, l.said[k])
	delete(l.said, k)
}
