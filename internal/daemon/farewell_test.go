package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/daemon"
	"lbd.dev/lbd/internal/model"
)

// other is a second VIP, which only BGP announces.
var other = netip.MustParseAddr("10.0.0.201")

// speakTwo has both VIPs advertised by BGP, of which m2 serves the first one, and
// begins to drain with a connection that never ends.
func (b *bed) speakTwo() {
	b.t.Helper()
	b.config.Set(func(v *model.View) {
		v.VIPs = []model.VIP{
			{Addr: vip, Name: "cp", Kind: "VirtualIP", BGP: []model.BGPAdvert{{}}, Check: "api"},
			{Addr: other, Name: "web", Kind: "VirtualIP", BGP: []model.BGPAdvert{{}}, Check: "api"},
		}
		v.Peers = []model.BGPPeer{{
			Name: "tor1", LocalASN: 1, PeerASN: 2, IPv4: true, ShutdownDelay: 1500 * time.Millisecond, Address: netip.MustParseAddr("10.0.0.254"),
		}}
		v.DrainTimeout = time.Hour
	})
	pass(2 * time.Second)
	if got := len(b.router.wants().Paths); got != 2 {
		b.t.Fatalf("%d paths\n%s", got, b.log())
	}
	b.host.SetConnections(vip, 1)
}

// What is advertised without a successor keeps its address and its path until the
// lifetime ends, and does not prolong a stop that is late already.
func TestStopDeadlineKeepsWhatNobodyElseHas(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.speakTwo()
		at := time.Now()
		b.stop()
		<-b.ended
		if took := time.Since(at); took < 12*time.Second || took > 12100*time.Millisecond {
			t.Errorf("took %s, want 12 s", took)
		}
		// The other one is left for its connections, and a daemon that is back soon.
		if got := b.host.Loopback(); !slices.Equal(got, []netip.Addr{vip, other}) {
			t.Errorf("on lo %v, want both", got)
		}
		if p := b.router.wants().Paths; len(p) != 1 || p[0].Prefix.Addr() != other {
			t.Errorf("paths %+v, want that of %v", p, other)
		}
	})
}

// A router that keeps paths must not keep that of an address that goes: here a
// successor has come so late that the path was still there at the deadline.
func TestStopLeavesNoPathWithoutItsAddress(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.speakTwo()
		b.stop()
		pass(11800 * time.Millisecond)
		b.gossip.Set(func(v *model.View) {
			group(b.begin, model.Claim{})(v)
			v.Gossip.Eligible[other] = []model.NodeName{"m2"}
		})
		pass(100 * time.Millisecond)
		if p := b.router.wants().Paths; len(p) != 1 || !p[0].To[0].Shutdown {
			t.Fatalf("paths %+v, want one that routers are asked to leave", p)
		}
		<-b.ended
		if got := b.host.Loopback(); slices.Contains(got, other) {
			t.Errorf("%v left behind on lo", got)
		}
		if r := b.router.wants(); len(r.Paths) != 0 || !r.Leave {
			t.Errorf("the router was left with %+v", r)
		}
	})
}

// A node that asks the wire for what it has on lo is silent about it, also when it
// is stopped at that moment.
func TestStopWhileAskingStaysSilent(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.gossip.Set(group(b.begin, model.Claim{Owner: "m2", Epoch: 7}))
		b.config.Set(func(v *model.View) {
			v.VIPs = []model.VIP{{Addr: vip, Name: "cp", Kind: "VirtualIP", L2: true, BGP: []model.BGPAdvert{{}}, Check: "api"}}
			v.Peers = []model.BGPPeer{{Name: "tor1", LocalASN: 1, PeerASN: 2, IPv4: true, Address: netip.MustParseAddr("10.0.0.254")}}
			v.DrainTimeout = 2 * time.Second
		})
		pass(2 * time.Second)
		b.gossip.Set(func(v *model.View) {
			group(b.begin, model.Claim{Owner: "m2", Epoch: 7})(v)
			m := v.Gossip.Members["m2"]
			m.State = model.MemberDead
			v.Gossip.Members["m2"] = m
		})
		asking := func() bool { l2 := b.sink.newest().L2; return len(l2) == 1 && l2[0].Quiet }
		for range 5000 {
			if pass(time.Millisecond); asking() {
				break
			}
		}
		if !asking() || len(b.host.Loopback()) != 1 {
			t.Fatalf("on lo %v, told %+v", b.host.Loopback(), b.sink.newest().L2)
		}
		b.hamper(100 * time.Millisecond)
		b.stop()
		for !b.hasEnded() {
			if h := b.net.Holders(vip); len(h) != 0 {
				t.Fatalf("%v answers", h)
			}
			pass(time.Millisecond)
		}
	})
}

