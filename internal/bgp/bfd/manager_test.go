package bfd

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// families are sessions of both ends for each kind of address.
func families() map[string][2]Session {
	zone := func(s Session) Session { s.Interface = "eth0"; return s }
	anyLocal := func(s Session) Session { s.Local = s.Local.WithZone("").Unmap(); return s }
	return map[string][2]Session{
		"IPv4":            {session("10.0.0.1", "10.0.0.2"), session("10.0.0.2", "10.0.0.1")},
		"IPv4, interface": {zone(session("10.0.0.1", "10.0.0.2")), zone(session("10.0.0.2", "10.0.0.1"))},
		"IPv6":            {session("fd00::1", "fd00::2"), session("fd00::2", "fd00::1")},
		"link-local":      {anyLocal(session("fe80::1", "fe80::2%eth0")), zone(session("fe80::2", "fe80::1"))},
	}
}

// calm sessions bear that a busy machine does not run them for a while.
func calm(s [2]Session) [2]Session {
	s[0].Multiplier, s[1].Multiplier = 20, 20
	return s
}

// TestSingleHop: up, and down within the Detection Time when the wire is cut.
func TestSingleHop(t *testing.T) {
	for name, s := range families() {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			a, b := l.node("a"), l.node("b")
			a.apply(s[0])
			b.apply(s[1])
			a.upWith(s[0])
			b.upWith(s[1])
			st := a.one()
			if st.Detection != 500*ms || st.Dropped.Sum() != 0 || st.LastError != "" || !st.EverUp || st.Transitions != 1 {
				t.Errorf("%+v", st)
			}
			l.ExecOn("b", "nft", "add table inet cut; add chain inet cut in { type filter hook input priority 0; policy drop; }; add chain inet cut out { type filter hook output priority 0; policy drop; }")
			cut := time.Now()
			for _, n := range []*node{a, b} {
				n.within(n.host+" down", func() bool { return n.one().State == Down })
				st := n.one()
				// A thread that is late looks once more before it believes it, and may be late for that, too.
				if took := n.lastChange().Sub(cut); took > 500*ms+25*ms+2*n.m.Stats().Lateness || st.Diag != DiagTimeExpired || !st.PathFailed() {
					t.Errorf("%s: down after %v: %s, %+v", n.host, took, st.Diag, st)
				}
				t.Logf("%s: told of Down %v after the cut", n.host, n.lastChange().Sub(cut))
			}
			l.ExecOn("b", "nft", "delete table inet cut")
			a.upWith(s[0])
			if got := a.one().Transitions; got != 3 {
				t.Errorf("%d transitions, want 3", got)
			}
		})
	}
}

// TestLinkDown: without the link packets cannot be sent; that is told, and ends
// with the link.
func TestLinkDown(t *testing.T) {
	l := newLab(t)
	s := families()["IPv4, interface"]
	a, b := l.node("a"), l.node("b")
	a.apply(s[0])
	b.apply(s[1])
	a.upWith(s[0])
	l.IP("a", "link set eth0 down")
	a.within("down", func() bool { return a.one().State == Down })
	a.within("error", func() bool { return a.one().LastError != "" })
	l.IP("a", "link set eth0 up")
	a.upWith(s[0])
	if err := a.one().LastError; err != "" {
		t.Error(err)
	}
	// An interface of the same name that is another one.
	l.IP("a", "link del eth0")
	a.within("down", func() bool { return a.one().State == Down })
	l.wire("a", "eth0", "b", "eth0")
	l.IP("a", "addr add 10.0.0.1/24 dev eth0")
	l.IP("b", "addr add 10.0.0.2/24 dev eth0")
	a.upWith(s[0])
}

