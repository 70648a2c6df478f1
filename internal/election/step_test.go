package election

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

var start = time.Unix(10_000, 0)

// scene is m1 with two other nodes that are alive and eligible; its rank is the best.
func scene(phase model.Phase) *Input {
	vip := &model.VIP{Addr: netip.MustParseAddr("10.0.0.200"), Name: "b", L2: true}
	alive := func(n model.NodeName) model.Member {
		return model.Member{Name: n, State: model.MemberAlive, Known: true, Settled: true}
	}
	in := &Input{
		Node: &Node{
			Now: start, Gen: 5, Self: "m1", Rules: 1, Settled: true, Heaviest: model.DefaultWeight,
			Members: map[model.NodeName]model.Member{"m2": alive("m2"), "m3": alive("m3")},
		},
		VIP: vip, Standing: model.ReasonStandby, Where: Where{Interface: "eth0"}, Heard: Heard{Eligible: []model.NodeName{"m2", "m3"}},
	}
	in.Memory = model.VIPMemory{Phase: phase, Gen: 4, Interface: "eth0",
		OwnClaim: model.OwnClaim{Epoch: 7}, Takeover: model.Takeover{From: "m2", LostAt: start.Add(-time.Minute)}}
	in.Address = Report{Gen: 4, AppliedVIP: model.AppliedVIP{Bound: true, Interface: "eth0"}}
	in.Layer2 = Report{Gen: 4, AppliedVIP: model.AppliedVIP{Announcing: true}}
	return in
}

// step decides, and keeps what is remembered for the next step.
func (in *Input) step(later time.Duration) Output {
	in.Now = in.Now.Add(later)
	in.Gen++
	o := Step(in)
	in.Memory = o.Memory
	return o
}

// An owner whose driver cannot keep the address up lets another one try, after it has had
// patience, and not before; and it does not take the address back at once.
func TestOwnerGivesUpWhatItsDriverCannotDo(t *testing.T) {
	in := scene(model.PhaseOwner)
	in.step(0)
	if in.Memory.Phase != model.PhaseOwner {
		t.Fatalf("phase %v", in.Memory.Phase)
	}
	in.Address.Bound, in.Address.Err = false, "no buffer space"
	in.Layer2.Announcing = false
	if in.step(time.Millisecond); in.Memory.Phase != model.PhaseOwner {
		t.Fatalf("it gave up at once: %v", in.Memory.Phase)
	}
	if o := in.step(DriverPatience / 2); in.Memory.Phase != model.PhaseOwner || o.Wake.IsZero() {
		t.Fatalf("it gave up early: %v, wake %v", in.Memory.Phase, o.Wake)
	}
	in.step(DriverPatience)
	if in.Memory.Phase == model.PhaseOwner || in.Memory.Lost != model.ReasonDriverError {
		t.Fatalf("it keeps what it cannot have: %v, %v", in.Memory.Phase, in.Memory.Lost)
	}
	in.Address = Report{Gen: in.Gen + 1}
	in.Layer2 = Report{Gen: in.Gen + 1}
	for range 5 {
		in.step(time.Millisecond)
	}
	if in.Memory.Phase >= model.PhaseTaking {
		t.Errorf("it takes it again at once: %v", in.Memory.Phase)
	}
	// One that recovers in time keeps it, and has the whole time again at the next fault.
	in = scene(model.PhaseOwner)
	in.Address.Bound = false
	in.step(0)
	in.step(DriverPatience * 3 / 4)
	in.Address.Bound = true
	in.step(time.Millisecond)
	in.Address.Bound = false
	in.step(time.Millisecond)
	if in.step(DriverPatience * 3 / 4); in.Memory.Phase != model.PhaseOwner {
		t.Errorf("two short faults count as a long one: %v", in.Memory.Phase)
	}
}

// Whose claims count: those of live nodes, and of one whose membership is not known yet.
func TestClaimsOfTheDeadDoNotCount(t *testing.T) {
	for _, c := range []struct {
		name  string
		state model.MemberState
		known bool
		owner model.NodeName
	}{
		{"alive", model.MemberAlive, true, "m2"},
		{"dead", model.MemberDead, true, ""},
		{"left", model.MemberLeft, true, ""},
		{"not known yet", 0, false, "m2"},
	} {
		in := scene(model.PhaseIdle)
		in.Address, in.Layer2 = Report{Gen: 4}, Report{Gen: 4}
		in.Claims = []model.Claim{{Owner: "m2", Epoch: 9}}
		m := in.Members["m2"]
		m.State = c.state
		in.Members["m2"] = m
		if !c.known {
			delete(in.Members, "m2")
		}
		if o := in.step(0); o.Owner != c.owner {
			t.Errorf("%s: the owner is %q, want %q", c.name, o.Owner, c.owner)
		}
	}
}

