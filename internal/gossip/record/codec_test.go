package record

import (
	"errors"
	"fmt"
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
		want Record
		err  error
	}{
		{"OK least", ok + `}`, Record{Name: "m1", Inc: 1, Seq: 2}, nil},
		{"OK unknown field", ok + `,"new":{"a":[1]}}`, Record{Name: "m1", Inc: 1, Seq: 2}, nil},
		{"OK head", ok + `,"h":{"v":3,"d":true,"w":7,"k":["ab"]}}`, Record{Name: "m1", Inc: 1, Seq: 2,
			Head: &Head{V: 3, Draining: true, Weight: 7, Keys: []string{"ab"}}}, nil},
		{"OK entry", ok + `,"e":[{"a":"10.0.0.1","v":2,"s":"Owner","e":4,"t":"m2","u":5}]}`, Record{Name: "m1", Inc: 1, Seq: 2,
			Entries: []Entry{{Addr: netip.MustParseAddr("10.0.0.1"), V: 2, Standing: "Owner", Epoch: 4, To: "m2", Seen: 5}}}, nil},
		{"OK highest epoch", ok + `,"e":[{"a":"10.0.0.1","v":2,"e":4611686018427387904}]}`, Record{Name: "m1", Inc: 1, Seq: 2,
			Entries: []Entry{{Addr: netip.MustParseAddr("10.0.0.1"), V: 2, Epoch: 1 << 62}}}, nil},
		{"bad epoch", ok + `,"e":[{"a":"10.0.0.1","v":2,"e":4611686018427387905}]}`, Record{}, ErrInvalid},
		{"bad seen", ok + `,"e":[{"a":"10.0.0.1","v":2,"u":18446744073709551615}]}`, Record{}, ErrInvalid},
		{"bad negative", ok + `,"e":[{"a":"10.0.0.1","v":-2}]}`, Record{}, ErrInvalid},
		{"bad address", ok + `,"e":[{"a":"10.0.0.300","v":2}]}`, Record{}, ErrInvalid},
		{"bad no address", ok + `,"e":[{"v":2}]}`, Record{}, ErrInvalid},
		{"bad zone", ok + `,"e":[{"a":"fe80::1%eth0","v":2}]}`, Record{}, ErrInvalid},
		{"bad mapped", ok + `,"e":[{"a":"::ffff:10.0.0.1","v":2}]}`, Record{}, ErrInvalid},
		{"bad to", ok + `,"e":[{"a":"10.0.0.1","v":2,"t":"a b"}]}`, Record{}, ErrInvalid},
		{"bad name", `{"n":"","i":1,"q":2}`, Record{}, ErrInvalid},
		{"bad control character", `{"n":"a\u0000","i":1,"q":2}`, Record{}, ErrInvalid},
		{"bad long name", `{"n":"` + strings.Repeat("a", 254) + `","i":1,"q":2}`, Record{}, ErrInvalid},
		{"bad no life", `{"n":"m1","q":2}`, Record{}, ErrInvalid},
		{"bad weight", ok + `,"h":{"v":3,"w":-1}}`, Record{}, ErrInvalid},
		{"many addresses", ok + `,"h":{"v":3,"a":[` + strings.Repeat(`"10.0.0.1",`, maxAddrs) + `"10.0.0.2"]}}`, Record{}, ErrInvalid},
		{"address with zone", ok + `,"h":{"v":3,"a":["fe80::1%eth0"]}}`, Record{}, ErrInvalid},
		{"bad MACs", ok + `,"h":{"v":3,"m":["` + strings.Repeat(`","`, maxMACs) + `"]}}`, Record{}, ErrInvalid},
		{"bad reason", ok + `,"e":[{"a":"10.0.0.1","v":2,"s":"` + strings.Repeat("x", 65) + `"}]}`, Record{}, ErrInvalid},
		{"OK machines", ok + `,"m":{"v":3,"a":true,"p":true,"d":[{"m":"ns/cp-1","n":"m2","r":"Deleting","x":"why"}]}}`, Record{Name: "m1", Inc: 1, Seq: 2,
			Machines: &Machines{V: 3, Manager: true, Partial: true, Drains: []Drain{{Machine: "ns/cp-1", Node: "m2", Reason: "Deleting", Detail: "why"}}}}, nil},
		{"bad machine version", ok + `,"m":{"v":4611686018427387905}}`, Record{}, ErrInvalid},
		{"bad machine node", ok + `,"m":{"v":3,"d":[{"m":"ns/cp-1","n":"m 2"}]}}`, Record{}, ErrInvalid},
		{"bad machine name", ok + `,"m":{"v":3,"d":[{"n":"m2"}]}}`, Record{}, ErrInvalid},
		{"bad machine words", ok + `,"m":{"v":3,"d":[{"m":"ns/cp-1","n":"m2","x":"a\nb"}]}}`, Record{}, ErrInvalid},
		{"bad long words", ok + `,"m":{"v":3,"d":[{"m":"ns/cp-1","n":"m2","x":"` + strings.Repeat("x", maxDetail+1) + `"}]}}`, Record{}, ErrInvalid},
		{"bad many machines", ok + `,"m":{"v":3,"d":[` + strings.Repeat(`{"m":"a/b","n":"m2"},`, maxDrains) + `{"m":"a/b","n":"m2"}]}}`, Record{}, ErrInvalid},
		{"bad type", `[]`, Record{}, ErrInvalid},
		{"bad garbage", ok + `}x`, Record{}, ErrInvalid},
		{"bad depth", strings.Repeat("[", 100_000), Record{}, ErrInvalid},
		{"bad empty", ``, Record{}, ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := decode[Record](FormatJSON, []byte(c.body))
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
		{[]byte{TypeState, byte(Newest)}, 0, errShort},
		{[]byte{TypeState, byte(FormatJSON), '{'}, TypeState, nil},
		{[]byte{TypeState, byte(Newest), '{'}, TypeState, nil},
		{[]byte{TypeState, byte(Newest) + 1, '{'}, TypeState, ErrNewer},
		{[]byte{TypeState, 0, '{'}, TypeState, ErrInvalid},
		{[]byte{0, byte(Newest), '{'}, 0, ErrType},
		{[]byte{TypeFull + 1, byte(Newest), '{'}, 0, ErrType},
		{make([]byte, MaxMessage+1), 0, errLong},
	} {
		m, err := Open(c.msg)
		if m.Type != c.kind || !errors.Is(err, c.err) {
			t.Errorf("%.10v: %d, %v; want %d, %v", c.msg, m.Type, err, c.kind, c.err)
		}
	}
}

