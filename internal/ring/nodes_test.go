package ring

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
)

// TestManyNodesAreDivided: of more nodes than a ring can have each is in one ring, all of a ring
// have the same one, and rings are of about one size.
func TestManyNodesAreDivided(t *testing.T) {
	for _, nodes := range []int{2, model.MaxRing, model.MaxRing + 1, 2 * model.MaxRing, 2*model.MaxRing + 1, 45} {
		var names []model.NodeName
		for i := range nodes {
			names = append(names, name(i+10))
		}
		var first []model.NodeName
		most, least := 0, nodes
		for i, self := range names {
			all := New(&model.View{Self: self}, 1, 0)
			ring := slices.Clone(all.members(slices.Delete(slices.Clone(names), i, i+1), ""))
			if !slices.Contains(ring, self) || len(ring) > model.MaxRing {
				t.Fatalf("%d nodes: %s is in %v", nodes, self, ring)
			}
			if ring[0] == self {
				first = ring
				most, least = max(most, len(ring)), min(least, len(ring))
			}
			if !slices.Equal(ring, first) {
				t.Errorf("%d nodes: %s is in %v, another one in %v", nodes, self, ring, first)
			}
		}
		if most-least > most/2 {
			t.Errorf("%d nodes: rings of %d to %d", nodes, least, most)
		}
	}
}

// TestFormerOwnerHasRoom: who had the VIP before is in the ring in its place, once, if there is
// room.
func TestFormerOwnerHasRoom(t *testing.T) {
	all := New(&model.View{Self: name(3)}, 1, 0)
	for _, c := range []struct {
		others []model.NodeName
		from   model.NodeName
		want   []model.NodeName
	}{
		{[]model.NodeName{name(1), name(5)}, name(4), []model.NodeName{name(1), name(3), name(4), name(5)}},
		{[]model.NodeName{name(1), name(5)}, name(5), []model.NodeName{name(1), name(3), name(5)}},
		{nil, name(1), []model.NodeName{name(1), name(3)}},
		{nil, "", []model.NodeName{name(3)}},
	} {
		if got := all.members(c.others, c.from); !slices.Equal(got, c.want) {
			t.Errorf("%v after %q: %v, want %v", c.others, c.from, got, c.want)
		}
	}
	if got := all.members(nil, name(1), name(5)); !slices.Equal(got, []model.NodeName{name(1), name(3), name(5)}) {
		t.Errorf("from one, and on to another one: %v", got)
	}
	var full []model.NodeName
	for i := range model.MaxRing - 1 {
		full = append(full, name(i+10))
	}
	if got := all.members(full, name(1)); len(got) != model.MaxRing || slices.Contains(got, name(1)) {
		t.Errorf("a full one: %v", got)
	}
}

// TestSilentOwnerIsNoHolder: one that was succeeded without its consent has the address no more.
func TestSilentOwnerIsNoHolder(t *testing.T) {
	claim := func(epoch uint64, to model.NodeName) model.Claim {
		return model.Claim{Owner: name(2), Epoch: epoch, To: to}
	}
	for _, c := range []struct {
		what   string
		change func(*model.View, *Request)
		claim  model.Claim
		want   int
	}{
		{"it fell silent", nil, claim(3, ""), 1},
		{"it is heard", func(v *model.View, _ *Request) { change(v, 2, func(m *model.Member) { m.Late = time.Time{} }) }, claim(3, ""), 2},
		{"nobody has succeeded it", nil, claim(4, ""), 2},
		{"it named a successor", nil, claim(3, name(1)), 2},
		{"it has no connections", func(v *model.View, _ *Request) { v.Gossip.Holders[four] = []model.NodeName{name(3)} }, claim(3, ""), 1},
		{"by BGP as well", func(_ *model.View, r *Request) { r.VIP.BGP = []model.BGPAdvert{{}} }, claim(3, ""), 2},
		{"a Service", func(_ *model.View, r *Request) { r.VIP.Unbound = true }, claim(3, ""), 2},
	} {
		v := world(3)
		change(v, 2, func(m *model.Member) { m.Late = now.Add(-time.Second) })
		v.Gossip.Claims = map[netip.Addr][]model.Claim{four: {c.claim}}
		r := plain()
		r.Epoch = 4
		if c.change != nil {
			c.change(v, r)
		}
		had := slices.Clone(v.Gossip.Holders[four])
		all := New(v, 1, election.RulesVersion)
		if got := all.holders(r); len(got) != c.want || !slices.Contains(got, name(3)) {
			t.Errorf("%s: %v, want %d", c.what, got, c.want)
		}
		if !slices.Equal(v.Gossip.Holders[four], had) {
			t.Errorf("%s: the View was changed", c.what)
		}
	}
}