// The owner that is missed is the dead one with the highest claim: its rank and the end of
// its lease are what counts.
func TestLastOwnerHasTheHighestClaim(t *testing.T) {
	for _, claims := range [][]model.Claim{
		{{Owner: "m2", Epoch: 3}, {Owner: "m3", Epoch: 8}},
		{{Owner: "m3", Epoch: 8}, {Owner: "m2", Epoch: 3}},
	} {
		in := scene(model.PhaseIdle)
		in.Address, in.Layer2 = Report{Gen: 4}, Report{Gen: 4}
		in.Memory = model.VIPMemory{}
		in.Claims = claims
		for n, m := range in.Members {
			m.State, m.Gone = model.MemberDead, start
			in.Members[n] = m
		}
		if in.step(0); in.Memory.From != "m3" {
			t.Errorf("%v: missed is %q, want m3", claims, in.Memory.From)
		}
	}
}

// Who is about to take an address lets it be when somebody has a better claim, or when it may
// not have it any more.
func TestTakingEndsWhenAnotherOneHasIt(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Input)
		stays  bool
	}{
		{"nothing has changed", func(*Input) {}, true},
		{"a higher claim", func(in *Input) { in.Claims = []model.Claim{{Owner: "m2", Epoch: 8}} }, false},
		{"a lower claim", func(in *Input) { in.Claims = []model.Claim{{Owner: "m2", Epoch: 6}} }, true},
		{"its check fails", func(in *Input) { in.Standing = model.ReasonUnhealthy }, false},
		{"not configured any more", func(in *Input) { in.Gone = true }, false},
	} {
		in := scene(model.PhaseTaking)
		in.Memory.Until = start.Add(DriverPatience)
		in.Address.Bound = false
		c.change(in)
		if in.step(0); (in.Memory.Phase == model.PhaseTaking) != c.stays {
			t.Errorf("%s: %v", c.name, in.Memory.Phase)
		}
	}
}

// A drain that ends while a successor gets ready leaves the address where it is; an owner
// that stood still first hears whether the successor has it.
func TestHandoverEndsWithItsReason(t *testing.T) {
	handing := func() *Input {
		in := scene(model.PhaseHandover)
		in.Standing, in.Memory.To, in.Memory.Until = model.ReasonDraining, "m2", start.Add(HandoverTimeout)
		return in
	}
	in := handing()
	if in.step(time.Millisecond); in.Memory.Phase != model.PhaseHandover || in.Memory.To != "m2" {
		t.Fatalf("it does not wait for its successor: %v, %s", in.Memory.Phase, in.Memory.To)
	}
	in.Standing = model.ReasonStandby
	if in.step(time.Millisecond); in.Memory.Phase != model.PhaseOwner || in.Memory.To != "" {
		t.Errorf("the drain is over: %v to %q", in.Memory.Phase, in.Memory.To)
	}
	in = handing()
	if in.step(HandoverTimeout + time.Millisecond); in.Memory.To != "m3" {
		t.Errorf("the successor did not claim it: named is %q, want m3", in.Memory.To)
	}
	in = handing()
	in.Resumed = start.Add(HandoverTimeout)
	if o := in.step(HandoverTimeout + time.Millisecond); in.Memory.To != "m2" || o.Wake.After(in.Resumed.Add(HandoverTimeout)) || o.Wake.IsZero() {
		t.Errorf("it stood still and names %q, wake %v", in.Memory.To, o.Wake)
	}
	if in.step(HandoverTimeout); in.Memory.To != "m3" {
		t.Errorf("it has heard nothing since: named is %q, want m3", in.Memory.To)
	}
}

// A successor that is lost before it has the address is not waited for: the next one is named.
func TestLostSuccessorIsNotWaitedFor(t *testing.T) {
	for name, lose := range map[string]func(in *Input, m *model.Member){
		"its heartbeats are late": func(_ *Input, m *model.Member) { m.Late = start },
		"dead":                    func(_ *Input, m *model.Member) { m.State = model.MemberDead },
		"its check fails":         func(in *Input, _ *model.Member) { in.Eligible = []model.NodeName{"m3"} },
		"nothing":                 nil,
	} {
		in := scene(model.PhaseHandover)
		in.Standing, in.Memory.To, in.Memory.Until = model.ReasonDraining, "m2", start.Add(HandoverTimeout)
		want := model.NodeName("m2")
		if lose != nil {
			m := in.Members["m2"]
			lose(in, &m)
			in.Members["m2"], want = m, "m3"
		}
		if o := in.step(time.Millisecond); in.Memory.To != want || o.Claim.To != want {
			t.Errorf("%s: named is %q, claimed for %q, want %q", name, in.Memory.To, o.Claim.To, want)
		}
	}
}

