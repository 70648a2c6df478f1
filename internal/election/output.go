package election

import (
	"cmp"
	"fmt"
	"strconv"

	"lbd.dev/lbd/internal/model"
)

// output turns the phase into what drivers, the group and people are told.
func (s *step) output() Output {
	o := Output{Memory: s.m, Wake: s.wake, Owner: s.ownerName()}
	if s.best.Epoch == 0 && !s.holds() {
		o.Owner = ""
	}
	o.Asking = s.m.Phase == model.PhaseWaiting || s.m.Phase == model.PhaseProbing
	o.Fresh = o.Asking && s.m.Asks == 0 && s.fresh()
	o.Next = s.next()
	o.Urgent, o.Suspected = s.urgent, s.suspected
	switch s.m.Phase {
	case model.PhaseProbing:
		o.L2 = s.advert(model.L2Probe)
	case model.PhaseTaking:
		o.Bind = s.binding(false)
	case model.PhaseDoubt:
		o.L2 = s.advert(model.L2Probe)
		o.L2.Lasts = DoubtFor
		o.Bind = s.binding(false)
		s.stand(&o)
	case model.PhaseOwner, model.PhaseHandover:
		o.Bind = s.binding(false)
		if s.bound() {
			o.L2 = s.advert(model.L2Announce)
			o.L2.Yield = s.m.Phase == model.PhaseHandover
		}
		s.stand(&o)
	case model.PhaseReleasing:
		if l2 := s.in.Layer2; !s.m.Resume || l2.Gen >= s.m.Gen && l2.Silent {
			o.Bind = s.binding(true)
		}
		o.L2 = s.advert(model.L2Silent)
	case model.PhaseUnbinding:
		if s.m.Silent {
			o.L2 = s.advert(model.L2Silent)
		}
		o.Spared = s.m.Silent && s.spared()
	}
	o.Reason, o.Detail = s.reason()
	if o.Memory.Owner != o.Owner || o.Memory.Reason != o.Reason || o.Memory.Since.IsZero() {
		o.Memory.Since = s.in.Now
	}
	o.Memory.Owner, o.Memory.Reason = o.Owner, o.Reason
	return o
}

// stand tells the group of the claim, and whom it concerns.
func (s *step) stand(o *Output) {
	if !s.m.Consented || s.announced() {
		o.Claim = model.Claim{Owner: s.in.Self, Epoch: s.m.Epoch, To: s.m.To, Weak: s.m.Weak, Duplicate: s.in.Layer2.Duplicate}
	}
	o.Successors = s.successors()
	for _, c := range s.in.Claims {
		if c.Owner != s.in.Self && c.Epoch != 0 {
			o.Rivals = append(o.Rivals, c.Owner)
		}
	}
}

// announced tells whether the first announcement has left this host.
func (s *step) announced() bool {
	return s.in.Layer2.Gen >= s.m.Gen && s.in.Layer2.Announcing
}

func (s *step) binding(linger bool) *model.Binding {
	return &model.Binding{Addr: s.in.VIP.Addr, Interface: s.m.Interface, Epoch: s.m.Epoch, AddBefore: s.m.AddBefore, Linger: linger}
}

func (s *step) advert(mode model.L2Mode) *model.L2Advert {
	return &model.L2Advert{Addr: s.in.VIP.Addr, Interface: s.m.Interface, Mode: mode, Series: s.m.Series, Burst: s.m.Burst}
}

// reason explains the state of the VIP on this node.
func (s *step) reason() (model.Reason, string) {
	switch s.m.Phase {
	case model.PhaseWaiting, model.PhaseProbing:
		if s.quiet() {
			return s.in.Standing, s.detail
		}
		return s.ownerlessReason()
	case model.PhaseTaking:
		return model.ReasonTakingOver, s.detail
	case model.PhaseOwner:
		return s.ownerReason()
	case model.PhaseHandover:
		return model.ReasonHandingOver, fmt.Sprintf("to %s, because of %s", s.m.To, s.in.Standing)
	case model.PhaseReleasing:
		return model.ReasonReleasing, fmt.Sprintf("because of %s", s.m.Lost)
	case model.PhaseUnbinding:
		return s.m.Lost, s.detail
	case model.PhaseDoubt:
		return model.ReasonProbing, cmp.Or(s.detail, s.doubted())
	}
	return s.in.Standing, s.detail
}

func (s *step) ownerlessReason() (model.Reason, string) {
	if s.m.Asks > 0 {
		return s.describe(s.m.Holder)
	}
	if s.m.Phase == model.PhaseProbing {
		return model.ReasonProbing, s.detail
	}
	if s.m.Rival != (model.MAC{}) {
		n, _ := s.member(s.m.Rival)
		return model.ReasonWaitingTurn, fmt.Sprintf("%s asks for it too, at %s, and goes first", cmp.Or(n, "a node"), s.m.Rival)
	}
	if s.m.Hearing {
		return model.ReasonWaitingTurn, "better ranked nodes have not said whether they may own it"
	}
	n, more := s.ahead()
	if more {
		return model.ReasonWaitingTurn, strconv.Itoa(n) + " or more better ranked"
	}
	return model.ReasonWaitingTurn, strconv.Itoa(n) + " better ranked"
}

func (s *step) ownerReason() (model.Reason, string) {
	if s.leaving() {
		return model.ReasonNoSuccessor, fmt.Sprintf("should leave because of %s", s.in.Standing)
	}
	if s.degraded() && s.in.VIP.FollowsOwner() {
		return model.ReasonOwner, "it is degraded"
	}
	if s.degraded() {
		return model.ReasonOwner, "it passes the required check only"
	}
	if s.in.Layer2.Conflicts > 0 && s.in.Layer2.Foreign != (model.MAC{}) {
		return model.ReasonOwner, fmt.Sprintf("%s used the address %d times", s.in.Layer2.Foreign, s.in.Layer2.Conflicts)
	}
	return model.ReasonOwner, s.detail
}
