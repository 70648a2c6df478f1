package box

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// message is one of BGP (RFC 4271 section 4.1).
func message(kind byte, body ...byte) []byte {
	m := bytes.Repeat([]byte{0xff}, 16)
	m = binary.BigEndian.AppendUint16(m, uint16(19+len(body)))
	return append(append(m, kind), body...)
}

// TestSiteFlood: a machine among the masters opens a session with a box and sends the same again and
// again, as fast as it can. The box ends the session and takes no other one for a while, and it routes
// to the other masters as before. How much memory that takes depends on what else the machine does:
// 111 MiB on a quiet one, 700 beside other labs. The tests of package gobgp have a bound for it.
func TestSiteFlood(t *testing.T) {
	s := newSite(t)
	s.start("b1", "s1")
	s.await("s1", "b1")
	before := s.rss("b1")
	c, err := joinAs("10.0.0.10")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	attributes := []byte{
		0x40, 1, 1, 0, // ORIGIN
		0x40, 2, 4, 2, 1, 0xfc, 0x01, // AS_PATH 64513
		0x40, 3, 4, 10, 0, 0, 10, // NEXT_HOP
	}
	vip := netip.MustParseAddr(siteVIP).As4()
	body := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(attributes)))
	body = append(append(body, attributes...), bytes.Repeat(append([]byte{32}, vip[:]...), 800)...)
	update := message(2, body...)
	begin, sent, peak := time.Now(), 0, 0
	for ; time.Since(begin) < patience; sent++ {
		_ = c.SetWriteDeadline(time.Now().Add(patience))
		if _, err = c.Write(update); err != nil {
			break
		}
		if sent%100 == 0 {
			peak = max(peak, s.rss("b1")-before)
		}
	}
	if err == nil {
		t.Errorf("%d updates are sent, and it floods still", sent)
	}
	s.await("s1", "b1")
	peak = max(peak, s.rss("b1")-before)
	t.Logf("the session ended after %v and %d updates; the daemon has grown by %d KiB at most", time.Since(begin), sent, peak)
	if _, err := joinAs("10.0.0.10"); err == nil {
		t.Error("it is back at once")
	}
	if log := s.hosts["b1"].log.String(); !strings.Contains(log, "sends more than it may") {
		t.Error("nobody is told")
	}
	s.start("s2")
	s.await("s1 s2", "b1")
}

// joinAs opens the session of a master with b1.
func joinAs(addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: netip.MustParseAddr(addr).AsSlice()}}
	c, err := d.Dial("tcp", "10.0.0.21:179")
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	id := netip.MustParseAddr(addr).As4()
	open := append([]byte{4, 0xfc, 0x01, 0, 90}, append(id[:], 0)...) // AS 64513, hold time 90 s
	for _, m := range [][]byte{message(1, open...), message(4)} {
		if _, err := c.Write(m); err != nil {
			return nil, err
		}
	}
	for range 2 { // an OPEN and a KEEPALIVE
		head := make([]byte, 19)
		if _, err := io.ReadFull(c, head); err != nil {
			return nil, err
		}
		if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(head[16:]))-19); err != nil {
			return nil, err
		}
		if head[18] == 3 {
			return nil, fmt.Errorf("%s is refused", addr)
		}
	}
	return c, nil
}

// rss is the memory of a daemon in KiB.
func (s *site) rss(name string) (n int) {
	s.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.hosts[name].cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		s.t.Fatal(err)
	}
	return n
}
