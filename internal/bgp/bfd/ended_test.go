package bfd

import (
	"testing"
	"time"
)

// TestIntervalsOfALostPoll: when a session ends amid a Poll Sequence, its intervals are the new ones
// from then on, RFC 5880 section 6.8.3, also where they are so slow that Down has no slower ones.
func TestIntervalsOfALostPoll(t *testing.T) {
	for name, end := range map[string]func(*bench){
		"silence":                func(b *bench) { b.run(b.m.detection()) },
		"Down of the peer":       func(b *bench) { b.hear(Down) },
		"AdminDown of the peer":  func(b *bench) { b.hear(AdminDown) },
		"silence after the Poll": func(b *bench) { b.hear(Up, final); b.run(b.m.detection()) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, settings{transmit: time.Second, receive: 100 * ms, mult: 3})
			b.up()
			b.m.change(b.now, settings{transmit: 2 * time.Second, receive: 50 * ms, mult: 3})
			b.flush()
			tx50 := func(p *Packet) { p.DesiredMinTx = 50 * ms }
			if p := b.last(); !p.Poll || p.DesiredMinTx != 2*time.Second || p.RequiredMinRx != 50*ms {
				t.Fatalf("announced by %+v", p)
			}
			end(b)
			b.want(Down, b.m.diag)
			for range 3 { // as long as Down lasts, and once it is over
				if tx, rx := b.m.terms.usedTx, b.m.terms.usedRx; tx != 2*time.Second || rx != 50*ms {
					t.Fatalf("%s: used are %v and %v, want 2s and 50ms", b.m.state, tx, rx)
				}
				b.hear(Down, tx50)
			}
			b.hear(Up, tx50)
			b.want(Up, DiagNone)
			if d := b.m.detection(); d != 150*ms {
				t.Errorf("detection %v, want 150ms", d)
			}
		})
	}
}

// TestNobodyRunsOrders: an order that the thread did not come to is not done.
func TestNobodyRunsOrders(t *testing.T) {
	l, err := newLoop(func() {}, make(chan event))
	if err != nil {
		t.Fatal(err)
	}
	close(l.orders.done)
	for range cap(l.orders.ops) / 2 { // the order is taken or refused, as it happens
		if l.orders.do(func(time.Time) { t.Error("run by nobody") }) {
			t.Error("told that it was done")
		}
	}
}