// A frame with the address of a member that was not named says nothing of the successor.
func TestFrameOfAThirdNodeDoesNotEndAHandover(t *testing.T) {
	for foreign, disputed := range map[model.NodeName]bool{"m2": true, "m3": false} {
		in := scene(model.PhaseHandover)
		in.Standing, in.Memory.To, in.Memory.Until = model.ReasonDraining, "m2", start.Add(HandoverTimeout)
		for n, m := range in.Members {
			m.MACs = []model.MAC{{2, 0, 0, 0, 0, n[1]}}
			in.Members[n] = m
		}
		in.Layer2.Conflicts, in.Layer2.Foreign = 1, in.Members[foreign].MACs[0]
		in.step(time.Millisecond)
		if in.step(ClaimFollows); (in.Memory.Phase == model.PhaseDoubt) != disputed {
			t.Errorf("a frame of %s, m2 is the successor: %v", foreign, in.Memory.Phase)
		}
	}
}

// A drain does not wait for a driver to recover: the successor is named at once.
func TestDrainDoesNotWaitForADriver(t *testing.T) {
	in := scene(model.PhaseOwner)
	in.Layer2.Announcing, in.Layer2.Err = false, "no buffer space"
	in.step(0)
	in.Standing = model.ReasonDraining
	if o := in.step(time.Millisecond); o.Claim.To == "" {
		t.Errorf("nobody is named: %v", in.Memory.Phase)
	}
}

// Of two owners with the same epoch the worse ranked one yields, also if heartbeats of the
// other are late; only one that has taken over from it waits until it is heard again.
func TestEqualClaimOfALateOwner(t *testing.T) {
	for _, c := range []struct{ weak, late, stays bool }{
		{false, false, false}, {false, true, false}, {true, false, false}, {true, true, true},
	} {
		in := scene(model.PhaseOwner)
		in.Memory.Weak = c.weak
		for i := 0; Better(in.VIP.Name, Candidate{Node: "m1"}, Candidate{Node: "m2"}); i++ {
			in.VIP.Name = fmt.Sprint("vip-", i)
		}
		in.Claims = []model.Claim{{Owner: "m2", Epoch: in.Memory.Epoch, Weak: c.weak}}
		if m := in.Members["m2"]; c.late {
			m.Late = start
			in.Members["m2"] = m
		}
		if in.step(0); (in.Memory.Phase == model.PhaseOwner) != c.stays {
			t.Errorf("%+v: %v", c, in.Memory.Phase)
		}
	}
}

// A successor that answers for the VIP itself, and stood still before it had begun, takes it
// anew on a consent that stands.
func TestConsentStandsForASuccessorThatStoodStill(t *testing.T) {
	in := scene(model.PhaseOwner)
	in.VIP.Unbound, in.Memory.Unbound, in.Memory.Consented, in.Lapsed = true, true, true, true
	in.Layer2 = Report{}
	in.Claims = []model.Claim{{Owner: "m2", Epoch: 6, To: "m1"}}
	if in.step(0); in.Memory.Phase != model.PhaseOwner || in.Memory.Epoch != 7 || in.Memory.AddBefore.IsZero() {
		t.Errorf("%v, epoch %d, %v", in.Memory.Phase, in.Memory.Epoch, in.Memory.AddBefore)
	}
}

// Of two owners with the same epoch it is not the level of their checks that says who yields:
// they may not have heard of it yet, and both would.
func TestLevelsDoNotDecideBetweenOwners(t *testing.T) {
	for _, c := range []struct {
		name        string
		self, other model.Reason
	}{{"this one is degraded", model.ReasonDegraded, model.ReasonOwner}, {"the other one is", model.ReasonStandby, model.ReasonDegraded}} {
		in := scene(model.PhaseOwner) // m1 ranks first
		in.VIP.Check, in.Rules, in.Standing = "https", RulesDegraded, c.self
		m := in.Members["m2"]
		m.Standing = map[netip.Addr]model.Reason{in.VIP.Addr: c.other}
		in.Members["m2"] = m
		in.Claims = []model.Claim{{Owner: "m2", Epoch: in.Memory.Epoch}}
		if in.step(0); in.Memory.Phase != model.PhaseOwner {
			t.Errorf("%s: %v", c.name, in.Memory.Phase)
		}
	}
}

// An owner with preempt that has just got the VIP keeps it for a while although a better one is there.
func TestPreemptWaits(t *testing.T) {
	in := scene(model.PhaseOwner)
	in.VIP.Preempt, in.Memory.Owner = true, "m2"
	for i := 0; Better(in.VIP.Name, Candidate{Node: "m1"}, Candidate{Node: "m2"}); i++ {
		in.VIP.Name = fmt.Sprint("vip-", i)
	}
	for _, later := range []time.Duration{0, PreemptDelay / 2} {
		if in.step(later); in.Memory.Phase != model.PhaseOwner || in.Memory.Owner != "m1" {
			t.Fatalf("%v later: %v, of %s", later, in.Memory.Phase, in.Memory.Owner)
		}
	}
	if in.step(PreemptDelay); in.Memory.Phase != model.PhaseHandover || in.Memory.To != "m2" {
		t.Errorf("in the end: %v to %q", in.Memory.Phase, in.Memory.To)
	}
}