// longest is a record as large as its parts may get.
func longest(entries int) Record {
	r := Record{
		Name: strings.Repeat("n", MaxName), From: strings.Repeat("f", MaxName), Inc: MaxNumber, Seq: MaxNumber, Full: MaxNumber,
		Head: &Head{V: MaxNumber, Draining: true, Settled: true, Left: true, Rules: 1 << 20, Weight: 1 << 20, Version: strings.Repeat("v", maxWord)},
	}
	r.Machines = &Machines{V: MaxNumber, Manager: true, Partial: true, Drains: []Drain{
		{Machine: strings.Repeat("m", maxMachine), Node: strings.Repeat("n", MaxName), Reason: strings.Repeat("r", maxWord), Detail: "d"},
	}}
	for i := range maxMACs {
		r.Head.MACs = append(r.Head.MACs, model.MAC{255, 255, 255, 255, 255, byte(i)}.String())
	}
	for i := range maxAddrs {
		r.Head.Addrs = append(r.Head.Addrs, netip.AddrFrom16([16]byte{0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, byte(i)}))
	}
	for i := range 2 {
		r.Head.Keys = append(r.Head.Keys, fmt.Sprintf("%012x", i))
	}
	for i := range entries {
		r.Entries = append(r.Entries, Entry{
			Addr: netip.AddrFrom16([16]byte{0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, byte(i >> 8), byte(i)}),
			V:    MaxNumber, Inc: MaxNumber - 1, Standing: model.ReasonWaitingForRelease.String(), Epoch: MaxNumber, To: strings.Repeat("t", MaxName), Seen: MaxNumber, Name: strings.Repeat("o", model.MaxTold),
		})
	}
	return r
}

