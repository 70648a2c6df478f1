package machines

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// Voices is what a group remembers of what other groups say about members of the same
// balancers, so that two that each hear a part of them do not contradict each other
// for ever: who hears a member has the last word.
type Voices struct {
	// silent are members of which this group has written that they are not heard, with
	// the version of the balancer that this was written over.
	silent map[voice]string
	// others are those that another group has spoken for since then.
	others map[voice]bool
}

// voice is a member of a balancer.
type voice struct{ balancer, machine model.Key }

// Others returns the members of a balancer whose state is for another group to say.
// None of them is heard by this group. cluster is that of this node: Machines of
// another one are never of this group; of its own the status says who hears them.
func (v *Voices) Others(b *Balancer, members []*Machine, report *Report, cluster model.Key) map[model.Key]bool {
	if v.silent == nil {
		v.silent, v.others = map[voice]string{}, map[voice]bool{}
	}
	out := map[model.Key]bool{}
	lines := make(map[model.Key]*v1alpha1.MachineMemberStatus, len(b.Status.Members))
	for i := range b.Status.Members {
		x := &b.Status.Members[i]
		lines[model.Key{Namespace: x.Namespace, Name: x.Machine}] = x
	}
	for _, m := range members {
		k := voice{b.Key, m.Key}
		line := lines[m.Key]
		switch {
		case m.Member(report.Members) != nil || line == nil:
			delete(v.silent, k)
			delete(v.others, k)
			continue
		case cluster != (model.Key{}) && m.Target == "" && m.Cluster() != cluster:
		case v.silent[k] != "" && v.silent[k] != b.Version && heard(line):
			v.others[k] = true
		case !v.others[k]:
			continue
		}
		out[m.Key] = true
	}
	return out
}

// WithUnseen adds to the members of a balancer those that its status has in namespaces
// which this process does not watch. Others, and the controller, speak for them.
func (b *Balancer) WithUnseen(members []*Machine, report *Report, watched []string) []*Machine {
	report.Partly = false
	if len(watched) == 0 {
		return members
	}
	for _, ns := range b.Spec.Namespaces {
		report.Partly = report.Partly || !slices.Contains(watched, ns)
	}
	for i := range b.Status.Members {
		x := &b.Status.Members[i]
		if slices.Contains(watched, x.Namespace) {
			continue
		}
		m := &Machine{Key: model.Key{Namespace: x.Namespace, Name: x.Machine}, Target: b.Target(), Node: x.Node, FailureDomain: x.FailureDomain}
		if a, err := netip.ParseAddr(x.Address); err == nil {
			m.Addresses = []netip.Addr{a}
		}
		report.Others[m.Key] = true
		members = append(members, m)
	}
	slices.SortFunc(members, func(x, y *Machine) int { return x.Compare(y.Key) })
	return members
}

// Said takes note of a status that was written over the balancer as it was read.
func (v *Voices) Said(b *Balancer, s *v1alpha1.MachineLoadBalancerStatus) {
	for i := range s.Members {
		x := &s.Members[i]
		if k := (voice{b.Key, model.Key{Namespace: x.Namespace, Name: x.Machine}}); x.Reason == MemberNotHeard && !v.others[k] {
			v.silent[k] = b.Version
		}
	}
}

// heard tells whether only a group that hears a member can have written its line.
func heard(x *v1alpha1.MachineMemberStatus) bool {
	switch x.State {
	case v1alpha1.MemberActive, v1alpha1.MemberDraining:
		return true
	case v1alpha1.MemberUnhealthy, v1alpha1.MemberPending:
		return x.Reason != MemberNotHeard && x.Reason != MemberNotReported
	}
	return false
}
