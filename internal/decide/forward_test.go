package decide

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// forwards is a node that owns a VIP whose connections go to two servers.
func forwards(t *testing.T) *stage {
	s := newStage(t)
	v := &s.v.VIPs[0]
	v.Kind, v.Unbound, v.Check = model.KindLoadBalancer, true, ""
	s.v.LoadBalancers = []model.LoadBalancer{{
		Name: v.Name, VIPs: []netip.Addr{scriptVIP}, Ports: []model.ForwardPort{{Protocol: model.TCP, Port: 443, TargetPort: 6443}},
		DrainTimeout: 30 * time.Second,
		Servers: []model.Server{
			{Addr: netip.MustParseAddr("10.0.0.21"), Weight: 10, Check: "a"}, {Addr: netip.MustParseAddr("10.0.0.22"), Weight: 10, Check: "b"},
		},
	}}
	s.servers(model.HealthUp, model.HealthUp)
	s.forwarding(model.AppliedVIP{Forwarding: true})
	s.run("apply", "layer2 silent", "decide", "apply", "apply")
	s.wantReason("at first", model.ReasonOwner)
	return s
}

func (s *stage) servers(a, b model.Health) {
	s.v.Health = map[string]model.HealthState{"a": {State: a, Detail: "a is " + a.String()}, "b": {State: b, Detail: "b is " + b.String()}}
}

func (s *stage) forwarding(x model.AppliedVIP) {
	s.v.Applied[model.SinkForward] = model.Applied{Gen: s.v.Memory.Gen, VIPs: map[netip.Addr]model.AppliedVIP{scriptVIP: x}}
}

func (s *stage) wantReason(what string, want model.Reason) {
	s.t.Helper()
	if is := s.d.Status[0]; is.Reason != want {
		s.t.Errorf("%s: %s (%s), want %s", what, is.Reason, is.Detail, want)
	}
}

// TestNoServerIsReached: the node hands the VIP to one that reaches a server, and says which
// servers fail and how.
func TestNoServerIsReached(t *testing.T) {
	s := forwards(t)
	if len(s.d.Forward.Services) != 1 || len(s.d.Bind) != 0 {
		t.Fatalf("%+v, bound %+v", s.d.Forward, s.d.Bind)
	}
	s.servers(model.HealthUp, model.HealthDown)
	s.run("apply")
	s.wantReason("one server fails", model.ReasonOwner)
	if len(s.d.Forward.Cut) != 1 || s.d.Forward.Cut[0].Server.Addr() != netip.MustParseAddr("10.0.0.22") {
		t.Errorf("cut are %+v", s.d.Forward.Cut)
	}
	s.servers(model.HealthDown, model.HealthDown)
	s.run("apply")
	s.wantReason("all fail", model.ReasonHandingOver)
	if is := s.d.Status[0]; is.Healthy || is.Standing != model.ReasonUnhealthy || !strings.Contains(is.Detail, "10.0.0.21: a is down") {
		t.Errorf("%+v", is)
	}
}

// TestKernelDoesNotForward: another node takes the VIP. A daemon that has just started waits for
// the first word of its driver.
func TestKernelDoesNotForward(t *testing.T) {
	s := forwards(t)
	s.forwarding(model.AppliedVIP{Err: "net.ipv4.ip_forward is 0; set it to 1"})
	s.run("apply")
	s.wantReason("it refuses", model.ReasonHandingOver)
	if is := s.d.Status[0]; is.Standing != model.ReasonNotForwarding || !strings.Contains(is.Detail, "ip_forward") {
		t.Errorf("%+v", is)
	}
	delete(s.v.Applied, model.SinkForward)
	s.run("decide")
	if is := s.d.Status[0]; is.Standing != model.ReasonHealthPending {
		t.Errorf("nothing is known: %+v", is)
	}
}

// TestForwardedConnectionsHaveARing: as those of Services that kube-proxy translates, without
// being asked for.
func TestForwardedConnectionsHaveARing(t *testing.T) {
	s := forwards(t)
	s.run("holders m2", "apply")
	if !s.d.Track || len(s.d.Relay) != 1 || !s.d.Relay[0].Tracked {
		t.Errorf("track %v, relay %+v", s.d.Track, s.d.Relay)
	}
	s.v.NoRelay = true
	s.run("apply")
	if s.d.Track || len(s.d.Relay) != 0 {
		t.Errorf("without rings: track %v, relay %+v", s.d.Track, s.d.Relay)
	}
}

