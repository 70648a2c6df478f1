// Package record is what nodes tell each other: the record of this node, the table of those
// of all others, and the messages that carry them.
//
// Each node owns one record; the newer of two statements wins, by incarnation
// and version, for the node as a whole and for each VIP by itself, whichever way
// it came: by a datagram at once, by gossip, or with a full exchange. A record
// of a node that is gone is kept for an hour, so that its claims are remembered.
// Nothing here reads a clock, sends, or waits for more than the lock of Own.
package record

import (
	"encoding/hex"
	"math"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"lbd.dev/lbd/internal/model"
)

// Bounds of what is read from the network.
const (
	// MaxPacket is the largest message that is sent in one datagram: memberlist
	// puts up to 1400 bytes into one, of which encryption, the label, the message
	// type and a compound header take at most 29+66+1+6.
	MaxPacket = 1200
	// MaxMessage is the largest message that is accepted over a stream.
	MaxMessage = 8 << 20
	// MaxName bounds the name of a node.
	MaxName = 253
	maxWord = 64 // of a reason or program version
	// MaxEntries bounds the VIPs of one node.
	MaxEntries = 16384
	maxMACs    = model.MaxMACs
	maxAddrs   = 4
	// MaxKeys bounds the keys of one node.
	MaxKeys = 16
	// MaxNumber is the largest epoch, incarnation or version that is accepted. A
	// number near the end of the range would leave no room to go above it.
	MaxNumber = 1 << 62
	// MaxLease is of a heartbeat, in milliseconds.
	MaxLease = 3_600_000
)

const (
	// maxDrains bounds the drains of one node; those that fit into one datagram are
	// told, which is some ten, see Machines.Partial.
	maxDrains = 64
	// maxOnly bounds the addresses of one drain.
	maxOnly = 16
	// maxMachine bounds "namespace/name", both at their longest.
	maxMachine = 63 + 1 + 253
	// maxDetail bounds the words about a signal.
	maxDetail = 128
)

// Record is the state of one node, whole or in part. Inc counts the lives
// of the node (its start in nanoseconds, or more), Seq the changes within one.
type Record struct {
	Name string `json:"n"`
	// From names the sender if that is not the node itself.
	From string `json:"f,omitempty"`
	Inc  uint64 `json:"i"`
	Seq  uint64 `json:"q"`
	// Full is the Seq up to which Entries is complete: what is absent and not
	// newer does not exist. 0: a part only.
	Full uint64 `json:"c,omitempty"`
	// Age is for how many seconds the sender has not seen the node alive.
	Age     uint32  `json:"g,omitempty"`
	Head    *Head   `json:"h,omitempty"`
	Entries []Entry `json:"e,omitempty"`
	// Machines is absent where nothing is known of any.
	Machines *Machines `json:"m,omitempty"`
}

// Head is what concerns the node as a whole.
type Head struct {
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
	// Format is the newest that the node reads; 0: FormatJSON alone.
	Format Format `json:"t,omitempty"`
}

// Entry is the standing and the claim of one node for one VIP.
type Entry struct {
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
	// Servers and Out are the model.Verdict of a claim.
	Servers uint64 `json:"r,omitempty"`
	Out     Bits   `json:"f,omitempty"`
}

// Bits are bytes, hexadecimal in JSON.
type Bits string

// MarshalText writes them.
func (b Bits) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, []byte(b)), nil }

// UnmarshalText reads them.
func (b *Bits) UnmarshalText(text []byte) error {
	raw, err := hex.DecodeString(string(text))
	*b = Bits(raw)
	return err
}

// Beat is a heartbeat.
type Beat struct {
	Name     string  `json:"n"`
	Inc      uint64  `json:"i"`
	Interval int64   `json:"d"` // milliseconds to the next one
	Final    bool    `json:"f,omitempty"`
	Entries  []Entry `json:"e,omitempty"`
	Seq      uint64  `json:"q"`
	Lease    int64   `json:"r,omitempty"` // milliseconds until LeaseEnd
}

// Stale tells the node Name that a later life of it than Inc is known.
type Stale struct {
	Name string `json:"n"`
	Inc  uint64 `json:"i"`
}

// Ask asks the receiver whether Name is still one of its targets; with Here,
// whether it is there; and with Yes it is the answer to that.
type Ask struct {
	Name string `json:"n"`
	Here bool   `json:"h,omitempty"`
	Yes  bool   `json:"y,omitempty"`
}

