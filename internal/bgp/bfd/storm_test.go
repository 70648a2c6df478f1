package bfd

import (
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// end is one side of a storm: a machine, or an eager peer.
type end interface {
	receive(at, now time.Time, p *Packet, raw []byte) Reason
	advance(now time.Time)
	transmit(now time.Time) (Packet, bool)
	next() time.Time
}

// eager is a peer as FRR bfdd is: it tells each change of state at once, answers
// each Poll at once in whatever state it is then, polls whenever it comes up,
// and holds nothing down.
type eager struct {
	state, remote     State
	discr, yours      uint32
	interval          time.Duration
	tell, final, poll bool
	lastRx, nextTx    time.Time
	changes           int
}

func (e *eager) enter(s State) {
	if s == Up || e.state == Up {
		e.changes++
	}
	e.state, e.tell, e.poll = s, true, s == Up
}

func (e *eager) receive(_, now time.Time, p *Packet, _ []byte) Reason {
	e.yours, e.remote, e.lastRx = p.MyDiscr, p.State, now
	switch {
	case p.State == AdminDown && e.state != Down, e.state == Up && p.State == Down:
		e.enter(Down)
	case e.state == Down && p.State == Down:
		e.enter(Init)
	case e.state == Down && p.State == Init, e.state == Init && p.State >= Init:
		e.enter(Up)
	}
	e.final = p.Poll
	e.poll = e.poll && !p.Final
	return accepted
}

func (e *eager) desired() time.Duration {
	if e.state != Up {
		return slowInterval
	}
	return e.interval
}

func (e *eager) expires() time.Time { return e.lastRx.Add(3 * e.desired()) }

func (e *eager) advance(now time.Time) {
	if e.yours == 0 || now.Before(e.expires()) {
		return
	}
	if e.state >= Init {
		e.enter(Down)
	}
	e.yours = 0
}

func (e *eager) next() time.Time {
	if t := e.expires(); e.yours != 0 && t.Before(e.nextTx) {
		return t
	}
	return e.nextTx
}

func (e *eager) transmit(now time.Time) (p Packet, ok bool) {
	if !e.final && !e.tell && now.Before(e.nextTx) {
		return p, false
	}
	p = Packet{
		State: e.state, DetectMult: 3, MyDiscr: e.discr, YourDiscr: e.yours,
		DesiredMinTx: e.desired(), RequiredMinRx: e.interval, Final: e.final, Poll: !e.final && e.poll,
	}
	if e.final {
		e.final = false
		return p, true
	}
	e.tell, e.nextTx = false, now.Add(e.desired()*9/10)
	return p, true
}

// storm is two ends on a starved host: each runs now and then only, and finds
// then what was queued for it meanwhile, in order.
type storm struct {
	rng   *rand.Rand
	now   time.Time
	ends  [2]end
	queue [2][]Packet // for the end of that number
	runs  [2]time.Time
	nap   time.Duration // the longest time from one run to the next
	sent  [2]int
}

func (s *storm) run(d time.Duration) {
	for stop := s.now.Add(d); s.now.Before(stop); {
		i := 0
		if s.runs[1].Before(s.runs[0]) {
			i = 1
		}
		s.now = s.runs[i]
		s.runs[i] = s.now.Add(time.Millisecond/2 + time.Duration(s.rng.Float64()*float64(s.nap)))
		e := s.ends[i]
		waiting := s.queue[i]
		s.queue[i] = nil
		for _, p := range waiting {
			e.receive(s.now, s.now, &p, nil)
			s.flush(i)
		}
		if t := e.next(); !t.IsZero() && !s.now.Before(t) {
			e.advance(s.now)
		}
		s.flush(i)
	}
}

func (s *storm) flush(i int) {
	for {
		p, ok := s.ends[i].transmit(s.now)
		if !ok {
			return
		}
		s.sent[i]++
		s.queue[1-i] = append(s.queue[1-i], p)
	}
}

// stale fills the queues with packets of many states, as a host leaves them that
// did not run for long.
func (s *storm) stale(n int) {
	for i := range 2 {
		for range n {
			s.queue[i] = append(s.queue[i], Packet{
				State: []State{Down, Init, Up}[s.rng.IntN(3)], Poll: s.rng.IntN(3) == 0, DetectMult: 3,
				MyDiscr: uint32(2 - i), YourDiscr: uint32(i + 1), DesiredMinTx: 100 * ms, RequiredMinRx: 100 * ms,
			})
		}
	}
}

// TestStorm: packets that are stale by the time they are read must not chase
// each other round for ever, each answered by one that is stale again.
func TestStorm(t *testing.T) {
	for name, other := range map[string]func(s *storm) end{
		"eager peer": func(s *storm) end { return &eager{state: Down, discr: 2, interval: 100 * ms, nextTx: s.now} },
		"machine":    func(s *storm) end { return newMachine(s.now, usual, 2, 1, s.rng.Float64) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, nap := range []time.Duration{2 * ms, 10 * ms, 50 * ms} {
				for seed := range uint64(20) {
					s := &storm{rng: rand.New(rand.NewPCG(seed, 3)), now: time.Unix(1000, 0), nap: nap}
					s.runs = [2]time.Time{s.now, s.now}
					m := newMachine(s.now, usual, 1, 1, s.rng.Float64)
					s.ends = [2]end{m, other(s)}
					s.run(5 * time.Second)
					before := m.transitions
					s.stale(20)
					s.run(20 * time.Second)
					begun := m.transitions - before
					s.run(30 * time.Second)
					late := m.transitions - before - begun
					if begun == 0 {
						t.Errorf("nap %v, seed %d: the stale packets did nothing", nap, seed)
					}
					if begun > 20 || late != 0 || m.state != Up {
						t.Errorf("nap %v, seed %d: %d changes in 20 s, then %d more; %v in the end", nap, seed, begun, late, m.state)
					}
					if rate := s.sent[0] / 55; rate > 20 { // 100 ms apart, with jitter
						t.Errorf("nap %v, seed %d: %d packets a second", nap, seed, rate)
					}
				}
			}
		})
	}
}

