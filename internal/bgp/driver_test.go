package bgp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/bgp/bfd"
	"lbd.dev/lbd/internal/model"
)

func TestStartsWithTheFirstPeer(t *testing.T) {
	b := newBed(t, "")
	b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a")}
	b.apply("")
	b.want.BGP.Peers = []model.BGPPeer{peer("a", "10.0.0.1")}
	b.want.BGP.Ready = false
	b.apply("")
	b.want.BGP.Ready = true
	b.apply("start, set 203.0.113.1, add a") // paths before peers
	b.apply("")
	if b.speaker.global.ASN != 64512 || len(b.speaker.global.Listen) != 0 {
		t.Errorf("global %+v", b.speaker.global)
	}
}

func TestStartFailsAndIsTriedAgain(t *testing.T) {
	b := newBed(t, "", peer("a", "10.0.0.1", func(p *model.BGPPeer) { p.Passive = true }))
	b.speaker.startErr = errRefused
	got, err := b.Apply(t.Context(), &b.want)
	if err == nil || got.Err != "refused" || len(got.Peers) != 1 || got.Peers[0].State != "Idle" {
		t.Errorf("%+v, %v", got, err)
	}
	b.took("start")
	b.speaker.startErr = nil
	b.apply("start, add a")
	want := []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	if !slices.Equal(b.speaker.global.Listen, want) {
		t.Errorf("a passive peer needs a listener: %+v", b.speaker.global)
	}
}

// TestPassivePeerAfterTheStart: only a restart opens a listener.
func TestPassivePeerAfterTheStart(t *testing.T) {
	passive := func(p *model.BGPPeer) { p.Passive = true }
	b := newBed(t, "", peer("a", "10.0.0.1"))
	b.apply("start, add a")
	b.want.BGP.Peers = append(b.want.BGP.Peers, peer("b", "10.0.0.2", passive))
	got := b.apply("add b").Peers
	if got[0].LastError != "" || !strings.Contains(got[1].LastError, "restart lbd") {
		t.Errorf("%q, %q", got[0].LastError, got[1].LastError)
	}
	b.want.BGP.Peers[1].Passive = false
	if got := b.apply(`remove b "", add b`).Peers[1].LastError; got != "" {
		t.Errorf("not passive any more: %q", got)
	}

	// With a listener there is nothing to tell.
	b = newBed(t, "", peer("a", "10.0.0.1"))
	b.want.BGP.Listen = []netip.Addr{netip.IPv4Unspecified()}
	b.apply("start, add a")
	b.want.BGP.Peers = append(b.want.BGP.Peers, peer("b", "10.0.0.2", passive))
	if got := b.apply("add b").Peers[1].LastError; got != "" {
		t.Errorf("with a listener: %q", got)
	}
}

