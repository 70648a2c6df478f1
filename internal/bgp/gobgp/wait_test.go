package gobgp

import (
	"fmt"
	"net"
	"net/netip"
	"os"
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
