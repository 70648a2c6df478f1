package gossip

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/gossip/memnet"
	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

func TestHeartbeatLateAndResumed(t *testing.T) {
	for _, c := range []struct {
		detection Detection
		late      time.Duration
	}{{DetectionLAN, 160 * time.Millisecond}, {DetectionFast, 64 * time.Millisecond}, {DetectionWAN, 640 * time.Millisecond}} {
		bubble(t, func(l *lab) {
			set := func(o *Options) { o.Detection = c.detection }
			a, b := l.start(1, set), l.start(2, set)
			l.joined(5 * time.Second)
			lease := time.Now().Add(3 * time.Second)
			a.apply(func(gs *model.GroupState) { gs.LeaseEnd = lease })
			a.claim(vip1, 1, "m2")
			time.Sleep(2 * time.Second)
			last := b.heard("m1")
			if last.Received < 9 || last.Missed != 0 || !b.other("m1").Late.IsZero() {
				t.Fatalf("%s: %+v", c.detection, last)
			}
			l.net.Block(addr(1), addr(2), memnet.All)
			before := b.publications()
			last = b.heard("m1")
			l.within(time.Second, "late", func() bool { return !b.other("m1").Late.IsZero() })
			m := b.other("m1")
			if got := m.Late.Sub(last.LastHeartbeat); got != c.late {
				t.Errorf("%s: late %v after the last heartbeat, want %v", c.detection, got, c.late)
			}
			if d := m.LeaseEnd.Sub(lease).Abs(); d > time.Millisecond {
				t.Errorf("%s: lease end differs by %v", c.detection, d)
			}
			time.Sleep(300 * time.Millisecond)
			if n := b.publications() - before; n != 1 {
				t.Errorf("%s: late was published %d times", c.detection, n)
			}
			l.net.Heal()
			l.within(2*a.profile.beat, "resumed", func() bool { return b.other("m1").Late.IsZero() })
			if s := b.heard("m1"); s.Missed == 0 || s.Late != 1 {
				t.Errorf("%s: %+v", c.detection, s)
			}
		})
	}
}

// TestMissedHeartbeatsAreTold: the first successor of an owner hears of the first and of the second
// heartbeat that it misses, and that one has come again.
func TestMissedHeartbeatsAreTold(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		a.claim(vip1, 1, "m2")
		b.apply(func(gs *model.GroupState) { gs.Owners, gs.First = []model.NodeName{"m1"}, []model.NodeName{"m1"} })
		time.Sleep(2 * time.Second)
		for n := range uint64(3) {
			before := b.publications()
			l.net.Block(addr(1), addr(2), memnet.All)
			last := b.heard("m1").LastHeartbeat
			l.within(time.Second, "suspect", func() bool { return !b.other("m1").Suspect.IsZero() })
			m := b.other("m1")
			if got := m.Suspect.Sub(last); got != 60*time.Millisecond || m.Missing {
				t.Errorf("suspect %v after the last heartbeat, missing is %v", got, m.Missing)
			}
			l.within(time.Second, "a second one is missed", func() bool { return b.other("m1").Missing })
			if got := time.Since(last); got.Round(time.Millisecond) != 110*time.Millisecond || !b.other("m1").Suspect.Equal(m.Suspect) {
				t.Errorf("a second one is missed %v after the last heartbeat, suspect since %v", got, b.other("m1").Suspect)
			}
			l.net.Heal()
			l.within(60*time.Millisecond, "not suspect", func() bool { return b.other("m1").Suspect.IsZero() })
			if m := b.other("m1"); m.Missing || !m.Late.IsZero() || !m.Back.IsZero() {
				t.Errorf("%+v", m)
			}
			if s := b.heard("m1"); s.Suspicions != n+1 || s.Late != 0 {
				t.Errorf("%+v", s)
			}
			if n := b.publications() - before; n != 3 {
				t.Errorf("published %d times", n)
			}
			time.Sleep(3 * time.Second)
		}
	})
}

// heard is what the node counts for another one.
func (m *member) heard(name model.NodeName) PeerStats {
	for _, p := range m.Stats().Peers {
		if p.Name == name {
			return p
		}
	}
	return PeerStats{}
}