// TestMultihop goes by way of a router, which takes one from the TTL.
func TestMultihop(t *testing.T) {
	l := bare(t, "a", "r", "b")
	l.wire("a", "eth0", "r", "to-a")
	l.wire("b", "eth0", "r", "to-b")
	for _, line := range []string{
		"a addr add 10.1.0.1/24 dev eth0", "r addr add 10.1.0.254/24 dev to-a", "r addr add 10.2.0.254/24 dev to-b", "b addr add 10.2.0.1/24 dev eth0",
		"a addr add fd01::1/64 dev eth0 nodad", "r addr add fd01::fe/64 dev to-a nodad", "r addr add fd02::fe/64 dev to-b nodad", "b addr add fd02::1/64 dev eth0 nodad",
		"a route add default via 10.1.0.254", "b route add default via 10.2.0.254",
		"a -6 route add default via fd01::fe", "b -6 route add default via fd02::fe",
	} {
		host, args, _ := strings.Cut(line, " ")
		l.IP(host, args)
	}
	for name, ends := range map[string][2]string{"IPv4": {"10.1.0.1", "10.2.0.1"}, "IPv6": {"fd01::1", "fd02::1"}} {
		t.Run(name, func(t *testing.T) {
			sa, sb := session(ends[0], ends[1]), session(ends[1], ends[0])
			sa.Multihop, sb.Multihop = true, true
			a, b := (&lab{t, l.For(t)}).node("a"), (&lab{t, l.For(t)}).node("b")
			sa.MinTTL = 255
			a.apply(sa)
			b.apply(sb)
			a.within("packets from too far away", func() bool { return a.one().Dropped[DropTTL] > 0 })
			if st := a.one(); st.State != Down || st.In != 0 || st.EverUp || st.PathFailed() {
				t.Errorf("%+v", st)
			}
			sa.MinTTL = 0 // 254
			a.apply(sa)
			a.upWith(sa)
			b.upWith(sb)
		})
	}
}

// stranger sends a packet to port 3784 of host a from a socket of host b, with a
// TTL and to an address.
func (l *lab) stranger(p Packet, ttl int, to string) {
	l.Helper()
	l.In("b", func() {
		c, err := net.Dial("udp", to)
		if err != nil {
			l.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		raw, _ := c.(*net.UDPConn).SyscallConn()
		_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, ttl) })
		if err == nil {
			_, err = c.Write(p.Append(nil, nil))
		}
		if err != nil {
			l.Error(err)
		}
	})
}

// TestDropped: what is not of the session is dropped and counted, and changes
// nothing.
func TestDropped(t *testing.T) {
	l := newLab(t)
	l.IP("a", "addr add 10.0.0.11/24 dev eth0")
	l.IP("b", "addr add 10.0.0.22/32 dev eth0")
	l.wire("a", "eth1", "b", "eth1")
	s := session("10.0.0.1", "10.0.0.2")
	s.Interface = "eth0"
	a := l.node("a")
	a.apply(s)
	discr := a.one().LocalDiscr
	hello := Packet{State: Down, DetectMult: 3, MyDiscr: 9, DesiredMinTx: time.Second, RequiredMinRx: time.Second}
	init := hello
	init.State, init.YourDiscr = Init, discr
	unknown := init
	unknown.YourDiscr = discr + 1
	signed := hello
	signed.Auth = AuthSection{Type: KeyedSHA1}
	malformed := hello
	malformed.DetectMult = 0
	const here = "10.0.0.1:3784"
	count := func(r Reason) func() uint64 { return func() uint64 { return a.one().Dropped[r] } }
	global := func(r Reason) func() uint64 { return func() uint64 { return a.m.Stats().Dropped[r] } }
	for _, r := range []struct {
		what  string
		p     Packet
		ttl   int
		to    string
		count func() uint64
	}{
		{"TTL 254, RFC 5881 section 5", hello, 254, here, count(DropTTL)},
		{"TTL 254 with the discriminator", init, 254, here, count(DropTTL)},
		{"TTL 1", init, 1, here, count(DropTTL)},
		{"other destination", hello, 255, "10.0.0.11:3784", count(DropAddress)},
		{"unknown discriminator", unknown, 255, here, global(DropNoSession)},
		{"authentication that was not agreed on", signed, 255, here, count(DropAuth)},
		{"malformed", malformed, 255, here, global(DropMalformed)},
	} {
		before := r.count()
		l.stranger(r.p, r.ttl, r.to)
		l.within(r.what, func() bool { return r.count() == before+1 })
		if st := a.one(); st.In != 0 || st.State != Down || st.RemoteDiscr != 0 {
			t.Errorf("%s: it did something: %+v", r.what, st)
		}
	}
	// By another wire: host b takes the address there.
	l.IP("b", "addr del 10.0.0.2/24 dev eth0")
	l.IP("b", "addr add 10.0.0.2/24 dev eth1")
	l.IP("b", "route add 10.0.0.1 dev eth1 src 10.0.0.2")
	l.stranger(hello, 255, here)
	l.within("other interface", func() bool { return a.one().Dropped[DropInterface] == 1 })
	// And from a host that nobody knows.
	before := a.m.Stats().Dropped[DropNoSession]
	l.IP("b", "route replace 10.0.0.1 dev eth0 src 10.0.0.22")
	l.stranger(hello, 255, here)
	l.within("stranger", func() bool { return a.m.Stats().Dropped[DropNoSession] == before+1 })
}