// datagram is the largest message for which memberlist has room in one, which only the longest names
// need.
const datagram = 1400 - 29 - 66 - 1 - 6

func TestChunks(t *testing.T) {
	for _, f := range formats {
		for _, n := range []int{0, 1, 2, 3, 50, 1000} {
			for _, r := range []Record{longest(n), {Name: "m1", Inc: 1, Seq: 1, Full: 1, Entries: longest(n).Entries}} {
				testChunks(t, f, r)
			}
		}
	}
}

// TestVerdictWithoutRoom: a claim whose verdict has no room in a message of JSON, as a group with an
// older version speaks it, is told without. That of a thousand servers with usual names has room.
func TestVerdictWithoutRoom(t *testing.T) {
	verdict := func(e Entry) Entry {
		e.Servers, e.Out = 1<<32-1, Bits(strings.Repeat("\xff", model.MaxVerdict/8))
		return e
	}
	long := longest(3)
	usual := Entry{Addr: long.Entries[0].Addr, V: 7, Standing: model.ReasonOwner.String(), Epoch: 3, To: strings.Repeat("t", 63), Name: strings.Repeat("o", 63)}
	for _, f := range formats {
		r := long
		r.Entries = []Entry{verdict(long.Entries[0]), verdict(usual), long.Entries[1], verdict(long.Entries[2])}
		given := slices.Clone(r.Entries)
		want := slices.Clone(r.Entries)
		if f == FormatJSON {
			want[0], want[3] = long.Entries[0], long.Entries[2]
		}
		var got []Entry
		for _, m := range Chunks(f, r) {
			part, err := recordOf(m)
			if err != nil || len(m) > datagram {
				t.Fatalf("format %d: %d bytes, %v", f, len(m), err)
			}
			got = append(got, part.Entries...)
		}
		for _, b := range Beats(f, r, time.Second) {
			if n := len(b.Append(f, nil)); n > datagram {
				t.Errorf("format %d: a heartbeat has %d bytes", f, n)
			}
		}
		if !slices.Equal(got, want) || !slices.Equal(r.Entries, given) {
			t.Errorf("format %d: told are %+v", f, got)
		}
	}
}

