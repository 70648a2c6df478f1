package relay

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel has the limit, for each ring. Above it packets are dropped, not answered:
// the own stack would reset what belongs to another node.
func TestLimitIsThere(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		l.driver(hostB, discard()).relay(toward(vip, hostA))
		rules := strings.Join(strings.Fields(l.nft(hostB, "list chain "+familyOf(vip).String()+" "+TableName+" relay0")), " ")
		want := fmt.Sprintf("limit rate over %d/second burst %d packets drop", relayRate, relayBurst)
		if at := strings.Index(rules, want); at < 0 || at > strings.Index(rules, "dup to") {
			l.Errorf("no %q before the relay:\n%s", want, rules)
		}
	})
}

// A flood of strays, as fast as one sender makes them, leaves the VIP usable: new
// connections, and those that are open on this node or on another, go on. The other
// nodes get no more of it than the limit. LBD_FLOOD makes it longer than a second.
func TestFloodOfStrays(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		long := time.Second
		if s := os.Getenv("LBD_FLOOD"); s != "" {
			var err error
			if long, err = time.ParseDuration(s); err != nil {
				l.Fatal(err)
			}
		}
		old := l.mustDial(vip)
		l.servedBy(old, hostA)
		l.ring(vip, hostA, hostB)
		l.steer(vip, hostB)
		l.servedBy(old, hostA)
		own := l.mustDial(vip)
		l.servedBy(own, hostB)

		l.count(hostA, vip)
		l.count(hostB, vip)
		began, done := time.Now(), make(chan int)
		go func() { done <- l.flood(vip, long) }()
		strays := 0
		fresh := 0
		for ; ; fresh++ {
			l.servedBy(own, hostB)
			c := l.mustDial(vip)
			l.servedBy(c, hostB)
			_ = c.Close()
			select {
			case strays = <-done:
			default:
				continue
			}
			break
		}
		passed := l.arrived(vip, []string{hostA})
		took := time.Since(began)
		came := l.counted(hostB, vip)
		l.Logf("%d strays in %s: %d packets came, %d were relayed, %d connections meanwhile", strays, took, came, passed, fresh)
		if strays == 0 || came < strays {
			l.Errorf("%d packets of %d strays have arrived", came, strays)
		}
		if most := relayBurst + int(relayRate*(took+time.Second)/time.Second); passed > most {
			l.Errorf("%d packets were relayed in %s, at most %d may be", passed, took, most)
		}
		l.servedBy(old, hostA)
		l.servedBy(own, hostB)
	})
}

// flood sends ACKs of connections that nobody has from the client, one after the other
// as fast as it can, and returns how many.
func (l *lab) flood(vip netip.Addr, long time.Duration) (n int) {
	l.sending(vip, func(send func([]byte) bool) {
		segments := make([][]byte, 4096)
		for i := range segments { // below the ports of its connections
			segments[i] = l.ackFrom(vip, uint16(20000+i))
		}
		for end := time.Now().Add(long); time.Now().Before(end); n++ {
			if !send(segments[n%len(segments)]) {
				return
			}
		}
	})
	return n
}

// sending gives f what sends a whole TCP segment to a VIP from the client, and tells
// whether that could be done.
func (l *lab) sending(vip netip.Addr, f func(send func(segment []byte) bool)) {
	l.Helper()
	l.In(hostC, func() {
		fd, to, err := rawTCP(vip)
		if err != nil {
			l.Error(err)
			return
		}
		defer func() { _ = unix.Close(fd) }()
		f(func(segment []byte) bool {
			err := unix.Sendto(fd, segment, 0, to)
			if err != nil {
				l.Error(err)
			}
			return err == nil
		})
	})
}

// rawTCP opens a socket that sends whole TCP segments to the VIP.
func rawTCP(vip netip.Addr) (int, unix.Sockaddr, error) {
	domain, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: vip.As16()})
	if vip.Is4() {
		domain, to = unix.AF_INET, &unix.SockaddrInet4{Addr: vip.As4()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	return fd, to, err
}

// ackFrom is an ACK from a port of the client that belongs to nothing.
func (l *lab) ackFrom(vip netip.Addr, from uint16) []byte { return l.segmentFrom(vip, from, ack) }

// segmentFrom is a segment with these flags, and without data, from a port of the client.
func (l *lab) segmentFrom(vip netip.Addr, from uint16, flags byte) []byte {
	segment := make([]byte, 20)
	binary.BigEndian.PutUint16(segment, from)
	binary.BigEndian.PutUint16(segment[2:], port)
	segment[12], segment[13] = 5<<4, flags
	binary.BigEndian.PutUint16(segment[16:], checksum(nodeAddr(hostC, vip), vip, segment))
	return segment
}
