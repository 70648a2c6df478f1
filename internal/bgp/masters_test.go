package bgp

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/bgp/bfd"
	"lbd.dev/lbd/internal/model"
)

// listener is one whose masters have BFD.
func listener() model.BGPListener {
	return model.BGPListener{
		Name: "masters", LocalASN: 64512, PeerPrefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, HoldTime: 9 * time.Second,
		BFD: &model.BFDProfile{Transmit: 100 * time.Millisecond, Receive: 100 * time.Millisecond, Multiplier: 3},
	}
}

func connectedMaster(addr string, state State) Master {
	return Master{Listener: "masters", Address: netip.MustParseAddr(addr), ASN: 64513, State: state, Local: netip.MustParseAddr("10.0.0.9"), HoldTime: 9 * time.Second, Received: 2}
}

func TestMasters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		b.want.BGP.Listeners = []model.BGPListener{listener()}
		if got := b.apply("start, listen [masters]"); len(got.Masters)+len(got.Learned) != 0 {
			t.Errorf("%+v", got)
		}
		if g := b.speaker.global; g.ASN != 64512 || len(g.Listen) != 2 {
			t.Errorf("%+v", g)
		}
		<-settled(b)
		b.speaker.learned = []model.LearnedPath{
			{Listener: "masters", Peer: netip.MustParseAddr("10.0.0.2"), Prefix: host("10.9.0.1")},
			{Listener: "masters", Peer: netip.MustParseAddr("10.0.0.1"), Prefix: host("10.9.0.1")},
		}
		b.speaker.connected(connectedMaster("10.0.0.2", Established), connectedMaster("10.0.0.1", OpenSent),
			Master{Listener: "masters", Address: netip.MustParseAddr("10.0.0.3"), Error: "is kept out"})
		select {
		case <-b.Changed():
		default:
			t.Error("Changed did not fire")
		}
		got := b.apply("listen [masters]")
		if len(got.Learned) != 2 || got.Learned[0].Peer != netip.MustParseAddr("10.0.0.1") {
			t.Errorf("%+v", got.Learned)
		}
		want := model.MasterReport{Listener: "masters", Address: netip.MustParseAddr("10.0.0.2"), ASN: 64513, State: "Established", HoldTime: 9 * time.Second, Received: 2, BFD: "Down"}
		if len(got.Masters) != 3 || got.Masters[0].State != "OpenSent" || got.Masters[0].BFD != "" || got.Masters[1] != want ||
			got.Masters[2].State != "Idle" || got.Masters[2].Error != "is kept out" {
			t.Errorf("%+v", got.Masters)
		}
		if w := b.bfd.want; len(w) != 1 || w[0].Peer != want.Address || w[0].Local != netip.MustParseAddr("10.0.0.9") || w[0].Multihop || w[0].Transmit != 100*time.Millisecond {
			t.Errorf("BFD sessions %+v", w)
		}

		b.bfd.set("10.0.0.2", bfd.Status{State: bfd.Up, EverUp: true, Detection: 300 * time.Millisecond})
		synctest.Wait()
		if r := b.apply("listen [masters]").Masters[1]; r.BFD != "Up" || r.BFDDetect != 300*time.Millisecond {
			t.Errorf("%+v", r)
		}
		begin := time.Now()
		b.bfd.set("10.0.0.2", bfd.Status{State: bfd.Down, RemoteState: bfd.Up, EverUp: true, Diag: bfd.DiagTimeExpired})
		synctest.Wait()
		b.took(`end 10.0.0.2 "BFD: no packet from the peer within the detection time"`)
		if d := time.Since(begin); d != 0 {
			t.Errorf("it took %v", d)
		}
		b.apply("listen [masters]") // once
		b.speaker.connected(connectedMaster("10.0.0.1", Established))
		b.apply("listen [masters]")
		if w := b.bfd.want; len(w) != 1 || w[0].Peer != netip.MustParseAddr("10.0.0.1") {
			t.Errorf("BFD sessions %+v", w)
		}

		// One that comes back begins with a BFD session that never was up.
		b.bfd.set("10.0.0.2", bfd.Status{State: bfd.Down})
		b.speaker.connected(connectedMaster("10.0.0.1", Established), connectedMaster("10.0.0.2", Established))
		b.apply("listen [masters]")
		synctest.Wait()
		b.took("")

		b.want.BGP.Leave = true
		b.speaker.connected()
		if got := b.apply("listen []"); len(got.Learned)+len(got.Masters) != 0 {
			t.Errorf("%+v", got)
		}
		if len(b.bfd.want) != 0 {
			t.Errorf("BFD sessions %+v", b.bfd.want)
		}
		b.apply("")
	})
}

// settled takes the news that there are.
func settled(b *bed) <-chan struct{} {
	select {
	case <-b.Changed():
	default:
	}
	done := make(chan struct{})
	close(done)
	return done
}