func testChunks(t *testing.T, f Format, r Record) {
	var back Record
	msgs, parts, complete := Chunks(f, r), 0, 0
	for i, m := range msgs {
		if len(m) > datagram {
			t.Errorf("%d entries, format %d: message %d has %d bytes", len(r.Entries), f, i, len(m))
		}
		part, err := recordOf(m)
		if err != nil || m[1] != byte(f) {
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
	if complete > 0 && parts > 1 || parts == 1 && complete == 0 {
		t.Errorf("%d of %d parts claim to be complete", complete, parts)
	}
	if !reflect.DeepEqual(back.Machines, r.Machines) || !reflect.DeepEqual(back.Head, r.Head) || !slices.Equal(back.Entries, r.Entries) {
		t.Errorf("%d entries: something was lost in %d messages", len(r.Entries), len(msgs))
	}
	if len(r.Entries) == 0 && parts != 1 {
		t.Errorf("%d messages for a record without entries", parts)
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

// TestFullHasABound: what has no room is left out, and neither the first record nor what comes
// after it is lost by that.
func TestFullHasABound(t *testing.T) {
	big, small := longest(50), Record{Name: "m2", Inc: 1, Seq: 1}
	for _, f := range formats {
		first := len(EncodeFull(f, slices.Values([]Record{small}), 0))
		two := len(EncodeFull(f, slices.Values([]Record{small, small}), 1<<20))
		for _, c := range []struct {
			name    string
			records []Record
			limit   int
			want    int
		}{
			{"all", []Record{small, big, small}, 1 << 20, 3},
			{"one has no room", []Record{small, big, small}, two, 2},
			{"just as much room", []Record{small, small}, two, 2},
			{"a byte too little", []Record{small, small}, two - 1, 1},
			{"the first without room", []Record{big}, 10, 1},
		} {
			msg := EncodeFull(f, slices.Values(c.records), c.limit)
			m, err := Open(msg)
			if err != nil || m.Type != TypeFull {
				t.Fatalf("%s: %d, %v", c.name, m.Type, err)
			}
			records, bad, err := m.Full(nil)
			if err != nil || bad != 0 || len(records) != c.want {
				t.Errorf("%s: %d records, %d bad, %v; want %d", c.name, len(records), bad, err, c.want)
			}
			if len(msg) > max(c.limit, first) && c.want > 1 {
				t.Errorf("%s: %d bytes, limit %d", c.name, len(msg), c.limit)
			}
		}
	}
}

// TestAgeIsTold of a node that is gone, and of no other.
func TestAgeIsTold(t *testing.T) {
	now := time.Unix(10_000, 0)
	tab := NewTable("x")
	tab.Merge(&Record{Name: "a", Inc: 1, Seq: 1}, now)
	for _, c := range []struct {
		present bool
		after   time.Duration
		told    bool
		age     uint32
	}{{true, time.Hour, true, 0}, {false, 0, true, 0}, {false, 90 * time.Second, true, 90}, {false, time.Hour + time.Second, false, 0}} {
		tab.Member("a", at(1), true, now)
		tab.Member("a", at(1), c.present, now)
		r, ok := tab.All("a", now.Add(c.after))
		if ok != c.told || ok && (r.Age != c.age || r.From != "x") {
			t.Errorf("%+v: %v, %+v", c, ok, r)
		}
	}
}

// FuzzMerge: whatever is received, the table counts its entries, and what it passes on can be
// read.
func FuzzMerge(f *testing.F) {
	for _, r := range []Record{longest(2), {Name: "m2", Inc: 5, Seq: 9, Full: 9}} {
		f.Add(Chunks(FormatJSON, r)[0], Chunks(FormatBinary, longest(1))[0])
		f.Add(Chunks(FormatBinary, r)[0], Chunks(FormatJSON, longest(1))[0])
	}
	f.Add([]byte("\x01\x01{\"n\":\"m2\",\"i\":3,\"q\":1,\"e\":[{\"a\":\"1.1.1.1\",\"v\":1,\"s\":\"Owner\"}]}"),
		[]byte("\x01\x01{\"n\":\"m2\",\"i\":4,\"q\":1,\"c\":1,\"e\":[{\"a\":\"1.1.1.1\",\"v\":1,\"i\":3,\"x\":true}]}"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		tab, now := NewTable("x"), time.Unix(10_000, 0)
		for _, m := range [][]byte{one, two, one} {
			if r, err := recordOf(m); err == nil {
				tab.Merge(&r, now)
			}
		}
		total := 0
		for n := range tab.Nodes() {
			total += len(n.entries)
			r, ok := tab.All(n.Name, now)
			for _, f := range formats {
				if got, err := recordOf(r.Encode(f)); ok && (err != nil || !slices.Equal(got.Entries, r.Entries)) {
					t.Errorf("what is told of %s in format %d cannot be read: %v", n.Name, f, err)
				}
			}
		}
		if total != tab.total {
			t.Errorf("%d entries, counted %d", total, tab.total)
		}
	})
}

// TestNamesForATerminal: no name and no text of another node moves the cursor of a terminal, and
// no name turns the direction of a line.
func TestNamesForATerminal(t *testing.T) {
	for name, ok := range map[string]bool{
		"m1": true, "büro-3.example": true, "m 1": false, "a/b": false, "m\x1b[2J": false, "m\u009b2J": false, "m\u202e1": false, "m\u00a01": false, "m\x7f": false, "": false,
	} {
		if ValidName(name) != ok {
			t.Errorf("%q: want %t", name, ok)
		}
	}
	for text, ok := range map[string]bool{"two words": true, "1\u00a0s": true, "a\nb": false, "\x1b[2J": false, "\u009b2J": false} {
		if validWords(text, maxWord) != ok {
			t.Errorf("%q: want %t", text, ok)
		}
	}
}