// TestNodesInTheDark: nothing is relayed over a network that carries nothing, but by BGP the ring
// may be on another one.
func TestNodesInTheDark(t *testing.T) {
	v := world(3)
	change(v, 2, func(m *model.Member) { m.Standing = map[netip.Addr]model.Reason{four: model.ReasonWireDark} })
	all := New(v, 1, election.RulesVersion)
	if _, ring := all.Of(plain()); ring.Nodes != 2 || ring.Next != at(3) {
		t.Errorf("%+v", ring)
	}
	r := plain()
	r.VIP.BGP = []model.BGPAdvert{{}}
	if _, ring := all.Of(r); ring.Nodes != 3 {
		t.Errorf("by BGP: %+v", ring)
	}
}

// TestWhoIsThere: which nodes are still to be reached, and until when.
func TestWhoIsThere(t *testing.T) {
	const long = 30 * time.Second
	gone := func(s model.MemberState, since time.Duration) model.Member {
		return model.Member{State: s, Gone: now.Add(-since)}
	}
	for _, c := range []struct {
		what    string
		m       model.Member
		left    time.Duration // 0: not known
		answers bool          // its host did, 2 s after its last heartbeat
		kept    time.Duration
		want    bool
		until   time.Duration
	}{
		{"alive", model.Member{State: model.MemberAlive}, 0, false, 0, true, 0},
		{"has just left", model.Member{State: model.MemberLeft}, 0, false, 0, true, LeftHolds},
		{"left a while ago", gone(model.MemberLeft, time.Second), 0, false, 0, true, LeftHolds - time.Second},
		{"left long ago", gone(model.MemberLeft, LeftHolds), 0, false, 0, false, 0},
		{"left long ago, by BGP", gone(model.MemberLeft, LeftHolds), 0, false, long, true, long - LeftHolds},
		{"was seen to leave earlier", gone(model.MemberLeft, time.Second), 2 * time.Second, false, 0, true, LeftHolds - 2*time.Second},
		{"dead", gone(model.MemberDead, 0), 0, false, 0, false, 0},
		{"dead, by BGP", gone(model.MemberDead, 0), 0, false, long, false, 0},
		{"dead, but its host answers", gone(model.MemberDead, 0), 0, true, 0, false, 0},
		{"dead, but its host answers, by BGP", gone(model.MemberDead, 0), 0, true, long, true, 2*long/3 - 2*time.Second},
		{"had left, is coming back", gone(model.MemberDead, 0), time.Second, false, 0, true, LeftHolds - time.Second},
	} {
		v := world(2)
		v.Gossip.Members[name(2)] = c.m
		if c.left != 0 {
			v.Memory.Left = map[model.NodeName]time.Time{name(2): now.Add(-c.left)}
		}
		v.Memory.Rings = map[netip.Addr]model.RingProbe{at(2): {Node: name(2), Late: now.Add(-2 * time.Second), Answers: c.answers}}
		all := New(v, 1, election.RulesVersion)
		if got := all.there(name(2), c.kept); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
		if o := all.Output(); c.until == 0 != o.Wake.IsZero() || c.until != 0 && !o.Wake.Equal(now.Add(c.until)) {
			t.Errorf("%s: wakes %v, want in %v", c.what, o.Wake, c.until)
		}
	}
}