// TestMastersWithoutBFD, and a change of the profile while they are connected.
func TestMastersWithoutBFD(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "", peer("a", "10.0.0.1", profile(false)))
		l := listener()
		l.BFD = nil
		b.want.BGP.Listeners = []model.BGPListener{l}
		b.apply("start, add a, listen [masters]")
		b.speaker.session("a", established)
		b.speaker.connected(connectedMaster("10.0.0.2", Established))
		if r := b.apply("listen [masters]").Masters; len(r) != 1 || r[0].BFD != "" || len(b.bfd.want) != 1 {
			t.Errorf("%+v, BFD sessions %+v", r, b.bfd.want)
		}
		b.want.BGP.Listeners = []model.BGPListener{listener()}
		b.apply("listen [masters]")
		if len(b.bfd.want) != 2 { // that of the peer stays
			t.Errorf("BFD sessions %+v", b.bfd.want)
		}
		b.want.BGP.Listeners = nil
		b.apply("listen []")
		if len(b.bfd.want) != 1 {
			t.Errorf("BFD sessions %+v", b.bfd.want)
		}
		b.speaker.connected()
		b.apply("listen []") // until the last one has gone
		b.apply("")
	})
}

// crowded is a listener without BFD to which as many masters as it may have are connected, in this
// state.
func crowded(t *testing.T, state State) (*bed, []Master) {
	b := newBed(t, "")
	l := listener()
	l.BFD = nil
	b.want.BGP.Listeners = []model.BGPListener{l}
	b.apply("start, listen [masters]")
	var all []Master
	addr := netip.MustParseAddr("10.0.1.0")
	for range MaxMasters {
		all = append(all, connectedMaster(addr.String(), state))
		addr = addr.Next()
	}
	b.speaker.connected(all...)
	return b, all
}

// TestTooManyMasters: those that are connected stay, whatever comes later; the session of what there
// is no room for ends.
func TestTooManyMasters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, all := crowded(t, Established)
		if got := b.apply("listen [masters]"); len(got.Masters) != MaxMasters {
			t.Errorf("%d masters", len(got.Masters))
		}
		b.speaker.connected(append([]Master{connectedMaster("10.0.0.2", Established)}, all...)...) // the lowest address
		for range 3 {                                                                              // it comes again and again
			if got := b.apply(`listen [masters], end 10.0.0.2 "no room for another master"`); len(got.Masters) != MaxMasters || got.Masters[0].Address != all[0].Address {
				t.Errorf("%d masters, the first is %s", len(got.Masters), got.Masters[0].Address)
			}
		}
		b.speaker.connected(all...) // for a moment
		b.apply("listen [masters]")
		told := func(full, again int) {
			t.Helper()
			log := b.logged()
			if strings.Count(log, "no room for another master") != full || strings.Count(log, "room for masters again") != again {
				t.Errorf("people are told\n%s", log)
			}
		}
		told(1, 0)
		b.speaker.connected(append([]Master{connectedMaster("10.0.0.2", Established)}, all[1:]...)...)
		if got := b.apply("listen [masters]"); got.Masters[0].Address != netip.MustParseAddr("10.0.0.2") {
			t.Errorf("once one has left there is room: %+v", got.Masters[0])
		}
		told(1, 0) // it is full again
		b.speaker.connected(all[1:]...)
		b.apply("listen [masters]")
		b.apply("listen [masters]")
		told(1, 1)
		b.speaker.connected(append([]Master{connectedMaster("10.0.0.2", Established)}, all...)...)
		b.apply(`listen [masters], end 10.0.1.0 "no room for another master"`)
		told(2, 1)
	})
}

// TestNoHoldTime: a master that asks for no hold time is refused, and people are told now and then.
func TestNoHoldTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		b.want.BGP.Listeners = []model.BGPListener{listener()}
		b.apply("start, listen [masters]")
		endless := connectedMaster("10.0.0.2", Established)
		endless.HoldTime = 0
		before := endless
		before.State = OpenConfirm
		b.speaker.learned = []model.LearnedPath{{Listener: "masters", Peer: endless.Address, Prefix: host("10.9.0.1")}}
		told := func(want int) {
			t.Helper()
			for range 3 {
				b.speaker.connected(before, connectedMaster("10.0.0.1", Established))
				b.apply("listen [masters]")
				b.speaker.connected(endless, connectedMaster("10.0.0.1", Established))
				if got := b.apply(`listen [masters], end 10.0.0.2 "a session needs a hold time"`); len(got.Masters) != 1 || len(got.Learned) != 0 {
					t.Errorf("%+v, %+v", got.Masters, got.Learned)
				}
			}
			if n := strings.Count(b.logged(), "without a hold time"); n != want {
				t.Errorf("told %d times, want %d", n, want)
			}
		}
		told(1)
		time.Sleep(tellEndless)
		told(1)
		time.Sleep(2 * tellEndless)
		told(2)
	})
}

// TestStrangersTakeNoRoom: who has no session keeps no master out, however many they are and however
// long they have been there.
func TestStrangersTakeNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, all := crowded(t, OpenConfirm)
		b.apply("listen [masters]")
		for i := range all { // those that were there for long, and have a session only now
			all[i].State = Established
		}
		b.speaker.connected(append([]Master{connectedMaster("10.0.0.2", OpenSent)}, append(all[1:], connectedMaster("10.0.9.1", Established))...)...)
		if got := b.apply("listen [masters]"); len(got.Masters) != MaxMasters+1 {
			t.Errorf("%d masters", len(got.Masters))
		}
		b.speaker.connected(append(all, connectedMaster("10.0.9.1", Established))...)
		b.apply(`listen [masters], end 10.0.1.0 "no room for another master"`)
	})
}
