package gossip

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

func TestDecodeRecord(t *testing.T) {
	const ok = `{"n":"m1","i":1,"q":2`
	for _, c := range []struct {
		name string
		body string
		want wireRecord
		err  error
	}{
		{"OK least", ok + `}`, wireRecord{Name: "m1", Inc: 1, Seq: 2}, nil},
		{"OK unknown field", ok + `,"new":{"a":[1]}}`, wireRecord{Name: "m1", Inc: 1, Seq: 2}, nil},
		{"OK head", ok + `,"h":{"v":3,"d":true,"w":7,"k":["ab"]}}`, wireRecord{Name: "m1", Inc: 1, Seq: 2,
			Head: &wireHead{V: 3, Draining: true, Weight: 7, Keys: []string{"ab"}}}, nil},
		{"OK entry", ok + `,"e":[{"a":"10.0.0.1","v":2,"s":"Owner","e":4,"t":"m2","u":5}]}`, wireRecord{Name: "m1", Inc: 1, Seq: 2,
			Entries: []wireEntry{{Addr: netip.MustParseAddr("10.0.0.1"), V: 2, Standing: "Owner", Epoch: 4, To: "m2", Seen: 5}}}, nil},
		{"OK highest epoch", ok + `,"e":[{"a":"10.0.0.1","v":2,"e":4611686018427387904}]}`, wireRecord{Name: "m1", Inc: 1, Seq: 2,
			Entries: []wireEntry{{Addr: netip.MustParseAddr("10.0.0.1"), V: 2, Epoch: 1 << 62}}}, nil},
		{"bad epoch", ok + `,"e":[{"a":"10.0.0.1","v":2,"e":4611686018427387905}]}`, wireRecord{}, errInvalid},
		{"bad seen", ok + `,"e":[{"a":"10.0.0.1","v":2,"u":18446744073709551615}]}`, wireRecord{}, errInvalid},
		{"bad negative", ok + `,"e":[{"a":"10.0.0.1","v":-2}]}`, wireRecord{}, errInvalid},
		{"bad address", ok + `,"e":[{"a":"10.0.0.300","v":2}]}`, wireRecord{}, errInvalid},
		{"bad no address", ok + `,"e":[{"v":2}]}`, wireRecord{}, errInvalid},
		{"bad zone", ok + `,"e":[{"a":"fe80::1%eth0","v":2}]}`, wireRecord{}, errInvalid},
		{"bad mapped", ok + `,"e":[{"a":"::ffff:10.0.0.1","v":2}]}`, wireRecord{}, errInvalid},
		{"bad to", ok + `,"e":[{"a":"10.0.0.1","v":2,"t":"a b"}]}`, wireRecord{}, errInvalid},
		{"bad name", `{"n":"","i":1,"q":2}`, wireRecord{}, errInvalid},
		{"bad control character", `{"n":"a\u0000","i":1,"q":2}`, wireRecord{}, errInvalid},
		{"bad long name", `{"n":"` + strings.Repeat("a", 254) + `","i":1,"q":2}`, wireRecord{}, errInvalid},
		{"bad no life", `{"n":"m1","q":2}`, wireRecord{}, errInvalid},
		{"bad weight", ok + `,"h":{"v":3,"w":-1}}`, wireRecord{}, errInvalid},
		{"many addresses", ok + `,"h":{"v":3,"a":[` + strings.Repeat(`"10.0.0.1",`, maxAddrs) + `"10.0.0.2"]}}`, wireRecord{}, errInvalid},
		{"address with zone", ok + `,"h":{"v":3,"a":["fe80::1%eth0"]}}`, wireRecord{}, errInvalid},
		{"bad MACs", ok + `,"h":{"v":3,"m":["` + strings.Repeat(`","`, maxMACs) + `"]}}`, wireRecord{}, errInvalid},
		{"bad reason", ok + `,"e":[{"a":"10.0.0.1","v":2,"s":"` + strings.Repeat("x", 65) + `"}]}`, wireRecord{}, errInvalid},
		{"OK machines", ok + `,"m":{"v":3,"a":true,"p":true,"d":[{"m":"ns/cp-1","n":"m2","r":"Deleting","x":"why"}]}}`, wireRecord{Name: "m1", Inc: 1, Seq: 2,
			Machines: &wireMachines{V: 3, Manager: true, Partial: true, Drains: []wireDrain{{Machine: "ns/cp-1", Node: "m2", Reason: "Deleting", Detail: "why"}}}}, nil},
		{"bad machine version", ok + `,"m":{"v":4611686018427387905}}`, wireRecord{}, errInvalid},
		{"bad machine node", ok + `,"m":{"v":3,"d":[{"m":"ns/cp-1","n":"m 2"}]}}`, wireRecord{}, errInvalid},
		{"bad machine name", ok + `,"m":{"v":3,"d":[{"n":"m2"}]}}`, wireRecord{}, errInvalid},
		{"bad machine words", ok + `,"m":{"v":3,"d":[{"m":"ns/cp-1","n":"m2","x":"a\nb"}]}}`, wireRecord{}, errInvalid},
		{"bad long words", ok + `,"m":{"v":3,"d":[{"m":"ns/cp-1","n":"m2","x":"` + strings.Repeat("x", maxDetail+1) + `"}]}}`, wireRecord{}, errInvalid},
		{"bad many machines", ok + `,"m":{"v":3,"d":[` + strings.Repeat(`{"m":"a/b","n":"m2"},`, maxDrains) + `{"m":"a/b","n":"m2"}]}}`, wireRecord{}, errInvalid},
		{"bad type", `[]`, wireRecord{}, errInvalid},
		{"bad garbage", ok + `}x`, wireRecord{}, errInvalid},
		{"bad depth", strings.Repeat("[", 100_000), wireRecord{}, errInvalid},
		{"bad empty", ``, wireRecord{}, errInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := decodeRecord([]byte(c.body))
			if !errors.Is(err, c.err) || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, %v; want %+v, %v", got, err, c.want, c.err)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	for _, c := range []struct {
		msg  []byte
		kind byte
		err  error
	}{
		{nil, 0, errShort},
		{[]byte{typeState, wireVersion}, 0, errShort},
		{[]byte{typeState, wireVersion, '{'}, typeState, nil},
		{[]byte{typeState, wireVersion + 1, '{'}, typeState, errNewer},
		{[]byte{typeState, 0, '{'}, typeState, errInvalid},
		{[]byte{0, wireVersion, '{'}, 0, errType},
		{[]byte{typeFull + 1, wireVersion, '{'}, 0, errType},
		{make([]byte, maxMessage+1), 0, errLong},
	} {
		kind, _, err := open(c.msg)
		if kind != c.kind || !errors.Is(err, c.err) {
			t.Errorf("%.10v: %d, %v; want %d, %v", c.msg, kind, err, c.kind, c.err)
		}
	}
}

func TestUnknownReasonIsNotEligible(t *testing.T) {
	g, turn := offline(t)
	turn.takeMessage(packet{[]byte("\x01\x01" + `{"n":"m2","i":1,"q":2,"e":[{"a":"10.0.0.200","v":2,"s":"OwnerOfTheFuture","e":9}]}`), time.Now()})
	if v := viewOf(g.table); len(v.Eligible[vip1]) != 0 || len(v.Members["m2"].Standing) != 0 || len(v.Claims[vip1]) != 1 {
		t.Errorf("%+v", v)
	}
	// It is passed on as it came.
	if r := g.table.echo(g.table.nodes["m2"]); r.Entries[0].Standing != "OwnerOfTheFuture" {
		t.Errorf("%+v", r)
	}
}

func TestNewerVersionIsCounted(t *testing.T) {
	g, _ := offline(t)
	g.hooks.NotifyMsg([]byte{typeState, wireVersion + 1, '{', '}'})
	g.hooks.NotifyMsg([]byte{99, wireVersion, '{', '}'})
	g.hooks.MergeRemoteState([]byte{typeFull, wireVersion + 1, '[', ']'}, false)
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

// longest is a record as large as its parts may get.
func longest(entries int) wireRecord {
	r := wireRecord{
		Name: strings.Repeat("n", maxName), From: strings.Repeat("f", maxName), Inc: maxNumber, Seq: maxNumber, Full: maxNumber,
		Head: &wireHead{V: maxNumber, Draining: true, Settled: true, Left: true, Rules: 1 << 20, Weight: 1 << 20, Version: strings.Repeat("v", maxWord)},
	}
	r.Machines = &wireMachines{V: maxNumber, Manager: true, Partial: true, Drains: []wireDrain{
		{Machine: strings.Repeat("m", maxMachine), Node: strings.Repeat("n", maxName), Reason: strings.Repeat("r", maxWord), Detail: "d"},
	}}
	for i := range maxMACs {
		r.Head.MACs = append(r.Head.MACs, model.MAC{255, 255, 255, 255, 255, byte(i)}.String())
	}
	for i := range maxAddrs {
		r.Head.Addrs = append(r.Head.Addrs, netip.AddrFrom16([16]byte{0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, byte(i)}))
	}
	for i := range 2 {
		r.Head.Keys = append(r.Head.Keys, fingerprint([]byte{byte(i)}))
	}
	for i := range entries {
		r.Entries = append(r.Entries, wireEntry{
			Addr: netip.AddrFrom16([16]byte{0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, byte(i >> 8), byte(i)}),
			V:    maxNumber, Inc: maxNumber - 1, Standing: model.ReasonWaitingForRelease.String(), Epoch: maxNumber, To: strings.Repeat("t", maxName), Seen: maxNumber, Name: strings.Repeat("o", model.MaxTold),
		})
	}
	return r
}

func TestChunks(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 50, 1000} {
		for _, r := range []wireRecord{longest(n), {Name: "m1", Inc: 1, Seq: 1, Full: 1, Entries: longest(n).Entries}} {
			msgs := chunks(r)
			var back wireRecord
			parts, complete := 0, 0
			for i, m := range msgs {
				if len(m) > 1400-29-66-1-6 {
					t.Errorf("%d entries: message %d has %d bytes", n, i, len(m))
				}
				_, body, err := open(m)
				if err != nil {
					t.Fatal(err)
				}
				part, err := decodeRecord(body)
				if err != nil {
					t.Fatal(err)
				}
				if part.Name != r.Name || part.From != r.From || part.Inc != r.Inc || part.Seq != r.Seq {
					t.Errorf("part %d is of %+v", i, part)
				}
				if part.Machines != nil {
					back.Machines = part.Machines
					if part.Head != nil || part.Full != 0 || len(part.Entries) > 0 {
						t.Error("Machines are not by themselves")
					}
					continue
				}
				parts++
				if part.Full != 0 {
					complete++
				}
				if part.Head != nil {
					back.Head = part.Head
				}
				back.Entries = append(back.Entries, part.Entries...)
			}
			if complete > 0 && parts > 1 {
				t.Error("a part claims to be complete")
			}
			if !reflect.DeepEqual(back.Machines, r.Machines) || !reflect.DeepEqual(back.Head, r.Head) || !slices.Equal(back.Entries, r.Entries) {
				t.Errorf("%d entries: something was lost in %d messages", n, len(msgs))
			}
			if n == 0 && parts != 1 {
				t.Errorf("%d messages for a record without entries", parts)
			}
		}
	}
}

func TestEntrySizeIsABound(t *testing.T) {
	for _, e := range append(longest(3).Entries,
		wireEntry{Addr: vip1}, wireEntry{Addr: vip1, Gone: true, V: 10}, wireEntry{Addr: vip2, To: "ü<>&", Standing: `"\`, Epoch: 1}) {
		b, err := json.Marshal(e)
		if err != nil || len(b) > e.size() {
			t.Errorf("%s: %d bytes, said %d (%v)", b, len(b), e.size(), err)
		}
	}
}

func TestMACs(t *testing.T) {
	in := []model.MAC{{}, {1, 2, 3, 4, 5, 6}, {255, 254, 253, 252, 251, 250}}
	if got := decodeMACs(encodeMACs(in[1:])); !slices.Equal(got, in[1:]) {
		t.Errorf("got %v", got)
	}
	if got := decodeMACs([]string{"", "01:02:03:04:05", "01-02-03-04-05-06", "01:02:03:04:05:0g", "0A:0b:0C:0d:0E:0f"}); !slices.Equal(got, []model.MAC{{10, 11, 12, 13, 14, 15}}) {
		t.Errorf("got %v", got)
	}
}

// offline is a Gossip that has no sockets, for what only computes.
func offline(tb testing.TB) (*Gossip, *turn) {
	g, _, err := prepare(Options{Name: "m1", BindAddr: addr(1), Insecure: true})
	if err != nil {
		tb.Fatal(err)
	}
	if g.join, err = newJoiner(g, nil); err != nil {
		tb.Fatal(err)
	}
	return g, &turn{g: g, answered: map[model.NodeName]time.Time{}, staled: map[model.NodeName]time.Time{}}
}

// viewOf is the whole state as a View has it.
func viewOf(t *table) model.Gossip {
	var v model.View
	t.whole().apply(&v)
	return v.Gossip
}

// sane checks what must hold whatever was received.
func sane(tb testing.TB, g *Gossip) {
	v := viewOf(g.table)
	for a, claims := range v.Claims {
		for _, c := range claims {
			if c.Epoch == 0 || c.Epoch > maxNumber || c.Owner == g.name {
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
	total := 0
	for _, n := range g.table.nodes {
		total += len(n.entries)
		if b := encode(typeState, g.table.echo(n)); n.inc != 0 {
			if _, err := decodeRecord(b[2:]); err != nil {
				tb.Errorf("echo of %s cannot be read: %v: %s", n.name, err, b)
			}
		}
	}
	if total != g.table.total {
		tb.Errorf("%d entries, counted %d", total, g.table.total)
	}
}

func FuzzState(f *testing.F) {
	for _, r := range []wireRecord{longest(2), {Name: "m2", Inc: 5, Seq: 9, Full: 9}, {Name: "m1", Inc: 1 << 61, Seq: 1}} {
		f.Add(chunks(r)[0], chunks(longest(1))[0])
	}
	f.Add(encode(typeStale, wireStale{"m1", 1 << 62}), encode(typeAsk, wireAsk{Name: "m2"}))
	f.Add([]byte("\x01\x01{\"n\":\"m2\",\"i\":3,\"q\":1,\"e\":[{\"a\":\"1.1.1.1\",\"v\":1,\"s\":\"Owner\"}]}"),
		[]byte("\x01\x01{\"n\":\"m2\",\"i\":4,\"q\":1,\"c\":1,\"e\":[{\"a\":\"1.1.1.1\",\"v\":1,\"i\":3,\"x\":true}]}"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		g, turn := offline(t)
		for _, m := range [][]byte{one, two, one} {
			turn.takeMessage(packet{m, time.Now()})
			g.hooks.NotifyMsg(m)
		}
		turn.take()
		sane(t, g)
	})
}

func FuzzHeartbeat(f *testing.F) {
	rec := longest(3)
	rec.Head = nil
	for _, b := range beatBodies(rec, time.Second) {
		f.Add(append(slices.Clone(b), `,"q":7,"r":3000}`...))
	}
	f.Add(encode(typeBeat, wireBeat{Name: "m2", Inc: 1, Interval: 50, Final: true, Seq: math.MaxInt64}))
	f.Add([]byte("\x02\x01{\"n\":\"m2\",\"i\":1,\"d\":50,\"q\":7,\"r\":9,\"q\":8}"))
	f.Add([]byte("\x02\x01{\"n\":\"m2\",\"i\":1,\"d\":50,\"r\":5,\"q\":08}"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		g, turn := offline(t)
		if len(msg) > 2 {
			plain, perr := decodeBeat(msg[2:])
			for range 2 {
				cached, cerr := g.beatsRead.decode(msg[2:])
				if (perr == nil) != (cerr == nil) || !reflect.DeepEqual(plain, cached) {
					t.Fatalf("read %+v, %v; with the cache %+v, %v", plain, perr, cached, cerr)
				}
			}
		}
		for range 2 {
			g.beatbox.push(packet{msg, time.Now()})
		}
		turn.take()
		if next := g.deadlines(time.Now()); !next.IsZero() && time.Until(next) > 4*time.Minute {
			t.Errorf("a deadline in %v", time.Until(next))
		}
		sane(t, g)
	})
}

func FuzzRemoteState(f *testing.F) {
	g, _ := offline(f)
	f.Add(g.localState())
	f.Add(encode(typeFull, []wireRecord{longest(1), {Name: "m2", Inc: 1, Seq: 1, Age: math.MaxUint32}}))
	f.Add(encode(typeFull, []any{1, "x", nil, wireRecord{Name: "m3", Inc: 1, Seq: 1, Full: 1}}))
	f.Fuzz(func(t *testing.T, msg []byte) {
		g, turn := offline(t)
		g.hooks.MergeRemoteState(msg, true)
		turn.take()
		sane(t, g)
		state := g.localState()
		if records, bad, err := decodeFull(state[2:]); err != nil || bad != 0 || len(records) == 0 {
			t.Errorf("own state cannot be read: %d bad, %v: %s", bad, err, state)
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

// TestHeartbeatsOfManyAreBounded: whatever hosts with the key make up, what is remembered of
// heartbeats has a bound.
func TestHeartbeatsOfManyAreBounded(t *testing.T) {
	cache := beatCache{}
	merged := beatsMerged{}
	for i := range 3 * beatCacheSize {
		b, err := cache.decode(fmt.Appendf(nil, `{"n":"m%d","i":1,"d":50,"q":7}`, i))
		if want := model.NodeName(fmt.Sprintf("m%d", i)); err != nil || b.Seq != 7 || b.Name != string(want) {
			t.Fatalf("read %+v, %v", b, err)
		}
		merged.merged(make([]wireEntry, fewEntries+1), state{}, time.Now())
		if len(cache) > beatCacheSize || len(merged) > beatCacheSize {
			t.Fatalf("%d and %d are remembered", len(cache), len(merged))
		}
	}
}
