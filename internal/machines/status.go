package machines

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/shortlist"
)

// The reasons of a member, beside those of docs/reasons.md, which say why its node
// does not serve the address.
const (
	// MemberServing: its node answers for the address.
	MemberServing = "Serving"
	// MemberStandby: it may take the address, and another has it.
	MemberStandby = "Standby"
	// MemberNotHeard: no node of the group that reports is this Machine.
	MemberNotHeard = "NotHeard"
	// MemberServesNothing: its node has said that it has drained. The version before this
	// has no such word, and calls also those drained that are not heard.
	MemberServesNothing = "ServesNothing"
	// MemberNotReported: no daemon reports about this balancer.
	MemberNotReported = "NotReported"
	// MemberNoAddress: its node does not know the address.
	MemberNoAddress = "AddressUnknown"
	// MemberNoServer: the Machine to which connections are forwarded has no address of the
	// families of the balancer.
	MemberNoServer = "NoMachineAddress"
	// MemberAddressTaken: another object of the nodes has the address, such as one of their
	// files, and nothing is forwarded to the Machines.
	MemberAddressTaken = "AddressTaken"
)

// Report is what a group of daemons says of its nodes. nil: this process has no
// group, and what a group has reported stays.
type Report struct {
	Members []model.MachineMember
	// Others are the members of the balancer that is asked about whose state is for
	// another group to say; see Voices.
	Others map[model.Key]bool
	// Partly: not all namespaces of that balancer are watched here, so that it is for
	// others to say which members have no address, and which are held.
	Partly bool
	// Health is the state of the checks of the members of forwarded balancers, by
	// Balancer.CheckName, and Taken are addresses of these that other objects have.
	Health map[string]model.Health
	Taken  []netip.Addr
	// Avoid are the addresses of all balancers: no Machine is asked there.
	Avoid []netip.Addr
}

// moment is what the states of the members of one balancer depend on, besides what is said of
// each.
type moment struct {
	rules *Rules
	now   time.Time
	// others: a member of a forwarded balancer can serve that is not about to go.
	others bool
}

// Summary returns the status that a balancer is to have, but for the times of its
// conditions, which are without LastTransitionTime. Endpoint, addresses, the
// conditions about them and the generation are taken as they are in b.Status.
func (b *Balancer) Summary(members []*Machine, report *Report, rules *Rules, now time.Time) v1alpha1.MachineLoadBalancerStatus {
	s := b.Status
	old := make(map[model.Key]*v1alpha1.MachineMemberStatus, len(s.Members))
	for i := range b.Status.Members {
		m := &b.Status.Members[i]
		old[model.Key{Namespace: m.Namespace, Name: m.Machine}] = m
	}
	s.Members, s.MemberCount, s.HealthyCount = nil, 0, 0
	var unresolved, held []string
	reachable := false
	at := &moment{rules: rules, now: now, others: report != nil && b.Forwarded() && slices.ContainsFunc(members, func(m *Machine) bool {
		state, _ := b.serves(m, report)
		_, _, leaving := rules.Drain(m)
		_, disabled := b.Disabled(m)
		return state == v1alpha1.MemberActive && !leaving && !disabled
	})}
	for _, m := range members {
		x := b.member(m, old[m.Key], report, at)
		if was := old[m.Key]; was != nil && was.State == x.State {
			x.Since = was.Since
		} else {
			x.Since = now.UTC().Truncate(time.Second)
		}
		if x.State != v1alpha1.MemberDisabled && x.State != v1alpha1.MemberDrained {
			s.MemberCount++
		}
		if x.State == v1alpha1.MemberActive {
			s.HealthyCount++
			reachable = reachable || x.Reason == MemberServing || x.Reason == model.ReasonDegraded.String()
		}
		if m.Node == "" && len(m.Addresses) == 0 {
			unresolved = append(unresolved, m.String())
		}
		if m.Held() {
			held = append(held, m.String())
		}
		if len(s.Members) < v1alpha1.MaxMembers {
			s.Members = append(s.Members, x)
		}
	}
	s.Status = fmt.Sprintf("%d of %d members healthy", s.HealthyCount, s.MemberCount)
	s.Ready = s.Endpoint != nil && s.HealthyCount > 0 && (reachable || !b.Forwarded())
	s.Conditions = keep(b.Status.Conditions, v1alpha1.ConditionAccepted, v1alpha1.ConditionEndpointAssigned)
	own := []v1alpha1.Condition{readiness(&s), b.reach(report, reachable, members),
		listed(v1alpha1.ConditionMembersResolved, len(unresolved) == 0, "Resolved", "Unresolved", "every member has a node or an address",
			"without node and address: ", unresolved),
		listed(v1alpha1.ConditionDeletionHeld, len(held) > 0, "Held", "NotHeld", "waiting for the connections of ", "no deletion is held", held)}
	for i := range own {
		own[i].ObservedGeneration = b.Generation
	}
	if report != nil && report.Partly {
		own = append(own[:2], keep(b.Status.Conditions, v1alpha1.ConditionMembersResolved, v1alpha1.ConditionDeletionHeld)...)
	}
	s.Conditions = append(s.Conditions, own...)
	return s
}

