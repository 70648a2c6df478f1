package gobgp

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v4/api"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

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
	b := listen(t, masters(func(l *model.BGPListener) { l.MaxPrefixes, l.HoldTime = 5*perUpdate, 90*time.Second }))
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
	all := b.Masters()
	if len(all) != 2 || all[0].State != bgp.Established || all[0].Error != "" || all[1].State != bgp.Idle || !strings.Contains(all[1].Error, "kept out") {
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
	if pause := time.Until(b.listeners.out[addr].until); pause < overLimit/2 {
		t.Errorf("it is kept out for %v", pause)
	}
	b.listeners.out[addr] = keptOut{until: time.Now()}
	b.mu.Unlock()
	select { // news from before
	case <-b.wake:
	default:
	}
	b.Speaker.wake()
	select {
	case <-b.wake:
	case <-time.After(patience):
		t.Error("nobody hears that it is let in")
	}
	if all := b.Masters(); len(all) != 1 {
		t.Errorf("%+v", all)
	}
	wait(t, "it to be let in", func() bool {
		_, err := b.joins(from, 90*time.Second, false)
		return err == nil
	})
	b.learns(want)
}

// TestFlooder: whoever has sent too much, alone or with others of its listener, is ended; nobody
// else.
func TestFlooder(t *testing.T) {
	const most, crowd = 1000, 20000
	masters := func(n int, each uint64, listener string) (out []sender) {
		for i := range n {
			out = append(out, sender{each + uint64(i)%2, most, listener, crowd})
		}
		return out
	}
	peer := func(sent uint64) sender { return sender{sent: sent, most: most} }
	for name, c := range map[string]struct {
		all   []sender
		worst uint64 // how much it has sent; 0: there is nobody
	}{
		"nobody":                         {nil, 0},
		"as much as may":                 {append(masters(1, most, "masters"), peer(most)), 0},
		"a peer":                         {[]sender{peer(400), peer(most + 1)}, most + 1},
		"a master":                       {append(masters(1, most+1, "masters"), peer(400)), most + 1},
		"the worst":                      {append(masters(1, most+2, "masters"), peer(most+1)), most + 2},
		"one that may send more":         {[]sender{{sent: most + 2, most: 2 * most}, peer(most + 1)}, most + 1},
		"many masters":                   {masters(200, 99, "masters"), 0},
		"a crowd":                        {masters(200, 100, "masters"), 101},
		"peers are no crowd":             {slices.Repeat([]sender{peer(most)}, 30), 0},
		"nor are masters of others":      {append(masters(15, most-1, "a"), masters(15, most-1, "b")...), 0},
		"a peer is not one of the crowd": {append(masters(200, 100, "masters"), peer(900)), 101},
	} {
		all := make(map[netip.Addr]sender)
		for i, f := range c.all {
			all[netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})] = f
		}
		if worst := flooder(all); all[worst].sent != c.worst || worst.IsValid() != (c.worst > 0) {
			t.Errorf("%s: %s with %+v", name, worst, all[worst])
		}
	}
}

// TestGauge: all counts for a while only, and there is a look at it when enough has come.
func TestGauge(t *testing.T) {
	looks := 0
	g := gauge{wake: func() { looks++ }}
	addr, now := netip.MustParseAddr("10.0.0.1"), time.Now()
	for range gaugeEvery - 1 {
		g.take(addr, 0, now) // it counts as well
	}
	if looks != 0 || g.counts() != nil {
		t.Errorf("%d looks already", looks)
	}
	g.take(addr, 1, now.Add(floodWindow-1))
	if n := g.counts()[addr]; looks != 1 || n != gaugeEvery || g.counts() != nil {
		t.Errorf("%d looks, %d prefixes", looks, n)
	}
	g.take(addr, 2*gaugeEvery, now.Add(floodWindow))
	if n := g.counts()[addr]; n != 2*gaugeEvery {
		t.Errorf("%d prefixes in the next window", n)
	}
	g.forget(addr)
	g.take(addr, gaugeEvery, now.Add(floodWindow))
	if n := g.counts()[addr]; n != gaugeEvery {
		t.Errorf("%d prefixes after it was closed", n)
	}
}

// TestOtherMessages: those that are no updates count too, of each session alone.
func TestOtherMessages(t *testing.T) {
	var g gauge
	says := func(tooMany string, counts ...[2]uint64) { // in all, and updates
		t.Helper()
		known := make(map[netip.Addr]*api.Peer)
		for i, n := range counts {
			known[netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})] = &api.Peer{State: &api.PeerState{
				Messages: &api.Messages{Received: &api.Message{Total: n[0], Update: n[1]}},
			}}
		}
		who := g.tooMany(known)
		slices.SortFunc(who, netip.Addr.Compare)
		if fmt.Sprint(who) != tooMany {
			t.Errorf("of %v: %v", counts, who)
		}
	}
	says("[]", [2]uint64{othersMost, 0})
	says("[10.0.0.1]", [2]uint64{2 * othersMost, 0}, [2]uint64{othersMost + 1, 0})
	says("[10.0.0.0 10.0.0.1]", [2]uint64{3*othersMost + 1, 0}, [2]uint64{2*othersMost + 2, 0})
	says("[]", [2]uint64{5*othersMost + 1, 2 * othersMost}, [2]uint64{othersMost, 0}) // another session
}

// TestFloodOverSessions: who begins a session again and again sends no more for it than in one.
func TestFloodOverSessions(t *testing.T) {
	if !alone(t) {
		return
	}
	b := listen(t, masters(func(l *model.BGPListener) { l.MaxPrefixes = 20 }))
	const from = "127.1.200.1"
	withdrawal := message(packet.BGP_MSG_UPDATE, 0, 5, 32, 203, 0, 113, 1, 0, 0)
	for sessions, end := 1, time.Now().Add(patience); ; sessions++ {
		c, err := b.joins(from, 90*time.Second, false)
		if err == nil {
			_, _ = c.Write(bytes.Repeat(withdrawal, 100))
			_ = c.(*net.TCPConn).CloseWrite()
			b.ends(c)
		}
		b.mu.Lock()
		_, out := b.listeners.out[netip.MustParseAddr(from)]
		b.mu.Unlock()
		if out {
			t.Logf("kept out after %d sessions", sessions)
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it floods still, in its session %d", sessions)
		}
	}
}
