package loopback

import (
	"strings"

	"lbd.dev/lbd/internal/model"
)

// status is what people are told of a VIP that BGP advertises.
func (s *step) status(x *model.VIPStatus) {
	in := s.in
	x.VIP, x.BGP, x.Healthy = *in.VIP, true, in.Health.State.Passes()
	x.Bound = (in.OnLoopback.Bound || s.onLAN()) && !s.m.Unbound
	x.Peers = s.advertised()
	switch x.Announced = len(x.Peers) > 0; {
	case in.VIP.FollowsOwner():
		x.Owner = in.Owner
	case x.Announced:
		x.Owner = in.Self
	}
	if s.m.Phase != model.BGPIdle && !s.m.Unbound {
		x.Interface = model.LoopbackInterface
		if s.onLAN() {
			x.Interface = in.OnLAN.Interface
		}
	}
	x.Reason, x.Detail = s.reason(x.Peers)
	if s.m.Reason != x.Reason || s.m.Since.IsZero() {
		s.m.Reason, s.m.Since = x.Reason, in.Now
	}
	x.Since = s.m.Since
}

// reason explains the state in words.
func (s *step) reason(advertised []string) (model.Reason, string) {
	switch s.m.Phase {
	case model.BGPIdle:
		return s.standing, s.detail
	case model.BGPBinding:
		return model.ReasonBinding, s.in.OnLoopback.Err
	case model.BGPAdvertised:
		if s.standing.Planned() {
			return model.ReasonNoSuccessor, both("no other node serves it", s.conflicts())
		}
		detail := both(s.in.Routers.missing(s.in.Audience.Peers, advertised), s.conflicts())
		if len(advertised) == 0 {
			return model.ReasonNoSession, detail
		}
		return model.ReasonAdvertised, detail
	case model.BGPShutdown:
		if s.unheard() {
			return model.ReasonShuttingDown, "routers do not hear " + string(s.in.Owner) + ", which has it now"
		}
		if s.standing == model.ReasonDegraded {
			return model.ReasonShuttingDown, s.detail
		}
		return model.ReasonShuttingDown, s.in.Stopping
	}
	reason, detail := s.m.Lost, s.detail
	if s.m.Lost.Planned() {
		reason, detail = model.ReasonWithdrawn, strings.TrimSuffix("because of "+s.m.Lost.String()+": "+s.in.Stopping, ": ")
	}
	if s.m.Phase == model.BGPWithdrawing && s.m.Until.IsZero() && s.lateFor(reason) {
		detail = both(detail, "routers may still have the path")
	}
	return reason, detail
}

// lateFor tells whether a withdrawal lasts for WithdrawLate; until then it has that looked at
// when it is so.
func (s *step) lateFor(why model.Reason) bool {
	since := s.in.Now
	if s.m.Reason == why {
		since = s.m.Since
	}
	late := since.Add(WithdrawLate)
	if !s.in.Now.Before(late) {
		return true
	}
	s.at(late)
	return false
}

// both puts two details into one.
func both(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
