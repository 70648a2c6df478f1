package address

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// An address that is drained is given up when its last connection ends: nobody has to ask for
// that to be seen.
func TestEndOfConnectionsIsSeenWithoutADecision(t *testing.T) {
	if !isolated(t) {
		return
	}
	d, other := holding(t)
	port := listen(t, "tcp4", "0.0.0.0:0")
	time.Sleep(2 * lingerPoll) // nothing is counted any more
	linger := lingering("a0", 1)
	var conn net.Conn
	other.in(func() { conn = dial(t, there4, v4, port) })
	if vips := apply(t, d, want(linger...)); vips[v4].Sockets != 1 {
		t.Fatalf("%+v", vips[v4])
	}
	_ = conn.Close()
	for begin := time.Now(); ; {
		fired(t, d)
		d.mu.Lock()
		left := 0
		for _, h := range d.holds.list {
			left += max(0, h.connections.open)
		}
		d.mu.Unlock()
		if left == 0 {
			t.Logf("seen after %s", time.Since(begin))
			return
		}
	}
}

// A client that only listens, as one that watches an API, learns at once that the node of
// its connection has given the address up: it would never send anything that the new owner
// could answer with a reset. If the address only changes its interface nothing is reset.
func TestClientsThatOnlyListenAreReset(t *testing.T) {
	if !isolated(t) {
		return
	}
	d, other, port := serving(t)
	var outside []net.Conn
	other.in(func() { outside = []net.Conn{open(t, there4, v4, port), open(t, there6, v6, port)} })
	still := open(t, here4, here4, port)
	lan, lo := lingering("a0", 1), lingering("lo", 1)
	apply(t, d, want(lan...))
	apply(t, d, want(append(lan, lo...)...))
	apply(t, d, want(lo...))
	for _, conn := range append(outside, still) {
		if err := echo(conn); err != nil {
			t.Errorf("before: %s to %s: %v", conn.LocalAddr(), conn.RemoteAddr(), err)
		}
	}
	apply(t, d, want())
	for _, conn := range outside {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s to %s: %v", conn.LocalAddr(), conn.RemoteAddr(), err)
		}
	}
	if err := echo(still); err != nil {
		t.Errorf("one to another address: %v", err)
	}
}

// Connections outlive that their address is unbound for a moment: its owner is gone, and this
// node takes it anew. So they do if somebody else has configured the address by then.
func TestConnectionsAreSpared(t *testing.T) {
	if !isolated(t) {
		return
	}
	d, other, port := serving(t)
	var conns []net.Conn
	other.in(func() { conns = []net.Conn{open(t, there4, v4, port), open(t, there6, v6, port)} })
	check := func(when string) {
		t.Helper()
		for _, conn := range conns {
			if err := echo(conn); err != nil {
				t.Errorf("%s: %s to %s: %v", when, conn.LocalAddr(), conn.RemoteAddr(), err)
			}
		}
	}
	apply(t, d, want(lingering("a0", 1)...))
	none := want()
	none.Spared = both
	apply(t, d, none)
	if len(find(t, v4))+len(find(t, v6)) != 0 {
		t.Error("they are still bound")
	}
	apply(t, d, want(on("a0", 2)...))
	check("taken anew")
	apply(t, d, want(lingering("a0", 2)...))
	foreign(t, "a0", v4.String()+"/24")
	apply(t, d, want())
	conns = conns[:1]
	check("somebody else's")
}

// An address of lbd that is on two interfaces, as after a daemon that was killed while it moved
// it, is left over twice.
func TestBothOfALeftoverArePruned(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	k, err := openKernel()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for _, iface := range []string{"a0", "b0"} {
		index, err := k.LinkIndex(iface)
		if err != nil {
			t.Fatal(err)
		}
		o := &Op{Verb: Create, Addr: v4, Index: index, Lifetime: idle}
		if k.Change([]*Op{o}); o.Err != nil {
			t.Fatal(o.Err)
		}
	}
	if n := len(find(t, v4)); n != 2 {
		t.Fatalf("%d addresses", n)
	}
	d := start(t, idle)
	d.mu.Lock()
	s, err := d.look()
	d.mu.Unlock()
	if err != nil || len(s.own[slot{v4, false}]) != 2 {
		t.Errorf("seen: %+v, %v", s.own, err)
	}
	w := want()
	w.Synced = true
	apply(t, d, w)
	if left := find(t, v4); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}
