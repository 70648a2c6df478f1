package election

import (
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
// hardware address does. The other one does only after long:
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

// yieldsTo tells whether an owner in doubt has lost to the host that answers. One that does
// not answer while it asks has lost to any member: that one may have asked meanwhile, and
// have taken the VIP. So may the successor that was named, which may have handed it on.
func (s *step) yieldsTo(mac model.MAC) bool {
	if s.m.Unbound || s.m.To != "" {
		_, member := s.member(mac)
		return member
	}
	return s.m.Dispute != nil && s.apartFrom(mac) && !s.in.Now.Before(s.m.Dispute.Since.Add(s.patience(mac)))
}

// apartFrom tells whether it is the hardware address of a member that gossip does not
// reach. A host that never was a member, that claims can reach, or that has said goodbye
// is none.
func (s *step) apartFrom(mac model.MAC) bool {
	n, ok := s.member(mac)
	return ok && s.gone(n)
}
