package bfd

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestSplit: the kernel puts aside what says no more than Up, and nothing else.
func TestSplit(t *testing.T) {
	up := Packet{State: Up, DetectMult: 3, MyDiscr: other, YourDiscr: own}
	with := func(f func(*Packet)) []byte {
		p := up
		f(&p)
		return p.Append(nil, []byte("secret"))
	}
	cases := []struct {
		name string
		raw  []byte
		calm bool
	}{
		{"Up", with(func(*Packet) {}), true},
		{"Up with a diagnostic", with(func(p *Packet) { p.Diag = DiagNeighborDown }), true},
		{"Up with authentication", with(func(p *Packet) { p.Auth.Type = KeyedSHA1 }), true},
		{"Up, independent of the control plane", with(func(p *Packet) { p.ControlPlaneIndependent = true }), true},
		{"Up with Poll", with(func(p *Packet) { p.Poll = true }), false},
		{"Up with Final", with(func(p *Packet) { p.Final = true }), false},
		{"Up with Demand", with(func(p *Packet) { p.Demand = true }), false},
		{"Init", with(func(p *Packet) { p.State = Init }), false},
		{"Down", with(func(p *Packet) { p.State = Down }), false},
		{"AdminDown", with(func(p *Packet) { p.State = AdminDown }), false},
		{"one byte", []byte{0x20}, false},
		{"nothing", nil, false},
	}
	l := newLab(t)
	l.In("a", func() {
		for p, to := range map[port]string{{}: "127.0.0.1:3784", {v6: true}: "[::1]:3784", {multihop: true}: "127.0.0.1:4784"} {
			var s, second listener
			s.open(p)
			c, err := net.Dial("udp", to)
			if err != nil || s.err != nil || s.calm.fd < 0 {
				t.Error(p, err, s.err, s.calm.fd)
				return
			}
			if second.open(p); second.err == nil || second.urgent.fd >= 0 || second.calm.fd >= 0 {
				t.Errorf("%s: opened twice: %v", p, second.err)
			}
			buf := new(inbound)
			for _, x := range cases {
				_, _ = c.Write(x.raw)
				urgent, _ := buf.receive(s.urgent.fd)
				calm, _ := buf.receive(s.calm.fd)
				if urgent+calm != 1 || x.calm != (calm == 1) {
					t.Errorf("%s, %s: %d urgent, %d without news", p, x.name, urgent, calm)
				}
			}
			_ = c.Close()
			s.close()
		}
	})
}

// TestOrder: packets that came to two sockets are handled in the order in which they
// came, however many there are.
func TestOrder(t *testing.T) {
	l, err := newLoop(func() {}, make(chan event, 1024))
	if err != nil {
		t.Fatal(err)
	}
	defer l.orders.close()
	var s listener
	m := newMachine(time.Now(), usual, own, 1, func() float64 { return 0.5 })
	w := &watch{key: Key{Peer: addr("127.0.0.1")}, m: m, out: outbound{fd: -1}, slot: -1, state: Down}
	newLab(t).In("a", func() {
		s.open(port{})
		stamped(t)
		c, err := net.Dial("udp", "127.0.0.1:3784")
		if err != nil || s.err != nil {
			t.Error(err, s.err)
			return
		}
		defer func() { _ = c.Close() }()
		say := func(state State) {
			_, _ = c.Write((&Packet{State: state, DetectMult: 3, MyDiscr: other, YourDiscr: own, DesiredMinTx: slowInterval, RequiredMinRx: slowInterval}).Append(nil, nil))
		}
		say(Down)
		for range 2*batch + 5 {
			say(Up)
		}
		say(Down)
	})
	if t.Failed() {
		return
	}
	defer func() { s.close(); w.out.close() }()
	l.sockets.ports[port{}] = &s
	l.table.add(w)
	if !l.drain() || w.in != 2*batch+7 {
		t.Fatalf("received %d", w.in)
	}
	if m.state != Down || m.remote.State != Down || m.diag != DiagNeighborDown || m.transitions != 2 {
		t.Errorf("%v, %v, %d changes; the peer is %v", m.state, m.diag, m.transitions, m.remote.State)
	}
}