// A packet is relayed to where its owner was, at once after that has moved, and
// still after the farewell if the address stays: the next process goes on with it.
func TestRelayFollowsAndEnds(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		var others []netip.Prefix // of the other node, which answers on the wire
		for i := range 6 {
			others = append(others, netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", 2+i)))
		}
		b.net.Host("m2").Attach("eth0", "lan", others...)
		at := func(addr string, eligible bool) {
			b.gossip.Set(func(v *model.View) {
				group(b.begin, model.Claim{Owner: "m2", Epoch: 7, To: "m1"})(v)
				m := v.Gossip.Members["m2"]
				m.Addrs = []netip.Addr{netip.MustParseAddr(addr)}
				v.Gossip.Members["m2"] = m
				if !eligible {
					v.Gossip.Eligible = nil
				}
			})
		}
		relayedTo := func(want string) {
			t.Helper()
			if r := b.sink.newest().Relay; len(r) != 1 || r[0].Ring.Next != netip.MustParseAddr(want) {
				t.Fatalf("relayed %+v, want to %s", r, want)
			}
		}
		at("10.0.0.2", false)
		pass(100 * time.Millisecond)
		relayedTo("10.0.0.2")
		for i := range 5 { // one of them is far from a turn without a cause
			to := fmt.Sprintf("10.0.0.%d", 3+i)
			at(to, false)
			pass(time.Millisecond)
			relayedTo(to)
		}
		b.stop()
		pass(10 * time.Millisecond)
		relayedTo("10.0.0.7")
		<-b.ended
		if bye := b.sink.newest(); len(bye.Relay) != len(bye.Bind) || len(bye.Bind) != 1 || !bye.Group.Leave {
			t.Errorf("in the farewell: relayed %+v, leaving %v", bye.Relay, bye.Group.Leave)
		}
	})
}

func TestStopBGPWithoutSuccessor(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.speak(false)
		b.gossip.Set(alone)
		pass(time.Second)
		at := time.Now()
		b.stop()
		<-b.ended
		if took := time.Since(at); took < 300*time.Millisecond || took > 400*time.Millisecond {
			t.Errorf("looked for a successor for %s", took)
		}
		b.wantTold("nothing unbound", "tor1", "tor1 leave")
		if len(b.host.Loopback()) != 1 || !strings.Contains(b.log(), "no successor") {
			t.Errorf("on lo %v\n%s", b.host.Loopback(), b.log())
		}
	})
}

// A successor that comes while the daemon looks for one, but does not take the
// VIP, costs one more look, and meanwhile the loop rests.
func TestStopLooksAgainForASuccessor(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.gossip.Set(alone)
		b.own()
		b.stop()
		pass(100 * time.Millisecond)
		b.gossip.Set(group(b.begin, model.Claim{}))
		pass(100 * time.Millisecond)
		if g := b.sink.last(); g.VIPs[0].Claim.To != "m2" {
			t.Fatalf("the group is told %+v", g)
		}
		turns := b.turns()
		pass(400 * time.Millisecond)
		if n := b.turns() - turns; n > 20 {
			t.Errorf("the loop turned %d times in 400 ms", n)
		}
		b.gossip.Set(alone)
		at := time.Now()
		<-b.ended
		if took := time.Since(at); took < 300*time.Millisecond || took > 400*time.Millisecond {
			t.Errorf("looked again for %s", took)
		}
		if len(b.net.Holders(vip)) != 1 {
			t.Error("took the VIP down although nobody else has it")
		}
	})
}

// The group is told goodbye with what still tells others who this node is, under a
// generation of its own.
func TestFarewellToTheGroup(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.config.Set(func(v *model.View) {
			v.VIPs = []model.VIP{{Addr: vip, Name: "cp", Kind: "VirtualIP", L2: true, Check: "api"}}
			v.Weight = 7
		})
		b.gossip.Set(group(b.begin, model.Claim{Owner: "m2", Epoch: 7}))
		pass(2 * time.Second)
		b.stop()
		<-b.ended
		told := b.sink.all()
		bye := told[len(told)-1]
		before := told[slices.IndexFunc(told, func(d *model.Desired) bool { return d.Group.Leave })-1]
		want := model.GroupState{Leave: true, Draining: true, Weight: 7, MACs: []model.MAC{b.host.MAC("eth0")}}
		if !reflect.DeepEqual(bye.Group, want) {
			t.Errorf("told %+v\nwant %+v", bye.Group, want)
		}
		if bye.Gen <= before.Gen {
			t.Errorf("generation %d after %d", bye.Gen, before.Gen)
		}
	})
}

