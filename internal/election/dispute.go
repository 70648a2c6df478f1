package election

import (
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

const (
	// DisputeFor is how long an owner hears another one on its wire before it yields. Each
	// of them defends the VIP once a second, and claims that gossip brings are there
	// sooner.
	DisputeFor = 3 * time.Second
	// DisputeGap is how long the other one may be silent in between.
	DisputeGap = 2500 * time.Millisecond
)

// disputed tells whether an owner begins to ask the wire for another one that it has heard
// for long. Two owners are on one wire without knowing of each other if a cut of the wire
// heals before one of gossip, or if the two have parted the group in different places. Then
// no claim says who yields, only what both see in the frames: the one with the higher
// hardware address does, as of two that probe at once. It lets the VIP go only if the other
// one answers, so that one is left whatever was heard.
func (s *step) disputed() bool {
	s.hear()
	d := s.m.Dispute
	if d == nil {
		return false
	}
	if s.in.Now.Sub(d.Last) > DisputeGap || !s.yieldsTo(d.By) {
		s.m.Dispute = nil
		return false
	}
	if end := d.Since.Add(DisputeFor); s.in.Now.Before(end) {
		s.at(end)
		return false
	}
	s.beginDoubt()
	return true
}

// hear takes note of who used the VIP since the owner looked last. Others may be heard in
// between: of several owners all but one yield, one after the other.
func (s *step) hear() {
	l2 := &s.in.Layer2
	if l2.Gen < s.m.Gen || l2.Conflicts == s.m.Conflicts {
		return
	}
	if s.m.Conflicts = l2.Conflicts; l2.Conflicts == 0 || !s.yieldsTo(l2.Foreign) {
		return
	}
	d := model.Dispute{By: l2.Foreign, Since: s.in.Now, Last: s.in.Now}
	if was := s.m.Dispute; was != nil && d.Last.Sub(was.Last) <= DisputeGap {
		d.Since = was.Since
	}
	s.m.Dispute = &d
}

// yieldsTo tells whether this owner is the one of two that yields: the other is a member
// that gossip does not reach, with a lower hardware address. A host that never was a
// member, or that claims can reach, is none of that.
func (s *step) yieldsTo(mac model.MAC) bool {
	if mac.Compare(s.in.MAC) >= 0 {
		return false
	}
	known := false
	for n, m := range s.in.Members {
		if slices.Contains(m.MACs, mac) {
			if !s.gone(n) {
				return false
			}
			known = true
		}
	}
	return known
}
