package bfd

import (
	"testing"
	"time"
)

// bench is one machine on a clock of its own, and the packets it has sent.
type bench struct {
	*testing.T
	m    *machine
	now  time.Time
	sent []Packet
	at   []time.Time
}

const (
	own   = 0x11
	other = 0x22
)

// usual is 100 ms x 3 both ways.
var usual = settings{transmit: 100 * ms, receive: 100 * ms, mult: 3}

func newBench(t *testing.T, set settings) *bench {
	b := &bench{T: t, now: time.Unix(1000, 0)}
	b.m = newMachine(b.now, set, own, 100, func() float64 { return 0.999999 }) // no reduction
	b.flush()
	return b
}

func (b *bench) flush() {
	for {
		p, ok := b.m.transmit(b.now)
		if !ok {
			return
		}
		b.sent, b.at = append(b.sent, p), append(b.at, b.now)
		if len(b.sent) > 100000 {
			b.Fatal("it does not stop sending")
		}
	}
}

// run lets time pass.
func (b *bench) run(d time.Duration) {
	end := b.now.Add(d)
	for {
		next := b.m.next()
		if next.IsZero() || next.After(end) {
			b.now = end
			return
		}
		if next.After(b.now) {
			b.now = next
		}
		b.m.advance(b.now)
		b.flush()
	}
}

// talk lets time pass while the peer says Up often.
func (b *bench) talk(d time.Duration, edit ...func(*Packet)) {
	b.Helper()
	for end := b.now.Add(d); b.now.Before(end); {
		b.run(50 * ms)
		b.hear(Up, edit...)
	}
}

// packet is one of the peer: 100 ms x 3, in a state.
func (b *bench) packet(s State, edit ...func(*Packet)) Packet {
	p := Packet{State: s, DetectMult: 3, MyDiscr: other, YourDiscr: own, DesiredMinTx: 100 * ms, RequiredMinRx: 100 * ms}
	for _, e := range edit {
		e(&p)
	}
	return p
}

// hear receives a packet and sends what follows.
func (b *bench) hear(s State, edit ...func(*Packet)) Reason {
	b.Helper()
	p := b.packet(s, edit...)
	var key []byte
	if b.m.set.auth != nil {
		key = b.m.set.auth.Key
	}
	raw := p.Append(nil, key)
	r := b.m.receive(b.now, b.now, &p, raw)
	b.flush()
	return r
}

func final(p *Packet) { p.Final = true }
func poll(p *Packet)  { p.Poll = true }

// up brings the session up, its Poll Sequence answered and settled.
func (b *bench) up(edit ...func(*Packet)) *bench {
	b.Helper()
	b.hear(Down, edit...)
	b.hear(Init, edit...)
	b.want(Up, DiagNone)
	b.hear(Up, append(edit, final)...)
	b.hear(Up, edit...)
	b.forgetSent()
	return b
}

func (b *bench) forgetSent() { b.sent, b.at = nil, nil }

func (b *bench) want(s State, d Diag) {
	b.Helper()
	if b.m.state != s || b.m.diag != d {
		b.Errorf("%s (%s), want %s (%s)", b.m.state, b.m.diag, s, d)
	}
}

func (b *bench) last() Packet {
	b.Helper()
	if len(b.sent) == 0 {
		b.Fatal("nothing was sent")
	}
	return b.sent[len(b.sent)-1]
}

