package gossip

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"lbd.dev/lbd/internal/gossip/beat"
)

// Before memberlist sees a stream, whoever opened it proves that it has a key. memberlist
// reads all of a stream, up to 20 MiB, before it decrypts the first byte, so that a
// stranger could have it hold gigabytes. Who opens the stream begins with one byte,
// proofHello, who accepts it says
//
//	version (1) | challenge (16)
//
// and who opened it answers with
//
//	length (1) | what seal makes of: "stream" | challenge | address and port that it called
//
// which is worth nothing for another stream or on another node. One byte says whether it
// is believed; then memberlist's own bytes follow.
//
// Versions before v0.1.0 know nothing of that. A stream that begins with anything else is
// theirs: memberlist reads at most plainBytes of it. They end a stream that begins with
// proofHello, and are then called again without.
const (
	proofHello    = 0xb8 // no message of memberlist, and not heartbeats
	proofVersion  = 1
	challengeSize = 16

	proven      = 1
	unknownKey  = 2
	unlikeLabel = 3

	// proofWithin is how long it may take. A real node needs one round trip.
	proofWithin = streamTimeout
	// maxUnproven streams wait at a time, maxUnprovenHost of one host; of IPv6, of one /64.
	// When there are too many the oldest goes: a real node is faster.
	maxUnproven     = 64
	maxUnprovenHost = 8
	// plainBytes is what is read of a stream without a proof.
	plainBytes = 64 << 10
	// plainFor is how long a node that ends streams with a proof is called without one.
	plainFor = 5 * time.Minute
)

var (
	errProof = errors.New("stream of somebody that does not say who it is")
	errPlain = errors.New("stream without a proof is too long")
	// errUngreeted: the other side ended the stream without a word.
	errUngreeted = errors.New("listens but does not greet")
)

// unproven are the streams that wait for a proof.
type unproven struct {
	mu      sync.Mutex
	streams []waiting // oldest first
	closed  bool
}

type waiting struct {
	conn net.Conn
	host netip.Prefix
}

// hostOf is what counts as one host.
func hostOf(c net.Conn) netip.Prefix {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{}
	}
	a := at.Addr().Unmap()
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.WithZone("").Prefix(bits) // never more than the address has
	return p
}

// add takes a stream in, or closes it.
func (u *unproven) add(c net.Conn) bool {
	host, same := hostOf(c), 0
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, w := range u.streams {
		if w.host == host {
			same++
		}
	}
	if u.closed || same >= maxUnprovenHost {
		c.Close()
		return false
	}
	if len(u.streams) >= maxUnproven {
		u.streams[0].conn.Close()
		u.streams = append(u.streams[:0], u.streams[1:]...)
	}
	u.streams = append(u.streams, waiting{c, host})
	return true
}

func (u *unproven) remove(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, w := range u.streams {
		if w.conn == c {
			u.streams = append(u.streams[:i], u.streams[i+1:]...)
			return
		}
	}
}

// close closes all, and those that come.
func (u *unproven) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for _, w := range u.streams {
		w.conn.Close()
	}
}

func proofText(challenge []byte, to netip.AddrPort) []byte {
	return fmt.Appendf(append([]byte("stream"), challenge...), "%s", to)
}

// greeting is how other nodes take streams, by their addresses.
type greeting struct {
	mu sync.Mutex
	// plain is until when a node is called without a proof; zero: it has greeted once, so
	// that it is never.
	plain map[netip.AddrPort]time.Time
}

func (g *greeting) greets(to netip.AddrPort) { g.note(to, time.Time{}) }

func (g *greeting) note(to netip.AddrPort, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.plain == nil {
		g.plain = make(map[netip.AddrPort]time.Time)
	}
	g.plain[to] = until
}

// without tells whether a node is called without a proof.
func (g *greeting) without(to netip.AddrPort, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return now.Before(g.plain[to])
}