func TestHeartbeatCostsNoDecision(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		a.claim(vip1, 1, "m2")
		time.Sleep(time.Second)
		before := b.publications()
		time.Sleep(20 * time.Second)
		if n := b.heard("m1").Received; n < 400 {
			t.Fatalf("%d heartbeats", n)
		}
		if n := b.publications() - before; n != 0 {
			t.Errorf("%d publications besides full exchanges", n)
		}
	})
}

func TestHeartbeatsEnd(t *testing.T) {
	for _, lost := range []bool{false, true} {
		bubble(t, func(l *lab) {
			a, b := l.start(1), l.start(2)
			l.joined(5 * time.Second)
			a.claim(vip1, 1, "m2")
			time.Sleep(time.Second)
			if lost { // the final messages are; the receiver asks
				l.net.SetLoss(func(from, _ netip.AddrPort, _ int) bool { return from.Addr() == addr(1) })
			}
			a.claim(vip1, 1)
			time.Sleep(200 * time.Millisecond)
			if late := !b.other("m1").Late.IsZero(); late != lost {
				t.Errorf("lost %v: late is %v", lost, late)
			}
			l.net.SetLoss(nil)
			l.within(3*time.Second, "not late", func() bool { return b.other("m1").Late.IsZero() })
			sent := b.heard("m1").Received
			time.Sleep(5 * time.Second)
			if !b.other("m1").Late.IsZero() || b.heard("m1").Received > sent {
				t.Errorf("lost %v: late, or still heartbeats", lost)
			}
			// And they begin again.
			a.claim(vip1, 1, "m2")
			time.Sleep(time.Second)
			if b.heard("m1").Received < sent+15 {
				t.Errorf("lost %v: no heartbeats again", lost)
			}
		})
	}
}

func TestHeartbeatsNeedAFreshDecision(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		a.claim(vip1, 1, "m2")
		want := &model.Desired{Gen: 9, ValidUntil: time.Now().Add(time.Second), Group: a.want}
		if _, err := a.driver.Apply(context.Background(), want); err != nil {
			t.Fatal(err)
		}
		time.Sleep(900 * time.Millisecond)
		if !b.other("m1").Late.IsZero() {
			t.Error("late while the decision is valid")
		}
		time.Sleep(400 * time.Millisecond)
		if b.other("m1").Late.IsZero() {
			t.Error("heartbeats go on although the decision is too old")
		}
		a.apply(func(*model.GroupState) {})
		l.within(60*time.Millisecond, "resumed", func() bool { return b.other("m1").Late.IsZero() })
	})
}

// TestHeartbeatsExtended: a decision that still holds keeps them going; one that
// ended is not brought back.
func TestHeartbeatsExtended(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		a.claim(vip1, 1, "m2")
		want := &model.Desired{Gen: 9, ValidUntil: time.Now().Add(time.Second), Group: a.want}
		if _, err := a.driver.Apply(context.Background(), want); err != nil {
			t.Fatal(err)
		}
		extend := a.driver.(announce.Extender).Extend
		for range 10 {
			time.Sleep(500 * time.Millisecond)
			synctest.Wait() // while it plans it is not extended
			if !extend(time.Now().Add(time.Second)) {
				t.Fatal("not extended")
			}
		}
		time.Sleep(900 * time.Millisecond)
		if s := b.heard("m1"); s.Missed != 0 || !b.other("m1").Late.IsZero() {
			t.Errorf("while extended: %+v", s)
		}
		time.Sleep(400 * time.Millisecond)
		if b.other("m1").Late.IsZero() {
			t.Error("heartbeats go on although the decision is too old")
		}
		if extend(time.Now().Add(time.Second)) {
			t.Error("extended after it had ended")
		}
	})
}

func TestHeartbeatsCarryManyClaims(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		var vips []netip.Addr
		a.apply(func(gs *model.GroupState) {
			gs.VIPs = nil
			for i := range 60 {
				vip := netip.AddrFrom16([16]byte{0xfd, 15: byte(i + 1)})
				vips = append(vips, vip)
				gs.VIPs = append(gs.VIPs, model.GroupVIP{Addr: vip, Standing: model.ReasonOwner, Claim: model.Claim{Owner: "m1", Epoch: 3}})
			}
			gs.Heartbeats = []model.HeartbeatTarget{{Node: "m2", VIPs: vips}}
		})
		l.within(5*time.Second, "all claims", func() bool { return len(claims(b)) == 60 })
		messages := len(record.Beats(a.own.Format(), a.own.Claims(vips), a.profile.beat))
		if messages < 2 {
			t.Errorf("%d messages", messages)
		}
		// What b forgets, the heartbeats bring back within one round.
		b.forget()
		l.within(time.Millisecond, "forgotten", func() bool { return len(claims(b)) < 60 })
		l.within(time.Duration(messages+1)*50*time.Millisecond, "all claims", func() bool { return len(claims(b)) == 60 })
	})
}

