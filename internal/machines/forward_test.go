package machines

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// ports has clients connect to another port than the Machines listen on.
func ports(b *Balancer) {
	b.Spec.Port = v1alpha1.MachinePort{Port: 443, MachinePort: 6443}
	if e := b.Status.Endpoint; e != nil {
		e.Port = 443
	}
}

// forwarded is a balancer of that kind, of the addresses.
func forwarded(addrs ...string) *Balancer {
	b := balancer(ports)
	for _, a := range addrs {
		b.Status.Addresses = append(b.Status.Addresses, a)
		b.Status.Address = b.Status.Addresses[0]
	}
	return b
}

// typed is a Machine with addresses of types.
func typed(m *Machine, internal, external []string) *Machine {
	for _, a := range external {
		m.Addresses = append(m.Addresses, addr(a))
	}
	for _, a := range internal {
		m.Addresses, m.Internal = append(m.Addresses, addr(a)), append(m.Internal, addr(a))
	}
	return m
}

func TestForwarded(t *testing.T) {
	for name, c := range map[string]struct {
		port     v1alpha1.MachinePort
		endpoint int32
		want     bool
	}{
		"one port":                        {v1alpha1.MachinePort{Port: 6443}, 6443, false},
		"one port, a Cluster of its own":  {v1alpha1.MachinePort{Port: 6443}, 443, false},
		"two ports":                       {v1alpha1.MachinePort{Port: 443, MachinePort: 6443}, 443, true},
		"two ports, no endpoint yet":      {v1alpha1.MachinePort{Port: 443, MachinePort: 6443}, 0, true},
		"a Cluster with that of Machines": {v1alpha1.MachinePort{Port: 443, MachinePort: 6443}, 6443, false},
		"a Cluster with a third":          {v1alpha1.MachinePort{Port: 443, MachinePort: 6443}, 8443, true},
	} {
		b := balancer(func(b *Balancer) { b.Spec.Port = c.port; b.Status.Endpoint.Port = c.endpoint })
		if c.endpoint == 0 {
			b.Status.Endpoint = nil
		}
		if b.Forwarded() != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// spelt is what is forwarded, in one text.
func spelt(lb *model.LoadBalancer, checks map[string]v1alpha1.HealthCheck) string {
	var out []string
	for _, p := range lb.Ports {
		out = append(out, fmt.Sprintf("%s %d>%d", p.Protocol, p.Port, p.TargetPort))
	}
	for _, x := range lb.Servers {
		text := fmt.Sprintf("%s*%d", x.Addr, x.Weight)
		if x.Leaving {
			text += "!"
		}
		if h := checks[x.Check]; x.Check != "" {
			text += fmt.Sprintf("(%s:%d)", h.HTTPS.Host, h.HTTPS.Port)
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestForwarding(t *testing.T) {
	gone := func(m *Machine) *Machine { m.Deleted = born; return m }
	off := func(m *Machine) *Machine { m.Annotations[v1alpha1.DisabledPrefix+"api"] = ""; return m }
	six := []string{"10.0.0.200", "fd00::200"}
	for name, c := range map[string]struct {
		addrs   []string
		members []*Machine
		want    string
	}{
		"one":        {nil, []*Machine{machine("a/prod/m1", "", "10.0.0.11")}, "10.0.0.11*10(10.0.0.11:6443)"},
		"is deleted": {nil, []*Machine{machine("a/prod/m1", "", "10.0.0.11"), gone(machine("a/prod/m2", "", "10.0.0.12"))}, "10.0.0.11*10(10.0.0.11:6443) 10.0.0.12*0!(10.0.0.12:6443)"},
		"is labelled": {nil, []*Machine{with(machine("a/prod/m1", "", "10.0.0.11"), func(m *Machine) { m.Labels["lbd.dev/drain"] = "" })},
			"10.0.0.11*0!(10.0.0.11:6443)"},
		"is disabled":             {nil, []*Machine{off(machine("a/prod/m1", "", "10.0.0.11"))}, "10.0.0.11*0(10.0.0.11:6443)"},
		"is disabled and deleted": {nil, []*Machine{gone(off(machine("a/prod/m1", "", "10.0.0.11")))}, "10.0.0.11*0(10.0.0.11:6443)"},
		"is deleted since it has moved": {nil, []*Machine{gone(with(machine("a/prod/m1", "", "10.0.0.11"), func(m *Machine) { m.Annotations[MovedAnnotation] = "" }))},
			"10.0.0.11*10(10.0.0.11:6443)"},
		"takes the place of another": {nil, []*Machine{gone(machine("a/prod/m1", "", "10.0.0.11")), machine("a/prod/m2", "", "10.0.0.11")}, "10.0.0.11*10(10.0.0.11:6443)"},
		"its place is taken":         {nil, []*Machine{machine("a/prod/m1", "", "10.0.0.11"), gone(machine("a/prod/m2", "", "10.0.0.11"))}, "10.0.0.11*10(10.0.0.11:6443)"},
		"no address yet":             {nil, []*Machine{machine("a/prod/m1", "")}, ""},
		"its InternalIP":             {nil, []*Machine{typed(machine("a/prod/m1", ""), []string{"10.0.0.11"}, []string{"192.0.2.1"})}, "10.0.0.11*10(10.0.0.11:6443)"},
		"it lists VIPs":              {nil, []*Machine{machine("a/prod/m1", "", "10.0.0.200", "10.0.0.201", "10.0.0.11")}, "10.0.0.11*10(10.0.0.11:6443)"},
		"of this link only":          {six, []*Machine{machine("a/prod/m1", "", "fe80::11", "169.254.0.11", "fd00::11")}, "fd00::11*10(fd00::11:6443)"},
		"of another family":          {nil, []*Machine{machine("a/prod/m1", "", "fd00::11")}, ""},
		"of both families":           {six, []*Machine{machine("a/prod/m1", "", "10.0.0.11", "fd00::11")}, "10.0.0.11*10(10.0.0.11:6443) fd00::11*10(fd00::11:6443)"},
	} {
		b := forwarded(c.addrs...)
		lb, checks := b.Forwarding(c.members, rules(), []netip.Addr{shared, addr("10.0.0.201"), addr("fd00::200")})
		if got, want := spelt(&lb, checks), strings.TrimSpace("TCP 443>6443 "+c.want); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if lb.Name != "a/api" || lb.DrainTimeout != 30*time.Second || len(checks) != len(lb.Servers) {
			t.Errorf("%s: %+v %v", name, lb, checks)
		}
	}
	b := forwarded()
	b.Spec.Port.Protocol, b.Spec.Drain.Timeout.Duration = v1alpha1.MachineUDP, 20*time.Second
	lb, checks := b.Forwarding([]*Machine{machine("a/prod/m1", "", "10.0.0.11")}, rules(), nil)
	if got := spelt(&lb, checks); got != "UDP 443>6443 10.0.0.11*10" || len(checks) > 0 || lb.DrainTimeout != 10*time.Second {
		t.Errorf("UDP: %s, drains for %v", got, lb.DrainTimeout)
	}
	var many []*Machine
	for i := range maxServers + 1 {
		many = append(many, machine(fmt.Sprintf("a/prod/m%d", i), "", fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)))
	}
	if lb, _ = forwarded().Forwarding(many, rules(), nil); len(lb.Servers) != maxServers {
		t.Errorf("%d servers", len(lb.Servers))
	}
}

// TestAddressOfAnotherBalancer: an object of somebody else that names the address of a Machine takes
// it out of no service; a Machine that lists the VIP of another balancer is asked elsewhere.
func TestAddressOfAnotherBalancer(t *testing.T) {
	theirs := []netip.Addr{netip.MustParseAddr("10.0.0.11")}
	for want, m := range map[string]*Machine{
		"TCP 443>6443 10.0.0.11*10": machine("a/prod/m1", "", "10.0.0.11"),
		"TCP 443>6443 10.0.0.12*10": machine("a/prod/m1", "", "10.0.0.11", "10.0.0.12"),
	} {
		lb, checks := forwarded().Forwarding([]*Machine{m}, rules(), theirs)
		if got := spelt(&lb, checks); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestRefusal: what would not work is refused, with the rule that it breaks.
func TestRefusal(t *testing.T) {
	advertise := func(a v1alpha1.Advertise) func(*Balancer) { return func(b *Balancer) { b.Spec.Advertise = &a } }
	check := func(host string) func(*Balancer) {
		return func(b *Balancer) {
			b.Spec.HealthCheck = &v1alpha1.HealthCheck{TCP: &v1alpha1.TCPCheck{Port: 6443, Host: host}}
		}
	}
	for name, c := range map[string]struct {
		change  func(*Balancer)
		members []*Machine
		want    string
	}{
		"nothing wrong": {nil, []*Machine{machine("a/prod/m1", "", "10.0.0.11")}, ""},
		"bgp alone": {advertise(v1alpha1.Advertise{BGP: &v1alpha1.BGPAdvertise{}}), nil,
			"so connections are forwarded: spec.advertise.bgp: needs l2 beside it: the balancer that owns the addresses there is the one that advertises them; or have"},
		"bgp beside l2":                   {advertise(v1alpha1.Advertise{BGP: &v1alpha1.BGPAdvertise{}, L2: &v1alpha1.L2Advertise{}}), nil, ""},
		"balanced":                        {advertise(v1alpha1.Advertise{L2: &v1alpha1.L2Advertise{Mode: v1alpha1.L2Balanced}}), nil, `"balanced" is not for connections that are forwarded`},
		"a check of a host":               {check("10.0.0.9"), nil, `leave the host "10.0.0.9"`},
		"a check without one":             {check(""), nil, ""},
		"the address of the only Machine": {nil, []*Machine{machine("a/prod/m2", "", "10.0.0.200")}, "10.0.0.200 is the own address of Machine a/m2"},
		"the address of one of them":      {nil, []*Machine{machine("a/prod/m1", "", "10.0.0.11"), machine("a/prod/m2", "", "10.0.0.200")}, ""},
		"a Machine that lists the VIP":    {nil, []*Machine{machine("a/prod/m1", "", "10.0.0.200", "10.0.0.11")}, ""},
	} {
		b := balancer(func(b *Balancer) {
			ports(b)
			if c.change != nil {
				c.change(b)
			}
		})
		got := b.Refusal(c.members, nil)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if b.Spec.Port.Port = 6443; b.Status.Endpoint != nil {
			b.Status.Endpoint.Port = 6443
		}
		if got := b.Refusal(c.members, nil); got != "" {
			t.Errorf("%s: what only moves is refused: %s", name, got)
		}
	}
}

// TestHolds: who may have the address, and who has to do with it.
func TestHolds(t *testing.T) {
	members := []*Machine{machine("a/prod/m1", "cp1", "10.0.0.11")}
	worker := with(machine("a/prod/w1", "w1"), func(m *Machine) { delete(m.Labels, ControlPlaneLabel) })
	for name, c := range map[string]struct {
		self          *Machine
		balancer      bool
		cluster       string
		holds, follow bool
	}{
		"a member":                           {members[0], false, "", true, true},
		"a Machine of the cluster":           {worker, false, "", false, true},
		"a Machine of another":               {machine("a/dev/m1", "cp1"), false, "", false, false},
		"no Machine":                         {nil, false, "", false, false},
		"a balancer":                         {nil, true, "", true, true},
		"a Machine of another as a balancer": {machine("a/dev/m1", "cp1"), true, "", true, true},
		"a balancer of this cluster":         {nil, true, "prod", true, true},
		"a balancer of another":              {nil, true, "dev", false, false},
	} {
		r := rules()
		r.Balancer, r.ClusterName = c.balancer, c.cluster
		if h, f := r.Holds(forwarded(), c.self), r.Follows(forwarded(), members, c.self); h != c.holds || f != c.follow {
			t.Errorf("%s: holds %v, follows %v", name, h, f)
		}
	}
}

// TestForwardedSummary: the members are servers, whoever has the address.
func TestForwardedSummary(t *testing.T) {
	b := forwarded()
	all := []*Machine{machine("a/prod/m1", "", "10.0.0.11"), machine("a/prod/m2", "", "10.0.0.12")}
	health := func(h ...model.Health) map[string]model.Health {
		out := map[string]model.Health{}
		for i, x := range h {
			out[b.CheckName(all[i].Addresses[0])] = x
		}
		return out
	}
	const up, down, unknown = model.HealthUp, model.HealthDown, model.HealthUnknown
	owner, none := []model.MachineMember{node("box1", model.ReasonStandby), node("box2", model.ReasonOwner)}, []model.MachineMember{node("box1", model.ReasonUnhealthy)}
	for name, c := range map[string]struct {
		change func(*Machine) // of the second
		report *Report
		want   string
	}{
		"all are well": {nil, &Report{Members: owner, Health: health(up, up)}, "m1=Active/Serving, m2=Active/Serving, True/MembersHealthy, 2 of 2 members healthy"},
		"one is down":  {nil, &Report{Members: owner, Health: health(up, down)}, "m1=Active/Serving, m2=Unhealthy/Unhealthy, True/MembersHealthy, 1 of 2 members healthy"},
		"one is new":   {nil, &Report{Members: owner, Health: health(up, unknown)}, "m1=Active/Serving, m2=Pending/HealthPending, True/MembersHealthy, 1 of 2 members healthy"},
		"all are down": {nil, &Report{Members: none, Health: health(down, down)}, "m1=Unhealthy/Unhealthy, m2=Unhealthy/Unhealthy, False/NoHealthyMember, False/NobodyServes, 0 of 2 members healthy"},
		"no session": {nil, &Report{Members: []model.MachineMember{node("box1", model.ReasonDegraded), node("box2", model.ReasonDegraded)}, Health: health(up, up)},
			"m1=Active/Serving, m2=Active/Serving, True/MembersHealthy, 2 of 2 members healthy"},
		"not announced": {nil, &Report{Members: none, Health: health(up, up)}, "m1=Active/Standby, m2=Active/Standby, False/NobodyServes, False/NobodyServes, 2 of 2 members healthy"},
		"not asked":     {nil, &Report{Members: owner, Health: health(up)}, "m1=Active/Serving, m2=Pending/NotReported, True/MembersHealthy, 1 of 2 members healthy"},
		"no address": {func(m *Machine) { m.Addresses = nil }, &Report{Members: owner, Health: health(up)},
			"m1=Active/Serving, m2=Pending/NoMachineAddress, True/MembersHealthy, 1 of 2 members healthy"},
		"of another family": {func(m *Machine) { m.Addresses = []netip.Addr{addr("fd00::12")} }, &Report{Members: owner, Health: health(up)},
			"m1=Active/Serving, m2=Unhealthy/NoMachineAddress, True/MembersHealthy, 1 of 2 members healthy"},
		"deleted": {func(m *Machine) { m.Deleted = born }, &Report{Members: owner, Health: health(up, up)},
			"m1=Active/Serving, m2=Draining/Deleting, True/MembersHealthy, 1 of 2 members healthy"},
		"disabled": {func(m *Machine) { m.Labels[v1alpha1.DisabledLabel] = "" }, &Report{Members: owner, Health: health(up, up)},
			"m1=Active/Serving, m2=Disabled/Disabled, True/MembersHealthy, 1 of 1 members healthy"},
		"taken by a file": {nil, &Report{Members: owner, Health: health(up, up), Taken: []netip.Addr{shared}},
			"m1=Unhealthy/AddressTaken, m2=Unhealthy/AddressTaken, False/NoHealthyMember, False/NobodyServes, 0 of 2 members healthy"},
		"nobody reports": {nil, nil, "m1=Pending/NotReported, m2=Pending/NotReported, False/NoHealthyMember, Unknown/NotReported, 0 of 2 members healthy"},
	} {
		m := *all[1]
		m.Labels = map[string]string{ClusterLabel: "prod", ControlPlaneLabel: ""}
		if c.change != nil {
			c.change(&m)
		}
		if got := told(b.Summary([]*Machine{all[0], &m}, c.report, rules(), born)); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
	// What daemons have said stays when the controller looks.
	s := b.Summary(all, &Report{Members: owner, Health: health(up, down)}, rules(), born)
	s.ReportedBy = "box1"
	b.Status = s
	if got, want := told(b.Summary(all, nil, rules(), born)), told(s); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestForwardedFamilies: a member is as well as with the family that it is worse with, and each
// address must have a node.
func TestForwardedFamilies(t *testing.T) {
	b := forwarded("10.0.0.200", "fd00::200")
	second := addr("fd00::200")
	all := []*Machine{machine("a/prod/m1", "", "10.0.0.11", "fd00::11")}
	for want, c := range map[string]struct {
		v6    model.Reason
		check model.Health
	}{
		"m1=Active/Serving, True/MembersHealthy, 1 of 1 members healthy":                            {model.ReasonOwner, model.HealthUp},
		"m1=Active/Serving, True/MembersHealthy, False/NobodyServes, 1 of 1 members healthy":        {model.ReasonStandby, model.HealthUp},
		"m1=Unhealthy/Unhealthy, False/NoHealthyMember, False/NobodyServes, 0 of 1 members healthy": {model.ReasonUnhealthy, model.HealthDown},
	} {
		n := node("box", model.ReasonOwner)
		n.Standing[second] = c.v6
		s := b.Summary(all, &Report{Members: []model.MachineMember{n}, Health: map[string]model.Health{
			b.CheckName(addr("10.0.0.11")): model.HealthUp, b.CheckName(addr("fd00::11")): c.check,
		}}, rules(), born)
		if got := told(s); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
		// The controller leaves it as it is.
		b2 := *b
		b2.Status = s
		b2.Status.ReportedBy = "box"
		if got := told(b2.Summary(all, nil, rules(), born)); got != want {
			t.Errorf("the controller says\n%s\nwant\n%s", got, want)
		}
	}
}

// TestForwardedDrain: a member that is about to go has served nothing any more when its
// connections have had their time, if somebody else can serve, and not before.
func TestForwardedDrain(t *testing.T) {
	b := forwarded()
	all := []*Machine{machine("a/prod/m1", "", "10.0.0.11"), with(machine("a/prod/m2", "cp2", "10.0.0.12"), func(m *Machine) {
		m.Deleted, m.Annotations[HookKey] = born, ""
	})}
	first, second := b.CheckName(addr("10.0.0.11")), b.CheckName(addr("10.0.0.12"))
	member := node("cp2", model.ReasonStandby, goes)
	step := func(after time.Duration, other model.Health, state string, held bool, more ...model.MachineMember) {
		t.Helper()
		now := born.Add(after)
		s := b.Summary(all, &Report{Members: append([]model.MachineMember{node("box", model.ReasonOwner)}, more...),
			Health: map[string]model.Health{first: other, second: model.HealthUp}}, rules(), now)
		if got := string(s.Members[1].State); got != state {
			t.Errorf("after %v it is %s, want %s", after, got, state)
		}
		b.Status = s
		if out, _ := rules().Releases(all, []*Balancer{b}, now); (len(out) == 0) != held {
			t.Errorf("after %v it is released: %v", after, out)
		}
	}
	step(0, model.HealthUp, "Draining", true)
	if got := b.Due(); !got.Equal(born.Add(31 * time.Second)) {
		t.Errorf("due %v", got)
	}
	step(30*time.Second, model.HealthUp, "Draining", true)
	step(32*time.Second, model.HealthDown, "Draining", true)       // it is the last
	step(33*time.Second, model.HealthUp, "Draining", true, member) // its node still has an address
	step(34*time.Second, model.HealthUp, "Drained", false)
	step(35*time.Second, model.HealthDown, "Drained", false)
	all[1].Deleted = time.Time{}
	step(36*time.Second, model.HealthUp, "Active", true)
	if !b.Due().IsZero() {
		t.Errorf("due %v", b.Due())
	}
}

// TestReleasesOfBoth: a Machine that is a server and whose node has addresses is released when
// both have ended.
func TestReleasesOfBoth(t *testing.T) {
	m := with(machine("a/prod/m1", "cp1", "10.0.0.11"), func(m *Machine) { m.Deleted, m.Annotations[HookKey] = born, "" })
	drained := []v1alpha1.MachineMemberStatus{{Machine: "m1", Namespace: "a", Node: "cp1", State: v1alpha1.MemberDrained, Reason: MemberServesNothing}}
	for _, c := range []struct{ moved, server, released bool }{{false, false, false}, {true, false, false}, {false, true, false}, {true, true, true}} {
		plain, second := balancer(nil), forwarded()
		if second.Name = "users"; c.moved {
			plain.Status.Members = drained
		}
		if c.server {
			second.Status.Members = drained
		}
		if out, _ := rules().Releases([]*Machine{m}, []*Balancer{plain, second}, born); (len(out) > 0) != c.released {
			t.Errorf("%+v: %v", c, out)
		}
	}
}

// TestSpeaks: of two groups one reports.
func TestSpeaks(t *testing.T) {
	b := forwarded()
	standby := &Report{Members: []model.MachineMember{node("box1", model.ReasonStandby)}}
	owner := &Report{Members: []model.MachineMember{node("box1", model.ReasonOwner)}}
	deaf := &Report{Members: []model.MachineMember{node("box1", model.ReasonDegraded)}} // and has it not
	for by, want := range map[string]bool{"": true, "box1": true, "other": false} {
		if b.Status.ReportedBy = by; standby.Speaks(b) != want || deaf.Speaks(b) != want || !owner.Speaks(b) {
			t.Errorf("after %q: %v, the owner %v", by, standby.Speaks(b), owner.Speaks(b))
		}
	}
}
