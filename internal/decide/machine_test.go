package decide

import (
	"net/netip"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/membership"
	"lbd.dev/lbd/internal/model"
)

// machines NODE [manager] [partial] [MACHINE=NODE|ADDRESS[@ONLY]...] is what a node says of
// Machines now.
func (s *stage) machines(args []string) {
	n := model.NodeName(args[0])
	m := s.v.Gossip.Members[n]
	m.Manager, m.Partial, m.Drains = false, false, nil
	for _, a := range args[1:] {
		switch machine, node, is := strings.Cut(a, "="); {
		case is:
			d := model.MachineDrain{Machine: machine, Reason: "Deleting"}
			if at, only, some := strings.Cut(node, "@"); some {
				node, d.Reason, d.Only = at, "Disabled", []netip.Addr{netip.MustParseAddr(only)}
			}
			if addr, err := netip.ParseAddr(node); err == nil {
				d.Addrs = []netip.Addr{addr}
			} else {
				d.Node = model.NodeName(node)
			}
			m.Drains = append(m.Drains, d)
		case a == "manager":
			m.Manager = true
		case a == "partial":
			m.Partial = true
		default:
			s.t.Fatalf("machines %q", a)
		}
	}
	if n == s.v.Self {
		s.v.Machines.Manager, s.v.Machines.Drains = m.Manager, m.Drains
		return
	}
	s.v.Gossip.Members[n] = m
}

// machine is what a decision says of Machines.
func (s *stage) machine() string {
	line := ""
	if m := s.d.Memory.Machine; m.Drain != nil {
		line += " machine=" + m.Drain.Machine + "<" + string(m.By)
		if s.d.Group.Drained {
			line += "+drained"
		}
	}
	if m := s.d.Memory.Disabled; m.Drain != nil {
		line += " disabled=" + m.Drain.Machine + "<" + string(m.By)
	}
	for _, d := range s.d.Group.Drains {
		line += " tells=" + d.Machine + ">" + string(d.Node)
	}
	if s.d.Machines.Writer {
		line += " writer"
	}
	return line
}

// drainView is a node that knows its group, has no VIPs, and is told nothing yet.
func drainView(t *testing.T) *stage {
	s := newStage(t)
	s.v.VIPs = nil
	return s
}

// say runs commands, decides, and returns what is decided about Machines.
func (s *stage) say(script string) string {
	s.t.Helper()
	for line := range strings.Lines(script) {
		if words := strings.Fields(line); len(words) > 0 {
			s.command(words[0], words[1:])
		}
	}
	s.d = Decide(&s.v)
	s.v.Memory = s.d.Memory
	return strings.TrimSpace(s.machine())
}

// step is one thing that happens, and what is decided then.
type machineStep struct{ what, want string }

func TestMachineDrains(t *testing.T) {
	const told, own = "machine=ns/a<m2+drained", "machine=ns/a<m1+drained"
	for _, c := range []struct {
		name  string
		steps []machineStep
	}{
		{"nobody says anything", []machineStep{{"", ""}}},
		{"told, then over", []machineStep{
			{"machines m2 manager ns/a=m1", told}, {"machines m2 manager", ""},
		}},
		{"another node's", []machineStep{{"machines m2 manager ns/a=m3", ""}}},
		{"it knows itself, by name", []machineStep{
			{"machines m1 manager ns/a=m1", own + " tells=ns/a>m1 writer"}, {"machines m1 manager", "writer"},
		}},
		{"it knows itself, by address", []machineStep{
			{"machines m1 manager ns/a=10.0.0.11", own + " tells=ns/a>m1 writer"},
			{"machines m1 manager ns/a=10.0.0.99", "writer"},
		}},
		{"the API is lost", []machineStep{
			{"machines m2 manager ns/a=m1", told}, {"machines m2 ns/a=m1", told}, {"machines m2", told},
			{"machines m2 manager", ""},
		}},
		{"its own API is lost", []machineStep{
			{"machines m1 manager ns/a=m1", own + " tells=ns/a>m1 writer"}, {"machines m1 ns/a=m1", own + " tells=ns/a>m1"}, {"machines m1", own}, {"machines m1 manager", "writer"},
		}},
		{"the teller dies", []machineStep{
			{"machines m2 manager ns/a=m1", told}, {"member m2 dead", told}, {"machines m3 manager ns/a=m1", "machine=ns/a<m3+drained"},
			{"machines m3 manager", ""},
		}},
		{"the teller leaves", []machineStep{{"machines m2 manager ns/a=m1", told}, {"member m2 left", told}}},
		{"one of two says so", []machineStep{
			{"machines m2 manager", ""}, {"machines m3 manager ns/a=m1", "machine=ns/a<m3+drained"},
			{"machines m3 manager", ""},
		}},
		{"not all have room", []machineStep{
			{"machines m2 manager ns/a=m1", told}, {"machines m2 manager partial ns/b=m3", told}, {"machines m2 manager ns/b=m3", ""},
		}},
		{"stale, while nobody reads", []machineStep{
			{"machines m2 ns/a=m1", told}, {"machines m3 manager", ""},
		}},
		{"stale says nothing against who reads", []machineStep{
			{"machines m3 manager", ""}, {"machines m2 ns/a=m1", ""},
		}},
		{"a dead node says nothing new", []machineStep{{"member m2 dead", ""}, {"machines m2 manager ns/a=m1", ""}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := drainView(t)
			for i, step := range c.steps {
				if got := s.say(step.what); got != step.want {
					t.Fatalf("step %d, %q: got %q, want %q", i, step.what, got, step.want)
				}
			}
		})
	}
}

