package bfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// State is the state of a session, RFC 5880 section 4.1.
type State uint8

// The states of RFC 5880 section 4.1.
const (
	AdminDown State = iota // taken down by an operator; says nothing about the path
	Down
	Init
	Up
)

// String is the name that the RFC uses.
func (s State) String() string {
	return pick(uint8(s), "AdminDown", "Down", "Init", "Up")
}

// Diag is the reason of the last change to Down, RFC 5880 section 4.1.
type Diag uint8

// The diagnostics of RFC 5880 section 4.1.
const (
	DiagNone Diag = iota
	DiagTimeExpired
	DiagEchoFailed
	DiagNeighborDown
	DiagForwardingReset
	DiagPathDown
	DiagConcatenatedPathDown
	DiagAdminDown
	DiagReverseConcatenatedPathDown
)

// String is the name that the RFC uses.
func (d Diag) String() string {
	return pick(uint8(d), "No Diagnostic", "Control Detection Time Expired", "Echo Function Failed",
		"Neighbor Signaled Session Down", "Forwarding Plane Reset", "Path Down", "Concatenated Path Down",
		"Administratively Down", "Reverse Concatenated Path Down")
}

func pick(v uint8, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("reserved %d", v)
}

const (
	version     = 1
	headerLen   = 24
	authSHA1Len = 28
	packetMax   = headerLen + authSHA1Len // the longest packet that is sent
	hashOffset  = headerLen + 8
)

// Packet is a Control packet, RFC 5880 section 4.1. The version, the length and
// the Multipoint bit have only one legal value and are not part of it.
type Packet struct {
	Diag  Diag
	State State

	Poll, Final, ControlPlaneIndependent, Demand bool

	DetectMult uint8  // never 0
	MyDiscr    uint32 // never 0
	YourDiscr  uint32 // 0 only in Down and AdminDown

	// Intervals have the resolution of a microsecond and end at MaxInterval.
	DesiredMinTx, RequiredMinRx, RequiredMinEchoRx time.Duration

	// Auth is the authentication section; its Type is 0 without one.
	Auth AuthSection
}

// AuthSection is an authentication section with a SHA1 hash, RFC 5880 section
// 4.4.
type AuthSection struct {
	Type     AuthType
	KeyID    uint8
	Sequence uint32
}

// MaxInterval is the longest interval that a packet can carry: 2^32-1 µs.
const MaxInterval = math.MaxUint32 * time.Microsecond

// Errors of Parse. Each is a rule of RFC 5880 section 6.8.6, or a form of
// authentication that this package refuses.
var (
	ErrShort      = errors.New("shorter than its length field or than the header")
	ErrVersion    = errors.New("version is not 1")
	ErrLength     = errors.New("length does not fit the authentication")
	ErrDetectMult = errors.New("detect multiplier is 0")
	ErrMultipoint = errors.New("multipoint bit is set")
	ErrMyDiscr    = errors.New("my discriminator is 0")
	ErrYourDiscr  = errors.New("your discriminator is 0 in state Init or Up")
	ErrSimple     = errors.New("simple password authentication is refused: it shows the password to everyone")
	ErrMD5        = errors.New("MD5 authentication is refused: use SHA1")
	ErrAuthType   = errors.New("unknown authentication type")
)

// Parse reads a Control packet from the payload of a datagram and checks all
// that can be checked without knowing the session, RFC 5880 section 6.8.6.
// What follows the length that the packet gives is ignored, as the RFC says.
// The hash is not checked.
func Parse(b []byte) (Packet, error) {
	if len(b) < headerLen {
		return Packet{}, ErrShort
	}
	if b[0]>>5 != version {
		return Packet{}, ErrVersion
	}
	length, auth := int(b[3]), b[1]&flagAuth != 0
	switch {
	case length < headerLen, auth && length < headerLen+2:
		return Packet{}, ErrLength
	case length > len(b):
		return Packet{}, ErrShort
	case b[2] == 0:
		return Packet{}, ErrDetectMult
	case b[1]&flagMultipoint != 0:
		return Packet{}, ErrMultipoint
	}
	p := Packet{
		Diag:                    Diag(b[0] & 0x1f),
		State:                   State(b[1] >> 6),
		Poll:                    b[1]&flagPoll != 0,
		Final:                   b[1]&flagFinal != 0,
		ControlPlaneIndependent: b[1]&flagCPI != 0,
		Demand:                  b[1]&flagDemand != 0,
		DetectMult:              b[2],
		MyDiscr:                 binary.BigEndian.Uint32(b[4:]),
		YourDiscr:               binary.BigEndian.Uint32(b[8:]),
		DesiredMinTx:            interval(b[12:]),
		RequiredMinRx:           interval(b[16:]),
		RequiredMinEchoRx:       interval(b[20:]),
	}
	switch {
	case p.MyDiscr == 0:
		return Packet{}, ErrMyDiscr
	case p.YourDiscr == 0 && p.State != Down && p.State != AdminDown:
		return Packet{}, ErrYourDiscr
	case !auth:
		return p, nil
	}
	var err error
	p.Auth, err = parseAuth(b[headerLen:length])
	if err != nil {
		return Packet{}, err
	}
	return p, nil
}

const (
	flagPoll       = 1 << 5
	flagFinal      = 1 << 4
	flagCPI        = 1 << 3
	flagAuth       = 1 << 2
	flagDemand     = 1 << 1
	flagMultipoint = 1 << 0
)

func interval(b []byte) time.Duration {
	return time.Duration(binary.BigEndian.Uint32(b)) * time.Microsecond
}

// micros is the inverse of interval. It rounds up, so that an interval is never
// announced shorter than it is, and ends at MaxInterval.
func micros(d time.Duration) uint32 {
	switch {
	case d <= 0:
		return 0
	case d >= MaxInterval:
		return math.MaxUint32
	}
	return uint32((d + time.Microsecond - 1) / time.Microsecond)
}

// Append appends the packet in its form on the wire, RFC 5880 section 4.1. With
// Auth.Type set, key is hashed in, section 6.7.4.
func (p *Packet) Append(b, key []byte) []byte {
	start := len(b)
	length := headerLen
	var flags byte
	if p.Auth.Type != 0 {
		length += authSHA1Len
		flags |= flagAuth
	}
	for _, f := range [...]struct {
		on  bool
		bit byte
	}{{p.Poll, flagPoll}, {p.Final, flagFinal}, {p.ControlPlaneIndependent, flagCPI}, {p.Demand, flagDemand}} {
		if f.on {
			flags |= f.bit
		}
	}
	b = append(b, version<<5|byte(p.Diag)&0x1f, byte(p.State)<<6|flags, p.DetectMult, byte(length))
	b = binary.BigEndian.AppendUint32(b, p.MyDiscr)
	b = binary.BigEndian.AppendUint32(b, p.YourDiscr)
	b = binary.BigEndian.AppendUint32(b, micros(p.DesiredMinTx))
	b = binary.BigEndian.AppendUint32(b, micros(p.RequiredMinRx))
	b = binary.BigEndian.AppendUint32(b, micros(p.RequiredMinEchoRx))
	if p.Auth.Type != 0 {
		b = p.Auth.append(b, start, key)
	}
	return b
}
