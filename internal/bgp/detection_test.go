package bgp

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/bgp/bfd"
	"lbd.dev/lbd/internal/model"
)

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