// TestSuccessorIsInTheRing: as soon as it is named. What a server answers to a connection that
// came in there may come here, for as long as the server has not heard that an address has moved.
func TestSuccessorIsInTheRing(t *testing.T) {
	s := forwards(t)
	want := func(what string, next ...string) {
		t.Helper()
		var got []string
		for _, r := range s.d.Relay {
			got = append(got, r.Ring.Next.String())
		}
		if !slices.Equal(got, next) {
			t.Errorf("%s: relays go to %v, want %v", what, got, next)
		}
	}
	s.run("standing m2 Standby", "apply")
	want("an owner")
	s.run("draining on", "apply")
	s.wantReason("drained", model.ReasonHandingOver)
	want("a successor is named", "10.0.0.12")
	s.run("draining off", "apply")
	want("it stays")
	s.run("draining on", "apply", "claim m2 99", "holders m2", "apply", "apply")
	want("handed over", "10.0.0.12")
}

// TestLoadBalancerLeavesOneNode: its VIP is handed over, as that of a VirtualIP, and forwarded here
// for a minute more, for the connections that it has.
func TestLoadBalancerLeavesOneNode(t *testing.T) {
	s := forwards(t)
	s.run("standing m2 Standby", "apply")
	table := s.d.Forward.Services[0].Slots
	s.v.LoadBalancers, s.v.Health = nil, nil
	forwarded := func(what string, phase model.Phase) {
		t.Helper()
		if is := s.v.Memory.VIPs[scriptVIP].Phase; is != phase || len(s.d.Forward.Services) != 1 || s.d.Forward.Services[0].Slots != table || len(s.d.Forward.Cut) != 0 || !s.d.Track {
			t.Errorf("%s: %s, %+v", what, is, s.d.Forward.Services)
		}
	}
	s.run("vip gone", "apply")
	forwarded("removed", model.PhaseHandover)
	s.run("holders m2", "claim m2 99", "apply", "apply")
	forwarded("handed over", model.PhaseIdle)
	if len(s.d.Relay) != 1 {
		t.Errorf("handed over: relay %+v", s.d.Relay)
	}
	s.run("now 1h", "apply", "apply")
	if len(s.d.Forward.Services) != 0 || s.v.Memory.Balance != nil {
		t.Errorf("long after: %+v, remembered %v", s.d.Forward, s.v.Memory.Balance)
	}
}

// TestLoadBalancerLeavesAllNodes: its VIP is let go, and nothing is forwarded.
func TestLoadBalancerLeavesAllNodes(t *testing.T) {
	s := forwards(t)
	s.run("standing m2 Unhealthy", "standing m3 Unhealthy")
	s.v.LoadBalancers = nil
	s.run("vip gone", "apply", "apply", "apply")
	if len(s.d.Forward.Services) != 0 || s.v.Memory.Balance != nil {
		t.Errorf("%+v, remembered %v", s.d.Forward, s.v.Memory.Balance)
	}
}

// TestOwnerTellsItsVerdict: with its claim, and another node keeps to it.
func TestOwnerTellsItsVerdict(t *testing.T) {
	s := forwards(t)
	all := s.d.Group.VIPs[0].Claim.Verdict
	s.servers(model.HealthUp, model.HealthDown)
	s.run("apply")
	told := s.d.Group.VIPs[0].Claim.Verdict
	if all.Servers == 0 || all.Out != "" || told != (model.Verdict{Servers: all.Servers, Out: "\x02"}) {
		t.Fatalf("told %+v, then %+v", all, told)
	}
	other := forwards(t)
	m2 := other.v.Gossip.Members["m2"]
	m2.State = model.MemberAlive
	other.v.Gossip.Members["m2"] = m2
	other.v.Gossip.Claims[scriptVIP] = []model.Claim{{Owner: "m2", Epoch: 99, Verdict: told}}
	other.run("apply", "apply", "apply")
	if is := other.d.Forward.Services[0].Slots.Slots; slices.ContainsFunc(is, func(a netip.AddrPort) bool { return a != is[0] }) {
		t.Errorf("the owner has one server in service, and here more are: %+v", other.d.Group.VIPs[0])
	}
	if tells := other.d.Group.VIPs[0].Claim; tells != (model.Claim{}) {
		t.Errorf("a node that owns nothing tells %+v", tells)
	}
}