func TestOnlyWhatChangedIsTouched(t *testing.T) {
	b := newBed(t, "", peer("a", "10.0.0.1"), peer("b", "10.0.0.2"))
	b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a", "b"), path("203.0.113.2", "a")}
	b.apply("start, set 203.0.113.1, set 203.0.113.2, add a, add b")
	for range 3 {
		b.apply("")
	}
	b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a", "b"), path("203.0.113.3", "b")}
	b.apply("set 203.0.113.3, delete 203.0.113.2") // add before delete

	change := func(f func(*model.BGPPath)) {
		t.Helper()
		b.want.BGP.Paths = slices.Clone(b.want.BGP.Paths)
		p := &b.want.BGP.Paths[0]
		p.To = slices.Clone(p.To) // a list is never changed
		f(p)
		b.apply("set 203.0.113.1")
		b.apply("")
	}
	change(func(p *model.BGPPath) { p.To[0].Shutdown = true })
	change(func(p *model.BGPPath) { p.To[0].LocalPref = 200 })
	change(func(p *model.BGPPath) { p.To[0].MEDSet = true })
	change(func(p *model.BGPPath) { p.To[0].MED = 7 })
	change(func(p *model.BGPPath) { p.To[0].Prepend = 2 })
	change(func(p *model.BGPPath) { p.To[0].Peers = []string{"b"} })
	change(func(p *model.BGPPath) { p.To[0].Communities = []uint32{1} })
	change(func(p *model.BGPPath) { p.To[0].LargeCommunities = [][3]uint32{{1, 2, 3}} })
	change(func(p *model.BGPPath) { p.To = append(p.To, model.BGPAudience{Peers: []string{"a"}}) })

	alter := func(calls string, f func(*model.BGPPeer)) {
		t.Helper()
		b.want.BGP.Peers = slices.Clone(b.want.BGP.Peers)
		f(&b.want.BGP.Peers[1])
		b.apply(calls)
		b.apply("")
	}
	const anew = `remove b "", add b`
	alter(anew, func(p *model.BGPPeer) { p.Password = "x" })
	alter(anew, func(p *model.BGPPeer) { p.HoldTime = time.Minute })
	alter(anew, func(p *model.BGPPeer) { p.KeepaliveTime = time.Second })
	alter(anew, func(p *model.BGPPeer) { p.ConnectTime = time.Minute })
	alter(anew, func(p *model.BGPPeer) { p.Address = netip.MustParseAddr("10.0.0.3") })
	alter(anew, func(p *model.BGPPeer) { p.PeerASN = 1 })
	alter(anew, func(p *model.BGPPeer) { p.LocalASN = 2 })
	alter(anew, func(p *model.BGPPeer) { p.Port = 3 })
	alter(anew, func(p *model.BGPPeer) { p.Source = netip.MustParseAddr("10.0.0.9") })
	alter(anew, func(p *model.BGPPeer) { p.Multihop = true })
	alter(anew, func(p *model.BGPPeer) { p.MinTTL = 255 })
	alter(anew, func(p *model.BGPPeer) { p.Passive = true })
	alter(anew, func(p *model.BGPPeer) { p.GracefulRestart, p.RestartTime = true, 5*time.Second })
	// The session goes on; the next one has it.
	alter("restart time of b 10s", func(p *model.BGPPeer) { p.RestartTime = 10 * time.Second })
	alter("restart time of b 2s", func(p *model.BGPPeer) { p.RestartTime = 2 * time.Second })
	alter(anew, func(p *model.BGPPeer) { p.IPv6 = false })
	alter(anew, func(p *model.BGPPeer) { p.IPv4 = false })
	alter(anew, func(p *model.BGPPeer) { p.MaxPrefixes = 1 })
	alter("", func(p *model.BGPPeer) { p.ShutdownDelay = time.Second })
	alter("", func(p *model.BGPPeer) {
		p.BFD = &model.BFDProfile{Transmit: time.Second, Receive: time.Second, Multiplier: 3}
	})

	b.want.BGP.Peers = b.want.BGP.Peers[1:]
	b.apply(`remove a ""`)
}

func TestReportIsTheTruth(t *testing.T) {
	b := newBed(t, "", peer("a", "10.0.0.1"), peer("b", "10.0.0.2"))
	v4, v6 := host("203.0.113.1"), host("2001:db8::1")
	b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "b"), path("2001:db8::1", "a", "b")}
	b.want.BGP.Paths[0].To = append(b.want.BGP.Paths[0].To, model.BGPAudience{Peers: []string{"a"}, PathAttributes: model.PathAttributes{LocalPref: 7}})
	got := b.apply("start, set 203.0.113.1, set 2001:db8::1, add a, add b")
	if len(got.Paths[v4]) != 0 || got.Peers[0].State != "Active" || got.Peers[0].Paths != 0 {
		t.Errorf("nobody has it: %+v", got)
	}
	b.speaker.session("a", established)
	select {
	case <-b.Changed():
	default:
		t.Error("Changed did not fire")
	}
	only4 := established
	only4.IPv6, only4.NoIPv6, only4.Received, only4.Flaps, only4.UpdatesOut = false, "no IPv6", 7, 2, 9
	b.speaker.session("b", only4)
	got = b.apply("")
	if x := got.Paths[v4]; !slices.Equal(x, []string{"a", "b"}) {
		t.Errorf("%s is advertised to %v", v4, x)
	}
	if x := got.Paths[v6]; !slices.Equal(x, []string{"a"}) {
		t.Errorf("%s is advertised to %v", v6, x)
	}
	a, bb := got.Peers[0], got.Peers[1]
	if a.State != "Established" || a.Paths != 2 || a.HoldTime != 9*time.Second || !slices.Equal(a.Families, []string{"ipv4", "ipv6"}) {
		t.Errorf("%+v", a)
	}
	if bb.Paths != 1 || !slices.Equal(bb.Families, []string{"ipv4"}) || bb.LastError != "no IPv6" || bb.Received != 7 || bb.Flaps != 2 || bb.UpdatesOut != 9 {
		t.Errorf("%+v", bb)
	}
	b.want.BGP.Paths = b.want.BGP.Paths[:1]
	if r := b.apply("delete 2001:db8::1").Peers[1]; r.LastError != "" {
		t.Errorf("no path needs IPv6, but %q", r.LastError)
	}
	// A path that the speaker refuses is an error and not advertised; the others are.
	b.speaker.pathErr[host("203.0.113.9")] = errRefused
	b.want.BGP.Paths = append(b.want.BGP.Paths[:1:1], path("203.0.113.9", "a"))
	got, err := b.Apply(t.Context(), &b.want)
	if err == nil || got.Err != "refused" {
		t.Errorf("err %v, %q", err, got.Err)
	}
	if _, ok := got.Paths[host("203.0.113.9")]; ok {
		t.Error("a refused path is reported")
	}
	if _, ok := got.Paths[v6]; ok {
		t.Error("a withdrawn path is reported")
	}
	if len(got.Paths[v4]) != 2 {
		t.Errorf("one bad path spoils another: %+v", got.Paths)
	}
	b.speaker.took()
	// A lost session counts at once, with its reason, logged once.
	b.speaker.session("a", Session{State: Idle, LastError: "gone", Flaps: 1})
	for range 3 {
		got, _ = b.Apply(t.Context(), &b.want)
	}
	if x := got.Paths[v4]; !slices.Equal(x, []string{"b"}) || got.Peers[0].LastError != "gone" {
		t.Errorf("%v, %+v", x, got.Peers[0])
	}
	if n := strings.Count(b.logged(), "BGP session lost"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, b.logged())
	}
}