// Concerns tells whether a group has anything to say of a balancer: one of its nodes
// is a member. Those of other clusters it knows nothing of.
func (r *Report) Concerns(members []*Machine) bool {
	return slices.ContainsFunc(members, func(m *Machine) bool { return m.Member(r.Members) != nil })
}

// member returns the line of one member, without Since.
func (b *Balancer) member(m *Machine, was *v1alpha1.MachineMemberStatus, report *Report, at *moment) v1alpha1.MachineMemberStatus {
	x := v1alpha1.MachineMemberStatus{Machine: m.Name, Namespace: m.Namespace, Node: m.Node, FailureDomain: m.FailureDomain}
	if len(m.Addresses) > 0 {
		x.Address = m.Addresses[0].String()
	}
	if was != nil && x.Node == "" {
		x.Node = was.Node
	}
	if was != nil && (report == nil && b.Status.ReportedBy != "" || report != nil && report.Others[m.Key]) {
		// Daemons may have other rules, and two that disagree would write for ever.
		x.State, x.Reason = was.State, was.Reason
		return x
	}
	if b.Forwarded() {
		b.forwardedMember(&x, m, was, report, at)
		return x
	}
	reason, _, leaving := at.rules.Drain(m)
	_, disabled := b.Disabled(m)
	var node *model.MachineMember
	if report != nil {
		if node = m.Member(report.Members); node != nil && x.Node == "" {
			x.Node = string(node.Node)
		}
	}
	switch {
	case disabled && !leaving:
		x.State, x.Reason = v1alpha1.MemberDisabled, DrainDisabled
	case leaving || node != nil && node.Draining:
		x.State, x.Reason = v1alpha1.MemberDraining, reason
		x.Reason = cmp.Or(x.Reason, "NodeDraining")
		switch {
		case node != nil && node.Drained:
			x.State, x.Reason = v1alpha1.MemberDrained, MemberServesNothing
		case node == nil && was != nil && was.State == v1alpha1.MemberDrained && was.Reason == MemberServesNothing:
			x.State, x.Reason = was.State, was.Reason // before it fell silent
		case node == nil && report != nil: // who is not heard serves nothing, it seems
			x.State, x.Reason = v1alpha1.MemberDrained, MemberNotHeard
		}
	case report == nil:
		x.State, x.Reason = v1alpha1.MemberPending, MemberNotReported
	case node == nil && was != nil && (was.State == v1alpha1.MemberActive || was.State == v1alpha1.MemberUnhealthy):
		x.State, x.Reason = v1alpha1.MemberUnhealthy, MemberNotHeard
	case node == nil:
		x.State, x.Reason = v1alpha1.MemberPending, MemberNotHeard
	default:
		x.State, x.Reason = standing(node, b)
	}
	return x
}

// unserved are those of two addresses for which no member of the group that reports
// answers. None, if another group may: it has the word.
func (b *Balancer) unserved(members []*Machine, report *Report) []string {
	addrs := b.Addrs()
	if report == nil || len(report.Others) > 0 || len(addrs) < 2 {
		return nil
	}
	var out []string
	for _, addr := range addrs {
		if b.Forwarded() && report.announced(addr) {
			continue
		}
		if b.Forwarded() || !slices.ContainsFunc(members, func(m *Machine) bool {
			n := m.Member(report.Members)
			return n != nil && (n.Standing[addr] == model.ReasonOwner || n.Standing[addr] == model.ReasonDegraded)
		}) {
			out = append(out, addr.String())
		}
	}
	return out
}

// standing says how a node that does not drain stands with the addresses. Of two the one
// that it may not have counts; if it may have both, the one that it has.
func standing(n *model.MachineMember, b *Balancer) (state v1alpha1.MemberState, reason string) {
	for i, addr := range b.Addrs() {
		s, r := standingWith(n, addr)
		if i == 0 || state == v1alpha1.MemberActive && (s != v1alpha1.MemberActive || r == MemberServing) {
			state, reason = s, r
		}
	}
	if state == "" {
		return v1alpha1.MemberPending, MemberNoAddress
	}
	return state, reason
}

