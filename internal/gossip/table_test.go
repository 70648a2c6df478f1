package gossip

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/model"
)

// history is what a node says in the course of several lives: parts, whole
// records, and records of what is then the truth.
func history(r *rand.Rand, name model.NodeName) (said []wireRecord, last *own) {
	reasons := []model.Reason{model.ReasonOwner, model.ReasonStandby, model.ReasonUnhealthy, model.ReasonDraining}
	var inc uint64 = 100
	for range 1 + r.IntN(3) {
		o := newOwn(name, 1, "v", nil)
		inc += 1 + uint64(r.IntN(3))
		o.inc = inc
		last = o
		said = append(said, o.full())
		for range r.IntN(12) {
			gs := model.GroupState{Draining: r.IntN(2) == 0, Weight: r.IntN(3)}
			for i := range 12 { // more than are told whole
				if r.IntN(3) == 0 {
					continue
				}
				v := model.GroupVIP{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Standing: reasons[r.IntN(len(reasons))]}
				if r.IntN(2) == 0 {
					v.Claim = model.Claim{Owner: name, Epoch: uint64(1 + r.IntN(9))}
				}
				v.Seen = v.Claim.Epoch
				gs.VIPs = append(gs.VIPs, v)
			}
			if part, ok := o.update(&gs); ok {
				said = append(said, part)
			}
			if r.IntN(3) == 0 {
				said = append(said, o.full())
			}
		}
	}
	return said, last
}

// TestMergeInAnyOrder delivers what three nodes said in any order, twice, with
// losses and by way of others, and then their present records: every receiver
// must end with the truth, and the View that deltas built must equal the whole.
func TestMergeInAnyOrder(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		var said []wireRecord
		var truth []*own
		for _, n := range []model.NodeName{"a", "b", "c"} {
			s, last := history(r, n)
			said, truth = append(said, s...), append(truth, last)
		}
		one, two := newTable("x"), newTable("y")
		var view model.View
		one.whole().apply(&view)
		for range 2 * len(said) {
			rec := said[r.IntN(len(said))]
			one.merge(&rec, now)
			two.merge(&said[r.IntN(len(said))], now)
			if r.IntN(4) == 0 { // what one knows, two hears
				for _, n := range one.nodes {
					echo := one.echo(n)
					two.merge(&echo, now)
				}
			}
			if r.IntN(4) == 0 {
				one.member("a", netip.AddrPortFrom(addr(1), 1), r.IntN(2) == 0, now)
			}
			if d := one.flush(); d != nil {
				d.apply(&view)
			}
		}
		for _, o := range truth {
			full := o.full()
			one.merge(&full, now)
			if n := two.nodes[o.name]; n != nil {
				two.merge(&full, now)
			}
		}
		if d := one.flush(); d != nil {
			d.apply(&view)
		}
		for _, o := range truth {
			for _, tab := range []*table{one, two} {
				if n := tab.nodes[o.name]; n != nil && o.complete {
					if err := agrees(n, o); err != nil {
						t.Fatalf("seed %d: %s at %s: %v", seed, o.name, tab.self, err)
					}
				}
			}
		}
		if whole := viewOf(one); !reflect.DeepEqual(whole, view.Gossip) {
			t.Fatalf("seed %d: deltas made\n%+v\nthe whole is\n%+v", seed, view.Gossip, whole)
		}
	}
}

func agrees(n *node, o *own) error {
	if n.inc != o.inc || n.head.Draining != o.head.Draining || n.head.Weight != o.head.Weight {
		return fmt.Errorf("head %+v of life %d, truth %+v of %d", n.head, n.inc, o.head, o.inc)
	}
	live := 0
	for a, e := range n.entries {
		if e.gone {
			continue
		}
		live++
		w, ok := o.entries[a]
		if !ok || w.Epoch != e.epoch || w.Standing != e.word {
			return fmt.Errorf("%v: %+v, truth %+v", a, *e, w)
		}
	}
	if live != len(o.entries) {
		return fmt.Errorf("%d entries, truth %d", live, len(o.entries))
	}
	return nil
}

