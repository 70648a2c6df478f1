package machines

import (
	"fmt"
	"slices"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// Held tells whether lbd holds the deletion of a Machine. What only stands for one has
// no hooks: nobody else looks at them there.
func (m *Machine) Held() bool {
	_, ok := m.Annotations[HookKey]
	return ok && !m.Deleted.IsZero() && m.Target == ""
}

// Unregistered returns the Machines that are to get the hook of lbd: members of a
// balancer that asks for it, and not being deleted. Whether a hook that is there holds
// anything is for Releases to say.
func Unregistered(all []*Machine, balancers []*Balancer) (out []*Machine) {
	for _, m := range all {
		if _, has := m.Annotations[HookKey]; has || !m.Deleted.IsZero() || m.Target != "" || m.Moved() {
			continue
		}
		if slices.ContainsFunc(balancers, func(b *Balancer) bool {
			return b.Spec.Drain.PreDrainHook == v1alpha1.PreDrainHookRegister && b.Usable() && b.Has(m)
		}) {
			out = append(out, m)
		}
	}
	return out
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
// again; zero: when something changes. That the node of a Machine has drained is known by
// the status of a balancer. Nothing is held beyond its bound.
func (r *Rules) Releases(all []*Machine, balancers []*Balancer, now time.Time) (out []Release, next time.Time) {
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
		if node, ok := drainedNode(m, balancers); ok {
			text := "the Machine serves nothing any more"
			if node != "" {
				text = fmt.Sprintf("node %s serves nothing any more", node)
			}
			out = append(out, Release{m, ReleaseDrained, text})
			continue
		}
		if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return out, next
}

// drainedNode returns the node of a Machine if it has said, in the status of a balancer
// that it is a member of, that it has drained. One that was only not heard may serve
// clients where nobody listens; an older daemon does not tell the two apart. Of those that are
// forwarded to the Machine each has to say so: it speaks for itself only.
func drainedNode(m *Machine, balancers []*Balancer) (node string, drained bool) {
	var moves, gone, forwards, open bool
	for _, b := range balancers {
		if !b.Usable() || !b.Has(m) {
			continue
		}
		says := false
		for i := range b.Status.Members {
			x := &b.Status.Members[i]
			if (model.Key{Namespace: x.Namespace, Name: x.Machine}) == m.Key && x.State == v1alpha1.MemberDrained && x.Reason == MemberServesNothing {
				node, says = x.Node, true
			}
		}
		if b.Forwarded() {
			forwards, open = true, open || !says
		} else {
			moves, gone = true, gone || says
		}
	}
	return node, (moves || forwards) && (gone || !moves) && !open
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
