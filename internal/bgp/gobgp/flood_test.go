package gobgp

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"

	"lbd.dev/lbd/internal/bgp"
	"lbd.dev/lbd/internal/model"
)

// knock connects to the speaker from an address, and says nothing.
func (b *bed) knock(from string) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
	c, err := d.Dial("tcp", netip.AddrPortFrom(b.addr, b.global.ListenPort).String())
	if err == nil {
		b.t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// joins opens the session of a master that is one socket, up to its last message unless it stops
// after its OPEN. It asks for a hold time, or for none.
func (b *bed) joins(from string, hold time.Duration, stops bool) (net.Conn, error) {
	c, err := b.knock(from)
	if err != nil {
		return nil, err
	}
	me := bgp.Peer{}
	me.LocalASN, me.HoldTime, me.IPv4 = routerASN, hold, true
	if _, err := receive(c); err != nil {
		return nil, err
	}
	open := openMessage(&me, netip.MustParseAddr(from))
	open.Body.(*packet.BGPOpen).HoldTime = uint16(hold.Seconds())
	if err := send(c, open); err != nil || stops {
		return c, err
	}
	if err := send(c, packet.NewBGPKeepAliveMessage()); err != nil {
		return nil, err
	}
	_, err = receive(c) // it is up over there
	return c, err
}

// flooded has a master flood the speaker until its session ends, and tells how much memory that took.
func (b *bed) flooded(c net.Conn) (sent, peak, grown int) {
	b.t.Helper()
	before, ended := rss(b.t), make(chan int, 1)
	go func() {
		msgs := flood(true)
		for i := 0; ; i++ {
			if _, err := c.Write(msgs[i%len(msgs)]); err != nil {
				ended <- i
				return
			}
		}
	}()
	for end := time.After(patience); ; {
		select {
		case sent = <-ended:
			return sent, peak, rss(b.t) - before
		case <-end:
			b.t.Fatalf("it floods still; masters %+v, RSS %+d KiB", b.Masters(), rss(b.t)-before)
		case <-time.After(50 * time.Millisecond):
			peak = max(peak, rss(b.t)-before)
		}
	}
}

// TestMemoryInAFloodOfAMaster: a master sends the same again and again, as fast as it can. Memory
// stays bounded, others are served, and it is kept out for a while.
func TestMemoryInAFloodOfAMaster(t *testing.T) {
	if !alone(t) {
		return
	}
	b := listen(t, masters(func(l *model.BGPListener) { l.MaxPrefixes, l.HoldTime = 10000, 90*time.Second }))
	fine := newRouter(t, routerASN)
	fine.path("203.0.113.1/32", false)
	fine.dial(b)
	want := fmt.Sprintf("203.0.113.1/32 by %s of masters", fine.addr)
	b.learns(want)
	const from = "127.1.200.1"
	c, err := b.joins(from, 90*time.Second, false)
	if err != nil {
		t.Fatal(err)
	}
	sent, peak, grown := b.flooded(c)
	t.Logf("%d updates sent, RSS %+d KiB in the end and at most %+d KiB", sent, grown, peak)
	if peak > 512*1024 || grown > 100*1024 {
		t.Error("that is too much")
	}
	b.learns(want)
	if all := b.Masters(); len(all) != 1 || all[0].State != bgp.Established {
		t.Errorf("%+v", all)
	}

	addr := netip.MustParseAddr(from)
	b.EndMaster(addr, "its BFD session ends as well") // does not let it in
	for range 3 {
		if _, err := b.joins(from, 90*time.Second, false); err == nil {
			t.Error("it is back at once")
		}
	}
	b.mu.Lock()
	if pause := time.Until(b.listeners.out[addr]); pause < overLimit/2 {
		t.Errorf("it is kept out for %v", pause)
	}
	b.listeners.out[addr] = time.Now()
	b.mu.Unlock()
	b.Speaker.wake()
	wait(t, "it to be let in", func() bool {
		_, err := b.joins(from, 90*time.Second, false)
		return err == nil
	})
	b.learns(want)
}

// TestFlooder: whoever has too much in its queue, alone or with others of its listener, is ended;
// nobody else.
func TestFlooder(t *testing.T) {
	type who struct {
		crowd   string
		waiting uint64
	}
	crowd := func(n int, each uint64) (out []who) {
		for i := range n {
			out = append(out, who{"masters", each + uint64(i)%2})
		}
		return out
	}
	for name, c := range map[string]struct {
		all   []who
		worst uint64 // how much waits of it; 0: of nobody
	}{
		"nobody":                         {nil, 0},
		"as much as may":                 {[]who{{"", queueMost}, {"masters", masterMost}}, 0},
		"a peer":                         {[]who{{"", 400}, {"", queueMost + 1}}, queueMost + 1},
		"a master":                       {[]who{{"", 400}, {"masters", masterMost + 1}}, masterMost + 1},
		"the worst":                      {[]who{{"masters", queueMost + 2}, {"", queueMost + 1}}, queueMost + 2},
		"many masters change":            {crowd(200, 8), 0},
		"a crowd":                        {crowd(200, 20), 21},
		"peers are no crowd":             {[]who{{"", 999}, {"", 999}, {"", 999}, {"", 999}, {"", 999}}, 0},
		"nor are masters of others":      {append([]who{{"a", 250}, {"a", 250}, {"a", 250}}, crowd(95, 20)...), 0},
		"a peer is not one of the crowd": {append([]who{{"", 400}}, crowd(200, 20)...), 21},
	} {
		waiting, crowds := make(map[netip.Addr]uint64), make(map[netip.Addr]string)
		for i, w := range c.all {
			addr := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			if waiting[addr] = w.waiting; w.crowd != "" {
				crowds[addr] = w.crowd
			}
		}
		if worst, n := flooder(waiting, crowds); n != c.worst || worst.IsValid() != (n > 0) {
			t.Errorf("%s: %s with %d", name, worst, n)
		}
	}
}

// TestGauge: what was taken is not waiting, a session begins anew, and one that is gone is forgotten.
func TestGauge(t *testing.T) {
	looks := 0
	g := gauge{wake: func() { looks++ }}
	addr, now := netip.MustParseAddr("10.0.0.1"), time.Now()
	says := func(updates, refreshes, want uint64) {
		t.Helper()
		known := map[netip.Addr]*api.Peer{addr: {State: &api.PeerState{Messages: &api.Messages{Received: &api.Message{Update: updates, Refresh: refreshes}}}}}
		if n := g.waiting(known, now)[addr]; n != want {
			t.Errorf("%d wait of %d, want %d", n, updates, want)
		}
	}
	says(3, 0, 3)
	g.take(addr)
	g.take(addr)
	says(3, 0, 1)
	says(3, 2, 3)
	says(1, 0, 0) // the log was faster
	now = now.Add(refreshWindow)
	says(2, 200, 0) // in all the time before
	says(2, 203, 3)
	g.begin(addr)
	says(1, 0, 1)
	says(1, 2, 3)
	g.take(addr)
	if g.waiting(nil, now); len(g.taken) > 0 {
		t.Errorf("%v", g.taken)
	}
	for n := range 10 * gaugeEvery {
		if n == gaugeEvery-1 && looks != 0 {
			t.Errorf("%d looks already", looks)
		}
		g.Observe(server.FSMMessage, 0, 0)
		g.Observe(server.FSMMgmtOp, 0, 0)
	}
	if looks != 1 || !g.due.Load() {
		t.Errorf("%d looks, due %v", looks, g.due.Load())
	}
}