// TestAnswers checks to whom a claim is answered, and with what.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name       string
		own, other uint64 // epochs of m1, which answers, and m3, which is alive
		left       bool   // m3 has left
		told       uint64 // epoch that m2 claims
		from       string // who says so
		want       []string
	}{
		{"lower than own", 6, 0, false, 5, "", []string{"m1 6"}},
		{"equal to own", 5, 0, false, 5, "", []string{"m1 5"}},
		{"higher than own", 4, 0, false, 5, "", nil},
		{"lower than another", 0, 6, false, 5, "", []string{"m3 6"}},
		{"equal to another", 0, 5, false, 5, "", []string{"m3 5"}},
		{"lower than both", 7, 6, false, 5, "", []string{"m1 7", "m3 6"}},
		{"lower than one that left", 0, 6, true, 5, "", nil},
		{"no claim", 6, 6, false, 0, "", nil},
		{"told by another", 6, 6, false, 5, "m4", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, turn := offline(t)
			now := time.Now()
			for i, n := range []model.NodeName{"m2", "m3", "m4"} {
				g.table.member(n, netip.AddrPortFrom(addr(i+2), 7947), true, now)
			}
			g.own.update(&model.GroupState{VIPs: []model.GroupVIP{{Addr: vip1, Claim: model.Claim{Owner: "m1", Epoch: c.own}}}})
			state := func(name, from string, epoch uint64, left bool) []byte {
				return encode(typeState, wireRecord{Name: name, From: from, Inc: 1, Seq: 2, Head: &wireHead{V: 1, Left: left},
					Entries: []wireEntry{{Addr: vip1, V: 2, Standing: "Owner", Epoch: epoch}}})
			}
			turn.takeMessage(packet{state("m3", "", c.other, c.left), now})
			turn.out = nil
			clear(turn.answered)
			for range 2 { // the second comes too soon for another answer
				turn.takeMessage(packet{state("m2", c.from, c.told, false), now})
			}
			var got []string
			for _, m := range turn.out {
				_, body, _ := open(m.msg)
				r, err := decodeRecord(body)
				if err != nil || m.to.Name != "m2" {
					t.Fatalf("%s to %s: %v", m.msg, m.to.Name, err)
				}
				if by := r.From; (by == "") != (r.Name == "m1") {
					t.Errorf("record of %s from %q", r.Name, by)
				}
				for _, e := range r.Entries {
					got = append(got, fmt.Sprint(r.Name, " ", e.Epoch))
				}
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("answers %v, want %v", got, c.want)
			}
		})
	}
}