// stamped waits until the kernel notes when packets come. It begins to some time after the
// first socket of the host has asked for it (net_enable_timestamp leaves it to a worker),
// and stamps what came before when it is read, so that two sockets have no common order.
// A session is not Up within that time, and until then one socket gets all packets.
func stamped(t *testing.T) {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if _, err := c.WriteTo([]byte("?"), c.LocalAddr()); err != nil {
			t.Error(err)
			return
		}
		time.Sleep(5 * time.Millisecond)
		read := time.Now()
		var b [1]byte
		oob := make([]byte, 64)
		_, n, _, _, err := c.ReadMsgUDP(b[:], oob)
		if err != nil {
			t.Error(err)
			return
		}
		all, err := unix.ParseSocketControlMessage(oob[:n])
		if err == nil && len(all) == 1 && len(all[0].Data) >= 16 {
			ts := (*unix.Timespec)(unsafe.Pointer(&all[0].Data[0]))
			if time.Unix(ts.Unix()).Before(read) {
				return
			}
		}
	}
	t.Error("the kernel stamps no packets")
}

// TestFewWakes: sessions that are Up wake the thread once for all that send together, and not
// for what they receive. A session that is not, waits for every packet.
func TestFewWakes(t *testing.T) {
	l := newLab(t)
	var sa, sb []Session
	for i := range together + 4 {
		at := fmt.Sprintf("10.0.0.%d", 20+i)
		l.IP("b", "addr add "+at+"/24 dev eth0")
		sa, sb = append(sa, session("10.0.0.1", at)), append(sb, session(at, "10.0.0.1"))
	}
	l.peer("b", sb...)
	a := l.node("a")
	a.apply(sa...)
	a.each("up", func(st Status) bool { return st.State == Up && st.Transmit == 50*ms && st.Receive == 50*ms })
	loop := a.m.loop
	count := func() (packets, wakes uint64) {
		loop.orders.do(func(time.Time) {
			for _, w := range loop.all() {
				packets += w.in + w.sent
			}
			wakes = loop.wakes
		})
		return packets, wakes
	}
	l.within("ten packets for a wake", func() bool {
		p, n := count()
		time.Sleep(time.Second)
		p2, n2 := count()
		t.Logf("%d packets, %d wakes", p2-p, n2-n)
		return 10*(n2-n) < p2-p
	})
	settled := func(p port) (yes bool) {
		loop.orders.do(func(time.Time) { yes = loop.settled(p) })
		return yes
	}
	if !settled(port{}) {
		t.Error("not settled with all sessions Up")
	}
	a.apply(append(sa, session("10.0.0.1", "10.0.0.9"))...)
	if settled(port{}) {
		t.Error("settled with a session that is Down")
	}
	if !settled(port{v6: true}) {
		t.Error("another port is not settled")
	}
}

// TestApplyAgain: what runs already does not wake the thread, and what differs does. A
// port that is not open is told of each time.
func TestApplyAgain(t *testing.T) {
	l := newLab(t)
	a := l.node("a")
	one, two := session("10.0.0.1", "10.0.0.2"), session("10.0.0.1", "10.0.0.3")
	for _, s := range []*Session{&one, &two} {
		s.Passive = true // and so it never wakes by itself
	}
	a.apply(one, two)
	loop := a.m.loop
	wakes := func() (n uint64) {
		loop.orders.do(func(time.Time) { n = loop.wakes })
		return n
	}
	before := wakes()
	for range 5 {
		a.apply(two, one)
	}
	if n := wakes() - before; n != 1 {
		t.Errorf("%d wakes, one of which was this test", n)
	}
	two.Multiplier++
	a.apply(one, two)
	a.apply(one)
	if n := wakes() - before; n < 4 {
		t.Errorf("%d wakes: changes did not reach the thread", n)
	}
	b := l.node("b")
	var busy listener
	l.In("b", func() { busy.open(port{}) })
	defer busy.close()
	for range 3 {
		var err error
		l.In("b", func() { err = b.m.Apply([]Session{session("10.0.0.2", "10.0.0.1")}) })
		if busy.err != nil || err == nil {
			t.Errorf("no word of the port that is not open: %v, %v", busy.err, err)
		}
	}
}

