package election

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// newcomer is the input of a node that learns of a VIP which nobody ever owned, and
// of a better ranked member that has said nothing of it yet.
func newcomer() *Input {
	in := &Input{
		Node: &Node{Now: time.Unix(1000, 0), Gen: 1, Self: "self", Members: map[model.NodeName]model.Member{"peer": {Name: "peer"}}},
		VIP:  &model.VIP{Addr: netip.MustParseAddr("10.0.0.200"), L2: true}, Standing: model.ReasonStandby, Where: Where{Interface: "eth0"},
	}
	for _, in.VIP.Name = range []string{"a", "b", "c", "d", "e", "f"} {
		if Better(in.VIP.Name, Candidate{Node: "peer"}, Candidate{Node: "self"}) {
			return in
		}
	}
	panic("the hash never prefers the peer")
}

// say has the peer say something of the VIP.
func (in *Input) say(r model.Reason) {
	in.Members["peer"] = model.Member{Name: "peer", Standing: map[netip.Addr]model.Reason{in.VIP.Addr: r}}
	if in.Eligible = nil; r.Eligible() {
		in.Eligible = []model.NodeName{"peer"}
	}
}

// later decides after a while, and checks the phase and when to decide again.
func later(t *testing.T, in *Input, after time.Duration, phase model.Phase, wake time.Duration) {
	t.Helper()
	in.Now = in.Now.Add(after)
	o := Step(in)
	in.Memory = o.Memory
	if o.Memory.Phase != phase {
		t.Errorf("%s, want %s", o.Memory.Phase, phase)
	}
	if wake > 0 && !o.Wake.Equal(in.Now.Add(wake)) {
		t.Errorf("decides again after %s, want %s", o.Wake.Sub(in.Now), wake)
	}
}

// TestFirstWord: the word of a better ranked node is waited for, and its turn comes
// after that; without a word the VIP is taken.
func TestFirstWord(t *testing.T) {
	in := newcomer()
	later(t, in, 0, model.PhaseWaiting, FirstWord)
	in.say(model.ReasonNotSettled)
	later(t, in, FirstWord/2, model.PhaseWaiting, FirstWord/2)
	in.say(model.ReasonStandby)
	later(t, in, FirstWord/4, model.PhaseWaiting, Stagger)
	in.say(model.ReasonHealthPending) // what comes later is not waited for again
	later(t, in, Stagger, model.PhaseProbing, 0)

	in = newcomer()
	later(t, in, 0, model.PhaseWaiting, FirstWord)
	later(t, in, FirstWord, model.PhaseProbing, 0)
}

// TestFirstWordOfNobody: these are not waited for.
func TestFirstWordOfNobody(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"dead":      func(in *Input) { in.Members["peer"] = model.Member{State: model.MemberDead} },
		"late":      func(in *Input) { in.Members["peer"] = model.Member{Late: in.Now} },
		"draining":  func(in *Input) { in.Members["peer"] = model.Member{Draining: true} },
		"sick":      func(in *Input) { in.say(model.ReasonUnhealthy) },
		"no better": func(in *Input) { in.Weight = 1_000_000_000 },
		"owned":     func(in *Input) { in.Seen = 1 },
		"claimed": func(in *Input) {
			in.Claims = []model.Claim{{Owner: "old", Epoch: 1}}
			in.Members["old"] = model.Member{State: model.MemberDead}
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := newcomer()
			change(in)
			later(t, in, 0, model.PhaseProbing, 0)
		})
	}
}

// TestFirstTurn: turns are longer the more VIPs nobody has owned yet, within bounds,
// and as usual for a VIP that was owned.
func TestFirstTurn(t *testing.T) {
	for fresh, want := range map[int]time.Duration{0: Stagger, 1: Stagger, 101: Stagger + 100*FirstTurn, 100_000: FirstTurnMax} {
		in := newcomer()
		in.say(model.ReasonStandby)
		in.Fresh = fresh
		later(t, in, 0, model.PhaseWaiting, want)
		in.Seen, in.Memory = 1, model.VIPMemory{}
		later(t, in, 0, model.PhaseWaiting, Stagger)
	}
}

// TestCrowd: turns are longer where many wait for the wire, which what is bound does not.
func TestCrowd(t *testing.T) {
	in := newcomer()
	in.Crowd = 3
	s := step{in: in}
	if got := s.crowded(); got != Stagger {
		t.Errorf("turns for what is bound are %v apart", got)
	}
	in.VIP.Unbound = true
	if got := s.crowded(); got != 4*Stagger {
		t.Errorf("turns in a crowd of three times as many are %v apart", got)
	}
}
