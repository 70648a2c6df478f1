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

// update is an UPDATE that has the VIP of a site so many times.
func update(from string, n int, withdrawn bool) []byte {
	vip, self := netip.MustParseAddr(siteVIP).As4(), netip.MustParseAddr(from).As4()
	prefixes := bytes.Repeat(append([]byte{32}, vip[:]...), n)
	if withdrawn {
		body := binary.BigEndian.AppendUint16(nil, uint16(len(prefixes)))
		return message(2, append(append(body, prefixes...), 0, 0)...)
	}
	attributes := append([]byte{
		0x40, 1, 1, 0, // ORIGIN
		0x40, 2, 4, 2, 1, 0xfc, 0x01, // AS_PATH 64513
		0x40, 3, 4, // NEXT_HOP
	}, self[:]...)
	body := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(attributes)))
	return message(2, append(append(body, attributes...), prefixes...)...)
}

// TestSiteFlood: machines among the masters open sessions with a box, and each sends the same again and
// again, as fast as it can. The box ends the session and takes no other one for a while, its memory
// stays bounded, and it routes to the other masters as before. On a machine that has no processor
// left for the daemon meanwhile, BFD may end their sessions for a moment.
func TestSiteFlood(t *testing.T) {
	s := newSite(t)
	s.start("b1", "s1")
	s.await("s1", "b1")
	for i, c := range []struct {
		what string
		of   func(from string) []byte
	}{
		{"KEEPALIVEs", func(string) []byte { return message(4) }},
		{"requests for all paths", func(string) []byte { return message(5, 0, 1, 0, 1) }},
		{"updates of one prefix", func(from string) []byte { return append(update(from, 1, false), update(from, 1, true)...) }},
		{"updates of many prefixes", func(from string) []byte { return update(from, 800, false) }},
	} {
		from := fmt.Sprintf("10.0.0.%d", 50+i)
		s.Exec("ip", "addr", "add", from+"/24", "dev", "br0")
		s.floods(from, c.what, c.of(from))
	}
	s.start("s2")
	s.await("s1 s2", "b1")
}

// floods has an address send the same until its session ends.
func (s *site) floods(from, what string, same []byte) {
	t := s.t
	c, err := joinAs(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	before, worked := s.rss("b1"), s.worked("b1")
	chunk := bytes.Repeat(same, 1+16384/len(same))
	begin, sent, peak := time.Now(), 0, 0
	for ; err == nil; sent += len(chunk) {
		_, err = c.Write(chunk)
		if sent/len(chunk)%100 == 0 {
			peak = max(peak, s.rss("b1")-before)
		}
	}
	took := time.Since(begin)
	peak = max(peak, s.rss("b1")-before)
	t.Logf("%s: the session ended after %v and %d MB, for which the daemon worked for %v and grew by %d KiB at most",
		what, took, sent>>20, s.worked("b1")-worked, peak)
	if os.IsTimeout(err) {
		t.Errorf("%s: it floods still", what)
	}
	if peak > 200*1024 {
		t.Errorf("%s: that is too much memory", what)
	}
	if _, err := joinAs(from); err == nil {
		t.Errorf("%s: it is back at once", what)
	}
	if log := s.hosts["b1"].log.String(); !strings.Contains(log, "sends more than it may; its BGP session ended\" part=bgp listener=masters address="+from) {
		t.Errorf("%s: nobody is told", what)
	}
	if out := s.must("b1", "status"); !strings.Contains(out, "is kept out for 30s") {
		t.Errorf("%s: lbd status does not tell: %s", what, out)
	}
	s.await("s1", "b1")
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

// worked is the time that a daemon had of the processors.
func (s *site) worked(name string) time.Duration {
	s.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.hosts[name].cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	var user, kernel time.Duration // in 1/100 s
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &kernel); err != nil {
		s.t.Fatal(err)
	}
	return (user + kernel) * 10 * time.Millisecond
}
