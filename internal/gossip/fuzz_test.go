package gossip

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
)

func TestUnknownReasonIsNotEligible(t *testing.T) {
	g, round := offline(t)
	round.takeMessage(packet{[]byte("\x01\x01" + `{"n":"m2","i":1,"q":2,"e":[{"a":"10.0.0.200","v":2,"s":"OwnerOfTheFuture","e":9}]}`), time.Now()})
	if v := viewOf(g.table); len(v.Eligible[vip1]) != 0 || len(v.Members["m2"].Standing) != 0 || len(v.Claims[vip1]) != 1 {
		t.Errorf("%+v", v)
	}
	// It is passed on as it came.
	if r := told(t, g.table, "m2"); r.Entries[0].Standing != "OwnerOfTheFuture" {
		t.Errorf("%+v", r)
	}
}

func TestNewerVersionIsCounted(t *testing.T) {
	const version = byte(record.Newest)
	g, _ := offline(t)
	g.hooks.NotifyMsg([]byte{record.TypeState, version + 1, '{', '}'})
	g.hooks.NotifyMsg([]byte{99, version, '{', '}'})
	g.hooks.MergeRemoteState([]byte{record.TypeFull, version + 1, '[', ']'}, false)
	g.hooks.NotifyMsg(nil)
	if n := g.count.newer.Load(); n != 3 {
		t.Errorf("newer = %d", n)
	}
	if n := g.count.invalid.Load(); n != 1 {
		t.Errorf("invalid = %d", n)
	}
	if n, _ := g.inbox.stats(); n != 0 {
		t.Errorf("%d messages are queued", n)
	}
}

// offline is a Gossip that has no sockets, for what only computes.
func offline(tb testing.TB) (*Gossip, *round) {
	g, _, err := prepare(Options{Name: "m1", BindAddr: addr(1), Insecure: true})
	if err != nil {
		tb.Fatal(err)
	}
	if g.join, err = newJoiner(g, nil); err != nil {
		tb.Fatal(err)
	}
	return g, &round{loop: newLoop(g)}
}

// viewOf is the whole state as a View has it.
func viewOf(t *record.Table) model.Gossip {
	var v model.View
	t.Whole().Apply(&v)
	return v.Gossip
}

// sane checks what must hold whatever was received.
func sane(tb testing.TB, g *Gossip) {
	v := viewOf(g.table)
	for a, claims := range v.Claims {
		for _, c := range claims {
			if c.Epoch == 0 || c.Epoch > record.MaxNumber || c.Owner == g.name {
				tb.Errorf("%v: claim %+v", a, c)
			}
			if _, ok := v.Members[c.Owner]; !ok {
				tb.Errorf("%v: claim of nobody: %+v", a, c)
			}
			if v.Seen[a] < c.Epoch {
				tb.Errorf("%v: seen %d is below the claim %+v", a, v.Seen[a], c)
			}
		}
	}
	for a, names := range v.Eligible {
		if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
			tb.Errorf("%v: eligible %v", a, names)
		}
		for _, n := range names {
			if !v.Members[n].Standing[a].Eligible() {
				tb.Errorf("%v: %s is not eligible", a, n)
			}
		}
	}
	for n := range g.table.Nodes() {
		if n.Life() != 0 {
			told(tb, g.table, n.Name)
		}
	}
}

// told is what is passed on of a node.
func told(tb testing.TB, t *record.Table, name model.NodeName) record.Record {
	tb.Helper()
	r, ok := t.All(name, time.Now())
	for _, f := range formats {
		if got, err := recordOf(r.Encode(f)); ok && (err != nil || got.Name != r.Name || !slices.Equal(got.Entries, r.Entries)) {
			tb.Errorf("what is told of %s in format %d cannot be read: %v", name, f, err)
		}
	}
	return r
}

var formats = []record.Format{record.FormatJSON, record.FormatBinary}

// recordOf is the record that a message carries.
func recordOf(msg []byte) (record.Record, error) {
	m, err := record.Open(msg)
	if err != nil {
		return record.Record{}, err
	}
	return m.Record()
}

