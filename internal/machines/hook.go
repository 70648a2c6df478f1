package machines

import (
	"fmt"
	"time"
)

// Held tells whether lbd holds the deletion of a Machine. What only stands for one has
// no hooks: nobody else looks at them there.
func (m *Machine) Held() bool {
	_, ok := m.Annotations[HookKey]
	return ok && !m.Deleted.IsZero() && m.Target == ""
}

// The reasons of a Release, which are those of its event too.
const (
	// ReleaseDrained: the node of the Machine serves nothing any more.
	ReleaseDrained = "LoadBalancerDrained"
	// ReleaseTimeout: the bound is over, drained or not.
	ReleaseTimeout = "LoadBalancerDrainTimeout"
	// ReleaseNotHeld: the configuration does not want the deletion to be held.
	ReleaseNotHeld = "LoadBalancerNotHeld"
)

// Release is a Machine whose deletion may go on.
type Release struct {
	Machine        *Machine
	Reason, Detail string
}

// Releases returns the Machines whose hook is to be removed now, and when to look
// again; zero: when something changes. Nothing is held beyond its bound, whoever
// asks: a process without a group, and so without a report, sees to that too. A
// Machine of which the group knows nothing may be that of another group, and is
// left alone until then.
func (r *Rules) Releases(all []*Machine, balancers []*Balancer, report *Report, now time.Time) (out []Release, next time.Time) {
	for _, m := range all {
		if !m.Held() || !r.within(m) {
			continue
		}
		bound, hold := r.bound(m, balancers)
		end := m.Deleted.Add(bound)
		switch {
		case !hold:
			out = append(out, Release{m, ReleaseNotHeld, "the configuration does not hold the deletion"})
			continue
		case !now.Before(end):
			out = append(out, Release{m, ReleaseTimeout, fmt.Sprintf("%v have passed since the deletion", bound)})
			continue
		}
		if report != nil {
			if node := m.Member(report.Members); node != nil && node.Drained {
				out = append(out, Release{m, ReleaseDrained, fmt.Sprintf("node %s serves nothing any more", node.Node)})
				continue
			}
		}
		if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return out, next
}

// bound is how long the deletion of a Machine may be held, and whether it is.
func (r *Rules) bound(m *Machine, balancers []*Balancer) (time.Duration, bool) {
	bound, hold := r.HookTimeout, r.OnDeletion
	own := time.Duration(0)
	for _, b := range balancers {
		if !b.Usable() || !b.Has(m) {
			continue
		}
		if d := b.Spec.Drain.Timeout.Duration; d > 0 {
			own = max(own, d)
		}
		if h := b.Spec.Drain.Hook; h != nil && !*h {
			hold = false
		}
	}
	if own > 0 {
		bound = own
	}
	return bound, hold
}
