package record

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// In FormatBinary a body is a head and any number of parts. The head is a group; a part is one
// byte that says what it is, and a group. A group is its length and its fields, in an order
// that never changes: new ones come at its end. A reader passes over parts that it does not
// know and over what follows the fields that it knows, and takes fields that are missing at
// the end for zero. Numbers and lengths are unsigned varints, as in encoding/binary; a text is
// its length and its bytes; an address is a text of 0, 4 or 16 bytes; a list is the number of
// its members and those; booleans are the bits of one number.
const (
	partHead     = 1
	partMachines = 2
	partEntry    = 3
	partDrain    = 4 // of the Machines before it
)

// closeGroup puts the length of what was appended since start before it.
func closeGroup(buf []byte, start int) []byte {
	size := len(buf) - start
	buf = binary.AppendUvarint(buf, uint64(size))
	n := len(buf) - start - size
	if n == 1 { // nearly always
		length := buf[len(buf)-1]
		copy(buf[start+1:], buf[start:start+size])
		buf[start] = length
		return buf
	}
	length := slices.Clone(buf[start+size:])
	copy(buf[start+n:], buf[start:start+size])
	copy(buf[start:], length)
	return buf
}

func appendText(buf []byte, s string) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

func appendNumbers(buf []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		buf = binary.AppendUvarint(buf, n)
	}
	return buf
}

func appendAddr(buf []byte, a netip.Addr) []byte {
	switch {
	case a.Is4():
		b := a.As4()
		return append(append(buf, 4), b[:]...)
	case a.Is6():
		b := a.As16()
		return append(append(buf, 16), b[:]...)
	}
	return append(buf, 0)
}

func appendAddrs(buf []byte, list []netip.Addr) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(list)))
	for _, a := range list {
		buf = appendAddr(buf, a)
	}
	return buf
}

func appendTexts(buf []byte, list []string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(list)))
	for _, s := range list {
		buf = appendText(buf, s)
	}
	return buf
}

// bits are booleans as one number, the first in the lowest bit.
func bits(flags ...bool) (n uint64) {
	for i, on := range flags {
		if on {
			n |= 1 << i
		}
	}
	return n
}

// reader takes fields from the begin of b. After something that is not as it must be, bad is
// set and all else is zero. It allocates no more than a small multiple of the length of b.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() {
	r.b, r.bad = nil, true
}

func (r *reader) number() uint64 {
	if len(r.b) == 0 {
		return 0
	}
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) bytes() []byte {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) group() reader { return reader{b: r.bytes()} }

func (r *reader) text() string { return string(r.bytes()) }

func (r *reader) addr() netip.Addr {
	b := r.bytes()
	a, ok := netip.AddrFromSlice(b)
	if !ok && len(b) > 0 {
		r.fail()
	}
	return a
}

// count is the number of members of a list.
func (r *reader) count(limit int) int {
	n := r.number()
	if n > uint64(limit) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) texts(limit int) (out []string) {
	for range r.count(limit) {
		out = append(out, r.text())
	}
	return out
}

func (r *reader) addrs(limit int) (out []netip.Addr) {
	for range r.count(limit) {
		out = append(out, r.addr())
	}
	return out
}

// flags sets booleans as bits has put them together.
func (r *reader) flags(into ...*bool) {
	n := r.number()
	for i, on := range into {
		*on = n&(1<<i) != 0
	}
}

// next goes on to the next part; ok is false after the last. What was wrong with the part
// before is wrong with the whole.
func (r *reader) next(part *reader) (kind byte, ok bool) {
	if r.bad = r.bad || part.bad; r.bad || len(r.b) == 0 {
		return 0, false
	}
	kind, r.b = r.b[0], r.b[1:]
	if len(r.b) == 0 {
		r.fail()
		return 0, false
	}
	*part = r.group()
	return kind, !r.bad
}

func (r *Record) appendTo(buf []byte) []byte {
	start := len(buf)
	buf = appendText(appendText(buf, r.Name), r.From)
	buf = appendNumbers(buf, r.Inc, r.Seq, r.Full, uint64(r.Age))
	buf = closeGroup(buf, start)
	if r.Head != nil {
		buf = r.Head.appendTo(append(buf, partHead))
	}
	if r.Machines != nil {
		buf = r.Machines.appendTo(append(buf, partMachines))
	}
	return appendEntries(buf, r.Entries)
}

func (r *Record) readFrom(in *reader) { r.read(in, nil) }

// read reads a record. Where known is set and says that all of it up to its version is known,
// it passes over the entries and gives a part without them.
func (r *Record) read(in *reader, known func(name string, inc, seq uint64) bool) {
	head := in.group()
	r.Name, r.From = head.text(), head.text()
	r.Inc, r.Seq, r.Full = head.number(), head.number(), head.number()
	r.Age = uint32(min(head.number(), 1<<32-1))
	skip := known != nil && !head.bad && known(r.Name, r.Inc, r.Seq)
	if skip {
		r.Full = 0
	}
	part := head
	for kind, ok := in.next(&part); ok; kind, ok = in.next(&part) {
		switch {
		case kind == partHead && r.Head != nil, kind == partMachines && r.Machines != nil:
			in.fail()
		case kind == partHead:
			r.Head = new(Head)
			r.Head.readFrom(&part)
		case kind == partMachines:
			r.Machines = new(Machines)
			r.Machines.readFrom(&part)
		case kind == partDrain && r.Machines != nil && len(r.Machines.Drains) <= maxDrains:
			r.Machines.Drains = append(r.Machines.Drains, readDrain(&part))
		case kind == partEntry && skip:
			return // they are the last
		case kind == partEntry:
			r.Entries = takeEntry(r.Entries, &part, len(in.b))
		}
	}
}

