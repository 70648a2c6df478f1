package address

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

func TestCountsConnections(t *testing.T) {
	if !isolated(t) {
		return
	}
	other := neighbour(t)
	other.route()
	d := start(t, idle)
	vips := apply(t, d, want(on("a0", 1)...))
	if vips[v4].Connections != -1 {
		t.Errorf("counted without Linger: %+v", vips[v4])
	}
	// One dual stack listener: the kernel lists its IPv4 connections as 4-in-6.
	dual := listen(t, "tcp", "[::]:0")
	only4 := listen(t, "tcp4", "0.0.0.0:0")
	stop := make(chan struct{})
	var talk sync.WaitGroup
	var a, b, c net.Conn
	other.in(func() {
		a, b, c = dial(t, there4, v4, dual), dial(t, there4, v4, only4), dial(t, there6, v6, dual)
		dial(t, there4, here4, dual) // not to a VIP
	})
	last := make([]time.Time, 3)
	for i, conn := range []net.Conn{a, b, c} {
		talk.Go(func() { last[i] = chat(conn, stop) })
	}
	linger := lingering("a0", 1)
	vips = apply(t, d, want(linger...))
	if vips[v4].Connections < 0 || vips[v6].Connections < 0 {
		t.Errorf("not counted at once: %+v", vips)
	}
	// On a busy machine one may be silent for a second although it talks.
	all := func() bool {
		vips = apply(t, d, want(linger...))
		return vips[v4].Connections == 2 && vips[v6].Connections == 1
	}
	eventually(t, "all are counted", all)
	// They go on talking: they go on being counted.
	time.Sleep(1300 * time.Millisecond)
	eventually(t, "all are counted still", all)
	// One that ends is seen within a poll; those that fall silent after a second.
	_ = a.Close()
	begin := time.Now()
	for vips[v4].Connections != 1 {
		fired(t, d)
		vips = apply(t, d, want(linger...))
	}
	t.Logf("the end of a connection was seen after %s", time.Since(begin))
	close(stop)
	talk.Wait()
	for vips[v4].Connections+vips[v6].Connections != 0 {
		fired(t, d)
		vips = apply(t, d, want(linger...))
	}
	if vips[v4].Sockets != 1 || vips[v6].Sockets != 1 {
		t.Errorf("silent, but open: %+v", vips)
	}
	took := time.Since(slices.MaxFunc(last, time.Time.Compare))
	t.Logf("silent connections were counted for %s", took)
	if took < 900*time.Millisecond {
		t.Error("that is less than a second")
	}
	if vips = apply(t, d, want(on("a0", 1)...)); vips[v4].Connections != -1 || vips[v6].Connections != -1 {
		t.Errorf("not lingering any more: %+v", vips)
	}
}

// The longer a binding lingers the more rarely connections are counted.
func TestPollAfter(t *testing.T) {
	for lingered, want := range map[time.Duration]time.Duration{
		0: lingerPoll, 10 * time.Second: lingerPoll, 80 * time.Second: 2 * time.Second,
		200 * time.Second: lingerRest, 24 * time.Hour: lingerRest,
	} {
		if got := pollAfter(lingered); got != want {
			t.Errorf("after %v: %v, want %v", lingered, got, want)
		}
	}
}

// A binding that begins to linger is counted soon, however long another one has.
func TestPollIsAsSoonAsTheNewestNeeds(t *testing.T) {
	d := &Driver{log: slog.New(slog.DiscardHandler), changed: make(chan struct{}, 1), kernel: &linux{}, mu: new(sync.Mutex)}
	holding := func(lingered time.Duration, linger bool) *hold {
		h := &hold{lingers: time.Now().Add(-lingered)}
		h.want.Addr, h.want.Linger = v4, linger
		return h
	}
	if got := d.poll(); got != 0 {
		t.Errorf("nothing lingers: again after %v", got)
	}
	d.holds.list = []*hold{holding(time.Hour, true), holding(0, false)}
	if got := d.poll(); got != lingerRest {
		t.Errorf("one lingers for an hour: again after %v", got)
	}
	d.holds.list = append(d.holds.list, holding(time.Second, true))
	if got := d.poll(); got != lingerPoll {
		t.Errorf("another one has begun: again after %v", got)
	}
}

// listen echoes what it hears, and returns the port.
func listen(t *testing.T, network, addr string) int {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				buf := make([]byte, 64)
				for {
					n, err := conn.Read(buf)
					if err != nil {
						return
					}
					if _, err := conn.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// dial connects, from an address if one is given. It does not ask by itself whether the
// peer is still there.
func dial(t *testing.T, from, to netip.Addr, port int) net.Conn {
	t.Helper()
	conn, err := connect(from, to, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// connect is dial for a thread that may not end the test. On a busy machine the kernel takes a
// while to have a way to an address that was bound a moment ago.
func connect(from, to netip.Addr, port int) (net.Conn, error) {
	dialer := net.Dialer{Timeout: patience, KeepAlive: -1}
	if from.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := dialer.Dial("tcp", netip.AddrPortFrom(to, uint16(port)).String())
		noWay := errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH)
		if !noWay || time.Since(begin) > patience {
			return conn, err
		}
	}
}

// chat talks until it shall stop or the connection ends, and returns when it began to do
// so for the last time.
func chat(conn net.Conn, stop <-chan struct{}) (last time.Time) {
	buf := make([]byte, 1)
	for {
		last = time.Now()
		if _, err := conn.Write(buf); err != nil {
			return last
		}
		if _, err := conn.Read(buf); err != nil {
			return last
		}
		select {
		case <-stop:
			return last
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func TestCloseEndsEverything(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	before := runtime.NumGoroutine()
	for range 5 {
		d, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		b := model.Binding{Addr: v4, Interface: "a0", Epoch: 1, Linger: true}
		apply(t, d, want(b))
		if err := d.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(t.Context()); err != nil {
			t.Errorf("a second time: %v", err)
		}
	}
	eventually(t, "no goroutine left", func() bool { return runtime.NumGoroutine() <= before })
	if len(find(t, v4)) != 1 {
		t.Error("Close unbound the VIP")
	}
}
