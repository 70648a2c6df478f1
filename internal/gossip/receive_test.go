package gossip

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
)

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
			g, round := offline(t)
			now := time.Now()
			for i, n := range []model.NodeName{"m2", "m3", "m4"} {
				g.table.Member(n, netip.AddrPortFrom(addr(i+2), 7947), true, now)
			}
			g.own.Update(&model.GroupState{VIPs: []model.GroupVIP{{Addr: vip1, Claim: model.Claim{Owner: "m1", Epoch: c.own}}}})
			state := func(name, from string, epoch uint64, left bool) []byte {
				return record.Record{Name: name, From: from, Inc: 1, Seq: 2, Head: &record.Head{V: 1, Left: left},
					Entries: []record.Entry{{Addr: vip1, V: 2, Standing: "Owner", Epoch: epoch}}}.Encode(record.FormatJSON)
			}
			round.takeMessage(packet{state("m3", "", c.other, c.left), now})
			round.out = nil
			clear(round.answered)
			for range 2 { // the second comes too soon for another answer
				round.takeMessage(packet{state("m2", c.from, c.told, false), now})
			}
			var got []string
			for _, m := range round.out {
				r, err := recordOf(m.msg)
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
	g, round := offline(t)
	part := record.Record{Name: "m2", Inc: 1, Seq: 2, Entries: []record.Entry{{Addr: vip1, V: 2, Standing: "Owner", Epoch: 3}}}
	for range 3 {
		round.takeMessage(packet{part.Encode(record.FormatJSON), time.Now()})
	}
	msgs := g.casts.GetBroadcasts(3, 1400)
	if len(msgs) != 1 {
		t.Fatalf("%d messages", len(msgs))
	}
	r, err := recordOf(msgs[0])
	if err != nil || r.From != "m1" || r.Name != "m2" || len(r.Entries) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRaisedLifeIsTold: a node whose earlier life is known as a later one goes on above it, and
// tells everybody everything.
func TestRaisedLifeIsTold(t *testing.T) {
	g, round := offline(t)
	life := g.own.Life()
	round.takeMessage(packet{record.Stale{Name: "m1", Inc: life + 5}.Encode(record.FormatJSON), time.Now()})
	round.send()
	msgs := g.casts.GetBroadcasts(3, 1400)
	if len(msgs) != 1 {
		t.Fatalf("%d messages", len(msgs))
	}
	if r, err := recordOf(msgs[0]); err != nil || r.Inc != life+6 || r.Head == nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestMemberThatComesIsToldAll, because it may have come without an exchange of
// full state with this node.
func TestMemberThatComesIsToldAll(t *testing.T) {
	g, round := offline(t)
	node := &memberlist.Node{Name: "m2", Addr: addr(2).AsSlice(), Port: 7947}
	for i, present := range []bool{true, true, false, true} {
		g.hooks.note(node, present)
		round.full = nil
		round.takeEvents()
		if told, want := len(round.full) == 1, i == 0 || i == 3; told != want {
			t.Errorf("event %d: told is %v, want %v", i, told, want)
		}
	}
	g.hooks.note(&memberlist.Node{Name: "m1", Addr: addr(2).AsSlice()}, true)
	g.hooks.note(&memberlist.Node{Name: "bad name", Addr: addr(2).AsSlice()}, true)
	g.hooks.note(&memberlist.Node{Name: "m3"}, true)
	if round.takeEvents(); len(slices.Collect(g.table.Nodes())) != 1 {
		t.Errorf("%d nodes", len(slices.Collect(g.table.Nodes())))
	}
}

func TestHeartbeatAfterGoodbye(t *testing.T) {
	_, round := offline(t)
	now := time.Now()
	round.takeMessage(packet{record.Record{Name: "m2", Inc: 1, Seq: 9, Head: &record.Head{V: 9, Left: true}}.Encode(record.FormatJSON), now})
	round.takeBeat(&record.Beat{Name: "m2", Inc: 1, Interval: 50, Seq: 4}, now)
	if next := round.takeDeadlines(now); !next.IsZero() {
		t.Error("heartbeats are expected of a node that has left")
	}
	round.takeBeat(&record.Beat{Name: "m2", Inc: 2, Interval: 50, Seq: 1}, now)
	if next := round.takeDeadlines(now); next.IsZero() {
		t.Error("no heartbeats are expected of its next life")
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
		g, round := offline(t)
		node := &memberlist.Node{Name: "m2", Addr: addr(2).AsSlice(), Port: 7947}
		g.hooks.note(node, true)
		round.takeEvents()
		if c.interval > 0 {
			round.takeBeat(&record.Beat{Name: "m2", Inc: 2, Interval: c.interval, Seq: 1, Final: c.final}, time.Now().Add(-time.Second))
		}
		g.hooks.note(node, false)
		round.takeEvents()
		if c.reborn {
			round.after("m2", g.table.Merge(&record.Record{Name: "m2", Inc: 3, Head: &record.Head{}}, time.Now()))
		}
		if n := g.table.Node("m2"); n.Present || n.Alive() != c.alive {
			t.Errorf("%s: alive %v, want %v", what, n.Alive(), c.alive)
		}
	}
}

// TestBack: since when a node is heard again is told, after it was away and after it was
// late.
func TestBack(t *testing.T) {
	g, round := offline(t)
	node := &memberlist.Node{Name: "m2", Addr: addr(2).AsSlice(), Port: 7947}
	back := func() time.Time { return viewOf(g.table).Members["m2"].Back }
	beat := func(seq uint64, at time.Time) {
		round.takeBeat(&record.Beat{Name: "m2", Inc: 2, Interval: 50, Seq: seq}, at)
	}
	note := func(present bool) {
		g.hooks.note(node, present)
		round.takeEvents()
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
	round.takeDeadlines(now.Add(time.Second)) // may be this node's own fault
	round.takeDeadlines(now.Add(2 * time.Second))
	if viewOf(g.table).Members["m2"].Late.IsZero() {
		t.Fatal("not late")
	}
	beat(3, now.Add(3*time.Second))
	if got := back(); !got.Equal(now.Add(3 * time.Second)) {
		t.Errorf("back %v after it was late, want 3 s", got.Sub(now))
	}
}
