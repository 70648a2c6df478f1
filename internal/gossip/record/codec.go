package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/internal/model"
)

// A message is one byte of type, one byte of format, and a body in that format. Whatever a
// receiver does not know in a body is ignored, so that additions need no new format; a message
// in a format that a receiver does not know is counted and dropped there.
//
// A node tells in its Head which formats it reads, and reads all below that one. The group
// uses the newest that all its members read, see Table.Format.
const (
	TypeState byte = iota + 1 // one Record, or a part of one
	TypeBeat                  // one Beat
	TypeStale                 // one Stale: "I know a later life of yours"
	TypeAsk                   // one Ask: "do you still send me heartbeats?"
	TypeFull                  // Records of every known node, in full exchanges only
)

// Format is how the body of a message is written.
type Format byte

const (
	// FormatJSON is a JSON object. Until 0.1 nodes read nothing else.
	FormatJSON Format = 1
	// FormatBinary is that of binary.go.
	FormatBinary Format = 2
	// Newest is the newest format that this program reads.
	Newest = FormatBinary
)

// headerSize is that of type and format.
const headerSize = 2

var (
	errShort = errors.New("message is too short")
	errLong  = errors.New("message is too long")
	// ErrNewer is of a message in a format that this program does not know.
	ErrNewer = errors.New("message has a newer version")
	// ErrType is of a message with a type that this program does not know.
	ErrType = errors.New("message has an unknown type")
	// ErrInvalid is of a message that breaks the format.
	ErrInvalid = errors.New("message is not valid")
)

// body is what a message of one type carries.
type body interface {
	check() error
	appendTo(buf []byte) []byte // in FormatBinary
	readFrom(*reader)
}

// Encode makes the message of a record; the receiver may be a stream only, see Chunks.
func (r Record) Encode(f Format) []byte { return encode(f, nil, TypeState, &r) }

// Append makes the message of a heartbeat in buf.
func (b *Beat) Append(f Format, buf []byte) []byte { return encode(f, buf, TypeBeat, b) }

// Encode makes the message.
func (s Stale) Encode(f Format) []byte { return encode(f, nil, TypeStale, &s) }

// Encode makes the message.
func (a Ask) Encode(f Format) []byte { return encode(f, nil, TypeAsk, &a) }

func encode(f Format, buf []byte, kind byte, b body) []byte {
	return appendBody(append(buf, kind, byte(f)), f, b)
}

// appendBody cannot fail: the wire types hold nothing that JSON cannot express.
func appendBody(buf []byte, f Format, b body) []byte {
	if f >= FormatBinary {
		return b.appendTo(buf)
	}
	text, err := json.Marshal(b)
	if err != nil {
		panic(fmt.Sprintf("gossip: encode %T: %v", b, err))
	}
	return append(buf, text...)
}

// Message is a message that came, with a known type and format; its body is not read yet.
type Message struct {
	Type   byte
	format Format
	body   []byte
}

// Open looks at the header of a message.
func Open(msg []byte) (Message, error) {
	switch {
	case len(msg) <= headerSize:
		return Message{}, errShort
	case len(msg) > MaxMessage:
		return Message{}, errLong
	case msg[0] < TypeState || msg[0] > TypeFull:
		return Message{}, ErrType
	case Format(msg[1]) > Newest:
		return Message{Type: msg[0]}, ErrNewer
	case Format(msg[1]) < FormatJSON:
		return Message{Type: msg[0]}, ErrInvalid
	}
	return Message{msg[0], Format(msg[1]), msg[headerSize:]}, nil
}

// Record reads a TypeState.
func (m Message) Record() (Record, error) { return decode[Record](m.format, m.body) }

// Beat reads a TypeBeat.
func (m Message) Beat() (Beat, error) { return decode[Beat](m.format, m.body) }

// Stale reads a TypeStale.
func (m Message) Stale() (Stale, error) { return decode[Stale](m.format, m.body) }