// TestNewsIsPassedOn in the name of the sender: a receiver must not take it for
// a word of the node itself.
func TestNewsIsPassedOn(t *testing.T) {
	g, turn := offline(t)
	part := wireRecord{Name: "m2", Inc: 1, Seq: 2, Entries: []wireEntry{{Addr: vip1, V: 2, Standing: "Owner", Epoch: 3}}}
	for range 3 {
		turn.takeMessage(packet{encode(typeState, part), time.Now()})
	}
	msgs := g.casts.GetBroadcasts(3, 1400)
	if len(msgs) != 1 {
		t.Fatalf("%d messages", len(msgs))
	}
	r, err := decodeRecord(msgs[0][2:])
	if err != nil || r.From != "m1" || r.Name != "m2" || len(r.Entries) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestMemberThatComesIsToldAll, because it may have come without an exchange of
// full state with this node.
func TestMemberThatComesIsToldAll(t *testing.T) {
	g, turn := offline(t)
	node := &memberlist.Node{Name: "m2", Addr: addr(2).AsSlice(), Port: 7947}
	for i, present := range []bool{true, true, false, true} {
		g.hooks.note(node, present)
		turn.full = nil
		turn.takeEvents()
		if told, want := len(turn.full) == 1, i == 0 || i == 3; told != want {
			t.Errorf("event %d: told is %v, want %v", i, told, want)
		}
	}
	g.hooks.note(&memberlist.Node{Name: "m1", Addr: addr(2).AsSlice()}, true)
	g.hooks.note(&memberlist.Node{Name: "bad name", Addr: addr(2).AsSlice()}, true)
	g.hooks.note(&memberlist.Node{Name: "m3"}, true)
	if turn.takeEvents(); len(g.table.nodes) != 1 {
		t.Errorf("%d nodes", len(g.table.nodes))
	}
}

func TestHeartbeatAfterGoodbye(t *testing.T) {
	g, turn := offline(t)
	now := time.Now()
	turn.takeMessage(packet{encode(typeState, wireRecord{Name: "m2", Inc: 1, Seq: 9, Head: &wireHead{V: 9, Left: true}}), now})
	turn.takeBeat(&wireBeat{Name: "m2", Inc: 1, Interval: 50, Seq: 4}, now)
	if next := g.deadlines(now); !next.IsZero() {
		t.Error("heartbeats are expected of a node that has left")
	}
	turn.takeBeat(&wireBeat{Name: "m2", Inc: 2, Interval: 50, Seq: 1}, now)
	if next := g.deadlines(now); next.IsZero() {
		t.Error("no heartbeats are expected of its next life")
	}
}

func TestForgetting(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tab := newTable("x")
	o := newOwn("a", 1, "v", nil)
	part, _ := o.update(&model.GroupState{VIPs: []model.GroupVIP{{Addr: vip1, Standing: model.ReasonOwner, Claim: model.Claim{Owner: "a", Epoch: 3}}}})
	tab.member("a", netip.AddrPortFrom(addr(1), 1), true, now)
	tab.merge(&part, now)
	tab.see(vip2, 8, now)
	var view model.View
	tab.whole().apply(&view)
	step := func(d time.Duration) model.Gossip {
		now = now.Add(d)
		tab.sweep(now, func(netip.Addr) bool { return false })
		if d := tab.flush(); d != nil {
			d.apply(&view)
		}
		return view.Gossip
	}
	if g := step(2 * time.Hour); len(g.Members) != 1 || g.Seen[vip1] != 3 || g.Seen[vip2] != 0 {
		t.Errorf("alive: %+v", g)
	}
	tab.member("a", netip.AddrPortFrom(addr(1), 1), false, now)
	if g := step(59 * time.Minute); len(g.Members) != 1 || len(g.Claims[vip1]) != 1 {
		t.Errorf("gone for less than an hour: %+v", g)
	}
	if g := step(2 * time.Minute); len(g.Members) != 0 || len(g.Claims) != 0 || len(g.Eligible) != 0 || g.Seen[vip1] != 3 {
		t.Errorf("gone for an hour: %+v", g)
	}
	if g := step(time.Hour); len(g.Seen) != 0 || tab.total != 0 {
		t.Errorf("gone for two hours: %+v", g)
	}
	// Others do not bring it back, unless they have seen it lately.
	part.From, part.Age = "y", 3700
	tab.merge(&part, now)
	if len(tab.nodes) != 0 {
		t.Error("an old record came back")
	}
	part.Age = 3000
	tab.merge(&part, now)
	if g := step(11 * time.Minute); len(g.Members) != 0 {
		t.Errorf("a record of somebody gone for 61 minutes is kept: %+v", g)
	}
}

func TestRoomIsBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tab := newTable("x")
	for i := range maxNodes + 10 {
		tab.merge(&wireRecord{Name: fmt.Sprint("n", i), Inc: 1, Seq: 1}, now)
	}
	if len(tab.nodes) != maxNodes || tab.refused != 10 {
		t.Errorf("%d nodes, %d refused", len(tab.nodes), tab.refused)
	}
	for i := range maxEntries + 10 {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		tab.merge(&wireRecord{Name: "n1", Inc: 1, Seq: 1, Entries: []wireEntry{{Addr: a, V: 1, Epoch: 1}}}, now)
	}
	if n := len(tab.nodes["n1"].entries); n != maxEntries {
		t.Errorf("%d entries", n)
	}
}

func TestQueueDropsTheOldest(t *testing.T) {
	wake := make(chan struct{}, 1)
	q := newQueue(3, 100, func(s string) int { return len(s) }, wake)
	for i := range 5 {
		q.push(fmt.Sprint(i))
	}
	if n, dropped := q.stats(); n != 3 || dropped != 2 {
		t.Errorf("%d, dropped %d", n, dropped)
	}
	q.push(string(make([]byte, 99)))
	var got []int
	for {
		s, ok := q.pop()
		if !ok {
			break
		}
		got = append(got, len(s))
	}
	if !slices.Equal(got, []int{1, 99}) || len(wake) != 1 || q.bytes != 0 {
		t.Errorf("%v, %d bytes", got, q.bytes)
	}
}

func BenchmarkMergeAndPublish(b *testing.B) {
	now := time.Now()
	tab := newTable("x")
	var view model.View
	tab.whole().apply(&view)
	for i := range 2000 {
		r := wireRecord{Name: fmt.Sprintf("node-%04d", i), Inc: 1, Seq: 1, Head: &wireHead{V: 1}}
		for k := range 20 {
			r.Entries = append(r.Entries, wireEntry{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i % 8), byte(k)}), V: 1, Standing: "Standby"})
		}
		tab.merge(&r, now)
	}
	tab.flush().apply(&view)
	b.ReportAllocs()
	v := uint64(1)
	for b.Loop() {
		v++
		r := wireRecord{Name: "node-0001", Inc: 1, Seq: v, Entries: []wireEntry{{Addr: netip.AddrFrom4([4]byte{10, 0, 1, 1}), V: v, Standing: "Owner", Epoch: v}}}
		tab.merge(&r, now)
		if d := tab.flush(); d != nil {
			d.apply(&view)
		}
	}
}