// Machines is what a node tells of Machines. It has a version of its own: a head
// may be as long as a datagram.
type Machines struct {
	V uint64 `json:"v"`
	// Manager: the node reads a management API.
	Manager bool `json:"a,omitempty"`
	// Partial: not all drains had room. A node that is not listed knows nothing by it.
	Partial bool    `json:"p,omitempty"`
	Drains  []Drain `json:"d,omitempty"`
}

// Drain is one Machine that is to lose its traffic.
type Drain struct {
	Machine string `json:"m"`
	Node    string `json:"n"`
	Reason  string `json:"r,omitempty"`
	Detail  string `json:"x,omitempty"`
	// Only are the addresses that the node is to lose; empty: all. Nodes that do not
	// know the field drain the node.
	Only []netip.Addr `json:"f,omitempty"`
}

func (m *Machines) check() error {
	if !validNumber(m.V) || len(m.Drains) > maxDrains {
		return ErrInvalid
	}
	for i := range m.Drains {
		d := &m.Drains[i]
		if !ValidName(d.Node) || d.Machine == "" || !validWords(d.Machine, maxMachine) ||
			!validWords(d.Reason, maxWord) || len(d.Only) > maxOnly || !validWords(d.Detail, maxDetail) {
			return ErrInvalid
		}
	}
	return nil
}

// validWords are short, have nothing that could break a line of a log, and are the same in
// every format: JSON cannot express a text that is not UTF-8.
func validWords(s string, limit int) bool {
	return len(s) <= limit && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// check refuses a record that breaks a bound.
func (r *Record) check() error {
	if !ValidName(r.Name) || r.From != "" && !ValidName(r.From) || len(r.Entries) > MaxEntries ||
		r.Inc == 0 || !validNumber(r.Inc) || !validNumber(r.Seq) || !validNumber(r.Full) {
		return ErrInvalid
	}
	if h := r.Head; h != nil {
		if !validNumber(h.V) || !validWords(h.Version, maxWord) || len(h.MACs) > maxMACs || len(h.Addrs) > maxAddrs || len(h.Hears) > maxAddrs || len(h.Keys) > MaxKeys ||
			h.Weight < 0 || h.Weight > 1<<20 || h.Rules < 0 || h.Rules > 1<<20 {
			return ErrInvalid
		}
		if slices.ContainsFunc(slices.Concat(h.Addrs, h.Hears), func(a netip.Addr) bool { return !a.IsValid() || a.Is4In6() || a.Zone() != "" }) {
			return ErrInvalid
		}
		if slices.ContainsFunc(slices.Concat(h.Keys, h.MACs), func(word string) bool { return !validWords(word, maxWord) }) {
			return ErrInvalid
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

func (b *Beat) check() error {
	if !ValidName(b.Name) || !validNumber(b.Inc) || !validNumber(b.Seq) || b.Inc == 0 ||
		len(b.Entries) > MaxEntries || b.Interval < 1 || b.Interval > 60_000 || b.Lease < 0 || b.Lease > MaxLease {
		return ErrInvalid
	}
	for i := range b.Entries {
		if err := b.Entries[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stale) check() error {
	if !ValidName(s.Name) || !validNumber(s.Inc) {
		return ErrInvalid
	}
	return nil
}

func (a *Ask) check() error {
	if !ValidName(a.Name) {
		return ErrInvalid
	}
	return nil
}

func (e *Entry) check() error {
	if !e.Addr.IsValid() || e.Addr.Zone() != "" || e.Addr.Is4In6() ||
		!validNumber(e.V) || !validNumber(e.Inc) || !validNumber(e.Epoch) || !validNumber(e.Seen) ||
		!validWords(e.Standing, maxWord) || !validWords(e.Duplicate, maxWord) || !validWords(e.Name, model.MaxTold) || e.To != "" && !ValidName(e.To) ||
		e.Servers > math.MaxUint32 || len(e.Out) > model.MaxVerdict/8 {
		return ErrInvalid
	}
	return nil
}

// validNumber tells whether an epoch, incarnation or version is accepted.
func validNumber(n uint64) bool { return n <= MaxNumber }

// ValidName tells whether a node may have the name: it has nothing that moves the cursor of a
// terminal or turns the direction of a line.
func ValidName(s string) bool {
	return s != "" && len(s) <= MaxName && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r == ' ' || r == '/' || !unicode.IsPrint(r) })
}
