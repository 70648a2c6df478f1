package gossip

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"lbd.dev/lbd/internal/model"
)

// A message is one byte of type, one byte of version and a JSON object. Fields
// and reasons that a receiver does not know are ignored, so that additions need
// no new version; a version is raised only for what an older node must not
// read, and such messages are counted and dropped there.
const (
	typeState byte = iota + 1 // one wireRecord, or a part of one
	typeBeat                  // one wireBeat
	typeStale                 // one wireStale: "I know a later life of yours"
	typeAsk                   // one wireAsk: "do you still send me heartbeats?"
	typeFull                  // wireRecords of every known node, in push/pull only
)

const wireVersion = 1

// Bounds of what is read from the network.
const (
	// maxPacket is the largest message that is sent in one datagram: memberlist
	// puts up to 1400 bytes into one, of which encryption, the label, the message
	// type and a compound header take at most 29+66+1+6.
	maxPacket = 1200
	// maxMessage is the largest message that is accepted over a stream.
	maxMessage = 8 << 20
	maxName    = 253
	maxWord    = 64 // of a reason or program version
	maxEntries = 16384
	maxMACs    = model.MaxMACs
	maxAddrs   = 4
	maxKeys    = 16
	// maxNumber is the largest epoch, incarnation or version that is accepted. A
	// number near the end of the range would leave no room to go above it.
	maxNumber = 1 << 62
	maxLease  = 3_600_000 // of a heartbeat, in milliseconds
)

var (
	errShort   = errors.New("message is too short")
	errLong    = errors.New("message is too long")
	errNewer   = errors.New("message has a newer version")
	errType    = errors.New("message has an unknown type")
	errInvalid = errors.New("message is not valid")
)

// wireRecord is the state of one node, whole or in part. Inc counts the lives
// of the node (its start in nanoseconds, or more), Seq the changes within one.
type wireRecord struct {
	Name string `json:"n"`
	// From names the sender if that is not the node itself.
	From string `json:"f,omitempty"`
	Inc  uint64 `json:"i"`
	Seq  uint64 `json:"q"`
	// Full is the Seq up to which Entries is complete: what is absent and not
	// newer does not exist. 0: a part only.
	Full uint64 `json:"c,omitempty"`
	// Age is for how many seconds the sender has not seen the node alive.
	Age     uint32      `json:"g,omitempty"`
	Head    *wireHead   `json:"h,omitempty"`
	Entries []wireEntry `json:"e,omitempty"`
	// Machines is absent where nothing is known of any.
	Machines *wireMachines `json:"m,omitempty"`
}

// wireHead is what concerns the node as a whole.
type wireHead struct {
	V        uint64   `json:"v"`
	Draining bool     `json:"d,omitempty"`
	Settled  bool     `json:"s,omitempty"`
	Left     bool     `json:"l,omitempty"`
	Rules    int      `json:"r,omitempty"`
	Weight   int      `json:"w,omitempty"`
	MACs     []string `json:"m,omitempty"`
	// Addrs are addresses of the node on the LANs of the VIPs.
	Addrs   []netip.Addr `json:"a,omitempty"`
	Version string       `json:"p,omitempty"`
	// Keys are fingerprints of the keys that the node can decrypt with.
	Keys []string `json:"k,omitempty"`
	// Drained: draining, and nothing is left to wait for.
	Drained bool `json:"z,omitempty"`
	// Hears are addresses of hosts that answer the node on the LANs of the VIPs.
	Hears []netip.Addr `json:"y,omitempty"`
}