// Ask reads a TypeAsk.
func (m Message) Ask() (Ask, error) { return decode[Ask](m.format, m.body) }

func decode[T any, P interface {
	*T
	body
}](f Format, b []byte) (v T, err error) {
	var none T
	if f >= FormatBinary {
		r := reader{b: b}
		if P(&v).readFrom(&r); r.bad {
			return none, ErrInvalid
		}
	} else if err := json.Unmarshal(b, &v); err != nil {
		return none, errors.Join(ErrInvalid, err)
	}
	if err := P(&v).check(); err != nil {
		return none, err
	}
	return v, nil
}

// Full reads a TypeFull. One bad record does not spoil the others; bad counts them. Of a
// record that is known, as a whole, the entries need not be read.
func (m Message) Full(known func(name string, inc, seq uint64) bool) (records []Record, bad int, err error) {
	take := func(r Record, err error) {
		if err != nil {
			bad++
			return
		}
		records = append(records, r)
	}
	if m.format < FormatBinary {
		var raw []json.RawMessage
		if err := json.Unmarshal(m.body, &raw); err != nil {
			return nil, 0, errors.Join(ErrInvalid, err)
		}
		for _, b := range raw {
			take(decode[Record](m.format, b))
		}
		return records, bad, nil
	}
	for all := (reader{b: m.body}); len(all.b) > 0; {
		one := all.group()
		if all.bad {
			return nil, 0, ErrInvalid
		}
		var r Record
		r.read(&one, known)
		if err := r.check(); one.bad || err != nil {
			take(r, ErrInvalid)
			continue
		}
		take(r, nil)
	}
	return records, bad, nil
}

// EncodeFull makes the message of a full exchange. It leaves out the records for which a
// message of at most limit bytes has no room. The first is always told.
func EncodeFull(f Format, records iter.Seq[Record], limit int) []byte {
	out := []byte{TypeFull, byte(f)}
	open, between, end := "[", ",", "]"
	if f >= FormatBinary {
		open, between, end = "", "", ""
	}
	out = append(out, open...)
	first := true
	for r := range records {
		start := len(out)
		if !first {
			out = append(out, between...)
		}
		begin := len(out)
		out = appendBody(out, f, &r)
		if f >= FormatBinary {
			out = closeGroup(out, begin)
		}
		if !first && len(out)+len(end) > limit {
			out = out[:start]
		}
		first = false
	}
	return append(out, end...)
}

// Chunks makes messages of at most MaxPacket bytes of a record: the head goes into the first
// one, what is told of Machines into one of its own. Full survives only if one message is
// enough, because a receiver cannot know that it got all the parts.
func Chunks(f Format, r Record) [][]byte {
	var out [][]byte
	if r.Machines != nil && (r.Head != nil || len(r.Entries) > 0) {
		apart := Record{Name: r.Name, From: r.From, Inc: r.Inc, Seq: r.Seq, Age: r.Age, Machines: r.Machines}
		out = append(out, apart.Encode(f))
		r.Machines = nil
	}
	part := r
	part.Entries = nil
	whole := len(part.Encode(f)) + entriesSize
	part.Head, part.Full = nil, 0
	bare := len(part.Encode(f)) + entriesSize
	parts := split(f, r.Entries, MaxPacket-whole, MaxPacket-bare, r.Head != nil)
	for i, entries := range parts {
		m := part
		if i == 0 {
			m.Head = r.Head
		}
		if len(parts) == 1 {
			m.Full = r.Full
		}
		m.Entries = entries
		out = append(out, m.Encode(f))
	}
	return out
}

