package memnet

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

var (
	a = netip.MustParseAddrPort("10.0.0.1:7947")
	b = netip.MustParseAddrPort("10.0.0.2:7947")
)

func two(t *testing.T) (*Network, *Transport, *Transport) {
	n := New()
	x, err := n.Listen(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := n.Listen(b)
	if err != nil {
		t.Fatal(err)
	}
	return n, x, y
}

func got(t *Transport) int {
	synctest.Wait()
	return len(t.PacketCh())
}

func TestPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, x, y := two(t)
		if _, err := n.Listen(a); err == nil {
			t.Error("an address was given twice")
		}
		send := func() {
			if _, err := x.WriteTo([]byte("hello"), b.String()); err != nil {
				t.Error(err)
			}
		}
		send()
		if p := <-y.PacketCh(); string(p.Buf) != "hello" || p.From.String() != a.String() {
			t.Errorf("%+v", p)
		}
		n.SetLatency(5 * time.Millisecond)
		start := time.Now()
		send()
		<-y.PacketCh()
		if d := time.Since(start); d != 5*time.Millisecond {
			t.Errorf("latency %v", d)
		}
		n.SetLatency(0)
		n.Block(a.Addr(), b.Addr(), Packets)
		send()
		if got(y) != 0 {
			t.Error("a blocked packet arrived")
		}
		if _, err := y.WriteTo([]byte("x"), a.String()); err != nil || got(x) != 1 {
			t.Error("the other direction is blocked, too")
		}
		n.Heal()
		n.SetLoss(func(_, _ netip.AddrPort, size int) bool { return size == 5 })
		send()
		if got(y) != 0 || n.Lost() != 2 {
			t.Errorf("lost = %d", n.Lost())
		}
		n.SetLoss(nil)
		for range packetQueue + 10 {
			send()
		}
		if got(y) != packetQueue {
			t.Error("a full queue took more")
		}
		_ = y.Shutdown()
		if _, err := y.WriteTo([]byte("x"), a.String()); err == nil {
			t.Error("a host that is down sent")
		}
		if _, err := n.Listen(b); err != nil {
			t.Error(err)
		}
	})
}

func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, x, y := two(t)
		dial := func() (net.Conn, net.Conn, error) {
			c, err := x.DialTimeout(b.String(), time.Second)
			if err != nil {
				return nil, nil, err
			}
			return c, <-accepted(y), nil
		}
		go func() {
			c := <-y.StreamCh()
			_, _ = io.Copy(c, c)
			c.Close()
		}()
		c, err := x.DialTimeout(b.String(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 2)
		if _, err := c.Write([]byte("hi")); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hi" || c.RemoteAddr().String() != b.String() {
			t.Errorf("%q from %v: %v", buf, c.RemoteAddr(), err)
		}
		n.Partition([]netip.Addr{a.Addr()}, []netip.Addr{b.Addr()})
		if _, err := c.Read(buf); err == nil {
			t.Error("a stream crosses a partition")
		}
		start := time.Now()
		if _, _, err := dial(); err == nil || time.Since(start) != time.Second {
			t.Errorf("dial through a partition: %v after %v", err, time.Since(start))
		}
		n.Heal()
		start = time.Now()
		if _, err := x.DialTimeout("10.0.0.3:7947", time.Second); err == nil || time.Since(start) != 0 {
			t.Error("dial to nobody did not fail at once")
		}
		_ = y.Shutdown()
		if _, _, err := dial(); err == nil {
			t.Error("dial to a host that is down")
		}
	})
}

func accepted(t *Transport) <-chan net.Conn { return t.StreamCh() }