// wireEntry is the standing and the claim of one node for one VIP.
type wireEntry struct {
	Addr netip.Addr `json:"a"`
	V    uint64     `json:"v"`
	// Inc is the life that said it, if that is not the one of the record.
	Inc      uint64 `json:"i,omitempty"`
	Gone     bool   `json:"x,omitempty"`
	Standing string `json:"s,omitempty"`
	// Degraded makes model.ReasonDegraded of Standing, which says "Owner" or "Standby" to
	// versions that do not know that word.
	Degraded bool   `json:"d,omitempty"`
	Epoch    uint64 `json:"e,omitempty"`
	To       string `json:"t,omitempty"`
	Weak     bool   `json:"k,omitempty"`
	Holds    bool   `json:"b,omitempty"`
	Seen     uint64 `json:"u,omitempty"`
	// Duplicate is a hardware address, see model.Claim; a receiver drops what is none.
	Duplicate string `json:"o,omitempty"`
	// Name is model.GroupVIP.Name.
	Name string `json:"n,omitempty"`
}

// wireBeat is a heartbeat.
type wireBeat struct {
	Name     string      `json:"n"`
	Inc      uint64      `json:"i"`
	Interval int64       `json:"d"` // milliseconds to the next one
	Final    bool        `json:"f,omitempty"`
	Entries  []wireEntry `json:"e,omitempty"`
	Seq      uint64      `json:"q"`
	Lease    int64       `json:"r,omitempty"` // milliseconds until LeaseEnd
}

// wireStale tells the node Name that a later life of it than Inc is known.
type wireStale struct {
	Name string `json:"n"`
	Inc  uint64 `json:"i"`
}

// wireAsk asks the receiver whether Name is still one of its targets; with Here,
// whether it is there; and with Yes it is the answer to that.
type wireAsk struct {
	Name string `json:"n"`
	Here bool   `json:"h,omitempty"`
	Yes  bool   `json:"y,omitempty"`
}

// encode frames one message. It cannot fail: the wire types hold nothing that
// JSON cannot express.
func encode(kind byte, v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("gossip: encode %T: %v", v, err))
	}
	return append([]byte{kind, wireVersion}, body...)
}

// open splits a message into its type and its body.
func open(msg []byte) (byte, []byte, error) {
	switch {
	case len(msg) < 3:
		return 0, nil, errShort
	case len(msg) > maxMessage:
		return 0, nil, errLong
	case msg[0] < typeState || msg[0] > typeFull:
		return 0, nil, errType
	case msg[1] > wireVersion:
		return msg[0], nil, errNewer
	case msg[1] < wireVersion:
		return msg[0], nil, errInvalid
	}
	return msg[0], msg[2:], nil
}

func decodeRecord(body []byte) (wireRecord, error) {
	var r wireRecord
	if err := json.Unmarshal(body, &r); err != nil {
		return wireRecord{}, errors.Join(errInvalid, err)
	}
	if err := r.check(); err != nil {
		return wireRecord{}, err
	}
	return r, nil
}

// decodeFull reads the body of a push/pull. One bad record does not spoil the
// others; bad counts them.
func decodeFull(body []byte) (records []wireRecord, bad int, err error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, 0, errors.Join(errInvalid, err)
	}
	for _, b := range raw {
		r, err := decodeRecord(b)
		if err != nil {
			bad++
			continue
		}
		records = append(records, r)
	}
	return records, bad, nil
}

func decodeBeat(body []byte) (wireBeat, error) {
	var b wireBeat
	if err := json.Unmarshal(body, &b); err != nil {
		return wireBeat{}, errors.Join(errInvalid, err)
	}
	if !validName(b.Name) || !validNumber(b.Inc) || !validNumber(b.Seq) || b.Inc == 0 ||
		len(b.Entries) > maxEntries || b.Interval < 1 || b.Interval > 60_000 || b.Lease < 0 || b.Lease > maxLease {
		return wireBeat{}, errInvalid
	}
	for i := range b.Entries {
		if err := b.Entries[i].check(); err != nil {
			return wireBeat{}, err
		}
	}
	return b, nil
}

func decodeStale(body []byte) (wireStale, error) {
	var s wireStale
	if err := json.Unmarshal(body, &s); err != nil {
		return wireStale{}, errors.Join(errInvalid, err)
	}
	if !validName(s.Name) || !validNumber(s.Inc) {
		return wireStale{}, errInvalid
	}
	return s, nil
}

