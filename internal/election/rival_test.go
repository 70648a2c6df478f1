package election

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// A candidate that meets another one leaves the VIP to it only if that is a member, and one that
// goes first; m1 ranks before m2, which ranks before m3.
func TestWhomACandidateStepsBackFor(t *testing.T) {
	mac := func(last byte) model.MAC { return model.MAC{2, 0, 0, 0, 0, last} }
	const turn = Stagger
	for _, c := range []struct {
		name   string
		self   model.NodeName
		change func(map[model.NodeName]model.Member)
		heard  []model.MAC
		want   time.Duration
	}{
		{"nobody", "m1", nil, nil, 0},
		{"a stranger of the lowest address", "m1", nil, []model.MAC{mac(0)}, 0},
		{"one that ranks lower", "m1", nil, []model.MAC{mac(2), mac(3)}, 0},
		{"a better ranked one", "m2", nil, []model.MAC{mac(9), mac(1)}, 2 * turn},
		{"a better ranked one behind one that is not", "m2", nil, []model.MAC{mac(3), mac(1)}, 2 * turn},
		{"a better ranked one that has said goodbye", "m2", func(m map[model.NodeName]model.Member) {
			m["m1"] = model.Member{State: model.MemberLeft, MACs: []model.MAC{mac(1)}}
		}, []model.MAC{mac(1)}, 0},
		{"a better ranked one that is dead", "m2", func(m map[model.NodeName]model.Member) {
			m["m1"] = model.Member{State: model.MemberDead, MACs: []model.MAC{mac(1)}}
		}, []model.MAC{mac(1)}, 2 * turn},
		{"a dead one that ranks lower", "m1", func(m map[model.NodeName]model.Member) {
			m["m3"] = model.Member{State: model.MemberDead, MACs: []model.MAC{mac(3)}}
		}, []model.MAC{mac(3)}, turn},
		{"a machine that was dead under another name", "m1", func(m map[model.NodeName]model.Member) {
			m["a"] = model.Member{State: model.MemberDead, MACs: []model.MAC{mac(3)}}
		}, []model.MAC{mac(3)}, 0},
		{"perhaps one that has told no address yet", "m2", func(m map[model.NodeName]model.Member) {
			m["m1"] = model.Member{}
		}, []model.MAC{mac(9)}, 2 * turn},
		{"perhaps one that ranks lower", "m1", func(m map[model.NodeName]model.Member) {
			m["m3"] = model.Member{}
		}, []model.MAC{mac(9)}, 0},
	} {
		in := scene(model.PhaseProbing)
		in.Self, in.Memory.From = c.self, "gone"
		in.Members, in.Eligible = map[model.NodeName]model.Member{}, nil
		for i, n := range []model.NodeName{"m1", "m2", "m3"} {
			if n != c.self {
				in.Members[n] = model.Member{MACs: []model.MAC{mac(byte(i + 1))}}
				in.Eligible = append(in.Eligible, n)
			}
		}
		if c.change != nil {
			c.change(in.Members)
		}
		var heard [model.MaxRivals]model.MAC
		copy(heard[:], c.heard)
		s := step{in: in, m: in.Memory}
		if got := s.stepsBack(heard[:]); got != c.want || (s.m.Rival != model.MAC{}) != (c.want > 0) {
			t.Errorf("%s: for %s, want %s; rival %s", c.name, got, c.want, s.m.Rival)
		}
	}
}

// Two nodes that have a VIP under different names each rank by their own, so both may be first,
// or none. Exactly one of them goes on, and of a member that tells no name, as it does by the
// rules before, never both.
func TestOneOfTwoThatNameAVIPDifferentlyGoesOn(t *testing.T) {
	macs := map[model.NodeName]model.MAC{"m1": {2, 0, 0, 0, 0, 9}, "m2": {2, 0, 0, 0, 0, 1}}
	steps := func(self, other model.NodeName, mine, told string, state model.MemberState) time.Duration {
		in := scene(model.PhaseProbing)
		vip := *in.VIP
		vip.Name = mine
		in.VIP, in.Self, in.MAC, in.Memory.From = &vip, self, macs[self], "gone"
		m := model.Member{State: state, MACs: []model.MAC{macs[other]}}
		if told != "" {
			m.Names = map[netip.Addr]string{vip.Addr: told}
		}
		in.Members, in.Eligible = map[model.NodeName]model.Member{other: m}, []model.NodeName{other}
		s := step{in: in, m: in.Memory}
		return s.stepsBack([]model.MAC{macs[other]})
	}
	goesOn := func(self, other model.NodeName, mine, told string) bool {
		return steps(self, other, mine, told, model.MemberAlive) == 0
	}
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, x := range names {
		for _, y := range names {
			if one, two := goesOn("m1", "m2", x, y), goesOn("m2", "m1", y, x); one == two {
				t.Errorf("m1 has %s and m2 %s: they go on: %t, %t", x, y, one, two)
			}
			if one, two := steps("m1", "m2", x, y, model.MemberDead), steps("m2", "m1", y, x, model.MemberDead); one == two {
				t.Errorf("m1 has %s and m2 %s, and gossip is cut: both ask again at once, after %s", x, y, one)
			}
			if goesOn("m1", "m2", x, "") && goesOn("m2", "m1", y, "") {
				t.Errorf("m1 has %s and m2 %s, untold: both go on", x, y)
			}
			if goesOn("m1", "m2", x, y) && goesOn("m2", "m1", y, "") || goesOn("m1", "m2", x, "") && goesOn("m2", "m1", y, x) {
				t.Errorf("m1 has %s and m2 %s, which only one was told: both go on", x, y)
			}
		}
	}
}

// Owners with the same epoch that name a VIP differently: whichever have it, at most one stays,
// and of two exactly one.
func TestOneOfTheOwnersThatNameAVIPDifferentlyStays(t *testing.T) {
	nodes := []model.NodeName{"m1", "m2", "m3"}
	stay := func(owners []model.NodeName, names []string) (n int) {
		for i, self := range owners {
			in := scene(model.PhaseOwner)
			vip := *in.VIP
			vip.Name = names[i]
			in.VIP, in.Self = &vip, self
			in.Members, in.Claims = map[model.NodeName]model.Member{}, nil
			for j, o := range owners {
				in.Claims = append(in.Claims, model.Claim{Owner: o, Epoch: 7})
				if o != self {
					in.Members[o] = model.Member{State: model.MemberAlive, Names: map[netip.Addr]string{vip.Addr: names[j]}}
				}
			}
			if in.step(0); in.Memory.Phase == model.PhaseOwner {
				n++
			}
		}
		return n
	}
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, x := range names {
		for _, y := range names {
			if n := stay(nodes[:2], []string{x, y}); n != 1 {
				t.Errorf("m1 has %s and m2 %s: %d stay", x, y, n)
			}
			for _, z := range names {
				if n := stay(nodes, []string{x, y, z}); n > 1 {
					t.Errorf("m1 has %s, m2 %s and m3 %s: %d stay", x, y, z, n)
				}
			}
		}
	}
}
