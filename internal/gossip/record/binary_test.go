package record

import (
	"errors"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestBinaryIsTheSame: what is written in one format and what is written in the other say the
// same, also in their longest form.
func TestBinaryIsTheSame(t *testing.T) {
	long := longest(3)
	long.Head.Hears, long.Head.Drained, long.Head.Format = []netip.Addr{vip1, vip2}, true, 9
	long.Machines.Drains[0].Only = []netip.Addr{vip1, vip2}
	long.Entries[0].Gone, long.Entries[1].Degraded, long.Entries[2].Holds = true, true, true
	long.Entries[1].Weak, long.Entries[1].Duplicate = true, "02:00:00:00:00:01"
	long.Entries[2].Servers, long.Entries[2].Out = 1<<32-1, Bits(strings.Repeat("\xff", model.MaxVerdict/8))
	long.Age = 1<<32 - 1
	for _, r := range []Record{long, {Name: "m1", Inc: 1, Seq: 1}, {Name: "m1", Inc: 1, Seq: 1, Head: &Head{V: 1}, Machines: &Machines{V: 2}}} {
		for _, f := range formats {
			if got, err := recordOf(r.Encode(f)); err != nil || !reflect.DeepEqual(got, r) {
				t.Errorf("format %d, %v:\n%+v, want\n%+v", f, err, got, r)
			}
		}
	}
	beat := Beat{Name: "m1", Inc: MaxNumber, Interval: 60_000, Final: true, Entries: long.Entries, Seq: MaxNumber, Lease: MaxLease}
	for _, f := range formats {
		m, _ := Open(beat.Append(f, nil))
		if got, err := m.Beat(); err != nil || !reflect.DeepEqual(got, beat) {
			t.Errorf("format %d: %+v, %v", f, got, err)
		}
		m, _ = Open(Stale{Name: "m1", Inc: 7}.Encode(f))
		if got, err := m.Stale(); err != nil || got != (Stale{Name: "m1", Inc: 7}) {
			t.Errorf("format %d: %+v, %v", f, got, err)
		}
		for _, ask := range []Ask{{Name: "m1"}, {Name: "m1", Here: true}, {Name: "m1", Yes: true}} {
			m, _ = Open(ask.Encode(f))
			if got, err := m.Ask(); err != nil || got != ask {
				t.Errorf("format %d: %+v, %v", f, got, err)
			}
		}
	}
}

// TestBinaryOfTheNextRelease: parts and fields that a later release adds are passed over, and
// fields that an earlier one does not write are zero.
func TestBinaryOfTheNextRelease(t *testing.T) {
	want := Record{Name: "m1", From: "m2", Inc: 5, Seq: 9, Full: 9, Head: &Head{V: 3, Weight: 7}, Entries: []Entry{{Addr: vip1, V: 2, Standing: "Owner"}}}
	longer := func(group []byte) []byte { // with a field more at the end
		r := reader{b: group}
		b := append(slices.Clone(r.bytes()), 1, 2, 3)
		return closeGroup(append(slices.Clone(r.b), b...), len(r.b))
	}
	head := appendNumbers(appendText(appendText(nil, "m1"), "m2"), 5, 9, 9)
	msg := append([]byte{TypeState, byte(FormatBinary)}, longer(closeGroup(append(slices.Clone(head), 0), 0))...)
	msg = append(append(msg, 99), closeGroup([]byte("a part of the future"), 0)...)
	msg = append(append(msg, partHead), longer(want.Head.appendTo(nil))...)
	msg = append(append(msg, partEntry), longer(appendEntry(nil, &want.Entries[0])[1:])...)
	// The last of the fields that are known come as three numbers; they are texts.
	got, err := recordOf(msg)
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("texts that are longer than their entry: %+v, %v", got, err)
	}
	full := want.Entries[0]
	full.To, full.Duplicate, full.Servers, full.Out = "m3", "x", 7, "\x05"
	want.Entries[0] = full
	msg = msg[:slices.Index(msg, 99)]
	msg = append(append(msg, partHead), longer(want.Head.appendTo(nil))...)
	msg = append(append(msg, partEntry), longer(appendEntry(nil, &full)[1:])...)
	if got, err = recordOf(msg); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	short := append([]byte{TypeState, byte(FormatBinary)}, closeGroup(head, 0)...) // without the age
	short = append(append(short, partEntry), closeGroup(appendAddr(nil, vip1), 0)...)
	if got, err = recordOf(short); err != nil || len(got.Entries) != 1 || got.Entries[0] != (Entry{Addr: vip1}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBinaryIsStrict(t *testing.T) {
	good := Record{Name: "m1", Inc: 5, Seq: 9}.Encode(FormatBinary)
	with := func(kind byte, group ...byte) []byte {
		return append(append(slices.Clone(good), kind), closeGroup(slices.Clone(group), 0)...)
	}
	entry := func(e Entry) []byte { return append(slices.Clone(good), appendEntry(nil, &e)...) }
	twice := func(kind byte, appendTo func([]byte) []byte) []byte { // and a good entry after them
		return appendEntry(appendTo(append(appendTo(append(slices.Clone(good), kind)), kind)), &Entry{Addr: vip1, V: 1})
	}
	many := slices.Clone(good)
	for range MaxEntries + 2 {
		many = appendEntry(many, &Entry{Addr: vip1, V: 1})
	}
	drains := (&Machines{V: 1, Drains: slices.Repeat([]Drain{{Machine: "a/b", Node: "m2"}}, maxDrains+2)}).appendTo(append(slices.Clone(good), partMachines))
	for name, msg := range map[string][]byte{
		"cut":                      good[:len(good)-1],
		"a part without a length":  append(slices.Clone(good), partHead),
		"a part beyond the end":    append(slices.Clone(good), partEntry, 5, 1),
		"a length without an end":  append(slices.Clone(good), partEntry, 0xff),
		"an address of 5 bytes":    with(partEntry, 5, 1, 2, 3, 4, 5),
		"no address":               with(partEntry, 0),
		"an empty entry":           with(partEntry),
		"a number of 11 bytes":     with(partHead, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1),
		"an address that is v4in6": with(partEntry, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1),
		"a list that is too long":  with(partHead, 1, 0, 0, 0, maxMACs+1),
		"rules":                    with(partHead, appendNumbers(nil, 1, 0, 1<<40)...),
		"an epoch":                 entry(Entry{Addr: vip1, Epoch: MaxNumber + 1}),
		"a name":                   entry(Entry{Addr: vip1, To: "a b"}),
		"a VIP's name, not UTF-8":  entry(Entry{Addr: vip1, V: 1, Name: "\xff"}),
		"a reason, not UTF-8":      entry(Entry{Addr: vip1, V: 1, Standing: "Owner\xff"}),
		"a hash of 33 bits":        entry(Entry{Addr: vip1, V: 1, Servers: 1 << 32}),
		"too many servers":         entry(Entry{Addr: vip1, V: 1, Out: Bits(strings.Repeat("x", model.MaxVerdict/8+1))}),
		"a duplicate, not UTF-8":   entry(Entry{Addr: vip1, V: 1, Duplicate: "\xff"}),
		"a version, not UTF-8":     Record{Name: "m1", Inc: 5, Seq: 9, Head: &Head{V: 1, Version: "\xff"}}.Encode(FormatBinary),
		"a key, not UTF-8":         Record{Name: "m1", Inc: 5, Seq: 9, Head: &Head{V: 1, Keys: []string{"\xff"}}}.Encode(FormatBinary),
		"a MAC, not UTF-8":         Record{Name: "m1", Inc: 5, Seq: 9, Head: &Head{V: 1, MACs: []string{"\xff"}}}.Encode(FormatBinary),
		"too many entries":         many,
		"too many drains":          drains,
		"two heads":                twice(partHead, (&Head{V: 1}).appendTo),
		"two lists of Machines":    twice(partMachines, (&Machines{V: 1}).appendTo),
		"JSON":                     append([]byte{TypeState, byte(FormatBinary)}, `{"n":"m1","i":1,"q":2}`...),
	} {
		if got, err := recordOf(msg); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s is taken: %+v, %v", name, got, err)
		}
	}
	if _, err := recordOf(good); err != nil {
		t.Error(err)
	}
	full := EncodeFull(FormatBinary, slices.Values([]Record{{Name: "a", Inc: 1, Seq: 1}, {Name: "", Inc: 1, Seq: 1}, {Name: "b", Inc: 1, Seq: 1}}), 1<<20)
	m, _ := Open(full)
	if records, bad, err := m.Full(nil); len(records) != 2 || bad != 1 || err != nil {
		t.Errorf("%d records, %d bad, %v", len(records), bad, err)
	}
	m, _ = Open(append(full, 77))
	if _, _, err := m.Full(nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("a record beyond the end: %v", err)
	}
}

// TestBinaryTakesLittleMemory: reading takes memory in proportion to the length of what came,
// whatever lengths and numbers of members that claims.
func TestBinaryTakesLittleMemory(t *testing.T) {
	const size = 1 << 20
	good := Record{Name: "m1", Inc: 5, Seq: 9}.Encode(FormatBinary)
	for name, part := range map[string][]byte{
		"empty entries":   {partEntry, 0},
		"entries":         appendEntry(nil, &Entry{Addr: vip1, V: 1}),
		"empty heads":     {partHead, 0},
		"empty Machines":  {partMachines, 0, partDrain, 0},
		"unknown parts":   {99, 0},
		"long lists":      {partHead, 10, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
		"a long text":     {partEntry, 0xff, 0xff, 0xff, 0xff, 0x7f},
		"nothing but one": {1},
	} {
		msg := slices.Clone(good)
		for len(msg) < size {
			msg = append(msg, part...)
		}
		full := append([]byte{TypeFull, byte(FormatBinary)}, slices.Repeat([]byte{0}, size)...)
		for _, msg := range [][]byte{msg, full, append(full[:headerSize:headerSize], closeGroup(msg[headerSize:], 0)...)} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if m, err := Open(msg); err != nil {
				t.Fatal(err)
			} else if m.Type == TypeFull {
				_, _, _ = m.Full(nil)
			} else {
				_, _ = m.Record()
			}
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 70*size {
				t.Errorf("%s: a message of type %d with %d bytes takes %d", name, msg[0], len(msg), got)
			}
		}
	}
}

// FuzzBinary: whatever is valid is written again as what it says.
func FuzzBinary(f *testing.F) {
	f.Add(longest(2).Encode(FormatBinary))
	f.Add(EncodeFull(FormatBinary, slices.Values([]Record{longest(1), {Name: "m2", Inc: 1, Seq: 1}}), 1<<20))
	beat := Beat{Name: "m1", Inc: 1, Interval: 50, Entries: longest(2).Entries}
	f.Add(beat.Append(FormatBinary, nil))
	f.Add(Ask{Name: "m1", Here: true}.Encode(FormatBinary))
	f.Fuzz(func(t *testing.T, msg []byte) {
		m, err := Open(msg)
		if err != nil || m.format != FormatBinary {
			return
		}
		var records []Record
		switch m.Type {
		case TypeFull:
			records, _, _ = m.Full(nil)
		case TypeBeat:
			if b, err := m.Beat(); err == nil {
				again, _ := Open(b.Append(FormatBinary, nil))
				if got, err := again.Beat(); err != nil || !reflect.DeepEqual(got, b) {
					t.Errorf("%+v became %+v, %v", b, got, err)
				}
			}
		default:
			if r, err := m.Record(); err == nil {
				records = []Record{r}
			}
		}
		for _, r := range records {
			if got, err := recordOf(r.Encode(FormatBinary)); err != nil || !reflect.DeepEqual(got, r) {
				t.Errorf("%+v became %+v, %v", r, got, err)
			}
		}
	})
}

// BenchmarkFullExchange: three nodes with ten thousand VIPs each tell each other nothing new.
func BenchmarkFullExchange(b *testing.B) {
	now := time.Now()
	from, to := NewTable("x"), NewTable("y")
	for _, name := range []string{"a", "b", "c"} {
		r := Record{Name: name, Inc: 1, Seq: 9, Full: 9, Head: &Head{V: 1}}
		for a := vip1; len(r.Entries) < 10_000; a = a.Next() {
			r.Entries = append(r.Entries, Entry{Addr: a, V: 7, Standing: "Standby", Epoch: 9, Seen: 9, Name: "cp"})
		}
		from.Merge(&r, now)
		to.Merge(&r, now)
	}
	encode := func(f Format) []byte {
		return EncodeFull(f, func(yield func(Record) bool) {
			for name := range from.nodes {
				r, _ := from.All(name, now)
				yield(r)
			}
		}, MaxMessage)
	}
	for _, f := range formats {
		for _, read := range []bool{false, true} {
			b.Run([]string{"", "json", "binary"}[f]+map[bool]string{false: "/write", true: "/read"}[read], func(b *testing.B) {
				msg := encode(f)
				b.ReportMetric(float64(len(msg)), "bytes")
				b.ReportAllocs()
				for b.Loop() {
					if !read {
						encode(f)
						continue
					}
					m, _ := Open(msg)
					records, _, _ := m.Full(to.Knows)
					for i := range records {
						to.Merge(&records[i], now)
					}
				}
			})
		}
	}
}

// TestKnowsNeedsTheHead: of a node whose head was lost the whole record is read again.
func TestKnowsNeedsTheHead(t *testing.T) {
	tab, now := NewTable("x"), time.Unix(1000, 0)
	r := Record{Name: "a", Inc: 1, Seq: 9, Full: 9}
	if tab.Merge(&r, now); tab.Knows("a", 1, 9) {
		t.Error("known without its head")
	}
	r.Head = &Head{V: 9}
	if tab.Merge(&r, now); !tab.Knows("a", 1, 9) || tab.Knows("a", 1, 10) || tab.Knows("a", 2, 9) {
		t.Error("another version or life is known, or this one is not")
	}
}
