package bfd

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLateReceiver: a process that did not run for longer than the Detection
// Time finds what its peer sent meanwhile before it blames it; and if the peer
// did die meanwhile, it finds that out at once.
func TestLateReceiver(t *testing.T) {
	l := newLab(t)
	sa, sb := session("10.0.0.1", "10.0.0.2"), session("10.0.0.2", "10.0.0.1")
	sa.Multiplier = 100 // the peer waits for 5 s
	sb.Multiplier = 10  // and the process for 500 ms
	b := l.node("b")
	b.apply(sb)
	p := l.peer("a", sa)
	b.upWith(sb)
	for _, freeze := range []time.Duration{700 * ms, time.Second, 1500 * ms} {
		_ = p.cmd.Process.Signal(unix.SIGSTOP)
		time.Sleep(freeze)
		_ = p.cmd.Process.Signal(unix.SIGCONT)
		time.Sleep(500 * ms)
		if st := p.status()[0]; st.Transitions != 1 || st.State != Up {
			t.Fatalf("frozen for %v: %+v", freeze, st)
		}
	}
	_ = p.cmd.Process.Signal(unix.SIGSTOP)
	l.ExecOn("b", "nft", "add table inet cut; add chain inet cut out { type filter hook output priority 0; policy drop; }")
	time.Sleep(800 * ms)
	_ = p.cmd.Process.Signal(unix.SIGCONT)
	thaw := time.Now()
	l.within("down", func() bool { return p.status()[0].State == Down })
	if took := p.status()[0].Since.Sub(thaw); took > 5*time.Second {
		t.Errorf("found %v after the thaw that the peer was gone for 800 ms", took)
	}
}

// TestSecondLook: a thread that is late looks again before it declares anybody
// dead, once; and while packets wait it declares nobody dead, but not for ever.
func TestSecondLook(t *testing.T) {
	news := make(chan event, 8)
	l, err := newLoop(func() {}, news)
	if err != nil {
		t.Fatal(err)
	}
	defer l.orders.close()
	l.sockets.ports[port{}] = &listener{urgent: closed, calm: closed, retry: time.Now().Add(time.Hour)}
	w := l.late()
	if l.turn(true); w.m.state != Up {
		t.Error("declared dead at first sight")
	}
	time.Sleep(2 * lookAgain)
	if l.turn(true); w.m.state != Down {
		t.Error("not declared dead at the second look")
	}
	w = l.late()
	for range 5 {
		time.Sleep(2 * lookAgain)
		w.m.lastRx, w.second = time.Now().Add(-320*ms), false // however busy the machine is
		if l.turn(false); w.m.state != Up {
			t.Error("declared dead while packets wait")
		}
	}
	time.Sleep(floodLimit)
	l.turn(false)
	time.Sleep(2 * lookAgain)
	if l.turn(false); w.m.state != Down {
		t.Error("a flood keeps the dead alive")
	}
}

// late adds a session whose Detection Time ended 20 ms ago.
func (l *loop) late() *watch {
	now := time.Now()
	m := newMachine(now, usual, 1, 1, func() float64 { return 0.5 })
	w := &watch{key: Key{Peer: addr("127.0.0.1")}, m: m, out: outbound{fd: -1}, slot: -1, state: Up}
	m.state, m.remote.State, m.remote.MyDiscr, m.remote.DetectMult, m.remote.DesiredMinTx = Up, Up, 2, 3, 100*ms
	m.lastRx = now.Add(-320 * ms)
	l.queue.set(w, now)
	return w
}

// TestSecondLookIsAfterReading: a turn may take longer than the wait for the second look,
// but the sockets are read between turns only.
func TestSecondLookIsAfterReading(t *testing.T) {
	l, err := newLoop(func() {}, make(chan event, 8))
	if err != nil {
		t.Fatal(err)
	}
	defer l.orders.close()
	var all []*watch
	defer func() {
		for _, w := range all {
			w.out.close()
		}
	}()
	for took := time.Duration(0); took < lookAgain; { // a shorter turn shows nothing
		first := len(all)
		for range 300 {
			all = append(all, l.late())
		}
		begin := time.Now()
		l.turn(true)
		took = time.Since(begin)
		for _, w := range all[first:] {
			if w.m.state != Up {
				t.Fatal("declared dead before the sockets were read again")
			}
		}
	}
}

// TestOverflow: a socket that had no room tells so, and what it still holds
// counts as heard now.
func TestOverflow(t *testing.T) {
	l := newLab(t)
	var s socket
	var problem error
	l.In("a", func() {
		s.fd, problem = listen(port{})
		if problem != nil {
			return
		}
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<10)
		c, err := net.Dial("udp", "127.0.0.1:3784")
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		for range 100 {
			_, _ = c.Write(plain)
		}
	})
	if problem != nil {
		t.Fatal(problem)
	}
	defer func() { _ = unix.Close(s.fd) }()
	var loop loop
	if !loop.overflowed(&s) || loop.stats.Overflow == 0 || loop.stats.Overflow >= 100 {
		t.Errorf("%d lost of 100", loop.stats.Overflow)
	}
	if loop.overflowed(&s) {
		t.Error("the same loss counts twice")
	}
}

var closed = socket{fd: -1}
