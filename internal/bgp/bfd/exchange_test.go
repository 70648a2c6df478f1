package bfd

import (
	"testing"
	"time"
)

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
		if r.want != accepted && (b.m.state != Down || b.m.remote.MyDiscr != 0 || b.m.seq.known || !b.m.lastRx.IsZero()) {
			t.Errorf("%s: dropped, and still it changed something", r.rule)
		}
	}
}