// example is a record that has everything.
var example = record.Record{
	Name: "m2", From: "m3", Inc: 5, Seq: 9, Age: 7, Full: 9,
	Head: &record.Head{
		V: 3, Draining: true, Settled: true, Rules: 1, Weight: 100, Version: "v", Keys: []string{"0123456789ab"},
		MACs: []string{"02:00:00:00:00:01"}, Addrs: []netip.Addr{addr(2)}, Hears: []netip.Addr{addr(1)},
	},
	Machines: &record.Machines{V: 4, Manager: true, Drains: []record.Drain{{Machine: "ns/cp-1", Node: "m3", Reason: "Deleting", Detail: "why"}}},
	Entries: []record.Entry{
		{Addr: vip1, V: 9, Standing: "Owner", Epoch: 4, To: "m1", Weak: true, Holds: true, Seen: 5, Duplicate: "02:00:00:00:00:02", Name: "cp"},
		{Addr: vip2, V: 8, Inc: 4, Gone: true},
	},
}

func FuzzState(f *testing.F) {
	for _, r := range []record.Record{example, {Name: "m2", Inc: 5, Seq: 9, Full: 9}, {Name: "m1", Inc: 1 << 61, Seq: 1}} {
		f.Add(r.Encode(record.FormatJSON), example.Encode(record.FormatBinary))
		f.Add(r.Encode(record.FormatBinary), example.Encode(record.FormatJSON))
	}
	for _, format := range formats {
		f.Add(record.Stale{Name: "m1", Inc: 1 << 62}.Encode(format), record.Ask{Name: "m2"}.Encode(format))
	}
	f.Add([]byte("\x01\x01{\"n\":\"m2\",\"i\":3,\"q\":1,\"e\":[{\"a\":\"1.1.1.1\",\"v\":1,\"s\":\"Owner\"}]}"),
		[]byte("\x01\x01{\"n\":\"m2\",\"i\":4,\"q\":1,\"c\":1,\"e\":[{\"a\":\"1.1.1.1\",\"v\":1,\"i\":3,\"x\":true}]}"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		g, round := offline(t)
		for _, m := range [][]byte{one, two, one} {
			round.takeMessage(packet{m, time.Now()})
			g.hooks.NotifyMsg(m)
		}
		round.take()
		sane(t, g)
	})
}

func FuzzHeartbeat(f *testing.F) {
	for _, format := range formats {
		for _, b := range record.Beats(format, example, time.Second) {
			b.Seq, b.Lease = 7, 3000
			f.Add(b.Append(format, nil))
		}
		last := record.Beat{Name: "m2", Inc: 1, Interval: 50, Final: true, Seq: math.MaxInt64}
		f.Add(last.Append(format, nil))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		g, round := offline(t)
		for range 2 {
			g.beatbox.push(packet{msg, time.Now()})
		}
		round.take()
		if next := round.takeDeadlines(time.Now()); !next.IsZero() && time.Until(next) > 4*time.Minute {
			t.Errorf("a deadline in %v", time.Until(next))
		}
		sane(t, g)
	})
}

func FuzzRemoteState(f *testing.F) {
	g, _ := offline(f)
	f.Add(g.localState(record.FormatJSON))
	old := record.Record{Name: "m2", Inc: 1, Seq: 1, Age: math.MaxUint32}
	for _, format := range formats {
		f.Add(record.EncodeFull(format, slices.Values([]record.Record{example, old}), record.MaxMessage))
	}
	f.Add([]byte("\x05\x01[1,\"x\",null,{\"n\":\"m3\",\"i\":1,\"q\":1,\"c\":1}]"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		g, round := offline(t)
		g.hooks.MergeRemoteState(msg, true)
		round.take()
		sane(t, g)
		for _, f := range formats {
			state := g.localState(f)
			m, _ := record.Open(state)
			if records, bad, err := m.Full(nil); err != nil || bad != 0 || len(records) == 0 {
				t.Errorf("own state cannot be read: %d bad, %v: %q", bad, err, state)
			}
		}
	})
}

func ExampleOptions_Peers() {
	for _, p := range []string{"10.0.0.1", "10.0.0.1:99", "fd00::1", "[fd00::1]:99", "node-a", "node-a.example:99"} {
		x, err := parsePeer(p, 7947)
		fmt.Println(x.host, x.port, x.literal(), err)
	}
	// Output:
	// 10.0.0.1 7947 true <nil>
	// 10.0.0.1 99 true <nil>
	// fd00::1 7947 true <nil>
	// fd00::1 99 true <nil>
	// node-a 7947 false <nil>
	// node-a.example 99 false <nil>
}
