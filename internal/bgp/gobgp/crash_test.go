package gobgp

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"lbd.dev/lbd/internal/bgp"
)

// serves checks that a master is served as if nothing had happened.
func (b *bed) serves() {
	b.t.Helper()
	r := newRouter(b.t, routerASN)
	r.path("203.0.113.1/32", false)
	r.dial(b)
	b.learns(fmt.Sprintf("203.0.113.1/32 by %s of masters", r.addr))
}

// ends waits for the speaker to close a connection.
func (b *bed) ends(c net.Conn) {
	b.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, c); isTimeout(err) {
		b.t.Errorf("the connection stays")
	}
}

// message is one with a header and what is given.
func message(kind byte, body ...byte) []byte {
	n := packet.BGP_HEADER_LENGTH + len(body)
	return append(append(bytes.Repeat([]byte{0xff}, 16), byte(n>>8), byte(n), kind), body...)
}

// TestUnknownMessage: anybody may send one, before any OPEN.
func TestUnknownMessage(t *testing.T) {
	if !alone(t) {
		return
	}
	b := listen(t, masters())
	c, err := b.knock("127.1.200.1")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write(message(9))
	b.ends(c)
	b.serves()
}

// TestSecondOpen: whoever has a session may send one.
func TestSecondOpen(t *testing.T) {
	if !alone(t) {
		return
	}
	b := listen(t, masters())
	c, err := b.joins("127.1.200.1", 90*time.Second, false)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		open, _ := packet.NewBGPOpenMessage(routerASN, 90, routerID, nil)
		if err := send(c, open); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = c.Write(message(9)) // is read after them
	b.ends(c)
	b.serves()
}

// TestGarbage: strangers send what is no BGP, in each state of a session.
func TestGarbage(t *testing.T) {
	if !alone(t) {
		return
	}
	b := listen(t, masters())
	n, up := 0, 0
	stranger := func(msgs ...[]byte) {
		t.Helper()
		n++
		c, err := b.knock(fmt.Sprintf("127.1.%d.%d", 100+n>>7, 1+n&127))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(bytes.Join(msgs, nil))
		time.Sleep(time.Millisecond)
		for _, m := range b.Masters() { // with what it has said of itself
			if m.State == bgp.Established {
				up++
			}
		}
		_ = c.(*net.TCPConn).CloseWrite()
		b.ends(c)
	}
	// An OPEN of the right AS with one more capability, RFC 5492.
	open := func(code, said byte, body ...byte) []byte {
		caps := append([]byte{65, 4, 0, 0, routerASN >> 8, routerASN & 255, code, said}, body...)
		param := append([]byte{2, byte(len(caps))}, caps...)
		return message(packet.BGP_MSG_OPEN, append([]byte{4, routerASN >> 8, routerASN & 255, 0, 90, 10, 1, 1, 1, byte(len(param))}, param...)...)
	}
	fine, alive := open(2, 0), message(packet.BGP_MSG_KEEPALIVE)
	for code := range 256 {
		kind := byte(code)
		for _, body := range [][]byte{nil, {0}, {0, 0, 0, 0}, bytes.Repeat([]byte{0xff}, 9)} {
			stranger(open(kind, byte(len(body)), body...), alive)
		}
		stranger(open(kind, 7, 0), alive) // longer than it is
		attribute := []byte{0, 0, 0, 12, 0x40, kind, 3, 0xff, 0xff, 0xff, 0x90, kind, 0, 1, 0xff, 0x40}
		stranger(fine, alive, message(packet.BGP_MSG_UPDATE, attribute...))
		if kind < 12 {
			for _, m := range [][]byte{message(kind), message(kind, 0), message(kind, bytes.Repeat([]byte{0xff}, 99)...), message(kind, make([]byte, 99)...)} {
				stranger(m)
				stranger(fine, m)
				stranger(fine, alive, m)
			}
		}
	}
	short := message(packet.BGP_MSG_KEEPALIVE)
	for _, length := range []byte{0, 1, 18} {
		short[17] = length
		stranger(short)
		stranger(fine, short)
		stranger(fine, alive, short)
	}
	b.serves()
	if t.Logf("%d strangers, the session of %d was seen", n, up); up == 0 {
		t.Error("nobody was taken seriously")
	}
}
