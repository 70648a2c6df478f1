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
	seq  uint32 // of the peer
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

// TestRules has a row for each rule of RFC 5880 section 6.8 that is about one
// end only.
func TestRules(t *testing.T) {
	demand := func(p *Packet) { p.Demand = true }
	rx := func(d time.Duration) func(*Packet) { return func(p *Packet) { p.RequiredMinRx = d } }
	tx := func(d time.Duration) func(*Packet) { return func(p *Packet) { p.DesiredMinTx = d } }
	rows := map[string]func(b *bench){
		"6.8.1 initial values": func(b *bench) {
			p := b.last()
			if p.State != Down || p.MyDiscr != own || p.YourDiscr != 0 || p.Diag != 0 || b.m.remoteMinRx != time.Microsecond {
				b.Errorf("first packet %+v", p)
			}
		},
		"6.8.1 RemoteDiscr is forgotten after a Detection Time": func(b *bench) {
			b.hear(Down, tx(time.Second))
			if b.last().YourDiscr != other {
				b.Error("not learnt")
			}
			b.run(3*time.Second - ms)
			if b.m.remoteDiscr != other {
				b.Error("forgotten too early")
			}
			b.run(ms)
			b.want(Down, DiagTimeExpired)
			b.run(time.Second)
			if b.last().YourDiscr != 0 {
				b.Error("not forgotten")
			}
		},
		"6.8.1 RemoteDiscr is forgotten in Down, without a new reason": func(b *bench) {
			b.hear(AdminDown, tx(100*ms))
			b.run(300 * ms)
			b.want(Down, DiagNone)
			if b.m.remoteDiscr != 0 {
				b.Error("not forgotten")
			}
		},
		"6.8.2 the slower of both wins": func(b *bench) {
			b.up(rx(250 * ms))
			b.talk(time.Second, rx(250*ms))
			b.every(250 * ms)
			b.hear(Up, rx(50*ms))
			b.forgetSent()
			b.talk(500*ms, rx(50*ms))
			b.every(100 * ms)
		},
		"6.8.3 slow while not Up": func(b *bench) {
			b.run(3 * time.Second)
			b.every(time.Second)
			if p := b.last(); p.DesiredMinTx != time.Second || p.RequiredMinRx != 100*ms {
				b.Errorf("announces %v, %v", p.DesiredMinTx, p.RequiredMinRx)
			}
		},
		"6.8.3 a Poll Sequence once Up, P until F": func(b *bench) {
			b.hear(Down)
			b.hear(Init)
			if p := b.last(); p.State != Up || !p.Poll || p.DesiredMinTx != 100*ms {
				b.Errorf("first in Up: %+v", p)
			}
			b.run(150 * ms)
			if !b.last().Poll {
				b.Error("Poll ended without Final")
			}
			b.hear(Up, final)
			b.run(150 * ms)
			if b.last().Poll {
				b.Error("Poll after Final")
			}
		},
		"6.8.3 a longer transmit interval waits for Final": func(b *bench) {
			b.up()
			b.m.change(b.now, settings{transmit: 300 * ms, receive: 100 * ms, mult: 3})
			b.flush()
			if p := b.last(); !p.Poll || p.DesiredMinTx != 300*ms {
				b.Errorf("announced by %+v", p)
			}
			b.run(250 * ms)
			b.every(100 * ms)
			b.hear(Up, final)
			b.forgetSent()
			b.talk(time.Second)
			b.every(300 * ms)
		},
		"6.8.3 a shorter transmit interval is used at once": func(b *bench) {
			b.up()
			b.m.change(b.now, settings{transmit: 20 * ms, receive: 100 * ms, mult: 3})
			b.flush()
			b.hear(Up, rx(10*ms))
			b.forgetSent()
			b.run(100 * ms)
			b.every(20 * ms)
		},
		"6.8.3 a shorter receive interval waits for Final": func(b *bench) {
			b.up(tx(10 * ms))
			b.m.change(b.now, settings{transmit: 100 * ms, receive: 50 * ms, mult: 3})
			b.flush()
			if p := b.last(); !p.Poll || p.RequiredMinRx != 50*ms {
				b.Errorf("announced by %+v", p)
			}
			if d := b.m.detection(); d != 300*ms {
				b.Errorf("detection %v before Final", d)
			}
			b.hear(Up, tx(10*ms), final)
			if d := b.m.detection(); d != 150*ms {
				b.Errorf("detection %v after Final", d)
			}
		},
		"6.8.3 a longer receive interval is used at once": func(b *bench) {
			b.up(tx(10 * ms))
			b.m.change(b.now, settings{transmit: 100 * ms, receive: 500 * ms, mult: 3})
			if d := b.m.detection(); d != 1500*ms {
				b.Errorf("detection %v", d)
			}
		},
		"6.8.3 the next Poll Sequence waits for F and a packet without": func(b *bench) {
			b.up()
			b.m.change(b.now, settings{transmit: 200 * ms, receive: 100 * ms, mult: 3})
			b.flush()
			b.m.change(b.now, settings{transmit: 400 * ms, receive: 100 * ms, mult: 3})
			b.flush()
			if d := b.last().DesiredMinTx; d != 200*ms {
				b.Errorf("announces %v during the first sequence", d)
			}
			b.hear(Up, final)
			b.run(190 * ms) // less than the Detection Time
			if d := b.last().DesiredMinTx; d != 200*ms {
				b.Errorf("announces %v right after F", d)
			}
			b.hear(Up)
			if p := b.last(); p.DesiredMinTx != 400*ms || !p.Poll {
				b.Errorf("second sequence: %+v", p)
			}
		},
		"6.8.3 a late Final of no sequence means nothing": func(b *bench) {
			b.up()
			b.hear(Up, final)
			if b.m.poll != pollIdle || len(b.sent) != 0 {
				b.Error("it was taken for something")
			}
		},
		"6.8.3 a peer that wants packets faster gets one at once": func(b *bench) {
			b.up(rx(10 * time.Second))
			b.run(150 * ms)
			b.hear(Up, rx(100*ms))
			if len(b.sent) != 1 {
				b.Errorf("sent %d", len(b.sent))
			}
		},
		"6.8.4 detection = multiplier of the peer x the slower interval": func(b *bench) {
			b.up(tx(200*ms), func(p *Packet) { p.DetectMult = 5 })
			b.run(999 * ms)
			b.want(Up, DiagNone)
			b.run(ms)
			b.want(Down, DiagTimeExpired)
			if p := b.last(); p.State != Down || p.Diag != DiagTimeExpired || b.at[len(b.at)-1] != b.now {
				b.Errorf("not told at once: %+v", p)
			}
		},
		"6.8.4 Init ends like Up": func(b *bench) {
			b.hear(Down)
			b.run(300 * ms)
			b.want(Down, DiagTimeExpired)
		},
		"6.8.6 F answers P at once, without P of its own": func(b *bench) {
			b.hear(Down)
			b.hear(Init)
			b.forgetSent()
			b.hear(Up, poll)
			if p := b.last(); len(b.sent) != 1 || !p.Final || p.Poll {
				b.Errorf("sent %+v", b.sent)
			}
		},
		"6.8.6 F is not held up by a Required Min RX Interval of 0": func(b *bench) {
			b.up()
			b.hear(Up, rx(0), poll)
			if len(b.sent) != 1 || !b.last().Final {
				b.Errorf("sent %+v", b.sent)
			}
		},
		"6.8.6 AdminDown of the peer is no fault of the path": func(b *bench) {
			b.up()
			b.hear(AdminDown, func(p *Packet) { p.Diag = DiagAdminDown })
			b.want(Down, DiagNeighborDown)
			st := Status{EverUp: b.m.everUp, State: b.m.state, RemoteState: b.m.remoteState}
			if st.PathFailed() {
				b.Error("the path is blamed")
			}
			b.run(10 * time.Second) // and then it is silent
			st.RemoteState = b.m.remoteState
			if st.PathFailed() {
				b.Error("the path is blamed for the silence")
			}
		},
		"6.8.7 nothing periodic for a peer that wants none": func(b *bench) {
			b.up()
			b.hear(Up, rx(0))
			for range 20 {
				b.run(250 * ms)
				b.hear(Up, rx(0))
			}
			if len(b.sent) != 0 {
				b.Errorf("sent %d", len(b.sent))
			}
		},
		"6.8.7 a peer that wanted none and vanished is called again": func(b *bench) {
			b.up()
			b.hear(Up, rx(0))
			b.run(5 * time.Second)
			b.want(Down, DiagTimeExpired)
			if len(b.sent) < 4 {
				b.Errorf("sent %d", len(b.sent))
			}
		},
		"6.8.7 nothing periodic for a peer in Demand mode": func(b *bench) {
			b.up()
			for range 20 {
				b.hear(Up, demand)
				b.run(250 * ms)
			}
			b.want(Up, DiagNone)
			if len(b.sent) != 0 {
				b.Errorf("sent %d", len(b.sent))
			}
			b.hear(Up, demand, poll)
			if len(b.sent) != 1 || !b.last().Final {
				b.Error("its Poll was not answered")
			}
		},
		"6.8.7 but a Poll Sequence, in Demand mode": func(b *bench) {
			b.up()
			b.hear(Up, demand)
			b.m.change(b.now, settings{transmit: 200 * ms, receive: 100 * ms, mult: 3})
			b.run(290 * ms)
			b.every(100 * ms)
			b.hear(Up, demand, final)
			b.forgetSent()
			b.run(290 * ms)
			if len(b.sent) != 0 {
				b.Errorf("sent %d after Final", len(b.sent))
			}
		},
		"6.8.7 Demand mode counts in Up only": func(b *bench) {
			b.hear(Down, demand)
			b.forgetSent()
			for range 10 {
				b.run(250 * ms)
				b.hear(Down, demand)
			}
			if len(b.sent) != 2 {
				b.Errorf("sent %d in 2.5 s of Init", len(b.sent))
			}
		},
		"6.8.16 AdminDown is told until the peer knows": func(b *bench) {
			b.up()
			b.m.disable(b.now)
			b.flush()
			if p := b.last(); p.State != AdminDown || p.Diag != DiagAdminDown || p.DesiredMinTx < time.Second {
				b.Errorf("told %+v", p)
			}
			b.hear(Up)
			if b.m.finished() {
				b.Error("finished, and the peer does not know")
			}
			b.hear(Down)
			if !b.m.finished() {
				b.Error("not finished, and the peer knows")
			}
		},
		"6.8.16 AdminDown is told so often": func(b *bench) {
			b.up()
			b.m.disable(b.now)
			b.flush()
			b.run(time.Second)
			if len(b.sent) != 3 || !b.m.finished() || !b.m.next().IsZero() && b.m.periodic() {
				b.Errorf("sent %d, finished %v", len(b.sent), b.m.finished())
			}
			b.every(100 * ms)
		},
		"6.8.16 AdminDown is not told to nobody": func(b *bench) {
			b.forgetSent()
			b.m.disable(b.now)
			b.flush()
			if len(b.sent) != 0 || !b.m.finished() {
				b.Errorf("sent %d", len(b.sent))
			}
		},
		"6.8.16 AdminDown answers no Poll and stays": func(b *bench) {
			b.up()
			b.m.disable(b.now)
			b.flush()
			b.forgetSent()
			b.hear(Up, poll)
			b.want(AdminDown, DiagAdminDown)
			if len(b.sent) != 0 {
				b.Error("answered")
			}
		},
	}
	for rule, f := range rows {
		t.Run(rule, func(t *testing.T) { f(newBench(t, usual)) })
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
	first := b.m.nextTx
	for i := range 50 {
		b.now = first.Add(time.Duration(i)*100*ms + 5*ms) // always 5 ms late
		b.hear(Up)
		if len(b.sent) != i+1 {
			t.Fatalf("%d packets after %d intervals", len(b.sent), i+1)
		}
	}
	b.now = b.now.Add(time.Second)
	b.hear(Up)
	b.forgetSent()
	b.flush()
	b.run(74 * ms)
	if len(b.sent) != 0 {
		t.Errorf("a burst of %d after a second of sleep", len(b.sent))
	}
}

// TestSequence has a row for each rule about sequence numbers of RFC 5880
// sections 6.7.4 and 6.8.1.
func TestSequence(t *testing.T) {
	start := uint32(0xfffffffe) // the numbers are circular
	for _, r := range []struct {
		rule  string
		typ   AuthType
		ahead uint32
		want  Reason
	}{
		{"keyed may repeat", KeyedSHA1, 0, accepted},
		{"keyed, at the end of the window", KeyedSHA1, 9, accepted},
		{"keyed, beyond the window", KeyedSHA1, 10, DropSequence},
		{"keyed, before", KeyedSHA1, ^uint32(0), DropSequence},
		{"meticulous must not repeat", MeticulousKeyedSHA1, 0, DropSequence},
		{"meticulous, next", MeticulousKeyedSHA1, 1, accepted},
		{"meticulous, at the end of the window", MeticulousKeyedSHA1, 9, accepted},
		{"meticulous, beyond the window", MeticulousKeyedSHA1, 10, DropSequence},
		{"meticulous, before", MeticulousKeyedSHA1, ^uint32(0), DropSequence},
	} {
		set := usual
		set.auth = &Auth{Type: r.typ, KeyID: 5, Key: []byte("k")}
		b := newBench(t, set)
		number := func(n uint32) func(*Packet) {
			return func(p *Packet) { p.Auth = AuthSection{Type: r.typ, KeyID: 5, Sequence: n} }
		}
		if got := b.hear(Down, number(start)); got != accepted {
			t.Fatalf("%s: first packet: %v", r.rule, got)
		}
		if got := b.hear(Down, number(start+r.ahead)); got != r.want {
			t.Errorf("%s: %v, want %v", r.rule, got, r.want)
		}
		// A peer that starts anew begins anywhere, after twice the Detection Time.
		b.run(600*ms - 1)
		if got := b.hear(Down, number(start+1000)); got != DropSequence {
			t.Errorf("%s: forgotten too early: %v", r.rule, got)
		}
		b.run(1)
		if got := b.hear(Down, number(start+1000)); got != accepted {
			t.Errorf("%s: not forgotten: %v", r.rule, got)
		}
	}
}

func TestOwnSequence(t *testing.T) {
	for _, typ := range []AuthType{KeyedSHA1, MeticulousKeyedSHA1} {
		set := usual
		set.auth = &Auth{Type: typ, KeyID: 5, Key: []byte("k")}
		b := newBench(t, set)
		b.run(10 * time.Second)
		steps := b.last().Auth.Sequence - b.sent[0].Auth.Sequence
		if want := map[AuthType]uint32{KeyedSHA1: 0, MeticulousKeyedSHA1: uint32(len(b.sent) - 1)}[typ]; steps != want {
			t.Errorf("%s: %d steps in %d equal packets, want %d", typ, steps, len(b.sent), want)
		}
		before := b.last().Auth.Sequence
		p := b.packet(Down, func(p *Packet) { p.Auth = AuthSection{Type: typ, KeyID: 5} })
		b.m.receive(b.now, b.now, &p, p.Append(nil, []byte("k")))
		b.flush()
		if b.last().State != Init || b.last().Auth.Sequence != before+1 {
			t.Errorf("%s: the number did not move with the state", typ)
		}
	}
}

// TestAuthentication: whatever is not authenticated as agreed changes nothing.
func TestAuthentication(t *testing.T) {
	good := AuthSection{Type: MeticulousKeyedSHA1, KeyID: 5, Sequence: 7}
	for _, r := range []struct {
		rule string
		auth *Auth
		sec  AuthSection
		key  string
		want Reason
	}{
		{"as agreed", &Auth{Type: MeticulousKeyedSHA1, KeyID: 5, Key: []byte("k")}, good, "k", accepted},
		{"none agreed", nil, good, "k", DropAuth},
		{"none sent", &Auth{Type: MeticulousKeyedSHA1, KeyID: 5, Key: []byte("k")}, AuthSection{}, "", DropAuth},
		{"other type", &Auth{Type: KeyedSHA1, KeyID: 5, Key: []byte("k")}, good, "k", DropAuth},
		{"other key ID", &Auth{Type: MeticulousKeyedSHA1, KeyID: 6, Key: []byte("k")}, good, "k", DropAuth},
		{"other key", &Auth{Type: MeticulousKeyedSHA1, KeyID: 5, Key: []byte("l")}, good, "k", DropAuth},
	} {
		set := usual
		set.auth = r.auth
		b := newBench(t, set)
		p := b.packet(Down, func(p *Packet) { p.Auth = r.sec })
		if got := b.m.receive(b.now, b.now, &p, p.Append(nil, []byte(r.key))); got != r.want {
			t.Errorf("%s: %v, want %v", r.rule, got, r.want)
		}
		if r.want != accepted && (b.m.state != Down || b.m.remoteDiscr != 0 || b.m.seqKnown || !b.m.lastRx.IsZero()) {
			t.Errorf("%s: dropped, and still it changed something", r.rule)
		}
	}
}
