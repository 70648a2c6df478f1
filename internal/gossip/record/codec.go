package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"lbd.dev/lbd/internal/model"
)

// A message is one byte of type, one byte of version and a JSON object. Fields
// and reasons that a receiver does not know are ignored, so that additions need
// no new version; a version is raised only for what an older node must not
// read, and such messages are counted and dropped there.
//
// This file alone knows what the bytes look like.
const (
	TypeState byte = iota + 1 // one Record, or a part of one
	TypeBeat                  // one Beat
	TypeStale                 // one Stale: "I know a later life of yours"
	TypeAsk                   // one Ask: "do you still send me heartbeats?"
	TypeFull                  // Records of every known node, in full exchanges only
)

const version = 1

// headerSize is that of type and version.
const headerSize = 2

var (
	errShort = errors.New("message is too short")
	errLong  = errors.New("message is too long")
	// ErrNewer is of a message with a version that this program does not know.
	ErrNewer = errors.New("message has a newer version")
	// ErrType is of a message with a type that this program does not know.
	ErrType = errors.New("message has an unknown type")
	// ErrInvalid is of a message that breaks the format.
	ErrInvalid = errors.New("message is not valid")
)

// Encode makes the message of a record; the receiver may be a stream only, see Chunks.
func (r Record) Encode() []byte { return encode(TypeState, r) }

// Encode makes the message of a heartbeat.
func (b Beat) Encode() []byte { return encode(TypeBeat, b) }

// Encode makes the message.
func (s Stale) Encode() []byte { return encode(TypeStale, s) }

// Encode makes the message.
func (a Ask) Encode() []byte { return encode(TypeAsk, a) }

// encode frames one message. It cannot fail: the wire types hold nothing that
// JSON cannot express.
func encode(kind byte, v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("gossip: encode %T: %v", v, err))
	}
	return append([]byte{kind, version}, body...)
}

// Open splits a message into its type and its body.
func Open(msg []byte) (byte, []byte, error) {
	switch {
	case len(msg) < 3:
		return 0, nil, errShort
	case len(msg) > MaxMessage:
		return 0, nil, errLong
	case msg[0] < TypeState || msg[0] > TypeFull:
		return 0, nil, ErrType
	case msg[1] > version:
		return msg[0], nil, ErrNewer
	case msg[1] < version:
		return msg[0], nil, ErrInvalid
	}
	return msg[0], msg[2:], nil
}

// DecodeRecord reads the body of a TypeState.
func DecodeRecord(body []byte) (Record, error) { return decode[Record](body) }

// DecodeBeat reads the body of a TypeBeat.
func DecodeBeat(body []byte) (Beat, error) { return decode[Beat](body) }

// DecodeStale reads the body of a TypeStale.
func DecodeStale(body []byte) (Stale, error) { return decode[Stale](body) }

// DecodeAsk reads the body of a TypeAsk.
func DecodeAsk(body []byte) (Ask, error) { return decode[Ask](body) }

func decode[T any, P interface {
	*T
	check() error
}](body []byte) (v T, err error) {
	var none T
	if err := json.Unmarshal(body, &v); err != nil {
		return none, errors.Join(ErrInvalid, err)
	}
	if err := P(&v).check(); err != nil {
		return none, err
	}
	return v, nil
}

// DecodeFull reads the body of a TypeFull. One bad record does not spoil the
// others; bad counts them.
func DecodeFull(body []byte) (records []Record, bad int, err error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, 0, errors.Join(ErrInvalid, err)
	}
	for _, b := range raw {
		r, err := DecodeRecord(b)
		if err != nil {
			bad++
			continue
		}
		records = append(records, r)
	}
	return records, bad, nil
}

// Chunks frames a record as messages of at most MaxPacket bytes: the head goes
// into the first one, what is told of Machines into one of its own. Full survives only if
// one message is enough, because a receiver cannot know that it got all the parts.
func Chunks(r Record) [][]byte {
	if r.Machines != nil && (r.Head != nil || len(r.Entries) > 0) {
		rest, apart := r, Record{Name: r.Name, From: r.From, Inc: r.Inc, Seq: r.Seq, Age: r.Age, Machines: r.Machines}
		rest.Machines = nil
		return append([][]byte{encode(TypeState, apart)}, Chunks(rest)...)
	}
	part := r
	part.Full, part.Entries = 0, nil
	base := len(encode(TypeState, part)) + len(`,"e":[]`)
	rest := r
	rest.Head, rest.Full, rest.Entries = nil, 0, nil
	restBase := len(encode(TypeState, rest)) + len(`,"e":[]`)

	var out [][]byte
	var batch []Entry
	size := base + len(`,"c":`) + 20
	flush := func() {
		m := rest
		if len(out) == 0 {
			m = part
		}
		m.Entries = batch
		out = append(out, encode(TypeState, m))
		batch, size = nil, restBase
	}
	for _, e := range r.Entries {
		n := e.size() + 1
		if size+n > MaxPacket && (len(batch) > 0 || len(out) == 0 && r.Head != nil) {
			flush()
		}
		batch = append(batch, e)
		size += n
	}
	if len(out) == 0 {
		part.Full, part.Entries = r.Full, batch
		return [][]byte{encode(TypeState, part)}
	}
	flush()
	return out
}

// bare is a record without the header of a message, as a full exchange has many of them.
func bare(r Record) []byte { return r.Encode()[headerSize:] }

