package machines

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// node is what the group says of one node.
func node(name string, r model.Reason, change ...func(*model.MachineMember)) model.MachineMember {
	n := model.MachineMember{Node: model.NodeName(name), Standing: map[netip.Addr]model.Reason{shared: r}}
	for _, f := range change {
		f(&n)
	}
	return n
}

func goes(n *model.MachineMember)  { n.Draining = true }
func empty(n *model.MachineMember) { n.Draining, n.Drained = true, true }

// told is a status in one text.
func told(s v1alpha1.MachineLoadBalancerStatus) string {
	var out []string
	for _, m := range s.Members {
		out = append(out, fmt.Sprintf("%s=%s/%s", m.Machine, m.State, m.Reason))
	}
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.ConditionReady || c.Type == v1alpha1.ConditionReachable && c.Status != v1alpha1.ConditionTrue {
			out = append(out, string(c.Status)+"/"+c.Reason)
		}
	}
	return strings.Join(append(out, s.Status), ", ")
}

func TestSummary(t *testing.T) {
	five := func() []*Machine {
		var all []*Machine
		for i := range 5 {
			all = append(all, machine(fmt.Sprintf("a/prod/m%d", i+1), fmt.Sprintf("cp%d", i+1)))
		}
		return all
	}
	group := func(fifth ...model.MachineMember) *Report {
		return &Report{Members: append([]model.MachineMember{node("cp1", model.ReasonOwner), node("cp2", model.ReasonStandby),
			node("cp3", model.ReasonStandby), node("cp4", model.ReasonStandby)}, fifth...)}
	}
	const four = "m1=Active/Serving, m2=Active/Standby, m3=Active/Standby, m4=Active/Standby, "
	for name, c := range map[string]struct {
		fifth  func(*Machine)
		report *Report
		want   string
	}{
		"all are well":  {nil, group(node("cp5", model.ReasonStandby)), four + "m5=Active/Standby, True/MembersHealthy, 5 of 5 members healthy"},
		"a check fails": {nil, group(node("cp5", model.ReasonUnhealthy)), four + "m5=Unhealthy/Unhealthy, True/MembersHealthy, 4 of 5 members healthy"},
		"not heard":     {nil, group(), four + "m5=Pending/NotHeard, True/MembersHealthy, 4 of 5 members healthy"},
		"an address that it does not know": {nil, group(model.MachineMember{Node: "cp5"}),
			four + "m5=Pending/AddressUnknown, True/MembersHealthy, 4 of 5 members healthy"},
		"deleted": {func(m *Machine) { m.Deleted = born }, group(node("cp5", model.ReasonStandby)),
			four + "m5=Draining/Deleting, True/MembersHealthy, 4 of 5 members healthy"},
		"deleted and drained": {func(m *Machine) { m.Deleted = born }, group(node("cp5", model.ReasonStandby, empty)),
			four + "m5=Drained/ServesNothing, True/MembersHealthy, 4 of 4 members healthy"},
		"deleted and gone": {func(m *Machine) { m.Deleted = born }, group(), four + "m5=Drained/NotHeard, True/MembersHealthy, 4 of 4 members healthy"},
		"an operator drains": {nil, group(node("cp5", model.ReasonStandby, goes)),
			four + "m5=Draining/NodeDraining, True/MembersHealthy, 4 of 5 members healthy"},
		"disabled": {func(m *Machine) { m.Labels[v1alpha1.DisabledLabel] = "" }, group(node("cp5", model.ReasonMachineDisabled)),
			four + "m5=Disabled/Disabled, True/MembersHealthy, 4 of 4 members healthy"},
		"disabled here": {func(m *Machine) { m.Labels[v1alpha1.DisabledPrefix+"api"] = "" }, group(node("cp5", model.ReasonMachineDisabled)),
			four + "m5=Disabled/Disabled, True/MembersHealthy, 4 of 4 members healthy"},
		"disabled elsewhere": {func(m *Machine) { m.Labels[v1alpha1.DisabledPrefix+"y"] = "" }, group(node("cp5", model.ReasonStandby)),
			four + "m5=Active/Standby, True/MembersHealthy, 5 of 5 members healthy"},
		"disabled, and deleted": {func(m *Machine) { m.Deleted, m.Labels[v1alpha1.DisabledLabel] = born, "" }, group(node("cp5", model.ReasonMachineDraining, goes)),
			four + "m5=Draining/Deleting, True/MembersHealthy, 4 of 5 members healthy"},
	} {
		all := five()
		if c.fifth != nil {
			c.fifth(all[4])
		}
		if got := told(balancer(nil).Summary(all, c.report, rules(), born)); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestTwoAddresses: a member is as well as it is with the address that it is worse with,
// and each address must have a member that answers.
func TestTwoAddresses(t *testing.T) {
	second := addr("fd00::200")
	b := balancer(func(b *Balancer) { b.Status.Addresses = []string{shared.String(), second.String()} })
	also := func(r model.Reason) func(*model.MachineMember) {
		return func(n *model.MachineMember) { n.Standing[second] = r }
	}
	all := []*Machine{machine("a/prod/m1", "cp1"), machine("a/prod/m2", "cp2")}
	for name, c := range map[string]struct {
		cp1, cp2 model.MachineMember
		want     string
	}{
		"each has one": {node("cp1", model.ReasonOwner, also(model.ReasonStandby)), node("cp2", model.ReasonStandby, also(model.ReasonOwner)),
			"m1=Active/Serving, m2=Active/Serving, True/MembersHealthy, 2 of 2 members healthy"},
		"one has both": {node("cp1", model.ReasonOwner, also(model.ReasonOwner)), node("cp2", model.ReasonStandby, also(model.ReasonStandby)),
			"m1=Active/Serving, m2=Active/Standby, True/MembersHealthy, 2 of 2 members healthy"},
		"no IPv6 on one": {node("cp1", model.ReasonStandby, also(model.ReasonOwner)), node("cp2", model.ReasonOwner, also(model.ReasonFamilyDisabled)),
			"m1=Active/Serving, m2=Unhealthy/FamilyDisabled, True/MembersHealthy, 1 of 2 members healthy"},
		"nobody has the second": {node("cp1", model.ReasonOwner, also(model.ReasonStandby)), node("cp2", model.ReasonStandby, also(model.ReasonStandby)),
			"m1=Active/Serving, m2=Active/Standby, True/MembersHealthy, False/NobodyServes, 2 of 2 members healthy"},
		"a daemon that knows one only": {node("cp1", model.ReasonOwner), node("cp2", model.ReasonStandby, also(model.ReasonOwner)),
			"m1=Pending/AddressUnknown, m2=Active/Serving, True/MembersHealthy, 1 of 2 members healthy"},
	} {
		if got := told(b.Summary(all, &Report{Members: []model.MachineMember{c.cp1, c.cp2}}, rules(), born)); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestZeroOfZero: the endpoint is there before any Machine is, since a control plane
// makes none without it; ready is another matter.
func TestZeroOfZero(t *testing.T) {
	s := balancer(nil).Summary(nil, &Report{}, rules(), born)
	if s.Endpoint == nil || s.Ready || s.MemberCount != 0 || told(s) != "False/NoMembers, False/NobodyServes, 0 of 0 members healthy" {
		t.Errorf("%s: %+v", told(s), s)
	}
	s = balancer(func(b *Balancer) { b.Status.Endpoint = nil }).Summary(nil, nil, rules(), born)
	if s.Ready || told(s) != "False/NoEndpoint, Unknown/NotReported, 0 of 0 members healthy" {
		t.Errorf("without an endpoint: %s", told(s))
	}
}

// TestNotReadyOnAPortThatIsNotForwarded: members that are well do not make up for an
// endpoint that no client can reach.
func TestNotReadyOnAPortThatIsNotForwarded(t *testing.T) {
	b := balancer(func(b *Balancer) { ports(b); b.Spec.Advertise = &v1alpha1.Advertise{BGP: &v1alpha1.BGPAdvertise{}} })
	e, _, assigned := b.Endpoint(shared, nil, nil, nil)
	b.Status.Endpoint, b.Status.Conditions = e, []v1alpha1.Condition{assigned}
	report := &Report{Members: []model.MachineMember{node("cp1", model.ReasonOwner)}, Health: map[string]model.Health{b.CheckName(addr("10.0.0.11")): model.HealthUp}}
	s := b.Summary([]*Machine{machine("a/prod/m1", "cp1", "10.0.0.11")}, report, rules(), born)
	if s.Ready || s.Endpoint != nil || told(s) != "m1=Active/Serving, False/PortTranslation, 1 of 1 members healthy" {
		t.Errorf("ready %v at %+v: %s", s.Ready, s.Endpoint, told(s))
	}
}

// TestHeardOfBefore: what daemons have reported stays while nobody reports, and a
// node that is not heard any more is not healthy.
func TestHeardOfBefore(t *testing.T) {
	all := []*Machine{machine("a/prod/m1", "cp1"), machine("a/prod/m2", "cp2")}
	b := balancer(nil)
	step := func(report *Report, at time.Duration, want string) {
		t.Helper()
		b.Status = b.Summary(all, report, rules(), born.Add(at))
		if got := told(b.Status); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	step(nil, 0, "m1=Pending/NotReported, m2=Pending/NotReported, False/NoHealthyMember, Unknown/NotReported, 0 of 2 members healthy")
	step(&Report{Members: []model.MachineMember{node("cp1", model.ReasonOwner), node("cp2", model.ReasonStandby)}}, time.Second,
		"m1=Active/Serving, m2=Active/Standby, True/MembersHealthy, 2 of 2 members healthy")
	b.Status.ReportedBy = "cp1"
	step(nil, 2*time.Second, "m1=Active/Serving, m2=Active/Standby, True/MembersHealthy, 2 of 2 members healthy")
	if got := b.Status.Members[0].Since; !got.Equal(born.Add(time.Second)) {
		t.Errorf("since %v", got)
	}
	step(&Report{Members: []model.MachineMember{node("cp2", model.ReasonOwner)}}, 3*time.Second,
		"m1=Unhealthy/NotHeard, m2=Active/Serving, True/MembersHealthy, 1 of 2 members healthy")
	if got := b.Status.Members[1].Since; !got.Equal(born.Add(time.Second)) {
		t.Errorf("a new reason moved since to %v", got)
	}
	// Who has no group does not judge by rules of its own what a group has judged.
	b.Status.ReportedBy = "cp2"
	all[1].Labels["lbd.dev/drain"] = ""
	step(nil, 4*time.Second, "m1=Unhealthy/NotHeard, m2=Active/Serving, True/MembersHealthy, 1 of 2 members healthy")
	all = append(all, machine("a/prod/m3", ""))
	step(nil, 5*time.Second, "m1=Unhealthy/NotHeard, m2=Active/Serving, m3=Pending/NotReported, True/MembersHealthy, 1 of 3 members healthy")
}

// TestConcerns: a group says nothing of the Machines of another one, even if their
// nodes have the same names.
func TestConcerns(t *testing.T) {
	own := &Report{Members: []model.MachineMember{{Node: "cp1", Addrs: []netip.Addr{addr("10.0.0.11")}}}}
	for want, m := range map[bool]*Machine{true: machine("a/prod/m1", "cp1", "10.0.0.11"), false: machine("b/prod/m1", "cp1", "10.9.0.11")} {
		if own.Concerns([]*Machine{m}) != want {
			t.Errorf("%s: %v", m, !want)
		}
	}
}

func TestConditionsOfMembers(t *testing.T) {
	lost := machine("a/prod/m1", "")
	held := with(machine("a/prod/m2", "cp2"), func(m *Machine) { m.Deleted = born; m.Annotations[HookKey] = "" })
	b := balancer(func(b *Balancer) {
		b.Status.Conditions = []v1alpha1.Condition{{Type: "Accepted", Status: "True"}, {Type: "EndpointAssigned", Status: "True"}, {Type: "Old", Status: "True"}}
	})
	s := b.Summary([]*Machine{lost, held}, nil, rules(), born)
	got := ""
	for _, c := range s.Conditions {
		if got += c.Type + "=" + string(c.Status) + " "; (c.ObservedGeneration == 3) != (c.Type != "Accepted" && c.Type != "EndpointAssigned") {
			t.Errorf("%s is of generation %d", c.Type, c.ObservedGeneration)
		}
		if c.Type == "DeletionHeld" && !strings.Contains(c.Message, "a/m2") || c.Type == "MembersResolved" && !strings.Contains(c.Message, "a/m1") {
			t.Errorf("%s: %s", c.Type, c.Message)
		}
	}
	if got != "Accepted=True EndpointAssigned=True Ready=False Reachable=Unknown MembersResolved=False DeletionHeld=True " {
		t.Error(got)
	}
}

// TestManyMembers: a status stays small, the counts are of all.
func TestManyMembers(t *testing.T) {
	var all []*Machine
	for i := range 700 {
		all = append(all, machine(fmt.Sprintf("a/prod/m%03d", i), ""))
	}
	s := balancer(nil).Summary(all, nil, rules(), born)
	if len(s.Members) != v1alpha1.MaxMembers || s.MemberCount != 700 {
		t.Errorf("%d members, count %d", len(s.Members), s.MemberCount)
	}
	if m := s.Conditions[len(s.Conditions)-2].Message; !strings.HasSuffix(m, "and 690 more") {
		t.Error(m)
	}
}

func TestAnnotations(t *testing.T) {
	states := []v1alpha1.MemberState{v1alpha1.MemberActive, v1alpha1.MemberDraining, v1alpha1.MemberDrained,
		v1alpha1.MemberUnhealthy, v1alpha1.MemberPending, v1alpha1.MemberDisabled}
	b := balancer(func(b *Balancer) {
		b.Spec.AnnotateMembers = true
		for i, s := range states {
			b.Status.Members = append(b.Status.Members, v1alpha1.MachineMemberStatus{Namespace: "a", Machine: fmt.Sprint(i), State: s})
		}
	})
	other := balancer(func(o *Balancer) {
		o.Name, o.Spec.AnnotateMembers, o.Status.Members = "other", true, b.Status.Members[:1]
	})
	quiet := balancer(func(o *Balancer) { o.Name, o.Status.Members = "quiet", b.Status.Members })
	got := ""
	all := Annotations([]*Balancer{quiet, b, other})
	for i := range states {
		x := all[model.Key{Namespace: "a", Name: fmt.Sprint(i)}]
		got += x[0] + "=" + x[1] + " "
	}
	if got != "api=active api=removing api=removed api=unhealthy api=adding api=disabled " {
		t.Error(got)
	}
	if all := Annotations([]*Balancer{quiet}); len(all) > 0 {
		t.Errorf("unasked: %v", all)
	}
}

// TestTwoGroupsDoNotContradictEachOther: of one balancer with members in two groups
// each group hears a part. The status comes to rest, and each part is as who hears it
// says, whether the parts are two clusters or one.
func TestTwoGroupsDoNotContradictEachOther(t *testing.T) {
	type group struct {
		voices  Voices
		cluster model.Key
		members []model.MachineMember
	}
	for _, second := range []string{"prod", "other"} {
		t.Run(second, func(t *testing.T) {
			b := balancer(func(b *Balancer) { b.Spec.ClusterName, b.Spec.MachineSelector = "", &v1alpha1.Selector{} })
			b.Status.ReportedBy = "cp1"
			version := 0
			b.Version = "0"
			all := []*Machine{machine("a/prod/m1", "cp1"), machine("a/prod/m2", "cp2"), machine("a/"+second+"/m3", "cp3"), machine("a/"+second+"/m4", "cp4")}
			x := &group{cluster: model.Key{Namespace: "a", Name: "prod"}, members: []model.MachineMember{node("cp1", model.ReasonOwner), node("cp2", model.ReasonStandby)}}
			y := &group{cluster: model.Key{Namespace: "a", Name: second}, members: []model.MachineMember{node("cp3", model.ReasonOwner), node("cp4", model.ReasonUnhealthy)}}
			rest := func(groups ...*group) {
				t.Helper()
				writes := 0
				for range 20 {
					for _, g := range groups {
						r, before := &Report{Members: g.members}, *b
						r.Others = g.voices.Others(b, all, r, g.cluster)
						want := b.Summary(all, r, rules(), born)
						if !reflect.DeepEqual(want, b.Status) {
							writes++
							version++
							g.voices.Said(b, &want)
							b.Status, b.Version = want, fmt.Sprint(version)
						}
						// What was written may be seen late, and what was decided not be written.
						again := &Report{Members: g.members}
						late := *b
						late.Version, late.Status = before.Version, before.Status
						_ = late.Summary(all, &Report{Members: g.members, Others: g.voices.Others(&late, all, again, g.cluster)}, rules(), born)
					}
				}
				if writes > 4 {
					t.Errorf("the status was written %d times", writes)
				}
			}
			wants := func(want string) {
				t.Helper()
				if got := told(b.Status); got != want {
					t.Errorf("%s\nwant %s", got, want)
				}
			}
			rest(x, y)
			wants("m1=Active/Serving, m2=Active/Standby, m3=Active/Serving, m4=Unhealthy/Unhealthy, True/MembersHealthy, 3 of 4 members healthy")
			// A node that dies is silent in its own group, whatever the other one says.
			y.members = y.members[1:]
			rest(x, y)
			wants("m1=Active/Serving, m2=Active/Standby, m3=Unhealthy/NotHeard, m4=Unhealthy/Unhealthy, True/MembersHealthy, 2 of 4 members healthy")
			// The one that wrote last dies: its own line does not live on.
			x.members = x.members[1:]
			rest(x, y)
			wants("m1=Unhealthy/NotHeard, m2=Active/Standby, m3=Unhealthy/NotHeard, m4=Unhealthy/Unhealthy, True/MembersHealthy, False/NobodyServes, 1 of 4 members healthy")
			y.members = append(y.members, node("cp3", model.ReasonOwner))
			rest(x, y)
			wants("m1=Unhealthy/NotHeard, m2=Active/Standby, m3=Active/Serving, m4=Unhealthy/Unhealthy, True/MembersHealthy, 2 of 4 members healthy")
		})
	}
}

// TestWhoHeardAMemberSaysThatItIsSilent: once another group has spoken for a member its word is
// the last one, also that it hears it no more.
func TestWhoHeardAMemberSaysThatItIsSilent(t *testing.T) {
	b := balancer(nil)
	m := machine("a/other/m3", "cp3")
	line := func(version string, state v1alpha1.MemberState, reason string) {
		b.Version = version
		b.Status.Members = []v1alpha1.MachineMemberStatus{{Namespace: "a", Machine: "m3", State: state, Reason: reason}}
	}
	var v Voices
	others := func(want bool, when string) {
		t.Helper()
		if got := v.Others(b, []*Machine{m}, &Report{}, model.Key{}); got[m.Key] != want {
			t.Errorf("%s: another group speaks for it: %v", when, got[m.Key])
		}
	}
	line("1", v1alpha1.MemberPending, MemberNotReported)
	others(false, "nobody has spoken")
	line("1", v1alpha1.MemberUnhealthy, MemberNotHeard)
	v.Said(b, &b.Status)
	others(false, "what this group has written itself")
	line("2", v1alpha1.MemberActive, "Serving")
	others(true, "another group hears it")
	line("3", v1alpha1.MemberUnhealthy, MemberNotHeard)
	others(true, "the other group hears it no more")
}

func TestURL(t *testing.T) {
	for want, change := range map[string]func(*Balancer){
		"https://10.0.0.200:6443": nil,
		"udp://10.0.0.200:6443":   func(b *Balancer) { b.Spec.Port.Protocol = v1alpha1.MachineUDP },
		"tcp://10.0.0.200:6443":   func(b *Balancer) { b.Spec.MachineSelector = &v1alpha1.Selector{} },
		"http://10.0.0.200:6443":  func(b *Balancer) { b.Spec.HealthCheck = &v1alpha1.HealthCheck{HTTP: &v1alpha1.HTTPCheck{Port: 80}} },
		"https://[fd00::1]:6443":  func(b *Balancer) { b.Status.Endpoint.Host = "fd00::1" },
		"":                        func(b *Balancer) { b.Status.Endpoint = nil },
	} {
		b := balancer(change)
		if got := b.URL(b.Status.Endpoint); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestOldWordOfASilentMemberEndsNoHold: a daemon of the version before wrote the same line for
// a node that has drained and for one that is merely not heard. Nothing rests on it.
func TestOldWordOfASilentMemberEndsNoHold(t *testing.T) {
	m := machine("a/prod/m1", "cp1")
	m.Deleted, m.Annotations[HookKey] = born, ""
	b := balancer(nil)
	line := func(report *Report, was string) string {
		b.Status.Members = []v1alpha1.MachineMemberStatus{{Machine: "m1", Namespace: "a", Node: "cp1", State: v1alpha1.MemberDrained, Reason: was}}
		b.Status = b.Summary([]*Machine{m}, report, rules(), born)
		x := b.Status.Members[0]
		out, _ := rules().Releases([]*Machine{m}, []*Balancer{b}, born.Add(time.Second))
		return fmt.Sprintf("%s/%s, %d released", x.State, x.Reason, len(out))
	}
	silent, drained := &Report{}, &Report{Members: []model.MachineMember{node("cp1", model.ReasonStandby, empty)}}
	for _, c := range []struct {
		name, was string
		report    *Report
		want      string
	}{
		{"an older daemon, then silence", DrainDeleting, silent, "Drained/NotHeard, 0 released"},
		{"an older daemon, and the node is heard", DrainDeleting, drained, "Drained/ServesNothing, 1 released"},
		{"drained, then silence", MemberServesNothing, silent, "Drained/ServesNothing, 1 released"},
	} {
		if got := line(c.report, c.was); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestNodeOfAMachineIsFoundByItsAddress: before a Machine names its Node the status says which
// node has its address.
func TestNodeOfAMachineIsFoundByItsAddress(t *testing.T) {
	heard := node("cp1", model.ReasonOwner, func(n *model.MachineMember) { n.Addrs = []netip.Addr{addr("10.0.0.11")} })
	all := []*Machine{machine("a/prod/m1", "", "10.0.0.11"), machine("a/prod/m2", "", "10.0.0.12")}
	s := balancer(nil).Summary(all, &Report{Members: []model.MachineMember{heard}}, rules(), born)
	if s.Members[0].Node != "cp1" || s.Members[1].Node != "" {
		t.Errorf("nodes %q and %q", s.Members[0].Node, s.Members[1].Node)
	}
}

// TestWhoGetsTheHook of lbd: members of a balancer that asks for it, once, unless they are going.
func TestWhoGetsTheHook(t *testing.T) {
	all := []*Machine{
		machine("a/prod/m1", "cp1"),
		with(machine("a/prod/m2", "cp2"), func(m *Machine) { m.Annotations[HookKey] = "lbd" }),
		with(machine("a/prod/m3", "cp3"), func(m *Machine) { m.Deleted = born }),
		machine("a/other/m4", "cp4"),
	}
	asks := balancer(func(b *Balancer) { b.Spec.Drain.PreDrainHook = v1alpha1.PreDrainHookRegister })
	if got := names(Unregistered(all, []*Balancer{asks})); got != "a/m1" {
		t.Errorf("it asks: %q", got)
	}
	if got := names(Unregistered(all, []*Balancer{balancer(nil)})); got != "" {
		t.Errorf("it does not ask: %q", got)
	}
}
