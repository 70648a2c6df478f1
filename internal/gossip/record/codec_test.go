package record

import (
	"encoding/json"
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
			got, err := DecodeRecord([]byte(c.body))
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
		{[]byte{TypeState, version}, 0, errShort},
		{[]byte{TypeState, version, '{'}, TypeState, nil},
		{[]byte{TypeState, version + 1, '{'}, TypeState, ErrNewer},
		{[]byte{TypeState, 0, '{'}, TypeState, ErrInvalid},
		{[]byte{0, version, '{'}, 0, ErrType},
		{[]byte{TypeFull + 1, version, '{'}, 0, ErrType},
		{make([]byte, MaxMessage+1), 0, errLong},
	} {
		kind, _, err := Open(c.msg)
		if kind != c.kind || !errors.Is(err, c.err) {
			t.Errorf("%.10v: %d, %v; want %d, %v", c.msg, kind, err, c.kind, c.err)
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

func TestChunks(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 50, 1000} {
		for _, r := range []Record{longest(n), {Name: "m1", Inc: 1, Seq: 1, Full: 1, Entries: longest(n).Entries}} {
			msgs := Chunks(r)
			var back Record
			parts, complete := 0, 0
			for i, m := range msgs {
				if len(m) > 1400-29-66-1-6 {
					t.Errorf("%d entries: message %d has %d bytes", n, i, len(m))
				}
				_, body, err := Open(m)
				if err != nil {
					t.Fatal(err)
				}
				part, err := DecodeRecord(body)
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
		Entry{Addr: vip1}, Entry{Addr: vip1, Gone: true, V: 10}, Entry{Addr: vip2, To: "ü<>&", Standing: `"\`, Epoch: 1}) {
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

// TestFullHasABound: what has no room is left out, and neither the first record nor what comes
// after it is lost by that.
func TestFullHasABound(t *testing.T) {
	big, small := bare(longest(50)), bare(Record{Name: "m2", Inc: 1, Seq: 1})
	for _, c := range []struct {
		name  string
		bare  [][]byte
		limit int
		want  int
	}{
		{"all", [][]byte{small, big, small}, 1 << 20, 3},
		{"one has no room", [][]byte{small, big, small}, len(big), 2},
		{"just as much room", [][]byte{small, small}, 2*len(small) + 5, 2},
		{"a byte too little", [][]byte{small, small}, 2*len(small) + 4, 1},
		{"the first without room", [][]byte{big}, 10, 1},
		{"one says nothing", [][]byte{small, nil, small}, 1 << 20, 2},
	} {
		msg := EncodeFull(c.bare, c.limit)
		kind, body, err := Open(msg)
		if err != nil || kind != TypeFull {
			t.Fatalf("%s: %d, %v", c.name, kind, err)
		}
		records, bad, err := DecodeFull(body)
		if err != nil || bad != 0 || len(records) != c.want {
			t.Errorf("%s: %d records, %d bad, %v; want %d", c.name, len(records), bad, err, c.want)
		}
		if len(msg) > c.limit && c.want > 1 {
			t.Errorf("%s: %d bytes, limit %d", c.name, len(msg), c.limit)
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
		b := tab.Bare("a", now.Add(c.after))
		if !c.told {
			if b != nil {
				t.Errorf("%+v: %s", c, b)
			}
			continue
		}
		if r, err := DecodeRecord(b); err != nil || r.Age != c.age || r.From != "x" {
			t.Errorf("%+v: %+v, %v", c, r, err)
		}
	}
}

// FuzzMerge: whatever is received, the table counts its entries, and what it passes on can be
// read.
func FuzzMerge(f *testing.F) {
	for _, r := range []Record{longest(2), {Name: "m2", Inc: 5, Seq: 9, Full: 9}} {
		f.Add(Chunks(r)[0], Chunks(longest(1))[0])
	}
	f.Add([]byte("\x01\x01{\"n\":\"m2\",\"i\":3,\"q\":1,\"e\":[{\"a\":\"1.1.1.1\",\"v\":1,\"s\":\"Owner\"}]}"),
		[]byte("\x01\x01{\"n\":\"m2\",\"i\":4,\"q\":1,\"c\":1,\"e\":[{\"a\":\"1.1.1.1\",\"v\":1,\"i\":3,\"x\":true}]}"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		tab, now := NewTable("x"), time.Unix(10_000, 0)
		for _, m := range [][]byte{one, two, one} {
			if _, body, err := Open(m); err == nil {
				if r, err := DecodeRecord(body); err == nil {
					tab.Merge(&r, now)
				}
			}
		}
		total := 0
		for n := range tab.Nodes() {
			total += len(n.entries)
			if n.inc == 0 {
				continue
			}
			if _, err := DecodeRecord(tab.Bare(n.Name, now)); err != nil {
				t.Errorf("what is told of %s cannot be read: %v", n.Name, err)
			}
		}
		if total != tab.total {
			t.Errorf("%d entries, counted %d", total, tab.total)
		}
	})
}
