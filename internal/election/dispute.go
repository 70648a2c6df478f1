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
	// DisputeLong is the same for the one that is not to yield: the other one does not know
	// it, or it would have yielded. It is longer than the failure detector takes.
	DisputeLong = 30 * time.Second
	// DisputeGap is how long the other one may be silent in between.
	DisputeGap = 2500 * time.Millisecond
)

// disputed tells whether an owner begins to ask the wire for another one that it has heard
// for long. Two owners are on one wire without knowing of each other if a cut of the wire
// heals before one of gossip, or if the two have parted the group in different places. Then
// no claim says who yields, only what both see in the frames: the one with the higher
// hardware address does, as of two that probe at once. The other one does only after long:
// one whose daemon was started behind the cut does not know whom it hears. The VIP is let
// go only if the other one answers, so that one is left whatever was heard.
func (s *step) disputed() bool {
	s.hear()
	d := s.m.Dispute
	if d == nil {
		return false
	}
	if s.in.Now.Sub(d.Last) > DisputeGap || !s.apartFrom(d.By) {
		s.m.Dispute = nil
		return false
	}
	if end := d.Since.Add(s.patience(d.By)); s.in.Now.Before(end) {
		s.at(end)
		return false
	}
	s.beginDoubt()
	return true
}

// hear takes note of who used the VIP since the owner looked last. Of several the one that
// is soon to be yielded to counts: all but one yield, one after the other.
func (s *step) hear() {
	l2 := &s.in.Layer2
	if l2.Gen < s.m.Gen || l2.Conflicts == s.m.Conflicts {
		return
	}
	if s.m.Conflicts = l2.Conflicts; l2.Conflicts == 0 || !s.apartFrom(l2.Foreign) {
		return
	}
	d := model.Dispute{By: l2.Foreign, Since: s.in.Now, Last: s.in.Now}
	if was := s.m.Dispute; was != nil && d.Last.Sub(was.Last) <= DisputeGap {
		before, now := s.patience(was.By), s.patience(d.By)
		if before < now {
			return
		}
		if before == now {
			d.Since = was.Since
		}
	}
	s.m.Dispute = &d
}

// patience is how long this owner hears another one before it yields. No two have the
// same.
func (s *step) patience(mac model.MAC) time.Duration {
	if mac.Compare(s.in.MAC) < 0 {
		return DisputeFor
	}
	return DisputeLong
}

// yieldsTo tells whether a dispute is lost to the host that answers. An owner that does not
// answer while it asks has lost to any member: that one may have asked meanwhile, and have
// taken the VIP.
func (s *step) yieldsTo(mac model.MAC) bool {
	if s.m.Unbound {
		_, member := s.isMember(mac)
		return member
	}
	return s.apartFrom(mac) && !s.in.Now.Before(s.m.Dispute.Since.Add(s.patience(mac)))
}

// apartFrom tells whether it is the hardware address of a member that gossip does not
// reach. A host that never was a member, or that claims can reach, is none.
func (s *step) apartFrom(mac model.MAC) bool {
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
