package record

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// history is what a node says in the course of several lives: parts, whole
// records, and records of what is then the truth.
func history(r *rand.Rand, name model.NodeName) (said []Record, last *Own) {
	reasons := []model.Reason{model.ReasonOwner, model.ReasonStandby, model.ReasonUnhealthy, model.ReasonDraining}
	var inc uint64 = 100
	for range 1 + r.IntN(3) {
		o := NewOwn(name, time.Now(), 1, "v", nil)
		inc += 1 + uint64(r.IntN(3))
		o.inc = inc
		last = o
		said = append(said, o.Full())
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
			if part, ok := o.Update(&gs); ok {
				said = append(said, part)
			}
			if r.IntN(3) == 0 {
				said = append(said, o.Full())
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
		var said []Record
		var truth []*Own
		for _, n := range []model.NodeName{"a", "b", "c"} {
			s, last := history(r, n)
			said, truth = append(said, s...), append(truth, last)
		}
		one, two := NewTable("x"), NewTable("y")
		var view model.View
		one.Whole().Apply(&view)
		for range 2 * len(said) {
			rec := said[r.IntN(len(said))]
			one.Merge(&rec, now)
			two.Merge(&said[r.IntN(len(said))], now)
			if r.IntN(4) == 0 { // what one knows, two hears
				m, err := Open(EncodeFull(formats[r.IntN(2)], func(yield func(Record) bool) {
					for name := range one.nodes {
						if all, ok := one.All(name, now); ok && !yield(all) {
							return
						}
					}
				}, MaxMessage))
				if err != nil {
					t.Fatal(err)
				}
				all, bad, err := m.Full(two.Knows)
				if bad != 0 || err != nil {
					t.Fatal(bad, err)
				}
				for i := range all {
					two.Merge(&all[i], now)
				}
			}
			if r.IntN(4) == 0 {
				one.Member("a", at(1), r.IntN(2) == 0, now)
			}
			if d := one.Flush(); d != nil {
				d.Apply(&view)
			}
		}
		for _, o := range truth {
			full := o.Full()
			one.Merge(&full, now)
			if n := two.nodes[o.name]; n != nil {
				two.Merge(&full, now)
			}
		}
		if d := one.Flush(); d != nil {
			d.Apply(&view)
		}
		for _, o := range truth {
			for _, tab := range []*Table{one, two} {
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

func agrees(n *Node, o *Own) error {
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

func TestForgetting(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tab := NewTable("x")
	o := NewOwn("a", time.Now(), 1, "v", nil)
	part, _ := o.Update(&model.GroupState{VIPs: []model.GroupVIP{{Addr: vip1, Standing: model.ReasonOwner, Claim: model.Claim{Owner: "a", Epoch: 3}}}})
	tab.Member("a", at(1), true, now)
	tab.Merge(&part, now)
	tab.See(vip2, 8, now)
	var view model.View
	tab.Whole().Apply(&view)
	step := func(d time.Duration) model.Gossip {
		now = now.Add(d)
		tab.Sweep(now, func(netip.Addr) bool { return false })
		if d := tab.Flush(); d != nil {
			d.Apply(&view)
		}
		return view.Gossip
	}
	if g := step(2 * time.Hour); len(g.Members) != 1 || g.Seen[vip1] != 3 || g.Seen[vip2] != 0 {
		t.Errorf("alive: %+v", g)
	}
	tab.Member("a", at(1), false, now)
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
	tab.Merge(&part, now)
	if len(tab.nodes) != 0 {
		t.Error("an old record came back")
	}
	part.Age = 3000
	tab.Merge(&part, now)
	if g := step(11 * time.Minute); len(g.Members) != 0 {
		t.Errorf("a record of somebody gone for 61 minutes is kept: %+v", g)
	}
}

func TestRoomIsBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tab := NewTable("x")
	for i := range MaxNodes + 10 {
		tab.Merge(&Record{Name: fmt.Sprint("n", i), Inc: 1, Seq: 1}, now)
	}
	if len(tab.nodes) != MaxNodes || tab.refused != 10 {
		t.Errorf("%d nodes, %d refused", len(tab.nodes), tab.refused)
	}
	for i := range MaxEntries + 10 {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		tab.Merge(&Record{Name: "n1", Inc: 1, Seq: 1, Entries: []Entry{{Addr: a, V: 1, Epoch: 1}}}, now)
	}
	if n := len(tab.nodes["n1"].entries); n != MaxEntries {
		t.Errorf("%d entries", n)
	}
}

func BenchmarkMergeAndPublish(b *testing.B) {
	now := time.Now()
	tab := NewTable("x")
	var view model.View
	tab.Whole().Apply(&view)
	for i := range 2000 {
		r := Record{Name: fmt.Sprintf("node-%04d", i), Inc: 1, Seq: 1, Head: &Head{V: 1}}
		for k := range 20 {
			r.Entries = append(r.Entries, Entry{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i % 8), byte(k)}), V: 1, Standing: "Standby"})
		}
		tab.Merge(&r, now)
	}
	tab.Flush().Apply(&view)
	b.ReportAllocs()
	v := uint64(1)
	for b.Loop() {
		v++
		r := Record{Name: "node-0001", Inc: 1, Seq: v, Entries: []Entry{{Addr: netip.AddrFrom4([4]byte{10, 0, 1, 1}), V: v, Standing: "Owner", Epoch: v}}}
		tab.Merge(&r, now)
		if d := tab.Flush(); d != nil {
			d.Apply(&view)
		}
	}
}

// TestNamesOfVIPsReachTheView: from the node itself and passed on by another, and they go with
// the VIP.
func TestNamesOfVIPsReachTheView(t *testing.T) {
	o := NewOwn("a", time.Now(), 1, "v1", nil)
	first, middle, last := NewTable("b"), NewTable("c"), model.View{}
	tell := func(vips ...model.GroupVIP) model.Member {
		part, _ := o.Update(&model.GroupState{VIPs: vips})
		if m := first.Merge(&part, time.Now()); !m.Changed {
			t.Fatal("nothing changed")
		}
		passed, _ := first.All("a", time.Now())
		middle.Merge(&passed, time.Now())
		middle.Flush().Apply(&last)
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

// TestVerdictsReachTheView: with the claim of the owner, from itself and passed on, also if a
// member has passed the claim on before that does not know verdicts. They end with the claim.
func TestVerdictsReachTheView(t *testing.T) {
	now := time.Now()
	o := NewOwn("a", now, 1, "v1", nil)
	owns := func(v model.Verdict) *model.GroupState {
		return &model.GroupState{VIPs: []model.GroupVIP{{Addr: vip1, Standing: model.ReasonOwner, Claim: model.Claim{Owner: "a", Epoch: 1, Verdict: v}}}}
	}
	first, last := NewTable("b"), NewTable("c")
	for _, want := range []model.Verdict{{Servers: 9}, {Servers: 9, Out: "\x82"}, {Servers: 9, Out: "\x80"}, {Servers: 8}, {}} {
		part, news := o.Update(owns(want))
		if !news {
			t.Fatalf("%+v: not told", want)
		}
		first.Merge(&part, now)
		passed, _ := first.All("a", now)
		without := passed
		without.Entries = slices.Clone(passed.Entries)
		without.Entries[0].Servers, without.Entries[0].Out = 0, ""
		last.Merge(&without, now)
		last.Merge(&passed, now)
		last.Merge(&without, now)
		if got := viewOf(last).Claims[vip1]; len(got) != 1 || got[0].Verdict != want {
			t.Errorf("%+v arrives as %+v", want, got)
		}
	}
	o.Update(owns(model.Verdict{Servers: 9, Out: "\x01"}))
	if left := o.Leave(); left.Entries[0].Servers != 0 || left.Entries[0].Out != "" {
		t.Errorf("a node that leaves says %+v", left.Entries[0])
	}
}

// TestMetAgain: a node that is forgotten and met again before the View hears of it has nothing
// of its former life.
func TestMetAgain(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tab, view := NewTable("x"), model.View{}
	live := func(vip netip.Addr) {
		part, _ := NewOwn("a", now, 1, "v", nil).Update(&model.GroupState{VIPs: []model.GroupVIP{{Addr: vip, Standing: model.ReasonStandby, Name: vip.String()}}})
		tab.Member("a", at(1), true, now)
		tab.Merge(&part, now)
	}
	live(vip1)
	tab.Whole().Apply(&view)
	tab.Member("a", at(1), false, now)
	now = now.Add(2 * forgetAfter)
	tab.Sweep(now, func(netip.Addr) bool { return false })
	live(vip2)
	tab.Flush().Apply(&view)
	if m := view.Gossip.Members["a"]; len(m.Standing) != 1 || m.Standing[vip2] != model.ReasonStandby || len(m.Names) != 1 {
		t.Errorf("standing %v, names %v; want those of the second life alone", m.Standing, m.Names)
	}
}
