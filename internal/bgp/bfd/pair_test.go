package bfd

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// pair is two machines on one clock with a wire between them that loses, delays
// and swaps packets.
type pair struct {
	*testing.T
	rng    *rand.Rand
	now    time.Time
	m      [2]*machine
	wire   []flight
	loss   float64
	delay  time.Duration // at least; at most twice that, so packets overtake
	cut    [2]bool       // what this end sends is lost
	sent   [2]int
	states [2][]State
}

type flight struct {
	at  time.Time
	to  int
	raw []byte
}

func newPair(t *testing.T, seed uint64, a, b settings) *pair {
	p := &pair{T: t, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1000, 0)}
	for i, s := range []settings{a, b} {
		p.m[i] = newMachine(p.now, s, uint32(i+1), p.rng.Uint32(), p.rng.Float64)
	}
	return p
}

// run lets time pass.
func (p *pair) run(d time.Duration) {
	p.Helper()
	p.until(d, func() bool { return false })
}

// until lets time pass until ok, for d at most, and tells how long it took.
func (p *pair) until(d time.Duration, ok func() bool) time.Duration {
	p.Helper()
	begin, end := p.now, p.now.Add(d)
	for steps := 0; ; steps++ {
		if steps > 1_000_000 {
			p.Fatal("no end")
		}
		p.settle(0)
		p.settle(1)
		if ok() {
			return p.now.Sub(begin)
		}
		next := end
		for _, m := range p.m {
			if t := m.next(); !t.IsZero() && t.Before(next) {
				next = t
			}
		}
		for _, f := range p.wire {
			if f.at.Before(next) {
				next = f.at
			}
		}
		if !next.Before(end) {
			p.now = end
			return d
		}
		if next.After(p.now) {
			p.now = next
		}
		p.deliver()
		p.m[0].advance(p.now)
		p.m[1].advance(p.now)
	}
}

func (p *pair) deliver() {
	var later []flight
	slices.SortStableFunc(p.wire, func(a, b flight) int { return a.at.Compare(b.at) })
	for _, f := range p.wire {
		if f.at.After(p.now) {
			later = append(later, f)
			continue
		}
		pkt, err := Parse(f.raw)
		if err != nil {
			p.Fatalf("%x: %v", f.raw, err)
		}
		m := p.m[f.to]
		if pkt.YourDiscr != 0 && pkt.YourDiscr != m.localDiscr {
			continue // for a session that was before
		}
		m.receive(p.now, p.now, &pkt, f.raw)
		p.note(f.to)
	}
	p.wire = later
}

func (p *pair) note(i int) {
	s := p.m[i].state
	if n := len(p.states[i]); n == 0 || p.states[i][n-1] != s {
		p.states[i] = append(p.states[i], s)
	}
}

func (p *pair) settle(i int) {
	p.note(i)
	for {
		pkt, ok := p.m[i].transmit(p.now)
		if !ok {
			return
		}
		p.sent[i]++
		if p.cut[i] || p.rng.Float64() < p.loss {
			continue
		}
		var key []byte
		if a := p.m[i].set.auth; a != nil {
			key = a.Key
		}
		wait := p.delay + time.Duration(p.rng.Float64()*float64(p.delay))
		p.wire = append(p.wire, flight{p.now.Add(wait), 1 - i, pkt.Append(nil, key)})
	}
}

func (p *pair) both(s State) func() bool {
	return func() bool { return p.m[0].state == s && p.m[1].state == s }
}

// agreed: nothing is left to be negotiated.
func (p *pair) agreed() bool {
	for _, m := range p.m {
		if m.state != Up || m.terms.usedTx != m.set.transmit || m.terms.usedRx != m.set.receive || m.terms.desiredTx != m.terms.usedTx || m.terms.poll != pollIdle {
			return false
		}
	}
	return p.m[0].remote.RequiredMinRx == p.m[1].terms.requiredRx && p.m[1].remote.RequiredMinRx == p.m[0].terms.requiredRx
}

func TestPairComesUp(t *testing.T) {
	passive := usual
	passive.passive = true
	fast := settings{transmit: 10 * ms, receive: 10 * ms, mult: 3}
	for name, c := range map[string]struct{ a, b settings }{
		"equal": {usual, usual}, "one passive": {usual, passive}, "other passive": {passive, usual}, "unequal": {fast, settings{50 * ms, 200 * ms, 5, false, nil}},
	} {
		p := newPair(t, 1, c.a, c.b)
		p.delay = ms
		if took := p.until(time.Minute, p.both(Up)); took > 10*ms {
			t.Errorf("%s: up after %v", name, took)
		}
		if took := p.until(time.Minute, p.agreed); took > time.Second {
			t.Errorf("%s: agreed after %v", name, took)
		}
		p.run(time.Minute)
		for i := range 2 {
			if got := p.states[i][len(p.states[i])-1]; got != Up || len(p.states[i]) > 3 {
				t.Errorf("%s: states %v", name, p.states[i])
			}
		}
	}
	p := newPair(t, 1, passive, passive)
	if p.run(time.Minute); p.sent != [2]int{} {
		t.Error("two passive ends speak")
	}
}