// TestWhoGetsNewConnections: the nodes that are well, and those that are degraded only if
// nobody is.
func TestWhoGetsNewConnections(t *testing.T) {
	stands := func(i int, r model.Reason) func(*model.View, *Request) {
		return func(v *model.View, _ *Request) {
			change(v, i, func(m *model.Member) { m.Standing = map[netip.Addr]model.Reason{four: r} })
		}
	}
	own := func(s model.Reason) func(*model.View, *Request) {
		return func(_ *model.View, r *Request) { r.Standing = s }
	}
	other := func(f func(*model.Member)) func(*model.View, *Request) {
		return func(v *model.View, _ *Request) { change(v, 2, f) }
	}
	type changes []func(*model.View, *Request)
	for _, c := range []struct {
		what   string
		rules  int
		change changes
		want   []int
	}{
		{"all are well", 2, nil, []int{1, 2, 3}},
		{"this node is not the owner", 2, changes{func(_ *model.View, r *Request) { r.Spreads = false }}, nil},
		{"this node may not own it", 2, changes{own(model.ReasonUnhealthy)}, []int{2, 3}},
		{"this node is degraded", 2, changes{own(model.ReasonDegraded)}, []int{2, 3}},
		{"another one is", 2, changes{stands(2, model.ReasonDegraded)}, []int{1, 3}},
		{"another one is, and some do not know that word", election.RulesDegraded - 1, changes{stands(2, model.ReasonDegraded)}, []int{1, 2, 3}},
		{"all are", 2, changes{own(model.ReasonDegraded), stands(2, model.ReasonDegraded), stands(3, model.ReasonDegraded)}, []int{1, 2, 3}},
		{"one is not eligible", 2, changes{func(v *model.View, _ *Request) { v.Gossip.Eligible[four] = []model.NodeName{name(3)} }}, []int{1, 3}},
		{"one is late", 2, changes{other(func(m *model.Member) { m.Late = now })}, []int{1, 3}},
		{"one drains", 2, changes{other(func(m *model.Member) { m.Draining = true })}, []int{1, 3}},
		{"one has left", 2, changes{other(func(m *model.Member) { m.State = model.MemberLeft })}, []int{1, 3}},
		{"one has just come back", 2, changes{other(func(m *model.Member) { m.Back = now.Add(-BackHolds + 1) })}, []int{1, 3}},
		{"one has come back", 2, changes{other(func(m *model.Member) { m.Back = now.Add(-BackHolds) })}, []int{1, 2, 3}},
	} {
		v, r := world(3), balanced()
		v.Gossip.Eligible = map[netip.Addr][]model.NodeName{four: {name(2), name(3)}}
		for _, f := range c.change {
			f(v, r)
		}
		all := New(v, 1, c.rules)
		_, ring := all.Of(r)
		var got []int
		for _, b := range ring.Spread {
			i := slices.Index([]model.NodeName{name(1), name(2), name(3)}, b.Node) + 1
			if got = append(got, i); i > 1 && b.Addr != at(i) || i == 1 && b.Addr.IsValid() {
				t.Errorf("%s: %s at %s", c.what, b.Node, b.Addr)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	// Alone it spreads nothing, and it looks again when the other one counts.
	v := world(2)
	v.Gossip.Eligible = map[netip.Addr][]model.NodeName{four: {name(2)}}
	change(v, 2, func(m *model.Member) { m.Back = now.Add(-BackHolds / 4) })
	all := New(v, 1, election.RulesVersion)
	if _, ring := all.Of(balanced()); ring.Nodes != 2 || ring.Spread != nil {
		t.Errorf("alone: %+v", ring)
	}
	if o := all.Output(); !o.Wake.Equal(now.Add(3 * BackHolds / 4)) {
		t.Errorf("wakes %v", o.Wake)
	}
}