// TestOwnAddressIsRefused: nothing in the configuration need say which addresses
// the node has.
func TestOwnAddressIsRefused(t *testing.T) {
	b := newBed(t, "", peer("other", "198.51.100.1"), peer("self", "127.0.0.1"))
	for range 3 {
		got := b.apply(map[bool]string{true: "start, add other", false: ""}[!b.started])
		if p := got.Peers[1]; p.State != "Idle" || !strings.Contains(p.LastError, "127.0.0.1 is an address of this node") {
			t.Errorf("%+v", p)
		}
	}
	if n := strings.Count(b.logged(), "BGP peer refused"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, b.logged())
	}
	// It is looked at again: the address may go to where it belongs.
	b.want.BGP.Peers = []model.BGPPeer{peer("other", "198.51.100.1"), peer("self", "198.51.100.2")}
	b.want.BGP.Peers[1].Name = "self"
	b.apply(`remove self "", add self`)
}

// TestConfiguredTimers: without a session the report has the configured timers, for
// it is then that somebody compares them with those of the router.
func TestConfiguredTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "", peer("a", "198.51.100.1", profile(false)), peer("b", "198.51.100.2"))
		type timers struct{ hold, transmit, receive, detect time.Duration }
		expect := func(what string, want timers) {
			t.Helper()
			synctest.Wait() // what was told is known
			got, err := b.Apply(t.Context(), &b.want)
			if err != nil {
				t.Fatal(err)
			}
			p := got.Peers[0]
			if have := (timers{p.HoldTime, p.BFDTransmit, p.BFDReceive, p.BFDDetect}); have != want {
				t.Errorf("%s: %+v, want %+v", what, have, want)
			}
			if p := got.Peers[1]; p.HoldTime != 9*time.Second || p.BFDTransmit != 0 {
				t.Errorf("%s: without BFD: %+v", what, p)
			}
		}
		const ms = time.Millisecond
		expect("before", timers{9 * time.Second, 100 * ms, 100 * ms, 0})
		agreed := established
		agreed.HoldTime = 6 * time.Second
		b.speaker.session("a", agreed)
		b.bfd.set("198.51.100.1", bfd.Status{State: bfd.Up, RemoteState: bfd.Up, EverUp: true, Transmit: 300 * ms, Receive: 200 * ms, Detection: 600 * ms})
		expect("up, BFD not yet", timers{6 * time.Second, 100 * ms, 100 * ms, 0})
		expect("up", timers{6 * time.Second, 300 * ms, 200 * ms, 600 * ms})
		b.speaker.session("a", Session{State: Active, LastError: "gone"})
		b.bfd.set("198.51.100.1", bfd.Status{State: bfd.Down, EverUp: true, Transmit: 1000 * ms, Receive: 1000 * ms, Detection: 3000 * ms})
		expect("down", timers{9 * time.Second, 100 * ms, 100 * ms, 0})
	})
}

// TestExtend: with peers the dead man's switch is moved by Apply.
func TestExtend(t *testing.T) {
	b := newBed(t, "")
	b.apply("")
	if !b.Extend(time.Now()) {
		t.Error("not extended without peers")
	}
	b.want.BGP.Peers = []model.BGPPeer{peer("a", "10.0.0.1")}
	b.apply("start, add a")
	if b.Extend(time.Now()) {
		t.Error("extended with a peer")
	}
}