// aged is a bare record with the age of what it says.
func aged(bare []byte, age time.Duration) []byte {
	b := append(make([]byte, 0, len(bare)+16), `{"g":`...)
	b = strconv.AppendInt(b, int64(age/time.Second), 10)
	b = append(b, ',')
	return append(b, bare[1:]...)
}

// EncodeFull makes the message of a full exchange. It leaves out the records for which a
// message of at most limit bytes has no room. The first is always told; an empty one is none.
func EncodeFull(bare [][]byte, limit int) []byte {
	size := headerSize + len("[]")
	for _, b := range bare {
		size += 1 + len(b)
	}
	out := append(make([]byte, 0, min(size, limit)), TypeFull, version, '[')
	for i, b := range bare {
		switch {
		case i == 0:
			out = append(out, b...)
		case len(b) > 0 && len(out)+len(",")+len(b)+len("]") <= limit:
			out = append(append(out, ','), b...)
		}
	}
	return append(out, ']')
}

// beatNumbersSize is room for the numbers that AppendBeat adds.
const beatNumbersSize = 60

// BeatBodies makes the messages of a heartbeat with the claims of r, up to the numbers that
// differ each time; as many as the claims need.
func BeatBodies(r Record, interval time.Duration) [][]byte {
	type start struct {
		Name     string  `json:"n"`
		Inc      uint64  `json:"i"`
		Interval int64   `json:"d"`
		Entries  []Entry `json:"e,omitempty"`
	}
	body := func(entries []Entry) []byte {
		b := encode(TypeBeat, start{r.Name, r.Inc, interval.Milliseconds(), entries})
		return b[:len(b)-len("}")]
	}
	base := len(body(nil)) + beatNumbersSize
	var out [][]byte
	size, from := base, 0
	for i := range r.Entries {
		n := r.Entries[i].size() + 1
		if size+n > MaxPacket && i > from {
			out = append(out, body(r.Entries[from:i]))
			size, from = base, i
		}
		size += n
	}
	return append(out, body(r.Entries[from:]))
}

var beatSeq = []byte(`,"q":`)

// AppendBeat appends one of BeatBodies with its numbers; lease is that of Beat.
func AppendBeat(buf, body []byte, seq uint64, lease int64) []byte {
	buf = append(append(buf, body...), beatSeq...)
	buf = strconv.AppendUint(buf, seq, 10)
	if lease > 0 {
		buf = append(buf, `,"r":`...)
		buf = strconv.AppendInt(buf, min(lease, MaxLease), 10)
	}
	return append(buf, '}')
}

// SplitBeat takes the body of a heartbeat apart as AppendBeat has put it together. It leaves
// to DecodeBeat whatever else a body may be. start is without its end; lease is -1 if there
// is none.
func SplitBeat(body []byte) (start []byte, seq uint64, lease int64, ok bool) {
	i := bytes.LastIndex(body, beatSeq)
	if i < 0 {
		return nil, 0, 0, false
	}
	start, lease = body[:i], -1
	seq, rest, ok := number(body[i+len(beatSeq):])
	if !ok || !validNumber(seq) {
		return nil, 0, 0, false
	}
	if r, found := bytes.CutPrefix(rest, []byte(`,"r":`)); found {
		var n uint64
		if n, rest, ok = number(r); !ok || n > MaxLease {
			return nil, 0, 0, false
		}
		lease = int64(n)
	}
	return start, seq, lease, len(rest) == 1 && rest[0] == '}'
}

// DecodeStart reads a heartbeat without its numbers, as SplitBeat returns it.
func DecodeStart(start []byte) (Beat, error) { return DecodeBeat(append(bytes.Clone(start), '}')) }

// number reads digits as JSON has them.
func number(b []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && i < 19 && '0' <= b[i] && b[i] <= '9'; i++ {
		n = 10*n + uint64(b[i]-'0')
	}
	return n, b[i:], i == 1 || i > 1 && b[0] != '0'
}

// size is an upper bound of the encoded length.
func (e *Entry) size() int {
	n := len(`{"a":"","v":}`) + 39 + digits(e.V)
	if e.Inc != 0 {
		n += 5 + digits(e.Inc)
	}
	if e.Gone {
		n += len(`,"x":true`)
	}
	if e.Standing != "" {
		n += len(`,"s":""`) + 6*len(e.Standing)
	}
	if e.Degraded {
		n += len(`,"d":true`)
	}
	if e.Epoch != 0 {
		n += 5 + digits(e.Epoch)
	}
	if e.Weak {
		n += len(`,"k":true`)
	}
	if e.Holds {
		n += len(`,"b":true`)
	}
	if e.To != "" {
		n += len(`,"t":""`) + escaped(e.To)
	}
	if e.Seen != 0 {
		n += 5 + digits(e.Seen)
	}
	if e.Duplicate != "" {
		n += len(`,"o":""`) + escaped(e.Duplicate)
	}
	if e.Name != "" {
		n += len(`,"n":""`) + escaped(e.Name)
	}
	return n
}

// size is the encoded length with a comma.
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
	}.Encode())
}

func digits(n uint64) int {
	d := 1
	for n >= 10 {
		n /= 10
		d++
	}
	return d
}

// escaped bounds the length of s as a JSON string without quotes.
func escaped(s string) int {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || strings.IndexByte(`"\<>&`, c) >= 0 {
			return 6 * len(s)
		}
	}
	return len(s)
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
