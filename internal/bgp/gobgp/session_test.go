package gobgp

import (
	"net"
	"net/netip"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v4/api"

	"lbd.dev/lbd/internal/bgp"
	"lbd.dev/lbd/internal/model"
)

func vip(s string, peers ...string) model.BGPPath {
	return model.BGPPath{Prefix: model.PrefixOf(netip.MustParseAddr(s), 0), To: []model.BGPAudience{{Peers: peers}}}
}

// soon is less than what GoBGP by itself waits after a session: 5 s, or 30 s after a
// reset, and then up to 2 s until it connects.
const soon = 5 * time.Second

func TestRoutesAfterReset(t *testing.T) {
	if !alone(t) {
		return
	}
	b, r := newBed(t), newRouter(t, routerASN)
	r.neighbor(b.addr, lbdASN)
	b.set(vip("203.0.113.1", "r"))
	begin := time.Now()
	b.add(b.peer("r", r))
	s := b.up("r")
	first := time.Since(begin)
	if first > soon {
		t.Errorf("first session after %v", first)
	}
	if s.Local != b.addr || s.HoldTime != 9*time.Second || !s.IPv4 || s.Flaps != 0 || s.LastError != "" {
		t.Errorf("%+v", s)
	}
	got := r.sees(b.addr, "203.0.113.1/32")["203.0.113.1/32"]
	if got.nextHop != b.addr.String() || len(got.asPath) != 1 || got.asPath[0] != lbdASN || got.localPref != -1 || got.large != nil {
		t.Errorf("route %+v", got)
	}

	begin = time.Now()
	if err := r.ResetPeer(t.Context(), &api.ResetPeerRequest{Address: b.addr.String(), Communication: "try again"}); err != nil {
		t.Fatal(err)
	}
	s = b.until("r", "down", func(s bgp.Session) bool { return !isUp(s) })
	if s.LastError != `the session was reset at the peer, saying "try again"` || s.Flaps != 1 {
		t.Errorf("%+v", s)
	}
	s = b.up("r")
	again := time.Since(begin)
	if again > soon {
		t.Errorf("session again after %v", again)
	}
	r.sees(b.addr, "203.0.113.1/32")

	b.Reset("r", "BFD: gone")
	s = b.until("r", "down", func(s bgp.Session) bool { return !isUp(s) })
	if s.LastError != "BFD: gone" || s.Flaps != 2 || s.State == bgp.Established {
		t.Errorf("%+v", s)
	}
	// An update is counted a moment after it was sent.
	b.until("r", "with the updates of both sessions", func(s bgp.Session) bool { return s.UpdatesOut >= 2 })
	t.Logf("first session after %v, again after a reset by the router after %v", first, again)
}

// TestNoBFDOfTheServer: its port is for that of lbd.
func TestNoBFDOfTheServer(t *testing.T) {
	if !alone(t) {
		return
	}
	b, r := newBed(t), newRouter(t, routerASN)
	r.neighbor(b.addr, lbdASN)
	b.add(b.peer("r", r))
	b.up("r")
	time.Sleep(1200 * time.Millisecond) // it looks once a second whether it has to
	c, err := net.ListenPacket("udp", ":3784")
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}