func (h *Head) appendTo(buf []byte) []byte {
	start := len(buf)
	buf = appendNumbers(buf, h.V, bits(h.Draining, h.Settled, h.Left, h.Drained), uint64(h.Rules), uint64(h.Weight))
	buf = appendText(appendTexts(buf, h.MACs), h.Version)
	buf = appendAddrs(appendAddrs(buf, h.Addrs), h.Hears)
	buf = appendNumbers(appendTexts(buf, h.Keys), uint64(h.Format))
	return closeGroup(buf, start)
}

func (h *Head) readFrom(r *reader) {
	h.V = r.number()
	r.flags(&h.Draining, &h.Settled, &h.Left, &h.Drained)
	h.Rules, h.Weight = small(r.number()), small(r.number())
	h.MACs, h.Version = r.texts(maxMACs), r.text()
	h.Addrs, h.Hears = r.addrs(maxAddrs), r.addrs(maxAddrs)
	h.Keys, h.Format = r.texts(MaxKeys), Format(min(r.number(), 255))
}

// small is a number as an int; one that is too large stays invalid.
func small(n uint64) int { return int(min(n, 1<<30)) }

func (m *Machines) appendTo(buf []byte) []byte {
	start := len(buf)
	buf = closeGroup(appendNumbers(buf, m.V, bits(m.Manager, m.Partial)), start)
	for i := range m.Drains {
		d := &m.Drains[i]
		buf = append(buf, partDrain)
		start := len(buf)
		buf = appendText(appendText(buf, d.Machine), d.Node)
		buf = appendText(appendText(buf, d.Reason), d.Detail)
		buf = closeGroup(appendAddrs(buf, d.Only), start)
	}
	return buf
}

func (m *Machines) readFrom(r *reader) {
	m.V = r.number()
	r.flags(&m.Manager, &m.Partial)
}

func readDrain(r *reader) Drain {
	return Drain{Machine: r.text(), Node: r.text(), Reason: r.text(), Detail: r.text(), Only: r.addrs(maxOnly)}
}

func appendEntries(buf []byte, entries []Entry) []byte {
	for i := range entries {
		buf = appendEntry(buf, &entries[i])
	}
	return buf
}

func appendEntry(buf []byte, e *Entry) []byte {
	buf = append(buf, partEntry)
	start := len(buf)
	buf = appendAddr(buf, e.Addr)
	buf = appendNumbers(buf, bits(e.Gone, e.Degraded, e.Weak, e.Holds), e.V, e.Inc, e.Epoch, e.Seen)
	buf = appendText(appendText(buf, e.Standing), e.Name)
	verdict := e.Servers != 0 || e.Out != ""
	if verdict || e.To != "" || e.Duplicate != "" { // seldom
		buf = appendText(appendText(buf, e.To), e.Duplicate)
	}
	if verdict {
		buf = appendText(appendNumbers(buf, e.Servers), string(e.Out))
	}
	return closeGroup(buf, start)
}

// takeEntry appends an entry that is read, unless there are too many already; then one more,
// which check refuses. rest is how many bytes follow.
func takeEntry(entries []Entry, r *reader, rest int) []Entry {
	if len(entries) > MaxEntries {
		return entries
	}
	if entries == nil {
		entries = make([]Entry, 0, 1+min(rest/leastEntry, MaxEntries))
	}
	e := Entry{Addr: r.addr()}
	r.flags(&e.Gone, &e.Degraded, &e.Weak, &e.Holds)
	e.V, e.Inc, e.Epoch, e.Seen = r.number(), r.number(), r.number(), r.number()
	e.Standing, e.Name, e.To, e.Duplicate = word(r.bytes()), r.text(), r.text(), r.text()
	e.Servers, e.Out = r.number(), Bits(r.bytes())
	return append(entries, e)
}

// words are the reasons that are told, so that each need not be made anew with each entry.
var words = func() map[string]string {
	out := map[string]string{}
	for _, r := range model.Reasons() {
		out[r.String()] = r.String()
	}
	return out
}()

func word(b []byte) string {
	if w, ok := words[string(b)]; ok {
		return w
	}
	return string(b)
}

// leastEntry is about the least that an entry of a node takes: kind, length, IPv4 address,
// flags, version and standing.
const leastEntry = 16

func (b *Beat) appendTo(buf []byte) []byte {
	start := len(buf)
	buf = appendNumbers(appendText(buf, b.Name), b.Inc, uint64(b.Interval), bits(b.Final), b.Seq, uint64(b.Lease))
	return appendEntries(closeGroup(buf, start), b.Entries)
}

func (b *Beat) readFrom(in *reader) {
	head := in.group()
	b.Name, b.Inc, b.Interval = head.text(), head.number(), int64(small(head.number()))
	head.flags(&b.Final)
	b.Seq, b.Lease = head.number(), int64(small(head.number()))
	part := head
	for kind, ok := in.next(&part); ok; kind, ok = in.next(&part) {
		if kind == partEntry {
			b.Entries = takeEntry(b.Entries, &part, len(in.b))
		}
	}
}

func (s *Stale) appendTo(buf []byte) []byte {
	start := len(buf)
	return closeGroup(appendNumbers(appendText(buf, s.Name), s.Inc), start)
}

func (s *Stale) readFrom(in *reader) {
	head := in.group()
	s.Name, s.Inc = head.text(), head.number()
	in.bad = in.bad || head.bad
}

func (a *Ask) appendTo(buf []byte) []byte {
	start := len(buf)
	return closeGroup(appendNumbers(appendText(buf, a.Name), bits(a.Here, a.Yes)), start)
}

func (a *Ask) readFrom(in *reader) {
	head := in.group()
	a.Name = head.text()
	head.flags(&a.Here, &a.Yes)
	in.bad = in.bad || head.bad
}