// TestAuthOnTheWire: with the same key up, with another one dropped and counted.
// A key that is changed on both ends within the Detection Time costs no flap.
func TestAuthOnTheWire(t *testing.T) {
	for _, typ := range []AuthType{KeyedSHA1, MeticulousKeyedSHA1} {
		t.Run(typ.String(), func(t *testing.T) {
			l := newLab(t)
			a, b := l.node("a"), l.node("b")
			with := func(local, peer, key string) Session {
				s := session(local, peer)
				s.Multiplier = 20
				s.Auth = &Auth{Type: typ, KeyID: 1, Key: []byte(key)}
				return s
			}
			sa := with("10.0.0.1", "10.0.0.2", "right")
			a.apply(sa)
			b.apply(with("10.0.0.2", "10.0.0.1", "wrong"))
			a.within("refused", func() bool { return a.one().Dropped[DropAuth] > 0 && b.one().Dropped[DropAuth] > 0 })
			if st := a.one(); st.State != Down || st.In != 0 || st.EverUp || !strings.Contains(st.LastError, "key") {
				t.Errorf("%+v", st)
			}
			b.apply(with("10.0.0.2", "10.0.0.1", "right"))
			a.upWith(sa)
			if err := a.one().LastError; err != "" {
				t.Error(err)
			}
			sa = with("10.0.0.1", "10.0.0.2", "later")
			a.apply(sa)
			b.apply(with("10.0.0.2", "10.0.0.1", "later"))
			time.Sleep(300 * ms)
			if st := a.one(); st.State != Up || st.Transitions != 1 {
				t.Errorf("the new key cost the session: %+v", st)
			}
		})
	}
}