// What is told is of nodes of the group, under the names that the group has for them.
func TestMachinesAreTold(t *testing.T) {
	s := drainView(t)
	s.say("machines m1 manager ns/a=m2 ns/b=10.0.0.13 ns/c=10.0.0.99 ns/d=stranger")
	if got := s.machine(); got != " tells=ns/a>m2 tells=ns/b>m3 writer" {
		t.Errorf("told%s", got)
	}
	if s.d.Group.Drains[1].Addrs != nil || !s.d.Group.Manager {
		t.Errorf("%+v", s.d.Group)
	}
	// Who drains already comes last: there may not be room for all.
	if got := s.say("member m2 alive draining"); got != "tells=ns/b>m3 tells=ns/a>m2 writer" {
		t.Errorf("told %s", got)
	}
	// One that is out of sight may only be so for this node; one that left is not in
	// the group.
	if got := s.say("member m2 dead\nmember m3 left"); got != "tells=ns/a>m2 writer" {
		t.Errorf("told %s", got)
	}
	// Nor may it listen: it is told last.
	if got := s.say("member m3 alive\nmember m2 dead\nmachines m1 manager ns/a=m2 ns/b=m3"); got != "tells=ns/b>m3 tells=ns/a>m2 writer" {
		t.Errorf("told %s", got)
	}
	// Before it knows the group, its silence about a node would mean something.
	s.say("restart\nunsync gossip")
	if s.d.Group.Manager {
		t.Error("it speaks for the management cluster before it knows its group")
	}
}

// TestStrangeName: two clusters may have nodes of one name, so that the addresses count.
func TestStrangeName(t *testing.T) {
	at := func(a string) []addr { return []addr{netip.MustParseAddr(a)} }
	for want, d := range map[model.NodeName]model.MachineDrain{
		"m2": {Machine: "ns/a", Node: "m2", Addrs: at("10.0.0.12")},
		"m3": {Machine: "ns/b", Node: "m2", Addrs: at("10.0.0.13")},
		"":   {Machine: "other/a", Node: "m2", Addrs: at("10.9.0.12")},
	} {
		s := drainView(t)
		for n, a := range map[model.NodeName]string{"m2": "10.0.0.12", "m3": "10.0.0.13"} {
			m := s.v.Gossip.Members[n]
			m.Addrs = at(a)
			s.v.Gossip.Members[n] = m
		}
		s.v.Machines.Drains = []model.MachineDrain{d}
		var got model.NodeName
		for _, x := range membership.Drains(&s.v) {
			got += x.Node
		}
		if got != want {
			t.Errorf("%s of %s at %v is taken for %q, want %q", d.Machine, d.Node, d.Addrs, got, want)
		}
	}
}

func TestOneWrites(t *testing.T) {
	view := func(self string) *stage {
		s := drainView(t)
		s.v.Self = model.NodeName(self)
		delete(s.v.Gossip.Members, s.v.Self)
		for _, n := range []string{"m1", "m2", "m3"} {
			if n != self {
				s.command("member", []string{n, "alive"})
			}
			s.command("machines", []string{n, "manager"})
		}
		return s
	}
	count := func(change string) (n int, who string) {
		for _, self := range []string{"m1", "m2", "m3"} {
			s := view(self)
			s.say(change)
			if s.d.Machines.Writer {
				n, who = n+1, self
			} else if s.d.Machines.Members != nil {
				t.Errorf("%s does not write but is told of members", self)
			}
		}
		return n, who
	}
	n, first := count("")
	if n != 1 {
		t.Fatalf("%d nodes write", n)
	}
	for _, change := range []string{"machines " + first, "member " + first + " dead"} {
		others := 0
		for _, self := range []string{"m1", "m2", "m3"} {
			if self == first {
				continue
			}
			s := view(self)
			s.say(change)
			if s.d.Machines.Writer {
				others++
			}
		}
		if others != 1 {
			t.Errorf("%s: %d other nodes write", change, others)
		}
	}
}

// What the driver is told of the members.
func TestMachineMembers(t *testing.T) {
	s := newStage(t)
	s.v.Machines.Balanced = []netip.Addr{scriptVIP, netip.MustParseAddr("10.9.9.9")}
	m := s.v.Gossip.Members["m3"]
	m.Addr, m.Drained, m.Draining = netip.MustParseAddr("10.9.0.13"), true, true
	s.v.Gossip.Members["m3"] = m
	s.say("machines m1 manager\nstanding m2 Unhealthy\nmember m4 dead")
	got := s.d.Machines.Members
	if len(got) != 3 || got[0].Node != "m1" || got[1].Node != "m2" || got[2].Node != "m3" {
		t.Fatalf("%+v", got)
	}
	if got[1].Standing[scriptVIP] != model.ReasonUnhealthy || len(got[0].Standing) != 1 {
		t.Errorf("standing %v, %v", got[0].Standing, got[1].Standing)
	}
	if !got[2].Drained || !got[2].Draining || len(got[2].Addrs) != 2 || got[0].Addrs[0] != netip.MustParseAddr("10.0.0.11") {
		t.Errorf("%+v", got)
	}
}