// TestRumourOfDeath: a node that was alone tells when it is back that all others are
// dead. Of one whose heartbeats arrive that is not believed, not even until the next.
func TestRumourOfDeath(t *testing.T) {
	for what, c := range map[string]struct {
		interval int64
		final    bool
		reborn   bool // others tell of a later life
		alive    bool
	}{
		"beats":       {interval: 60_000, alive: true},
		"later life":  {interval: 60_000, reborn: true},
		"overdue":     {interval: 1},
		"beats ended": {interval: 60_000, final: true},
		"never beat":  {},
	} {
		g, turn := offline(t)
		node := &memberlist.Node{Name: "m2", Addr: addr(2).AsSlice(), Port: 7947}
		g.hooks.note(node, true)
		turn.takeEvents()
		if c.interval > 0 {
			turn.takeBeat(&wireBeat{Name: "m2", Inc: 2, Interval: c.interval, Seq: 1, Final: c.final}, time.Now().Add(-time.Second))
		}
		g.hooks.note(node, false)
		turn.takeEvents()
		if c.reborn {
			turn.after("m2", g.table.merge(&wireRecord{Name: "m2", Inc: 3, Head: &wireHead{}}, time.Now()))
		}
		if n := g.table.nodes["m2"]; n.present || n.alive() != c.alive {
			t.Errorf("%s: alive %v, want %v", what, n.alive(), c.alive)
		}
	}
}

// TestBack: since when a node is heard again is told, after it was away and after it was
// late.
func TestBack(t *testing.T) {
	g, turn := offline(t)
	node := &memberlist.Node{Name: "m2", Addr: addr(2).AsSlice(), Port: 7947}
	back := func() time.Time { return g.table.nodes["m2"].member().Back }
	beat := func(seq uint64, at time.Time) {
		turn.takeBeat(&wireBeat{Name: "m2", Inc: 2, Interval: 50, Seq: seq}, at)
	}
	note := func(present bool) {
		g.hooks.note(node, present)
		turn.takeEvents()
	}
	note(true)
	now := time.Now()
	beat(1, now)
	beat(2, now.Add(50*time.Millisecond))
	if !back().IsZero() {
		t.Error("one that is new and heard in time was away")
	}
	note(false)
	note(true)
	if back().IsZero() {
		t.Error("one that came back was always there")
	}
	g.deadlines(now.Add(time.Second)) // may be this node's own fault
	g.deadlines(now.Add(2 * time.Second))
	if g.table.nodes["m2"].late.IsZero() {
		t.Fatal("not late")
	}
	beat(3, now.Add(3*time.Second))
	if got := back(); !got.Equal(now.Add(3 * time.Second)) {
		t.Errorf("back %v after it was late, want 3 s", got.Sub(now))
	}
}

// TestNamesOfVIPsReachTheView: from the node itself and passed on by another, and they go with
// the VIP.
func TestNamesOfVIPsReachTheView(t *testing.T) {
	o := newOwn("a", 1, "v1", nil)
	first, middle, last := newTable("b"), newTable("c"), model.View{}
	tell := func(vips ...model.GroupVIP) model.Member {
		part, _ := o.update(&model.GroupState{VIPs: vips})
		if m := first.merge(&part, time.Now()); !m.changed {
			t.Fatal("nothing changed")
		}
		passed := first.echo(first.nodes["a"])
		middle.merge(&passed, time.Now())
		middle.flush().apply(&last)
		return last.Gossip.Members["a"]
	}
	last.Gossip.Members = map[model.NodeName]model.Member{}
	last.Gossip.Eligible, last.Gossip.Claims, last.Gossip.Seen = map[netip.Addr][]model.NodeName{}, map[netip.Addr][]model.Claim{}, map[netip.Addr]uint64{}
	if m := tell(model.GroupVIP{Addr: vip1, Standing: model.ReasonStandby, Name: "cp"}, model.GroupVIP{Addr: vip1.Next(), Standing: model.ReasonStandby}); len(m.Names) != 1 || m.Names[vip1] != "cp" {
		t.Errorf("names %v", m.Names)
	}
	if m := tell(model.GroupVIP{Addr: vip1, Standing: model.ReasonStandby, Name: "api"}); len(m.Names) != 1 || m.Names[vip1] != "api" {
		t.Errorf("after another name: %v", m.Names)
	}
	if m := tell(); len(m.Names) != 0 {
		t.Errorf("after the VIP has gone: %v", m.Names)
	}
}