// TestApply: what stays is not touched, what changes goes by Poll, what goes
// says so.
func TestApply(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a"), l.node("b")
	s4, s6 := calm(families()["IPv4"]), calm(families()["IPv6"])
	a.apply(s4[0], s6[0])
	b.apply(s4[1], s6[1])
	l.within("up", func() bool { st := a.m.Status(); return st[0].State == Up && st[1].State == Up })
	before := a.m.Status()
	other := s4[0]
	other.Transmit, other.Receive = 100*ms, 200*ms
	a.apply(s6[0], other)
	l.within("other intervals", func() bool {
		st, bt := a.m.Status()[0], b.m.Status()[0]
		return st.Transmit == 100*ms && st.Receive == 200*ms && bt.Receive == 100*ms && bt.Transmit == 200*ms && bt.Detection == 2*time.Second
	})
	for i, st := range a.m.Status() {
		if st.LocalDiscr != before[i].LocalDiscr || st.Transitions != 1 {
			t.Errorf("touched: %+v", st)
		}
	}
	// What is refused does not keep the others from changing, nor what ran from
	// going on.
	bad := other
	bad.Multiplier, bad.Transmit = 0, ms
	slow := s6[0]
	slow.Receive = 300 * ms
	if err := a.m.Apply([]Session{bad, {}, slow, slow}); err == nil || len(a.m.Status()) != 2 {
		t.Errorf("refused: %v, %d sessions", err, len(a.m.Status()))
	} else if got := err.Error(); strings.Count(got, "\n") != 6 || !strings.Contains(got, "given twice") {
		t.Errorf("not every fault is named: %s", got)
	}
	l.within("the others as asked for", func() bool { return a.m.Status()[1].Receive == 300*ms })
	for i, st := range a.m.Status() {
		if st.LocalDiscr != before[i].LocalDiscr || st.Transitions != 1 {
			t.Errorf("touched: %+v", st)
		}
	}
	a.apply(s6[0])
	l.within("AdminDown", func() bool { return b.m.Status()[0].RemoteState == AdminDown })
	if st := b.m.Status()[0]; st.State != Down || st.RemoteDiag != DiagAdminDown || st.PathFailed() {
		t.Errorf("%+v", st)
	}
	if st := a.one(); st.Transitions != 1 || st.State != Up {
		t.Errorf("the other one: %+v", st)
	}
	a.apply(s6[0], s4[0])
	l.within("up again", func() bool { return b.m.Status()[0].State == Up })
	begin := time.Now()
	if err := a.m.Close(t.Context()); err != nil || time.Since(begin) > 30*time.Second {
		t.Errorf("closed after %v: %v", time.Since(begin), err)
	}
	b.each("AdminDown after Close", func(st Status) bool { return st.RemoteState == AdminDown && !st.PathFailed() })
	if err := a.m.Apply(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.m.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestSourcePort: RFC 5881 section 4.
func TestSourcePort(t *testing.T) {
	l := newLab(t)
	l.ExecOn("a", "sysctl", "-q", "-w", "net.ipv4.ip_local_port_range=32768 40000")
	a := l.node("a")
	a.apply(session("10.0.0.1", "10.0.0.2"), session("fd00::1", "fd00::2"))
	out := l.ExecOn("a", "cat", "/proc/net/udp", "/proc/net/udp6")
	found := map[int64]int{}
	for _, line := range strings.Split(out, "\n") {
		if f := strings.Fields(line); len(f) > 2 && strings.Contains(f[1], ":") {
			found[hexPort(t, f[1])]++
		}
	}
	sources := 0
	for p, n := range found {
		if p == 3784 && n == 4 { // two of each family, see listener
			continue
		}
		if p < firstSource || p > lastSource || n != 1 {
			t.Errorf("port %d, %d times", p, n)
		}
		sources++
	}
	if sources != 2 {
		t.Errorf("%d source ports, want 2: %v", sources, found)
	}
	a.apply()
	l.within("no socket is left", func() bool {
		return !strings.Contains(l.ExecOn("a", "cat", "/proc/net/udp", "/proc/net/udp6"), ":0EC8 ")
	})
}

// TestPortInUse: told by Apply and by the status, and tried again.
func TestPortInUse(t *testing.T) {
	l := newLab(t)
	var c net.PacketConn
	l.In("a", func() { c, _ = net.ListenPacket("udp4", ":3784") })
	a := l.node("a")
	var err error
	l.In("a", func() { err = a.m.Apply([]Session{session("10.0.0.1", "10.0.0.2")}) })
	if !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(a.one().LastError, unix.EADDRINUSE.Error()) {
		t.Errorf("%v, %v", err, a.one().LastError)
	}
	for _, s := range [][]Session{{session("10.0.0.1", "10.0.0.2")}, {session("10.0.0.1", "10.0.0.2"), session("fd00::1", "fd00::2")}} {
		l.In("a", func() { err = a.m.Apply(s) })
		if !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("told once only: %v", err)
		}
	}
	_ = c.Close()
	l.within("tried again", func() bool { return a.m.Status()[0].LastError == "" })
	a.apply(session("10.0.0.1", "10.0.0.2"))
}

func hexPort(t *testing.T, s string) (n int64) {
	t.Helper()
	for _, c := range s[strings.Index(s, ":")+1:] {
		n = n<<4 | int64(strings.IndexRune("0123456789ABCDEF", c))
	}
	return n
}