// claims are those that the node knows.
func claims(m *member) map[netip.Addr][]model.Claim {
	return see(m, func(g *model.Gossip) map[netip.Addr][]model.Claim { return maps.Clone(g.Claims) })
}

// forget has the node know nothing any more but who is a member, as after hours.
func (m *member) forget() {
	m.Gossip.mu.Lock()
	defer m.Gossip.mu.Unlock()
	now := time.Now()
	members := map[model.NodeName]netip.AddrPort{}
	for n := range m.table.Nodes() {
		if n.Present {
			members[n.Name] = n.Addr
		}
		m.table.Member(n.Name, n.Addr, false, now)
	}
	m.table.Sweep(now.Add(2*time.Hour), func(netip.Addr) bool { return false })
	for name, addr := range members {
		m.table.Member(name, addr, true, now)
	}
	wake.Up(m.wake)
}

// TestStallIsNotLate has the timer of b fire long after it was due, as after
// SIGSTOP; the heartbeats are in the socket.
func TestStallIsNotLate(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		a.claim(vip1, 1, "m2")
		time.Sleep(time.Second)
		b.Gossip.mu.Lock()
		now := b.watches.Counts("m1").Last.Add(3 * time.Second)
		late, next := b.watches.Deadlines(now)
		lateThen, _ := b.watches.Deadlines(next.Add(time.Second)) // a second stall: no more patience
		b.Gossip.mu.Unlock()
		if again := next.Sub(now); len(late) != 0 || again != 50*time.Millisecond {
			t.Errorf("after a stall: late %v, next look after %v", late, again)
		}
		if len(lateThen) != 1 {
			t.Error("never late")
		}
		if b.Stats().Stalls != 1 {
			t.Errorf("stalls = %d", b.Stats().Stalls)
		}
	})
}