// A driver that takes its time is waited for, but not for long. What it says of the
// decision before does not count.
func TestFarewellWaitsForDrivers(t *testing.T) {
	for slow, want := range map[time.Duration]time.Duration{time.Second: time.Second, 4 * time.Second: 2 * time.Second} {
		var all []closed
		run(t, func(t *testing.T, b *bed) {
			b.gossip.Set(group(b.begin, model.Claim{Owner: "m2", Epoch: 7}))
			pass(2 * time.Second)
			b.hamper(slow)
			at := time.Now()
			b.stop()
			<-b.ended
			if took := all[0].at.Sub(at); took < want || took > want+50*time.Millisecond {
				t.Errorf("waited %s for a driver that takes %s, want %s", took, slow, want)
			}
		}, watchClose(&all), func(o *daemon.Options) {
			beat := o.Beat
			o.Beat = func() {
				time.Sleep(time.Millisecond) // drivers finish the decision before the farewell comes
				beat()
			}
		})
	}
}

// Drivers are closed one after the other, that of gossip last, and what goes wrong
// there is told.
func TestDriversCloseInReverse(t *testing.T) {
	var all []closed
	run(t, func(t *testing.T, b *bed) {
		cannot := errors.New("cannot close")
		b.sink.mu.Lock()
		b.sink.err = cannot
		b.sink.mu.Unlock()
		pass(time.Second)
		b.stop()
		<-b.ended
		var order []model.SinkName
		for _, c := range all {
			order = append(order, c.name)
		}
		if want := []model.SinkName{model.SinkLayer2, model.SinkAddress, model.SinkBGP, "all"}; !slices.Equal(order, want) {
			t.Errorf("closed %v, want %v", order, want)
		}
		if !errors.Is(b.err, cannot) {
			t.Errorf("error %v", b.err)
		}
	}, watchClose(&all))
}

// closed is when a driver was closed.
type closed struct {
	name model.SinkName
	at   time.Time
}

// closing notes when its driver is closed.
type closing struct {
	announce.Driver
	all *[]closed
}

func (c *closing) Close(ctx context.Context) error {
	*c.all = append(*c.all, closed{c.Name(), time.Now()})
	return c.Driver.Close(ctx)
}

func watchClose(all *[]closed) func(*daemon.Options) {
	return func(o *daemon.Options) {
		for i, d := range o.Drivers {
			o.Drivers[i] = &closing{d, all}
		}
	}
}

// A node that stops without a successor leaves the address to its lifetime, and
// asks nobody to announce it any longer.
func TestFarewellAnnouncesNothing(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		pass(2 * time.Second)
		if l2 := b.sink.newest().L2; len(l2) != 1 || l2[0].Mode != model.L2Announce {
			t.Fatalf("before the stop: %+v", l2)
		}
		b.stop()
		<-b.ended
		last := b.sink.newest()
		if !last.Group.Leave {
			t.Fatalf("the last decision is no farewell: %+v", last)
		}
		for _, a := range last.L2 {
			if a.Mode != model.L2Silent {
				t.Errorf("after the stop: %+v", a)
			}
		}
	})
}

// What is not bound is served by the node without the daemon, so a path that nobody
// else has stays with routers that keep it; nobody answers for it on the LAN any more.
func TestStopLeavesThePathOfWhatIsNotBound(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.config.Set(func(v *model.View) {
			v.VIPs = []model.VIP{
				{Addr: vip, Name: "cp", Kind: "Service", L2: true, Unbound: true},
				{Addr: other, Name: "web", Kind: "Service", BGP: []model.BGPAdvert{{}}, Unbound: true},
			}
			v.Peers = []model.BGPPeer{{
				Name: "tor1", LocalASN: 1, PeerASN: 2, IPv4: true, GracefulRestart: true, Address: netip.MustParseAddr("10.0.0.254"),
			}}
		})
		pass(2 * time.Second)
		if h := b.host.Answers(vip); !h {
			t.Fatalf("nobody answers\n%s", b.log())
		}
		if p := b.router.wants().Paths; len(p) != 1 || p[0].Prefix.Addr() != other {
			t.Fatalf("paths %+v", p)
		}
		b.stop()
		<-b.ended
		if p := b.router.wants(); len(p.Paths) != 1 || p.Paths[0].Prefix.Addr() != other || !p.Leave {
			t.Errorf("told the router %+v", p)
		}
		if b.host.Answers(vip) {
			t.Error("still answers")
		}
		if got := append(b.host.Loopback(), b.host.Addresses()...); len(got) != 0 {
			t.Errorf("bound %v", got)
		}
	})
}
