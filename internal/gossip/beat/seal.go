package beat

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"sync/atomic"

	"github.com/hashicorp/memberlist"
)

// A heartbeat does not go through memberlist, which makes a cipher for each packet
// and hands it from goroutine to goroutine, behind whatever else has come: that was
// a quarter of what an idle owner costs. Its packet is
//
//	0xb7 | form | length of label | label | nonce (12) | message and tag (16)
//
// encrypted with AES-GCM under the same keyring, all before the nonce being
// authenticated too; in the form without encryption the message follows the label.
// No packet of memberlist begins with 0xb7: those begin with a message type or a
// version of its encryption (0 to 16), or 244 for a label.
const (
	// SealByte begins the packet of a heartbeat.
	SealByte   = 0xb7
	formPlain  = 0
	formAESGCM = 1

	sealNonce = 12
	sealTag   = 16
)

var (
	errSealed = errors.New("packet is not a heartbeat")
	// ErrLabel is of a packet of another group.
	ErrLabel = errors.New("packet of another group")
	// ErrKey is of a packet that no key of the ring decrypts.
	ErrKey = errors.New("packet with another key")
)

// Sealer makes and opens packets with heartbeats. Keys are cached as ciphers until
// the keyring changes. It is safe for concurrent use.
type Sealer struct {
	ring  *memberlist.Keyring
	label string
	cache atomic.Pointer[ciphers]
}

// NewSealer returns a Sealer for a group. Without a ring it does not encrypt.
func NewSealer(ring *memberlist.Keyring, label string) *Sealer {
	return &Sealer{ring: ring, label: label}
}

// ciphers are those of the keys on the ring, in its order.
type ciphers struct {
	keys [][]byte
	all  []cipher.AEAD
}

// ciphers returns those of the ring as it is now.
func (s *Sealer) ciphers() []cipher.AEAD {
	keys := s.ring.GetKeys()
	c := s.cache.Load()
	if c != nil && sameKeys(c.keys, keys) {
		return c.all
	}
	// The ring may move keys within its own array.
	next := &ciphers{keys: append([][]byte(nil), keys...)}
	for _, key := range next.keys {
		block, err := aes.NewCipher(key)
		if err != nil {
			continue // the ring has none of such a length
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			continue
		}
		next.all = append(next.all, aead)
	}
	s.cache.Store(next)
	return next.all
}

// sameKeys compares by identity: the ring never changes a key in place.
func sameKeys(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if len(a[i]) == 0 || len(b[i]) == 0 || &a[i][0] != &b[i][0] {
			return false
		}
	}
	return true
}

// Seal puts the packet for a message into buf, which may be one of before.
func (s *Sealer) Seal(buf, msg []byte) []byte {
	form := byte(formPlain)
	if s.ring != nil {
		form = formAESGCM
	}
	buf = append(buf[:0], SealByte, form, byte(len(s.label)))
	buf = append(buf, s.label...)
	if s.ring == nil {
		return append(buf, msg...)
	}
	head := len(buf)
	var nonce [sealNonce]byte
	_, _ = rand.Read(nonce[:]) // never fails
	buf = append(buf, nonce[:]...)
	// The first key of the ring encrypts.
	return s.ciphers()[0].Seal(buf, nonce[:], msg, buf[:head])
}

// Open returns the message of a packet. Without encryption it is a part of b.
func (s *Sealer) Open(b []byte) ([]byte, error) {
	if len(b) < 3 || b[0] != SealByte || len(b) < 3+int(b[2]) {
		return nil, errSealed
	}
	head, rest := b[:3+int(b[2])], b[3+int(b[2]):]
	if string(head[3:]) != s.label {
		return nil, ErrLabel
	}
	switch {
	case b[1] == formPlain && s.ring == nil:
		return rest, nil
	case b[1] != formAESGCM || s.ring == nil:
		return nil, ErrKey
	case len(rest) < sealNonce+sealTag:
		return nil, errSealed
	}
	nonce, text := rest[:sealNonce], rest[sealNonce:]
	for _, aead := range s.ciphers() {
		if msg, err := aead.Open(nil, nonce, text, head); err == nil {
			return msg, nil
		}
	}
	return nil, ErrKey
}