// standingWith is standing with one address.
func standingWith(n *model.MachineMember, addr netip.Addr) (v1alpha1.MemberState, string) {
	r, known := n.Standing[addr]
	switch {
	case !known:
		return v1alpha1.MemberPending, MemberNoAddress
	case r == model.ReasonOwner:
		return v1alpha1.MemberActive, MemberServing
	case r == model.ReasonDegraded: // it may be the one that serves
		return v1alpha1.MemberActive, r.String()
	case r.Eligible():
		return v1alpha1.MemberActive, MemberStandby
	}
	return v1alpha1.MemberUnhealthy, r.String()
}

// keep returns the conditions of these types, in this order.
func keep(all []v1alpha1.Condition, types ...string) []v1alpha1.Condition {
	var out []v1alpha1.Condition
	for _, t := range types {
		if i := slices.IndexFunc(all, func(c v1alpha1.Condition) bool { return c.Type == t }); i >= 0 {
			out = append(out, all[i])
		}
	}
	return out
}

func readiness(s *v1alpha1.MachineLoadBalancerStatus) v1alpha1.Condition {
	c := v1alpha1.Condition{Type: v1alpha1.ConditionReady, Status: v1alpha1.ConditionFalse, Message: s.Status}
	switch {
	case s.Ready:
		c.Status, c.Reason = v1alpha1.ConditionTrue, "MembersHealthy"
	case s.Endpoint == nil:
		c.Reason = "NoEndpoint"
		for _, o := range keep(s.Conditions, v1alpha1.ConditionEndpointAssigned) {
			if o.Reason == PortTranslation {
				c.Reason, c.Message = o.Reason, o.Message
			}
		}
	case s.MemberCount == 0:
		c.Reason = "NoMembers"
	case s.HealthyCount > 0:
		c.Reason, c.Message = "NobodyServes", s.Status+", and no node announces the address"
	default:
		c.Reason = "NoHealthyMember"
	}
	return c
}

// reach says whether clients reach the address.
func (b *Balancer) reach(report *Report, reachable bool, members []*Machine) v1alpha1.Condition {
	if said := keep(b.Status.Conditions, v1alpha1.ConditionReachable); report == nil && reachable && len(said) > 0 {
		return said[0] // of two addresses only daemons know whether both are served
	}
	unserved := b.unserved(members, report)
	who, unheard := "member", "no daemon reports about the members"
	if b.Forwarded() {
		who = "node"
		unheard = "no daemon forwards to the members: none of them runs one that reads this object, and no host with machines.balancer does"
	}
	c := v1alpha1.Condition{Type: v1alpha1.ConditionReachable, Status: v1alpha1.ConditionFalse, Reason: "NobodyServes", Message: "no " + who + " answers for the address"}
	switch {
	case reachable && len(unserved) > 0:
		c.Message = "no " + who + " answers for " + strings.Join(unserved, ", ")
	case reachable:
		c.Status, c.Reason, c.Message = v1alpha1.ConditionTrue, MemberServing, "a "+who+" answers for the address"
	case report == nil && b.Status.ReportedBy == "":
		c.Status, c.Reason, c.Message = v1alpha1.ConditionUnknown, MemberNotReported, unheard
	}
	return c
}

// shown bounds the names in a message.
const shown = 10

// listed is a condition whose message has names on the side where there are any.
func listed(kind string, holds bool, yes, no, yesText, noText string, names []string) v1alpha1.Condition {
	c := v1alpha1.Condition{Type: kind, Status: v1alpha1.ConditionFalse, Reason: no, Message: noText}
	if holds {
		c.Status, c.Reason, c.Message = v1alpha1.ConditionTrue, yes, yesText
	}
	c.Message += shortlist.Join(names, shown)
	return c
}

// Annotations are what the Machines are to have: the name of their balancer and how
// they are doing in it; of several balancers the first that wants it counts. A
// Machine that is missing has neither.
func Annotations(all []*Balancer) map[model.Key][2]string {
	out := make(map[model.Key][2]string)
	for _, b := range all {
		if !b.Spec.AnnotateMembers || !b.Usable() {
			continue
		}
		for i := range b.Status.Members {
			m := &b.Status.Members[i]
			k := model.Key{Namespace: m.Namespace, Name: m.Machine}
			if _, taken := out[k]; !taken {
				out[k] = [2]string{b.Name, word(m.State)}
			}
		}
	}
	return out
}

// word is the value of StatusAnnotation.
func word(s v1alpha1.MemberState) string {
	switch s {
	case v1alpha1.MemberDraining:
		return "removing"
	case v1alpha1.MemberDrained:
		return "removed"
	case v1alpha1.MemberPending:
		return "adding"
	}
	return strings.ToLower(string(s)) // active, disabled, unhealthy
}