// flap takes the session up and after a while down again.
func (b *bench) flap(up time.Duration) {
	b.Helper()
	b.hear(Down)
	b.hear(Init)
	b.want(Up, DiagNone)
	b.talk(up)
	b.hear(Down)
	b.want(Down, DiagNeighborDown)
}

// held tells for how long the machine stays in Down while its peer wants it up.
func (b *bench) held() (d time.Duration) {
	b.Helper()
	for ; ; d += 50 * ms {
		b.hear(Down)
		if b.m.state != Down {
			b.m.enter(b.now, Down, DiagNeighborDown)
			return d
		}
		if d > time.Minute {
			b.Fatal("it never leaves Down")
		}
		b.now = b.now.Add(50 * ms)
	}
}

// TestDamper: how long Down is held, and that neither a Poll nor a path that was
// up for long has to wait.
func TestDamper(t *testing.T) {
	b := newBench(t, usual)
	for i, want := range []time.Duration{0, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5 * time.Second, 5 * time.Second} {
		b.flap(0)
		if got := b.held(); got != want {
			t.Errorf("flap %d: held for %v, want %v", i+1, got, want)
		}
	}
	b.flap(0)
	b.forgetSent()
	b.hear(Down, poll)
	if p := b.last(); len(b.sent) != 1 || !p.Final || p.State != Down {
		t.Errorf("a Poll while held: %+v", b.sent)
	}
	b.hear(Init)
	b.want(Down, DiagNeighborDown)
	b.held()
	b.flap(time.Second)
	if got := b.held(); got != 0 {
		t.Errorf("held for %v after a second in Up", got)
	}
	b.now = b.now.Add(time.Minute)
	b.flap(0)
	if got := b.held(); got != 0 {
		t.Errorf("held for %v by the first flap after a minute", got)
	}
	b.flap(0)
	if got := b.held(); got != 100*ms {
		t.Errorf("held for %v by the second flap after a minute", got)
	}
}

// TestRelease: when the hold is over, what was heard last counts, if the peer is
// still there and nobody took the session down meanwhile.
func TestRelease(t *testing.T) {
	held := func() *bench {
		b := newBench(t, usual)
		b.flap(0)
		b.flap(0)
		return b
	}
	b := held()
	b.hear(Down)
	b.hear(Init)
	b.run(100*ms - 1)
	b.want(Down, DiagNeighborDown)
	b.run(1)
	b.want(Up, DiagNone)
	if b.last().State != Up || b.at[len(b.at)-1] != b.now {
		t.Error("the peer was not told at once")
	}

	b = held()
	b.run(time.Second)
	b.want(Down, DiagNeighborDown) // nothing was heard

	b = held()
	b.hear(Init)
	b.hear(AdminDown)
	b.run(200 * ms)
	b.want(Down, DiagNeighborDown)

	b = held()
	b.hear(Init)
	b.m.disable(b.now)
	b.flush()
	b.hear(AdminDown)
	b.run(200 * ms)
	b.want(AdminDown, DiagAdminDown)

	b = held()
	for range 3 { // until it is held for longer than the Detection Time
		b.run(time.Second)
		b.flap(0)
	}
	b.hear(Init)
	b.run(10 * time.Second)
	b.want(Down, DiagNeighborDown)
}

// TestAnswersOnce: packets that waited together get one answer, the one to the
// last of them, and each change of state that they made is reported.
func TestAnswersOnce(t *testing.T) {
	news := make(chan event, 8)
	l, err := newLoop(func() {}, news)
	if err != nil {
		t.Fatal(err)
	}
	defer l.orders.close()
	m := newMachine(time.Now(), usual, own, 1, func() float64 { return 0.5 })
	m.transmit(time.Now())
	w := &watch{key: Key{Peer: addr("127.0.0.1")}, m: m, slot: -1, state: Down}
	s := new(listener)
	newLab(t).In("a", func() {
		s.open(port{})
		w.out.fd, w.trouble = source(false)
		w.prepare(0)
		c, err := net.Dial("udp", "127.0.0.1:3784")
		if err != nil || s.err != nil || w.trouble != nil {
			t.Error(err, s.err, w.trouble)
			return
		}
		defer func() { _ = c.Close() }()
		for _, state := range []State{Down, Init, Up, Up} {
			_, _ = c.Write((&Packet{State: state, DetectMult: 3, MyDiscr: other, YourDiscr: own, DesiredMinTx: slowInterval, RequiredMinRx: slowInterval}).Append(nil, nil))
		}
	})
	if t.Failed() {
		return
	}
	defer func() { s.close(); w.out.close() }()
	l.sockets.ports[port{}] = s
	l.table.add(w)
	if !l.drain() || w.in != 4 {
		t.Fatalf("received %d", w.in)
	}
	if w.sent != 1 || m.state != Up {
		t.Errorf("sent %d, %v", w.sent, m.state)
	}
	for _, want := range []State{Init, Up} {
		select {
		case e := <-news:
			if e.to != want || e.trouble != nil {
				t.Errorf("reported %+v, want %v", e, want)
			}
		default:
			t.Errorf("%v was not reported", want)
		}
	}
	if len(l.heard) != 0 || w.heard || w.slot < 0 {
		t.Error("not settled")
	}
}
