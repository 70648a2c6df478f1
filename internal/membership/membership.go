// Package membership decides what this node knows of its group: whether it has met it, whether
// all have said what connections they have, whether most of it is there, and why this node
// leaves it. It is pure.
package membership

import (
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// Output is what a Step found out.
type Output struct {
	Memory model.Membership
	// Hearing: rings may still lack nodes that have connections.
	Hearing bool
	// Wake is when something changes by itself; zero: never.
	Wake time.Time

	self            model.NodeName
	drains, machine place.Verdict // see Leaves
}

// step is the working state of a Step.
type step struct {
	v    *model.View
	m    model.Membership
	wake time.Time
}

// Step goes on from the memory in the View.
func Step(v *model.View) Output {
	s := step{v: v, m: v.Memory.Membership}
	s.settle()
	hearing := s.hearing()
	s.drains()
	drains, machine := s.leaves()
	return Output{s.m, hearing, s.wake, v.Self, drains, machine}
}

func (s *step) by(t time.Time) {
	if s.wake.IsZero() || t.Before(s.wake) {
		s.wake = t
	}
}

// ClusterPatience is how long after its start a node waits for the API server of
// its cluster before it goes on without: BGP sessions begin, and what an earlier
// process left is removed. For the latter it waits for the management cluster too,
// whose balancers may have the addresses.
const ClusterPatience = 10 * time.Second

// Missing tells whether a source has not delivered yet and is waited for, and until when.
func Missing(v *model.View, from model.SourceName) (until time.Time, missing bool) {
	synced, has := v.Synced[from]
	until = v.Started.Add(ClusterPatience)
	return until, has && !synced && v.Now.Before(until)
}

// ServiceWord is how long after its start a node says nothing at all while it does not know the
// Services of its cluster: what an earlier process said of their connections stands meanwhile. It
// is not settled for longer.
const ServiceWord = 2 * time.Second

// AwaitsServices tells until when this node had better say nothing yet, and whether it should.
// What is bound here, such as the way to the API server, waits for no Service.
func AwaitsServices(v *model.View) (until time.Time, awaits bool) {
	until = v.Started.Add(ServiceWord)
	if _, missing := Missing(v, model.SourceKube); !missing || !v.KeepServices || v.NoRelay || !v.Now.Before(until) {
		return until, false
	}
	address := v.Applied[model.SinkAddress]
	for _, all := range []map[netip.Addr]model.AppliedVIP{address.VIPs, address.Loopback} {
		for _, a := range all {
			if a.Bound {
				return until, false
			}
		}
	}
	return until, true
}

// awaited tells whether objects of a cluster are still to come.
func (s *step) awaited() bool {
	until, missing := Missing(s.v, model.SourceKube)
	if missing {
		s.by(until)
	}
	return missing
}

// leaves finds out why this node leaves its group.
func (s *step) leaves() (drains, machine place.Verdict) {
	if s.v.Draining || s.v.Stopping {
		drains = place.Verdict{Reason: model.ReasonDraining, Detail: Stopping(s.v)}
	}
	if s.m.Machine.Drain != nil {
		machine = place.Verdict{Reason: model.ReasonMachineDraining, Detail: s.m.Machine.Words(s.v.Self)}
	}
	return drains, machine
}

// Stopping is the detail of a drain that nobody can end.
func Stopping(v *model.View) string {
	if v.Stopping {
		return "the daemon is stopping"
	}
	return ""
}

// Leaves is why this node gives a VIP to others although nothing is wrong; the zero Verdict if
// it does not. stays: that it drains is no reason.
func (o *Output) Leaves(vip netip.Addr, stays bool) place.Verdict {
	switch {
	case o.drains != (place.Verdict{}) && !stays:
		return o.drains
	case o.machine != (place.Verdict{}):
		return o.machine
	case o.Memory.Disabled.Loses(vip):
		return place.Verdict{Reason: model.ReasonMachineDisabled, Detail: o.Memory.Disabled.Words(o.self)}
	}
	return place.Verdict{}
}
