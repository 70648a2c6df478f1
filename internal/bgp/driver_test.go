package bgp

import (
	"context"
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

func profile(strict bool) func(*model.BGPPeer) {
	return func(p *model.BGPPeer) {
		p.BFD = &model.BFDProfile{Transmit: 100 * time.Millisecond, Receive: 100 * time.Millisecond, Multiplier: 3, Strict: strict,
			AuthType: "meticulous-keyed-sha1", AuthKeyID: 3, AuthKey: "secret"}
		p.Source = netip.MustParseAddr("10.0.0.11")
	}
}

func TestBFDResetsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "", peer("a", "10.0.0.1", profile(false)), peer("b", "10.0.0.2"))
		b.apply("start, add a, add b")
		if len(b.bfd.want) != 0 {
			t.Fatalf("BFD sessions before BGP: %+v", b.bfd.want)
		}
		b.speaker.session("a", established)
		b.apply("")
		if len(b.bfd.want) != 1 {
			t.Fatalf("BFD sessions %+v", b.bfd.want)
		}
		w := b.bfd.want[0]
		if w.Peer != netip.MustParseAddr("10.0.0.1") || w.Local != netip.MustParseAddr("10.0.0.11") || w.Multihop ||
			w.Auth == nil || w.Auth.Type != bfd.MeticulousKeyedSHA1 || string(w.Auth.Key) != "secret" || w.Auth.KeyID != 3 {
			t.Errorf("BFD session %+v", w)
		}
		b.bfd.set("10.0.0.1", bfd.Status{State: bfd.Down})
		synctest.Wait()
		b.took("") // it never was up
		b.bfd.set("10.0.0.1", bfd.Status{State: bfd.Up, EverUp: true, Detection: 300 * time.Millisecond})
		synctest.Wait()
		b.took("")
		if r := b.apply("").Peers[0]; r.BFD != "Up" || r.BFDDetect != 300*time.Millisecond {
			t.Errorf("%+v", r)
		}
		<-b.Changed()
		begin := time.Now()
		b.bfd.set("10.0.0.1", bfd.Status{State: bfd.Down, RemoteState: bfd.Up, EverUp: true, Diag: bfd.DiagTimeExpired})
		synctest.Wait()
		b.took(`reset a "BFD: no packet from the peer within the detection time"`)
		if d := time.Since(begin); d != 0 {
			t.Errorf("it took %v", d)
		}
		select {
		case <-b.Changed():
		default:
			t.Error("Changed did not fire")
		}
		for range 3 {
			b.apply("") // once
		}
		b.speaker.session("a", Session{State: Active})
		b.apply("")
		if len(b.bfd.want) != 1 {
			t.Error("BFD ends with the BGP session")
		}
		// The peer took BFD down by intent: not a word about the path.
		b.bfd.set("10.0.0.1", bfd.Status{State: bfd.Up, EverUp: true})
		synctest.Wait()
		b.bfd.set("10.0.0.1", bfd.Status{State: bfd.Down, RemoteState: bfd.AdminDown, EverUp: true})
		synctest.Wait()
		b.took("")
	})
}

// TestBFDOfLinkLocalPeer: there is no router on the way, whatever the settings say.
func TestBFDOfLinkLocalPeer(t *testing.T) {
	far := func(p *model.BGPPeer) { p.Multihop = true }
	for addr, want := range map[string]bool{"169.254.1.1": false, "fe80::1%eth0": false, "10.0.0.1": true} {
		p := peer("a", addr, profile(true), far)
		if got := isMultihop(&p); got != want {
			t.Errorf("%s: multihop %v", addr, got)
		}
	}
}

// TestBFDBeginsAnew: a router that begins its BFD session anew says Down for a
// moment, which says nothing about the path; if it lasts, it does.
func TestBFDBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "", peer("a", "10.0.0.1", profile(false)))
		b.apply("start, add a")
		b.speaker.session("a", established)
		b.apply("")
		up := bfd.Status{State: bfd.Up, RemoteState: bfd.Up, EverUp: true}
		anew := bfd.Status{State: bfd.Down, RemoteState: bfd.Down, EverUp: true, Diag: bfd.DiagNeighborDown}
		b.bfd.set("10.0.0.1", up)
		synctest.Wait()
		b.bfd.set("10.0.0.1", anew)
		synctest.Wait()
		b.apply("")
		time.Sleep(2900 * time.Millisecond)
		b.bfd.set("10.0.0.1", up)
		time.Sleep(time.Minute)
		b.took("")

		b.bfd.set("10.0.0.1", anew)
		time.Sleep(2900 * time.Millisecond)
		b.took("")
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		b.took(`reset a "BFD: the session went down (Neighbor Signaled Session Down; the peer says: No Diagnostic)"`)
		time.Sleep(time.Minute)
		b.took("")

		// Its second packet makes ours Init, seen or not after Down.
		back := bfd.Status{State: bfd.Init, RemoteState: bfd.Down, EverUp: true}
		for _, seen := range []bool{true, false} {
			b.bfd.set("10.0.0.1", up)
			synctest.Wait()
			if seen {
				b.bfd.set("10.0.0.1", anew)
				synctest.Wait()
			}
			b.bfd.set("10.0.0.1", back)
			time.Sleep(2900 * time.Millisecond)
			b.took("")
			b.bfd.set("10.0.0.1", up)
			time.Sleep(time.Minute)
			b.took("")
		}
		// Init that lasts, and Init that ends as nothing comes any more.
		b.bfd.set("10.0.0.1", back)
		time.Sleep(3100 * time.Millisecond)
		b.took(`reset a "BFD: the session went down (No Diagnostic; the peer says: No Diagnostic)"`)
		b.bfd.set("10.0.0.1", up)
		synctest.Wait()
		b.bfd.set("10.0.0.1", back)
		synctest.Wait()
		b.bfd.set("10.0.0.1", bfd.Status{State: bfd.Down, RemoteState: bfd.Down, EverUp: true, Diag: bfd.DiagTimeExpired})
		synctest.Wait()
		b.took(`reset a "BFD: no packet from the peer within the detection time"`)

		// The peer hears nothing: that is the path.
		b.bfd.set("10.0.0.1", up)
		synctest.Wait()
		anew.RemoteDiag = bfd.DiagTimeExpired
		b.bfd.set("10.0.0.1", anew)
		synctest.Wait()
		b.took(`reset a "BFD: the session went down (Neighbor Signaled Session Down; the peer says: Control Detection Time Expired)"`)
	})
}

func TestStrictBFDHoldsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "", peer("a", "10.0.0.1", profile(true)))
		b.apply("start, add a held")
		b.apply("")
		b.speaker.session("a", Session{State: Idle, LastError: strictWords})
		b.bfd.set("10.0.0.1", bfd.Status{State: bfd.Down, LastError: "the port is in use"})
		synctest.Wait()
		if got := b.apply("").Peers[0].LastError; got != strictWords+"; BFD: the port is in use" {
			t.Errorf("what it waits for: %q", got)
		}
		b.speaker.session("a", Session{State: Idle})
		if got := b.apply("").Peers[0].LastError; got != "BFD: the port is in use" {
			t.Errorf("what it waits for: %q", got)
		}
		b.speaker.session("a", established)
		if got := b.apply("").Peers[0].LastError; got != "" {
			t.Errorf("an established session: %q", got)
		}
		b.bfd.set("10.0.0.1", bfd.Status{State: bfd.Up, EverUp: true})
		synctest.Wait()
		b.took("release a")
		b.apply("")
		b.bfd.set("10.0.0.1", bfd.Status{State: bfd.Down, RemoteState: bfd.Up, EverUp: true, Diag: bfd.DiagTimeExpired})
		synctest.Wait()
		b.took(`hold a "BFD: no packet from the peer within the detection time"`)
		b.apply("")
		b.bfd.set("10.0.0.1", bfd.Status{State: bfd.Up, EverUp: true})
		synctest.Wait()
		b.took("release a")
	})
}

func TestDeadMan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "", peer("a", "10.0.0.1"))
		b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a")}
		b.want.ValidUntil = time.Now().Add(1500 * time.Millisecond)
		b.apply("start, set 203.0.113.1, add a")
		b.speaker.session("a", established)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		b.took("")
		b.want.ValidUntil = time.Now().Add(1500 * time.Millisecond) // newer
		b.apply("")
		time.Sleep(6400 * time.Millisecond)
		synctest.Wait()
		b.took("")
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		b.took("delete 203.0.113.1") // sessions stay
		// The runner applies the old decision again: it does not come back.
		if got := b.apply(""); len(got.Paths) != 0 {
			t.Errorf("%+v", got.Paths)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		b.took("")
		if n := strings.Count(b.logged(), "paths withdrawn"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, b.logged())
		}
		b.want.ValidUntil = time.Now().Add(time.Second)
		b.apply("set 203.0.113.1")
		if s := b.Stats(); s.Expired != 1 || s.PathsSet != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// TestDeadManRests: who applies the old decision again whenever told of a change
// is told once.
func TestDeadManRests(t *testing.T) {
	for name, refused := range map[string]error{"withdrawn": nil, "not withdrawn": errRefused} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, "", peer("a", "10.0.0.1"))
				b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a")}
				b.want.ValidUntil = time.Now().Add(1500 * time.Millisecond)
				b.apply("start, set 203.0.113.1, add a")
				b.speaker.mu.Lock()
				b.speaker.pathErr[host("203.0.113.1")] = refused
				b.speaker.mu.Unlock()
				applied := 0
				for end := time.After(20 * time.Second); applied < 100; {
					select {
					case <-b.Changed():
						applied++
						_, _ = b.Apply(t.Context(), &b.want)
						continue
					case <-end:
					}
					break
				}
				if applied != 1 {
					t.Errorf("applied %d times", applied)
				}
				if n := strings.Count(b.speaker.took(), "delete"); refused == nil && n != 1 || refused != nil && (n < 10 || n > 20) {
					t.Errorf("tried to withdraw %d times", n)
				}
			})
		})
	}
}

func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		graceful := func(p *model.BGPPeer) { p.GracefulRestart, p.RestartTime = true, 10*time.Second }
		b := newBed(t, "", peer("a", "10.0.0.1", graceful), peer("b", "10.0.0.2"))
		b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a", "b")}
		b.want.ValidUntil = time.Now().Add(1500 * time.Millisecond)
		b.apply("start, set 203.0.113.1, add a, add b")
		b.speaker.session("a", established)
		b.speaker.session("b", established)
		b.want.BGP.Leave = true
		got := b.apply(`remove b "lbd stops on this node"`)
		if x := got.Paths[host("203.0.113.1")]; !slices.Equal(x, []string{"a"}) {
			t.Errorf("advertised to %v", x)
		}
		b.apply("")
		time.Sleep(time.Minute) // no decision follows; the path stays for the restart
		synctest.Wait()
		b.took("")
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
		b.took(`close "lbd stops on this node"`)
		if !b.bfd.closed {
			t.Error("BFD goes on")
		}
	})
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
