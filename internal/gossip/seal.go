package gossip

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

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
	sealByte   = 0xb7
	formPlain  = 0
	formAESGCM = 1

	sealNonce = 12
	sealTag   = 16
)

var (
	errSealed = errors.New("packet is not a heartbeat")
	errLabel  = errors.New("packet of another group")
	errKey    = errors.New("packet with another key")
)

// sealer makes and opens packets with heartbeats. Keys are cached as ciphers until
// the keyring changes. It is safe for concurrent use.
type sealer struct {
	ring  *memberlist.Keyring // nil: no encryption
	label string
	cache atomic.Pointer[ciphers]
}

// ciphers are those of the keys on the ring, in its order.
type ciphers struct {
	keys [][]byte
	all  []cipher.AEAD
}

// ciphers returns those of the ring as it is now.
func (s *sealer) ciphers() []cipher.AEAD {
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

// seal puts the packet for a message into buf, which may be one of before.
func (s *sealer) seal(buf, msg []byte) []byte {
	form := byte(formPlain)
	if s.ring != nil {
		form = formAESGCM
	}
	buf = append(buf[:0], sealByte, form, byte(len(s.label)))
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

// open returns the message of a packet.
func (s *sealer) open(b []byte) ([]byte, error) {
	if len(b) < 3 || b[0] != sealByte || len(b) < 3+int(b[2]) {
		return nil, errSealed
	}
	head, rest := b[:3+int(b[2])], b[3+int(b[2]):]
	if string(head[3:]) != s.label {
		return nil, errLabel
	}
	switch {
	case b[1] == formPlain && s.ring == nil:
		return rest, nil
	case b[1] != formAESGCM || s.ring == nil:
		return nil, errKey
	case len(rest) < sealNonce+sealTag:
		return nil, errSealed
	}
	nonce, text := rest[:sealNonce], rest[sealNonce:]
	for _, aead := range s.ciphers() {
		if msg, err := aead.Open(nil, nonce, text, head); err == nil {
			return msg, nil
		}
	}
	return nil, errKey
}

// sendBeat sends a heartbeat. It is called by the sender alone.
func (g *Gossip) sendBeat(to *memberlist.Node, msg []byte) error {
	g.sealed = g.seal.seal(g.sealed, msg)
	if g.sockets == nil {
		_, err := g.transport.WriteToAddress(g.sealed, to.FullAddress())
		return err
	}
	addr, ok := netip.AddrFromSlice(to.Addr)
	if !ok {
		return errInvalid
	}
	return g.sockets.send(g.sealed, netip.AddrPortFrom(addr.Unmap(), to.Port))
}

// takeBeat takes a packet that came in, if it is one for it and not for memberlist.
func (g *Gossip) takeBeat(b []byte, from netip.AddrPort, at time.Time) bool {
	if len(b) == 0 || b[0] != sealByte {
		return false
	}
	msg, err := g.seal.open(b)
	if err == nil {
		var kind byte
		if kind, _, err = open(msg); err == nil && kind != typeBeat {
			err = errInvalid
		}
	}
	switch {
	case errors.Is(err, errKey), errors.Is(err, errLabel):
		g.writer.mismatch(err, from, at)
	case err != nil:
		g.count.refuse(err)
	default:
		if g.seal.ring == nil {
			msg = append([]byte(nil), msg...) // b is not ours
		}
		g.beatbox.push(packet{msg: msg, at: at})
	}
	return true
}

// tapped is a transport of tests from which heartbeats are taken before memberlist
// sees them; that of this package does so by itself.
type tapped struct {
	memberlist.NodeAwareTransport
	packets chan *memberlist.Packet
	done    chan struct{}
}

func tap(inner memberlist.NodeAwareTransport, take func([]byte, netip.AddrPort, time.Time) bool) *tapped {
	t := &tapped{inner, make(chan *memberlist.Packet), make(chan struct{})}
	go func() {
		for {
			select {
			case p := <-inner.PacketCh():
				from, _ := netip.ParseAddrPort(p.From.String())
				if take(p.Buf, from, p.Timestamp) {
					continue
				}
				select {
				case t.packets <- p:
				case <-t.done:
					return
				}
			case <-t.done:
				return
			}
		}
	}()
	return t
}

func (t *tapped) PacketCh() <-chan *memberlist.Packet { return t.packets }

func (t *tapped) Shutdown() error {
	close(t.done)
	return t.NodeAwareTransport.Shutdown()
}