// TestStates has a row for each arrow of RFC 5880 section 6.2, and each that is
// not there.
func TestStates(t *testing.T) {
	rows := []struct {
		own, heard, then State
		diag             Diag
	}{
		{Down, AdminDown, Down, DiagNone},
		{Down, Down, Init, DiagNone},
		{Down, Init, Up, DiagNone},
		{Down, Up, Down, DiagNone},
		{Init, AdminDown, Down, DiagNeighborDown},
		{Init, Down, Init, DiagNone},
		{Init, Init, Up, DiagNone},
		{Init, Up, Up, DiagNone},
		{Up, AdminDown, Down, DiagNeighborDown},
		{Up, Down, Down, DiagNeighborDown},
		{Up, Init, Up, DiagNone},
		{Up, Up, Up, DiagNone},
		{AdminDown, AdminDown, AdminDown, DiagAdminDown},
		{AdminDown, Down, AdminDown, DiagAdminDown},
		{AdminDown, Init, AdminDown, DiagAdminDown},
		{AdminDown, Up, AdminDown, DiagAdminDown},
	}
	for _, r := range rows {
		t.Run(r.own.String()+" hears "+r.heard.String(), func(t *testing.T) {
			b := newBench(t, usual)
			switch r.own {
			case Init:
				b.hear(Down)
			case Up:
				b.up()
			case AdminDown:
				b.up()
				b.m.disable(b.now)
				b.flush()
			}
			b.forgetSent()
			b.hear(r.heard)
			b.want(r.then, r.diag)
			if r.then != r.own && b.last().State != r.then {
				t.Error("the peer was not told at once, section 6.8.7")
			}
			if r.then == r.own && len(b.sent) != 0 {
				t.Errorf("sent %d packets for nothing", len(b.sent))
			}
		})
	}
}

// every checks that what was sent came at an interval, without jitter.
func (b *bench) every(d time.Duration) {
	b.Helper()
	if len(b.at) < 2 {
		b.Fatalf("%d packets", len(b.at))
	}
	for i := 1; i < len(b.at); i++ {
		if got := b.at[i].Sub(b.at[i-1]); got < d-ms || got > d {
			b.Errorf("packet %d after %v, want %v", i, got, d)
		}
	}
}

func TestPassive(t *testing.T) {
	set := usual
	set.passive = true
	b := newBench(t, set)
	b.run(5 * time.Second)
	if len(b.sent) != 0 {
		t.Errorf("spoke first, section 6.8.7: %d packets", len(b.sent))
	}
	b.up()
	b.run(time.Minute)
	b.want(Down, DiagTimeExpired)
	b.forgetSent()
	b.run(5 * time.Second)
	if len(b.sent) != 0 {
		t.Error("spoke to a peer that is gone")
	}
}

func TestJitter(t *testing.T) {
	for _, c := range []struct {
		mult        uint8
		least, most time.Duration
	}{{3, 75 * ms, 100 * ms}, {1, 75 * ms, 90 * ms}} {
		set := usual
		set.mult = c.mult
		b := newBench(t, set).up()
		for _, r := range []float64{0, 0.5, 0.9999999} {
			b.m.rand = func() float64 { return r }
			if got := b.m.jittered(); got < c.least || got > c.most {
				t.Errorf("multiplier %d: %v is not from %v to %v", c.mult, got, c.least, c.most)
			}
		}
		b.m.rand = func() float64 { return 0 }
		if got := b.m.jittered(); got != c.least {
			t.Errorf("multiplier %d: least %v, want %v", c.mult, got, c.least)
		}
	}
}

// TestSchedule: lateness does not add up, is not made good by a burst, and
// brings no two packets closer than the jitter may.
func TestSchedule(t *testing.T) {
	b := newBench(t, usual).up()
	first := b.m.out.next
	for i := range 50 {
		b.now = first.Add(time.Duration(i)*100*ms + time.Duration(i%2)*5*ms) // each other one 5 ms late
		b.hear(Up)
		if len(b.sent) != i+1 {
			t.Fatalf("%d packets after %d intervals", len(b.sent), i+1)
		}
	}
	b.now = b.now.Add(time.Second)
	b.forgetSent()
	b.hear(Up)
	b.run(74 * ms)
	if len(b.sent) != 1 {
		t.Errorf("a burst of %d after a second of sleep", len(b.sent))
	}
}

// TestMultiplierIsToldAtOnce: the peer gives a session up by the last multiplier that it has
// heard, so one that changes does not wait for the next interval.
func TestMultiplierIsToldAtOnce(t *testing.T) {
	b := newBench(t, usual).up()
	set := usual
	set.mult = 5
	b.m.change(b.now, set)
	b.flush()
	if len(b.sent) != 1 || b.last().DetectMult != 5 || !b.at[0].Equal(b.now) {
		t.Errorf("sent: %+v", b.sent)
	}
	b.forgetSent()
	b.m.change(b.now, set)
	if b.flush(); len(b.sent) != 0 {
		t.Errorf("without a change: %+v", b.sent)
	}
}
