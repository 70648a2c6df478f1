package election

import (
	"time"

	"lbd.dev/lbd/internal/model"
)

// unbound is Step for a VIP that is not bound on a node: the layer 2 driver answers
// for it, and the rules of another program take its packets. The phases are those
// of any VIP; what the address driver would say of it is true by itself.
func (s *step) unbound() Output {
	if s.m.Phase == model.PhaseIdle {
		s.m.Unbound = true
	}
	s.lapsed = s.in.Lapsed && s.holds()
	s.phases()
	s.byItself()
	o := s.output()
	o.Bind = nil
	if o.L2 != nil {
		o.L2.Unbound = true
		if o.L2.Mode == model.L2Announce {
			o.L2.Respond, o.L2.StartBefore = true, s.m.AddBefore
		}
	}
	return o
}

// byItself is the report of the address: it is there as long as this node holds the
// VIP and does not doubt that, and then nobody's. It ends like a lifetime when this node may have been
// silent for so long that another one has taken the VIP, or would begin to answer
// on the word of a silence or a consent that does not hold any more. There is
// nothing to keep for connections.
func (s *step) byItself() {
	l2 := &s.in.Layer2
	if !s.holds() {
		s.lapsed = false
	} else if s.announced() {
		s.m.AddBefore = time.Time{} // it has begun to answer in time
	}
	late := l2.Gen >= s.m.Gen && l2.TooLate
	held := s.holds() && s.m.Phase != model.PhaseDoubt && !s.lapsed && !late
	s.in.Address = Report{Gen: s.in.Gen, AppliedVIP: model.AppliedVIP{
		Bound: held, Expired: !held, Interface: s.m.Interface,
	}}
}
