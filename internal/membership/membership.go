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
	// Ready: enough is known to decide anything. Until then nothing is pruned and nothing taken,
	// and the group is told nothing of VIPs.
	Ready bool
	// Objects: the objects of the cluster are known, or are waited for no more.
	Objects bool
	// Complete: all that is wanted is known, or is waited for no more, so that leftovers of an
	// earlier process may be pruned.
	Complete bool
	// Hearing: rings may still lack nodes that have connections.
	Hearing bool
	// Wake is when something changes by itself; zero: never.
	Wake time.Time

	self            model.NodeName
	drains, machine place.Verdict // see Leaves
	quorum          quorum
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
	o := Output{Memory: s.m, Hearing: hearing, self: v.Self}
	o.drains, o.machine = s.leaves()
	if o.Ready = s.ready(); o.Ready {
		o.Objects = !s.missing(model.SourceKube)
		o.Complete = o.Objects && v.Synced[model.SourceGossip] && v.Synced[model.SourceHealth] && !s.missing(model.SourceMachines)
	}
	o.Wake = s.wake
	return o
}

func (s *step) by(t time.Time) { s.wake = model.Earliest(s.wake, t) }

// ClusterPatience is how long after its start a node waits for the API server of
// its cluster before it goes on without: BGP sessions begin, and what an earlier
// process left is removed. For the latter it waits for the management cluster too,
// whose balancers may have the addresses.
const ClusterPatience = 10 * time.Second

// missing tells whether a source has not delivered yet and is waited for. What is known by files
// is served meanwhile.
func (s *step) missing(from model.SourceName) bool {
	synced, has := s.v.Synced[from]
	until := s.v.Started.Add(ClusterPatience)
	if !has || synced || !s.v.Now.Before(until) {
		return false
	}
	s.by(until)
	return true
}

// ready tells whether it is known what is wanted, where that could be, and what the kernel holds
// and keeps silent from before.
func (s *step) ready() bool {
	v := s.v
	_, bound := v.Applied[model.SinkAddress]
	_, silent := v.Applied[model.SinkLayer2]
	return v.Synced[model.SourceConfig] && v.Synced[model.SourceLink] && bound && silent && !s.awaitsServices()
}

// ServiceWord is how long after its start a node says nothing at all while it does not know the
// Services of its cluster: what an earlier process said of their connections stands meanwhile. It
// is not settled for longer.
const ServiceWord = 2 * time.Second

// awaitsServices tells whether this node had better say nothing yet. What is bound here, such as
// the way to the API server, waits for no Service.
func (s *step) awaitsServices() bool {
	v := s.v
	until := v.Started.Add(ServiceWord)
	if v.ServiceConnections == model.ServicesReset || v.NoRelay || !v.Now.Before(until) || !s.missing(model.SourceKube) {
		return false
	}
	if seen := v.Applied[model.SinkRelay].Ring; seen != nil && seen.Proxy != model.ProxyUnknown && len(seen.Tracked) == 0 && seen.Untold == "" {
		return false // an earlier process had none to tell of
	}
	address := v.Applied[model.SinkAddress]
	for _, all := range []map[netip.Addr]model.AppliedVIP{address.VIPs, address.Loopback} {
		for _, a := range all {
			if a.Bound {
				return false
			}
		}
	}
	s.by(until)
	return true
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
