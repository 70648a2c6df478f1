package bfd

import (
	"crypto/sha1"
	"crypto/subtle"
	"encoding/binary"
)

// AuthType is the type of authentication, RFC 5880 section 4.1. Simple
// passwords and MD5 are refused.
type AuthType uint8

// The types of authentication that are spoken, RFC 5880 section 4.4.
const (
	KeyedSHA1           AuthType = 4
	MeticulousKeyedSHA1 AuthType = 5
)

// String is the name that the RFC uses.
func (t AuthType) String() string {
	return pick(uint8(t), "none", "Simple Password", "Keyed MD5", "Meticulous Keyed MD5", "Keyed SHA1", "Meticulous Keyed SHA1")
}

// Auth is how a session authenticates. SHA1 with a secret key is what the RFC
// offers best; it keeps strangers out, it hides nothing.
type Auth struct {
	Type  AuthType // KeyedSHA1 or MeticulousKeyedSHA1
	KeyID uint8    // the name of the key in the packet; both ends have the same
	Key   []byte   // 1 to 20 bytes
}

// parseAuth reads an authentication section that has as many bytes as the
// length of the packet leaves for it, at least 2.
func parseAuth(b []byte) (AuthSection, error) {
	switch AuthType(b[0]) {
	case KeyedSHA1, MeticulousKeyedSHA1:
	case 1:
		return AuthSection{}, ErrSimple
	case 2, 3:
		return AuthSection{}, ErrMD5
	default:
		return AuthSection{}, ErrAuthType
	}
	if b[1] != authSHA1Len || len(b) != authSHA1Len {
		return AuthSection{}, ErrLength
	}
	return AuthSection{Type: AuthType(b[0]), KeyID: b[2], Sequence: binary.BigEndian.Uint32(b[4:])}, nil
}

// append adds the section to the packet that begins at start, RFC 5880 section
// 6.7.4: the hash covers the whole packet with the key in its own place.
func (a *AuthSection) append(b []byte, start int, key []byte) []byte {
	b = append(b, byte(a.Type), authSHA1Len, a.KeyID, 0)
	b = binary.BigEndian.AppendUint32(b, a.Sequence)
	var field [sha1.Size]byte
	copy(field[:], key)
	b = append(b, field[:]...)
	sum := sha1.Sum(b[start:])
	copy(b[start+hashOffset:], sum[:])
	return b
}

// authentic tells whether raw, which Parse accepted with a SHA1 section, was
// hashed with key, RFC 5880 section 6.7.4.
func authentic(raw, key []byte) bool {
	var b [packetMax]byte
	if copy(b[:], raw) < packetMax {
		return false
	}
	clear(b[hashOffset:])
	copy(b[hashOffset:], key)
	sum := sha1.Sum(b[:])
	return subtle.ConstantTimeCompare(sum[:], raw[hashOffset:packetMax]) == 1
}

// sequence is where an authenticated session is in the sequence numbers of both
// ends, RFC 5880 section 6.8.1.
type sequence struct {
	sent, expected uint32 // expected: the last received
	known          bool   // expected is
	last           Packet // sent, without Auth, P and F included
}

// authenticate is RFC 5880 section 6.7. The hash is looked at first: a stranger
// must not be able to set the sequence number that is expected.
func (s *sequence) authenticate(a *Auth, p *Packet, raw []byte) Reason {
	switch {
	case a == nil && p.Auth.Type == 0:
		return accepted
	case a == nil, p.Auth.Type != a.Type, p.Auth.KeyID != a.KeyID, !authentic(raw, a.Key):
		return DropAuth
	}
	ahead := p.Auth.Sequence - s.expected // circular
	least := uint32(0)
	if a.Type == MeticulousKeyedSHA1 {
		least = 1
	}
	if s.known && (ahead < least || ahead > 3*uint32(p.DetectMult)) {
		return DropSequence
	}
	s.known, s.expected = true, p.Auth.Sequence
	return accepted
}

// number adds the authentication section, RFC 5880 section 6.7.4: meticulous
// counts packets, keyed SHA1 contents.
func (s *sequence) number(a *Auth, p *Packet) {
	if a == nil {
		return
	}
	if a.Type == MeticulousKeyedSHA1 || *p != s.last {
		s.sent++
	}
	s.last = *p
	p.Auth = AuthSection{Type: a.Type, KeyID: a.KeyID, Sequence: s.sent}
}