// ungreeted notes that a node has ended a stream without a word. It tells whether it is to
// be called again without a proof: one that has greeted before was only busy.
func (g *greeting) ungreeted(to netip.AddrPort, now time.Time) bool {
	g.mu.Lock()
	until, known := g.plain[to]
	g.mu.Unlock()
	if known && until.IsZero() {
		return false
	}
	g.note(to, now.Add(plainFor))
	return true
}

// plainStream is a stream without a proof: it waits in unproven for as long as it is open,
// and only plainBytes of it are read.
type plainStream struct {
	net.Conn
	first []byte // read already
	left  int
	t     *transport
}

func (s *plainStream) Read(b []byte) (int, error) {
	if len(s.first) > 0 && len(b) > 0 {
		n := copy(b, s.first)
		s.first = s.first[n:]
		return n, nil
	}
	if s.left <= 0 {
		return 0, errPlain
	}
	n, err := s.Conn.Read(b[:min(len(b), s.left)])
	s.left -= n
	return n, err
}

func (s *plainStream) Close() error {
	s.t.unproven.remove(s.Conn)
	return s.Conn.Close()
}

// challenge asks for the proof of a stream that was accepted. A stream of a version that
// knows of none is returned as it is to be read.
func (t *transport) challenge(c net.Conn) (net.Conn, error) {
	if err := c.SetDeadline(time.Now().Add(proofWithin)); err != nil {
		return nil, err
	}
	var first [1]byte
	if _, err := io.ReadFull(c, first[:]); err != nil {
		return nil, err
	}
	if first[0] != proofHello {
		return &plainStream{Conn: c, first: first[:], left: plainBytes, t: t}, c.SetDeadline(time.Time{})
	}
	err := t.verify(c)
	t.unproven.remove(c)
	return c, err
}

// verify sends the challenge and reads the answer.
func (t *transport) verify(c net.Conn) error {
	var hello [1 + challengeSize]byte
	hello[0] = proofVersion
	_, _ = rand.Read(hello[1:]) // never fails
	if _, err := c.Write(hello[:]); err != nil {
		return err
	}
	var buf [256]byte
	if _, err := io.ReadFull(c, buf[:1]); err != nil {
		return err
	}
	answer := buf[1 : 1+int(buf[0])]
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	text, err := t.seal.Open(answer)
	verdict := byte(proven)
	switch {
	case errors.Is(err, beat.ErrLabel):
		verdict = unlikeLabel
	case err != nil:
		verdict = unknownKey
	case !bytes.Equal(text, proofText(hello[1:], t.addr)):
		return errProof
	}
	if _, werr := c.Write([]byte{verdict}); werr != nil || err != nil {
		return errors.Join(err, werr)
	}
	return c.SetDeadline(time.Time{})
}

// prove answers the challenge on a stream that this node opened.
func (t *transport) prove(c net.Conn, to netip.AddrPort, within time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := c.Write([]byte{proofHello}); err != nil {
		return err
	}
	var hello [1 + challengeSize]byte
	if n, err := io.ReadFull(c, hello[:]); err != nil {
		if n == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
			return fmt.Errorf("%s %w", to, errUngreeted)
		}
		return fmt.Errorf("%s listens but does not greet: %w", to, err)
	}
	t.greeting.greets(to)
	if hello[0] != proofVersion {
		return fmt.Errorf("%s greets in another way: it is no lbd, or not of this version", to)
	}
	answer := t.seal.Seal(nil, proofText(hello[1:], to))
	if len(answer) > 255 { // a label has 64 bytes at most
		return errProof
	}
	if _, err := c.Write(append([]byte{byte(len(answer))}, answer...)); err != nil {
		return err
	}
	var verdict [1]byte
	if _, err := io.ReadFull(c, verdict[:]); err != nil {
		return fmt.Errorf("%s closes the stream: %w", to, err)
	}
	switch verdict[0] {
	case proven:
		return c.SetDeadline(time.Time{})
	case unlikeLabel:
		return errors.New("unacceptable label: the other node has another one")
	}
	return errors.New("no installed keys could decrypt the greeting: the other node has other ones")
}