// TestMeet: sessions that send together keep to the jitter of RFC 5880 section 6.8.7,
// each of them, and it stays random. Those that began apart find each other.
func TestMeet(t *testing.T) {
	for _, c := range []struct {
		name  string
		mults []uint8
		share int // packets in a wake, at least on average
	}{{"alike", []uint8{3, 3, 5}, 3}, {"one that may be less late", []uint8{3, 1}, 1}, {"many", make([]uint8, 64), 12}} {
		t.Run(c.name, func(t *testing.T) {
			l := &loop{}
			now := time.Unix(1000, 0)
			for i, mult := range c.mults {
				m := newMachine(now, usual, uint32(i+1), 1, rand.New(rand.NewPCG(1, uint64(i))).Float64)
				m.meet, m.set.mult = l.meet, cmp.Or(mult, 3)
				m.state, m.remote.State, m.remote.MyDiscr, m.remote.RequiredMinRx = Up, Up, other, 100*ms
				m.terms.desiredTx, m.terms.usedTx, m.out.trigger = 100*ms, 100*ms, false
				m.out.next = now.Add(time.Duration(i) * 31 * ms)
				l.queue.set(&watch{m: m, slot: -1}, m.out.next)
			}
			packets, wakes, gaps := sendAll(t, l, 2000)
			if packets*100 < wakes*c.share*98 {
				t.Errorf("%d packets in %d wakes", packets, wakes)
			}
			if gaps < wakes/2 {
				t.Errorf("%d different gaps in %d wakes", gaps, wakes)
			}
		})
	}
}

// TestSettledSessions: packets to more than many sessions are read as they come.
func TestSettledSessions(t *testing.T) {
	l := &loop{}
	l.table.byDiscr = map[uint32]*watch{}
	for i := range uint32(many) {
		m := newMachine(time.Unix(1000, 0), usual, i+1, 1, rand.Float64)
		m.state = Up
		l.table.byDiscr[i+1] = &watch{m: m, slot: -1}
	}
	if !l.settled(port{}) {
		t.Errorf("%d sessions are not settled", many)
	}
	l.table.byDiscr[many+1] = l.table.byDiscr[1]
	if l.settled(port{}) {
		t.Errorf("%d sessions are settled", many+1)
	}
}

// sendAll sends what is due, wake after wake, and checks the gaps and how many send at once.
func sendAll(t *testing.T, l *loop, wakes int) (packets, woken, gaps int) {
	last := map[*watch]time.Time{}
	seen := map[time.Duration]bool{}
	for range wakes {
		now, burst := l.queue[0].deadline, 0
		for ; !l.queue[0].deadline.After(now); burst++ {
			w := l.queue[0]
			if _, ok := w.m.transmit(now); !ok {
				t.Fatal("nothing to send")
			}
			if before, ok := last[w]; ok {
				gap := now.Sub(before)
				if least, most := w.m.jitter(); gap < least || gap > most {
					t.Fatalf("gap of %v, not from %v to %v", gap, least, most)
				}
				seen[gap] = true
			}
			last[w] = now
			l.queue.set(w, w.m.out.next)
		}
		if packets += burst; burst > together {
			t.Fatalf("%d sessions send at once", burst)
		}
	}
	return packets, wakes, len(seen)
}
