package bfd

import (
	"testing"
	"time"
)

// TestRules has a row for each rule of RFC 5880 section 6.8 that is about one
// end only.
func TestRules(t *testing.T) {
	demand := func(p *Packet) { p.Demand = true }
	rx := func(d time.Duration) func(*Packet) { return func(p *Packet) { p.RequiredMinRx = d } }
	tx := func(d time.Duration) func(*Packet) { return func(p *Packet) { p.DesiredMinTx = d } }
	rows := map[string]func(b *bench){
		"6.8.1 initial values": func(b *bench) {
			p := b.last()
			if p.State != Down || p.MyDiscr != own || p.YourDiscr != 0 || p.Diag != 0 || b.m.remote.RequiredMinRx != time.Microsecond {
				b.Errorf("first packet %+v", p)
			}
		},
		"6.8.1 RemoteDiscr is forgotten after a Detection Time": func(b *bench) {
			b.hear(Down, tx(time.Second))
			if b.last().YourDiscr != other {
				b.Error("not learnt")
			}
			b.run(3*time.Second - ms)
			if b.m.remote.MyDiscr != other {
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
			if b.m.remote.MyDiscr != 0 {
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
			if b.m.terms.poll != pollIdle || len(b.sent) != 0 {
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
			st := Status{EverUp: b.m.everUp, State: b.m.state, RemoteState: b.m.remote.State}
			if st.PathFailed() {
				b.Error("the path is blamed")
			}
			b.run(10 * time.Second) // and then it is silent
			st.RemoteState = b.m.remote.State
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
