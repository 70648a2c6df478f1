package election

import (
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// A health check has two levels: what is required of a node that has the VIP, and what
// it should pass as well. A node that passes both is up, one that passes only the first
// is degraded. So is one without a session with a router that is to hear of an address which its owner
// alone advertises. A degraded node goes after all that are up, in whatever they are ranked
// for, and hands the VIP to one of them as in a drain: both answer meanwhile, nothing is
// taken. Among degraded nodes alone nothing moves.

// leveled tells whether nodes may be degraded for the VIP, and the group knows of it.
func (s *step) leveled() bool {
	return (s.in.VIP.Check != "" || s.in.VIP.FollowsOwner()) && s.in.Rules >= RulesDegraded
}

// degraded tells whether this node may have the VIP, but one that is up is better.
func (s *step) degraded() bool { return s.leveled() && s.in.Standing == model.ReasonDegraded }

// outclass goes on with the memory of an owner that is degraded.
func (s *step) outclass() {
	s.m.Outclassed = Outclass(s.m.Outclassed, s.in.Now, s.degraded() && s.holds() && slices.ContainsFunc(s.in.Eligible, func(e model.NodeName) bool {
		return e != s.in.Self && !s.gone(e) && !s.late(e) && !s.candidate(e).Degraded
	}))
}

// Outclass is since when a node that has a VIP has been degraded, and another one up, given
// since when it was before; zero: it is not so. After DegradedGrace that one gets the VIP:
// it has shown that it does not share the fault, or that this node is not about to be up too.
func Outclass(was, now time.Time, outclassed bool) time.Time {
	switch {
	case !outclassed:
		return time.Time{}
	case was.IsZero():
		return now
	}
	return was
}

// Drain is how long a node keeps open connections to what it hands over because of its standing.
func Drain(standing model.Reason, timeout time.Duration) time.Duration {
	if standing == model.ReasonDegraded {
		return min(timeout, DegradedDrain)
	}
	return timeout
}