func decodeAsk(body []byte) (wireAsk, error) {
	var a wireAsk
	if err := json.Unmarshal(body, &a); err != nil {
		return wireAsk{}, errors.Join(errInvalid, err)
	}
	if !validName(a.Name) {
		return wireAsk{}, errInvalid
	}
	return a, nil
}

// check refuses a record that breaks a bound, and normalises its addresses.
func (r *wireRecord) check() error {
	if !validName(r.Name) || r.From != "" && !validName(r.From) || len(r.Entries) > maxEntries ||
		r.Inc == 0 || !validNumber(r.Inc) || !validNumber(r.Seq) || !validNumber(r.Full) {
		return errInvalid
	}
	if h := r.Head; h != nil {
		if !validNumber(h.V) || len(h.Version) > maxWord || len(h.MACs) > maxMACs || len(h.Addrs) > maxAddrs || len(h.Hears) > maxAddrs || len(h.Keys) > maxKeys ||
			h.Weight < 0 || h.Weight > 1<<20 || h.Rules < 0 || h.Rules > 1<<20 {
			return errInvalid
		}
		if slices.ContainsFunc(slices.Concat(h.Addrs, h.Hears), func(a netip.Addr) bool { return !a.IsValid() || a.Is4In6() || a.Zone() != "" }) {
			return errInvalid
		}
		if slices.ContainsFunc(h.Keys, func(k string) bool { return len(k) > maxWord }) {
			return errInvalid
		}
	}
	if r.Machines != nil {
		if err := r.Machines.check(); err != nil {
			return err
		}
	}
	for i := range r.Entries {
		if err := r.Entries[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (e *wireEntry) check() error {
	if !e.Addr.IsValid() || e.Addr.Zone() != "" || e.Addr.Is4In6() ||
		!validNumber(e.V) || !validNumber(e.Inc) || !validNumber(e.Epoch) || !validNumber(e.Seen) ||
		len(e.Standing) > maxWord || len(e.Duplicate) > maxWord || len(e.Name) > model.MaxTold || e.To != "" && !validName(e.To) {
		return errInvalid
	}
	return nil
}

func validNumber(n uint64) bool { return n <= maxNumber }

func validName(s string) bool {
	return s != "" && len(s) <= maxName && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '/' })
}

// chunks frames a record as messages of at most maxPacket bytes: the head goes
// into the first one, what is told of Machines into one of its own. Full survives only if one message is enough, because a
// receiver cannot know that it got all the parts.
func chunks(r wireRecord) [][]byte {
	if r.Machines != nil && (r.Head != nil || len(r.Entries) > 0) {
		rest, apart := r, wireRecord{Name: r.Name, From: r.From, Inc: r.Inc, Seq: r.Seq, Age: r.Age, Machines: r.Machines}
		rest.Machines = nil
		return append([][]byte{encode(typeState, apart)}, chunks(rest)...)
	}
	part := r
	part.Full, part.Entries = 0, nil
	base := len(encode(typeState, part)) + len(`,"e":[]`)
	rest := r
	rest.Head, rest.Full, rest.Entries = nil, 0, nil
	restBase := len(encode(typeState, rest)) + len(`,"e":[]`)

	var out [][]byte
	var batch []wireEntry
	size := base + len(`,"c":`) + 20
	flush := func() {
		m := rest
		if len(out) == 0 {
			m = part
		}
		m.Entries = batch
		out = append(out, encode(typeState, m))
		batch, size = nil, restBase
	}
	for _, e := range r.Entries {
		n := e.size() + 1
		if size+n > maxPacket && (len(batch) > 0 || len(out) == 0 && r.Head != nil) {
			flush()
		}
		batch = append(batch, e)
		size += n
	}
	if len(out) == 0 {
		part.Full, part.Entries = r.Full, batch
		return [][]byte{encode(typeState, part)}
	}
	flush()
	return out
}

// size is an upper bound of the encoded length.
func (e *wireEntry) size() int {
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
