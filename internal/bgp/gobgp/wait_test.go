package gobgp

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/bgp"
	"lbd.dev/lbd/internal/model"
)

// TestNoWayIsKept: of a host that is gone some connections end without an answer,
// others since nobody has the address. The text does not change to and fro.
func TestNoWayIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{conf: bgp.Peer{BGPPeer: model.BGPPeer{Name: "a", Address: netip.MustParseAddr("192.0.2.1")}}}
		try := func(err error, want string) {
			t.Helper()
			before := p.lastError
			news := p.unreached(&net.OpError{Op: "dial", Err: err})
			if !strings.Contains(p.lastError, want) || news != (before != p.lastError) {
				t.Errorf("%v: %q, news %v, want %q", err, p.lastError, news, want)
			}
			time.Sleep(4 * time.Second)
		}
		silence, gone := os.ErrDeadlineExceeded, os.NewSyscallError("connect", syscall.EHOSTUNREACH)
		try(silence, "no answer from 192.0.2.1")
		for range 3 {
			try(gone, "nobody has that address")
			try(silence, "nobody has that address")
			try(os.NewSyscallError("connect", syscall.ETIMEDOUT), "nobody has that address")
		}
		// But what else is known counts at once, and silence after it too.
		try(os.NewSyscallError("connect", syscall.ECONNREFUSED), "connection refused")
		try(silence, "no answer from 192.0.2.1")
		// A host that is back but does not answer.
		try(gone, "nobody has that address")
		time.Sleep(noWayLasts)
		try(silence, "no answer from 192.0.2.1")
	})
}

// TestNoOpen: a peer that takes the connection and says nothing is told of soon,
// long before the connection is given up.
func TestNoOpen(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	for _, ttl := range []uint8{0, 255} {
		addr := host()
		l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 179).String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		p := b.peer(fmt.Sprintf("r%d", ttl), &router{asn: routerASN, addr: addr})
		p.MinTTL = ttl
		b.add(p)
	}
	b.fails("r0", "sent no OPEN for 3s")
	if s := b.Sessions()["r0"]; s.State != bgp.OpenSent || strings.Contains(s.LastError, "TTL") {
		t.Errorf("it does not wait any more: %+v", s)
	}
	// Its kernel answers the connection with TTL 64.
	b.fails("r255", "no answer from", "packets with a TTL below 255 were dropped (TTL security)")
}

func TestNetstat(t *testing.T) {
	const text = "IpExt: InNoRoutes\nIpExt: 1\nTcpExt: SyncookiesSent TCPMinTTLDrop Last\nTcpExt: 4 7 9\n"
	for name, want := range map[string]uint64{"TCPMinTTLDrop": 7, "Last": 9, "TcpExt:": 0, "Missing": 0} {
		if got := netstat(text, "TcpExt:", name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	if got := netstat("TcpExt: A B\nTcpExt: 1\n", "TcpExt:", "B"); got != 0 {
		t.Errorf("cut off: %d", got)
	}
}

// TestArriving: who has failed goes at once, who says too little goes after a while, and who has said
// least for longest if there are too many.
func TestArriving(t *testing.T) {
	const idle, active, openSent, up = bgp.Idle, bgp.Active, bgp.OpenSent, bgp.Established
	var a arriving
	begin := time.Now()
	at := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }
	goes := func(after time.Duration, want ...int) {
		t.Helper()
		got := a.overdue(begin.Add(after))
		if len(got) != len(want) {
			t.Errorf("after %v: %v go, want %v", after, got, want)
		}
		for _, n := range want {
			if _, is := got[at(n)]; !is {
				t.Errorf("after %v: %v go, not %d", after, got, n)
			}
		}
	}
	if !a.hear(at(1), active, begin) {
		t.Error("the first one is no news")
	}
	a.hear(at(1), openSent, begin.Add(openWait/2))
	a.hear(at(2), active, begin.Add(openWait/2))
	a.hear(at(3), active, begin)
	a.hear(at(3), up, begin)
	if due, any := a.due(); !any || !due.Equal(begin.Add(openWait)) {
		t.Errorf("due %v", due.Sub(begin))
	}
	goes(openWait - 1)
	goes(openWait, 1)
	a.hear(at(2), idle, begin)
	a.hear(at(2), active, begin) // the server only waits for it
	goes(0, 2)
	a.hear(at(2), idle, begin)
	a.hear(at(2), openSent, begin) // it is back
	goes(0)
	goes(openWait, 2)
	if _, any := a.due(); any {
		t.Error("somebody is left")
	}
	for n := range arrivingMost + 2 {
		if news := a.hear(at(n), active, begin.Add(time.Duration(n))); news != (n == 0 || n >= arrivingMost) {
			t.Errorf("%d: news %v", n, news)
		}
	}
	goes(openWait/2, 0, 1)
	a.forget(at(2))
	if len(a.since) != arrivingMost-1 {
		t.Errorf("%d are left", len(a.since))
	}
}

// TestStrangersGiveWay: who connects and says nothing, or no more than an OPEN, is dropped in time, as
// a peer is, and however many they are a master gets in.
func TestStrangersGiveWay(t *testing.T) {
	if !alone(t) {
		return
	}
	b := listen(t, masters())
	r := newRouter(t, routerASN)
	r.path("203.0.113.1/32", false)
	knocks := func(from int) (all []net.Conn) {
		t.Helper()
		for n := range arrivingMost {
			c, err := b.knock(fmt.Sprintf("127.1.%d.%d", from+n>>7, 1+n&127))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		return all
	}
	begin := time.Now()
	first := knocks(200)
	if _, err := b.joins("127.1.220.1", 0, true); err != nil { // for ever, as far as the server goes
		t.Fatal(err)
	}
	wait(t, "the first one to be dropped", func() bool {
		_ = first[0].SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		_, err := io.Copy(io.Discard, first[0])
		return err == nil
	})
	if took := time.Since(begin); took >= openWait {
		t.Errorf("it gave way only after %v", took)
	}
	r.dial(b)
	want := fmt.Sprintf("203.0.113.1/32 by %s of masters", r.addr)
	b.learns(want)
	knocks(210)
	wait(t, "no more than may be", func() bool { return len(b.Masters()) <= arrivingMost+1 })
	b.learns(want)

	if _, err := b.joins("127.1.220.2", 0, true); err != nil {
		t.Fatal(err)
	}
	wait(t, "its OPEN to be read", func() bool {
		return slices.ContainsFunc(b.Masters(), func(m bgp.Master) bool { return m.State == bgp.OpenConfirm })
	})
	a := &b.listeners.arriving
	a.mu.Lock()
	for addr := range a.since {
		a.since[addr] = time.Now().Add(-openWait)
	}
	a.mu.Unlock()
	b.Speaker.wake()
	wait(t, "all strangers to be dropped", func() bool { return len(b.Masters()) == 1 })
	b.learns(want)
}