func TestPairDetects(t *testing.T) {
	for seed := range uint64(50) {
		for _, cut := range [][2]bool{{true, true}, {true, false}, {false, true}} {
			p := newPair(t, seed, usual, settings{20 * ms, 50 * ms, 4, false, nil})
			p.delay = ms
			p.until(time.Minute, p.agreed)
			p.run(time.Duration(seed) * 7 * ms)
			limit := time.Duration(0)
			for i := range 2 {
				if cut[1-i] {
					limit = max(limit, p.m[i].detection())
				}
			}
			p.cut = cut
			down := func() bool { return p.m[0].state == Down || p.m[1].state == Down }
			if took := p.until(time.Minute, down); took > limit+2*ms {
				t.Errorf("seed %d, cut %v: found after %v, Detection Time %v", seed, cut, took, limit)
			}
			// The other end learns at once if it can hear, else by itself.
			if took := p.until(time.Minute, func() bool { return p.m[0].state != Up && p.m[1].state != Up }); took > 4*100*ms {
				t.Errorf("seed %d, cut %v: the other end found it %v later", seed, cut, took)
			}
			p.cut = [2]bool{}
			if took := p.until(time.Minute, p.both(Up)); took > 1100*ms {
				t.Errorf("seed %d, cut %v: up %v after the repair", seed, cut, took)
			}
		}
	}
}

// TestPairChangesIntervals changes intervals at random times on a bad wire:
// the session never goes down, and both ends agree in the end.
func TestPairChangesIntervals(t *testing.T) {
	choice := []time.Duration{10 * ms, 30 * ms, 100 * ms, 300 * ms, time.Second}
	for seed := range uint64(100) {
		p := newPair(t, seed, usual, usual)
		p.delay = ms
		p.until(time.Minute, p.agreed)
		p.states = [2][]State{}
		for range 20 {
			i := p.rng.IntN(2)
			set := p.m[i].set
			set.transmit, set.receive = choice[p.rng.IntN(len(choice))], choice[p.rng.IntN(len(choice))]
			p.m[i].change(p.now, set)
			p.run(time.Duration(p.rng.IntN(1500)) * ms)
		}
		if took := p.until(time.Minute, p.agreed); took > 15*time.Second {
			t.Errorf("seed %d: agreed after %v", seed, took)
		}
		for i := range 2 {
			if len(p.states[i]) != 1 {
				t.Errorf("seed %d: states %v", seed, p.states[i])
			}
		}
	}
}

// TestPairOnABadWire: with loss and packets that overtake each other there is no
// false alarm as long as fewer than the multiplier are lost in a row, and after
// any wire both ends are up again.
func TestPairOnABadWire(t *testing.T) {
	auth := &Auth{Type: KeyedSHA1, KeyID: 1, Key: []byte("k")}
	for seed := range uint64(60) {
		set := settings{50 * ms, 50 * ms, 20, false, auth}
		p := newPair(t, seed, set, set)
		p.loss, p.delay = 0.2, 20*ms
		p.until(time.Minute, p.agreed)
		p.states = [2][]State{}
		p.run(time.Minute) // 0.2^19 in a row: never
		for i := range 2 {
			if len(p.states[i]) != 1 || p.m[i].state != Up {
				t.Errorf("seed %d: states %v", seed, p.states[i])
			}
		}
		p.loss = 0.9
		p.run(time.Minute)
		p.loss = 0
		if took := p.until(time.Minute, p.both(Up)); took > 5*time.Second {
			t.Errorf("seed %d: up %v after the wire was good again", seed, took)
		}
	}
}

// TestPairRestarts: an end that begins anew, with other numbers, is taken back,
// with authentication too.
func TestPairRestarts(t *testing.T) {
	for _, auth := range []*Auth{nil, {Type: KeyedSHA1, Key: []byte("k")}, {Type: MeticulousKeyedSHA1, Key: []byte("k")}} {
		set := usual
		set.auth = auth
		p := newPair(t, 1, set, set)
		p.delay = ms
		p.until(time.Minute, p.agreed)
		p.m[1] = newMachine(p.now, set, 99, p.rng.Uint32(), p.rng.Float64)
		p.until(time.Minute, func() bool { return p.m[0].state == Down })
		if took := p.until(time.Minute, p.both(Up)); took > 3*time.Second {
			t.Errorf("%v: up %v after the restart", auth, took)
		}
	}
}

// TestPairDisables: the peer of an end that is taken down learns it within a
// delay and does not blame the path.
func TestPairDisables(t *testing.T) {
	for seed := range uint64(20) {
		p := newPair(t, seed, usual, usual)
		p.delay = ms
		p.until(time.Minute, p.agreed)
		p.m[0].disable(p.now)
		if took := p.until(time.Minute, func() bool { return p.m[1].state == Down }); took > 2*ms {
			t.Errorf("learnt after %v", took)
		}
		if m := p.m[1]; m.remote.State != AdminDown || m.diag != DiagNeighborDown {
			t.Errorf("remote %v, %v", m.remote.State, m.diag)
		}
		if took := p.until(time.Minute, p.m[0].finished); took > 5*ms {
			t.Errorf("finished after %v", took)
		}
	}
}