// TestLowerClaimIsAnswered is a claim below that of a third node, which the
// claimant does not know.
func TestLowerClaimIsAnswered(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b, c := l.start(1), l.start(2), l.start(3)
		l.joined(5 * time.Second)
		// a and c cannot talk to each other, b hears both.
		l.net.Block(addr(1), addr(3), memnet.All)
		l.net.Block(addr(3), addr(1), memnet.All)
		c.claim(vip1, 8)
		l.within(time.Second, "b knows", func() bool { return len(b.claims(vip1)) == 1 })
		time.Sleep(time.Second) // b has passed it on
		a.forget()
		l.within(time.Millisecond, "forgotten", func() bool { return len(a.claims(vip1)) == 0 })
		a.claim(vip1, 5, "m2")
		took := l.within(time.Second, "a learns of the claim of m3", func() bool { return len(a.claims(vip1)) == 1 })
		if took > 50*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

func TestLogWriterIsBoundedAndQuiet(t *testing.T) {
	bubble(t, func(*lab) {
		var out bytes.Buffer
		w := &logWriter{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		for range 1000 {
			_, _ = w.Write([]byte("[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=10.0.0.9:7947\n"))
		}
		if n := strings.Count(out.String(), "level=DEBUG"); n != linesPerSecond {
			t.Errorf("%d lines in a second", n)
		}
		if keys, _, _ := w.counts(); keys.Count != 1000 || keys.Peer != "10.0.0.9:7947" {
			t.Errorf("%+v", keys)
		}
		time.Sleep(time.Second)
		_, _ = w.Write([]byte("[INFO] memberlist: hello\n"))
		if s := out.String(); !strings.Contains(s, "count=980") || strings.Contains(s, "level=INFO") || !strings.Contains(s, `msg="memberlist: hello"`) {
			t.Error(s[max(0, len(s)-300):])
		}
	})
}

// namesake starts the third host under the name of the first.
func namesake(t *testing.T, l *lab) *member {
	t.Helper()
	tr, err := l.net.Listen(netip.AddrPortFrom(addr(3), testPort))
	if err != nil {
		t.Fatal(err)
	}
	o := l.options(3)
	o.Name, o.Transport = "m1", tr
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return run(g)
}

func TestTwoNodesWithOneName(t *testing.T) {
	bubble(t, func(l *lab) {
		a := l.start(1)
		b := l.start(2)
		l.joined(5 * time.Second)
		c := namesake(t, l)
		c.claim(vip1, 1)
		time.Sleep(20 * time.Second)
		seen := 0
		for _, m := range []*member{a, b} { // b has another name, so it is not to blame
			if c := m.Stats().NameConflicts; c.Count > 0 {
				seen++
				if c.Name != "m1" || c.Peer != "10.0.0.13:7947" || time.Since(c.At) > 30*time.Second {
					t.Errorf("%s: %+v", m.name, c)
				}
			}
		}
		if seen == 0 {
			t.Error("no conflict counted")
		}
		c.kill()
	})
}

// TestNodeWithAnotherAddressIsNoSecondHost: a node whose host got another address is
// taken for a second host of that name only until the old one is known to be gone.
func TestNodeWithAnotherAddressIsNoSecondHost(t *testing.T) {
	bubble(t, func(l *lab) {
		a := l.start(1)
		b := l.start(2)
		l.joined(5 * time.Second)
		a.kill()
		moved := namesake(t, l)
		time.Sleep(30 * time.Second)
		if c := b.Stats().NameConflicts; c.Count == 0 || !c.At.IsZero() {
			t.Errorf("%+v, want one that is over", c)
		}
		moved.kill()
	})
}

func BenchmarkReceiveHeartbeat(b *testing.B) {
	g, err := New(Options{Name: "m1", BindAddr: netip.MustParseAddr("127.0.0.1"), Insecure: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = g.close() })
	rec := record.Record{Name: "m2", Inc: 1}
	for i := range 12 {
		rec.Entries = append(rec.Entries, record.Entry{Addr: netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), V: 7, Standing: "Owner", Epoch: 9, Seen: 9})
	}
	heartbeat := record.Beats(record.Newest, rec, 50*time.Millisecond)[0]
	r := &round{loop: newLoop(g)}
	b.ReportAllocs()
	for seq := uint64(1); b.Loop(); seq++ {
		heartbeat.Seq = seq
		g.hooks.NotifyMsg(heartbeat.Append(record.Newest, nil))
		g.mu.Lock()
		r.takeBeats()
		g.mu.Unlock()
	}
}

var _ memberlist.NodeAwareTransport = (*memnet.Transport)(nil)

// TestAwaitedOwnerIsLookedForInTime: who is to take a VIP begins to miss its owner by the clock,
// though nothing more is heard.
func TestAwaitedOwnerIsLookedForInTime(t *testing.T) {
	g, _ := offline(t)
	now := time.Now()
	g.table.Member("m2", netip.AddrPortFrom(addr(2), 7947), true, now)
	woken := func() bool {
		defer func() {
			for len(g.wake) > 0 {
				<-g.wake
			}
		}()
		return len(g.wake) > 0
	}
	woken()
	g.await([]model.NodeName{"m2", "m3"}, nil, now)
	if missed := g.watches.Missed(); !woken() || !slices.Equal(missed, []model.NodeName{"m2"}) {
		t.Errorf("it is not woken, or misses %v", missed)
	}
	if g.await([]model.NodeName{"m2", "m3"}, nil, now.Add(time.Millisecond)); woken() {
		t.Error("the same decision begins anew")
	}
}

// TestOwnersFallInStep: two nodes that send to each other send at the same time,
// whenever each of them began.
func TestOwnersFallInStep(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		a.claim(vip1, 1, "m2")
		time.Sleep(80 * time.Millisecond) // 30 ms out of step
		b.claim(vip2, 1, "m1")
		time.Sleep(time.Second)
		// Nothing delays a packet, so it arrives when it is sent.
		sent := func(m *member) time.Time {
			if m == a {
				return b.heard("m1").LastHeartbeat
			}
			return a.heard("m2").LastHeartbeat
		}
		// One may have sent, at this very moment, what the other is about to send.
		apart := sent(a).Sub(sent(b)).Abs() % a.profile.beat
		if apart = min(apart, a.profile.beat-apart); apart > 5*time.Millisecond {
			t.Errorf("%v apart", apart)
		}
	})
}