// Beats are the heartbeats with the claims of r, as many as the claims need, each with room
// for its numbers.
func Beats(f Format, r Record, interval time.Duration) []Beat {
	longest := Beat{Name: r.Name, Inc: MaxNumber, Interval: interval.Milliseconds(), Final: true, Seq: MaxNumber, Lease: MaxLease}
	room := MaxPacket - len(longest.Append(f, nil)) - entriesSize
	var out []Beat
	for _, entries := range split(f, r.Entries, room, room, false) {
		out = append(out, Beat{Name: r.Name, Inc: r.Inc, Interval: longest.Interval, Entries: entries})
	}
	return out
}

// entriesSize is what a list of entries takes beside them.
const entriesSize = len(`,"e":[]`)

// split divides entries into lists that fit the room of the first message and that of each
// other one. There is one list at least; the first is empty only if there are no entries, or
// headed is set and the first entry has no room beside the head. A verdict for which a whole message
// has no room is left out, as with a thousand servers, the longest names and JSON: without it the
// claim is told in time, and with it would not be told at all by datagrams.
func split(f Format, entries []Entry, first, others int, headed bool) (out [][]Entry) {
	from, room, ours := 0, first, false
	for i := range entries {
		n := entries[i].size(f)
		if n > others && entries[i].Servers != 0 {
			if !ours {
				entries, ours = slices.Clone(entries), true
			}
			entries[i].Servers, entries[i].Out = 0, ""
			n = entries[i].size(f)
		}
		if n > room && (i > from || headed && len(out) == 0) {
			out = append(out, entries[from:i])
			from, room = i, others
		}
		room -= n
	}
	return append(out, entries[from:])
}

// size is the encoded length, in JSON with a comma.
func (e *Entry) size(f Format) int {
	if f >= FormatBinary {
		return len(appendEntry(nil, e))
	}
	text, err := json.Marshal(e)
	if err != nil {
		return MaxPacket
	}
	return len(text) + 1
}

// size is the encoded length in JSON, which is the longest, with a comma.
func (d *Drain) size() int {
	b, err := json.Marshal(d)
	if err != nil {
		return MaxPacket
	}
	return len(b) + 1
}

// roomForDrains is that of a message about Machines alone, whoever passes it on.
func roomForDrains(node model.NodeName) int {
	return MaxPacket - len(`,"d":[]`) - len(Record{
		Name: string(node), From: strings.Repeat("f", MaxName), Inc: MaxNumber, Seq: MaxNumber,
		Machines: &Machines{V: MaxNumber, Manager: true, Partial: true},
	}.Encode(FormatJSON))
}

// encodeStanding writes the name of the reason.
func encodeStanding(vip *model.GroupVIP) (word string, degraded bool) {
	switch {
	case vip.Standing != model.ReasonDegraded:
		return vip.Standing.String(), false
	case vip.Claim.Epoch != 0:
		return model.ReasonOwner.String(), true
	}
	return model.ReasonStandby.String(), true
}

// decodeStanding reads the name of a reason; one of a newer version is not
// known, and then the node is not eligible.
func decodeStanding(word string, degraded bool) (model.Reason, bool) {
	r, known := model.ParseReason(word)
	if degraded && known && r.Eligible() {
		r = model.ReasonDegraded
	}
	return r, known
}

func encodeMACs(macs []model.MAC) []string {
	if len(macs) > maxMACs {
		macs = macs[:maxMACs]
	}
	var out []string
	for _, m := range macs {
		out = append(out, m.String())
	}
	return out
}

// decodeMACs skips what is not a hardware address.
func decodeMACs(in []string) []model.MAC {
	var out []model.MAC
	for _, s := range in {
		if m, ok := parseMAC(s); ok {
			out = append(out, m)
		}
	}
	return out
}

func parseMAC(s string) (model.MAC, bool) {
	var m model.MAC
	if len(s) != 17 {
		return m, false
	}
	for i := range m {
		hi, ok1 := unhex(s[3*i])
		lo, ok2 := unhex(s[3*i+1])
		if !ok1 || !ok2 || i < 5 && s[3*i+2] != ':' {
			return model.MAC{}, false
		}
		m[i] = hi<<4 | lo
	}
	return m, true
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
