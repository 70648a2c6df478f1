package gobgp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"lbd.dev/lbd/internal/bgp"
	"lbd.dev/lbd/internal/fieldtest"
	"lbd.dev/lbd/internal/model"
)

// masters is a listener for all routers of the tests.
func masters(change ...func(*model.BGPListener)) model.BGPListener {
	l := model.BGPListener{
		Name: "masters", LocalASN: lbdASN, PeerASN: routerASN, HoldTime: 9 * time.Second, MaxPrefixes: 10,
		PeerPrefixes: []netip.Prefix{netip.MustParsePrefix("127.1.0.0/16")},
	}
	for _, c := range change {
		c(&l)
	}
	return l
}

// listen makes a speaker with listeners.
func listen(t *testing.T, all ...model.BGPListener) *bed {
	t.Helper()
	at := host()
	b := newBed(t, at)
	b.addr = at
	b.listens(all...)
	return b
}

func (b *bed) listens(all ...model.BGPListener) {
	b.t.Helper()
	if err := b.SetListeners(all); err != nil {
		b.t.Fatal(err)
	}
}

// dial has a router connect to the speaker, as a master does.
func (r *router) dial(b *bed, change ...func(*api.Peer)) {
	r.t.Helper()
	r.neighbor(b.addr, lbdASN, append([]func(*api.Peer){func(p *api.Peer) {
		p.Transport = &api.Transport{LocalAddress: r.addr.String()}
		p.Timers.Config.ConnectRetry = 1
	}}, change...)...)
}

// path adds or withdraws a path of the router, whose next hop is itself.
func (r *router) path(prefix string, withdraw bool, more ...packet.PathAttributeInterface) {
	r.t.Helper()
	to := netip.MustParsePrefix(prefix)
	p, err := pathTo(to)
	if err != nil {
		r.t.Fatal(err)
	}
	hop, _ := packet.NewPathAttributeNextHop(r.addr)
	p.Attrs = append([]packet.PathAttributeInterface{p.Attrs[0], hop}, more...)
	if to.Addr().Is6() {
		p.Attrs[1], _ = packet.NewPathAttributeMpReachNLRI(packet.RF_IPv6_UC, []packet.PathNLRI{{NLRI: p.Nlri}}, netip.MustParseAddr("fd00::7"))
	}
	if withdraw {
		err = r.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{p}})
	} else {
		_, err = r.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{p}})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// learns waits until exactly these paths are known, each as "prefix by next hop of listener".
func (b *bed) learns(want ...string) {
	b.t.Helper()
	slices.Sort(want)
	var got []string
	for end := time.After(patience); ; {
		got = nil
		for _, p := range b.Learned() {
			got = append(got, fmt.Sprintf("%s by %s of %s", p.Prefix, p.NextHop, p.Listener))
		}
		slices.Sort(got)
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-b.wake: // no other news is needed
		case <-end:
			b.t.Fatalf("known are %q, want %q; masters %+v", got, want, b.Masters())
		}
	}
}

// TestListenerLearns: masters that nobody named come, advertise, withdraw and go.
func TestListenerLearns(t *testing.T) {
	if !alone(t) {
		return
	}
	b := listen(t, masters())
	one, two := newRouter(t, routerASN), newRouter(t, routerASN)
	one.path("203.0.113.1/32", false)
	two.path("203.0.113.1/32", false)
	two.path("2001:db8::1/128", false)
	one.dial(b)
	two.dial(b)
	by := func(prefix string, r *router) string { return fmt.Sprintf("%s by %s of masters", prefix, r.addr) }
	v6 := "2001:db8::1/128 by fd00::7 of masters"
	b.learns(by("203.0.113.1/32", one), by("203.0.113.1/32", two), v6)
	all := b.Masters()
	if len(all) != 2 || all[0].Address != one.addr || all[0].State != bgp.Established || all[0].ASN != routerASN || all[0].Listener != "masters" ||
		all[0].Local != b.addr || all[0].HoldTime != 9*time.Second || all[1].Received != 2 {
		t.Errorf("%+v", all)
	}
	for _, p := range b.Learned() {
		if p.PeerASN != routerASN || p.Peer != one.addr && p.Peer != two.addr {
			t.Errorf("%+v", p)
		}
	}

	begin := time.Now()
	two.path("203.0.113.1/32", true)
	b.learns(by("203.0.113.1/32", one), v6)
	t.Logf("a withdrawal was learned within %v", time.Since(begin))
	one.path("0.0.0.0/0", false) // whether it counts is decided elsewhere
	b.learns(by("203.0.113.1/32", one), by("0.0.0.0/0", one), v6)
	two.Stop()
	b.learns(by("203.0.113.1/32", one), by("0.0.0.0/0", one))

	b.EndMaster(one.addr, "BFD is down")
	b.learns()
	b.learns(by("203.0.113.1/32", one), by("0.0.0.0/0", one)) // it came back
	b.listens()
	b.learns()
	wait(t, "the end of the session", func() bool { return len(b.list("")) == 0 })
}

// TestListenerRefuses whoever is not in peerPrefixes, has another AS number or advertises too much.
func TestListenerRefuses(t *testing.T) {
	if !alone(t) {
		return
	}
	b := listen(t,
		masters(func(l *model.BGPListener) { l.MaxPrefixes = 2 }),
		masters(func(l *model.BGPListener) {
			l.Name, l.PeerPrefixes = "others", []netip.Prefix{netip.MustParsePrefix("127.9.0.0/16")}
		}))
	fine, strange, much := newRouter(t, routerASN), newRouter(t, routerASN+7), newRouter(t, routerASN)
	far := newRouterAt(t, routerASN, netip.MustParseAddr("127.8.0.1"))
	other := newRouterAt(t, routerASN, netip.MustParseAddr("127.9.0.1"))
	for i, r := range []*router{fine, strange, far, much, other} {
		r.path(fmt.Sprintf("203.0.113.%d/32", i), false)
	}
	for i := range 3 {
		much.path(fmt.Sprintf("198.51.100.%d/32", i), false)
	}
	for _, r := range []*router{strange, far, much, fine, other} {
		r.dial(b)
	}
	b.learnsOnly(fmt.Sprintf("203.0.113.0/32 by %s of masters", fine.addr), fmt.Sprintf("203.0.113.4/32 by %s of others", other.addr))
}

// TestListenerSigned refuses whoever lacks the password. With no AS number given every one may come.
// Only one of these ever has a session: GoBGP writes the state of a peer whose AS number it was not
// told at the end of its session, while sessions of others read that state, and the race detector sees it.
func TestListenerSigned(t *testing.T) {
	if !alone(t) {
		return
	}
	const password = "not told to all"
	b := listen(t, masters(func(l *model.BGPListener) { l.PeerASN, l.Password = 0, password }))
	key := func(is string) func(*api.Peer) { return func(p *api.Peer) { p.Conf.AuthPassword = is } }
	signed, wrong, unsigned := newRouter(t, 65001), newRouter(t, 65001), newRouter(t, 65001)
	for i, r := range []*router{signed, wrong, unsigned} {
		r.path(fmt.Sprintf("203.0.113.%d/32", i), false)
	}
	wrong.dial(b, key("another one"))
	unsigned.dial(b)
	signed.dial(b, key(password))
	b.learnsOnly(fmt.Sprintf("203.0.113.0/32 by %s of masters", signed.addr))
}

// learnsOnly waits until these paths are known, one of each master, and that no other master got in after some tries.
func (b *bed) learnsOnly(want ...string) {
	b.t.Helper()
	b.learns(want...)
	time.Sleep(3 * time.Second) // the others have tried more than once
	b.learns(want...)
	all := b.Masters()
	if n := len(slices.DeleteFunc(slices.Clone(all), func(m bgp.Master) bool { return m.State != bgp.Established })); n != len(want) {
		b.t.Errorf("%d sessions: %+v", n, all)
	}
}

// TestRoutesOfMasters go nowhere: no router is told of a path of a master, not even of one that
// has the marker by which own paths are let out.
func TestRoutesOfMasters(t *testing.T) {
	if !alone(t) {
		return
	}
	b := listen(t, masters(func(l *model.BGPListener) { // the peer is in there, too
		l.PeerPrefixes = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}))
	up, master := newRouter(t, routerASN+1), newRouterAt(t, routerASN, netip.MustParseAddr("127.9.0.1"))
	up.neighbor(b.addr, lbdASN)
	b.add(b.peer("up", up))
	b.up("up")
	var marks []*packet.LargeCommunity
	for peer := range 3 {
		marks = append(marks, marker(peer, 0))
	}
	master.path("203.0.113.1/32", false, packet.NewPathAttributeLargeCommunities(marks))
	up.path("198.51.100.1/32", false) // that of a peer is not learned
	master.dial(b)
	b.learns(fmt.Sprintf("203.0.113.1/32 by %s of masters", master.addr))
	b.set(model.BGPPath{Prefix: netip.MustParsePrefix("203.0.113.9/32"), To: []model.BGPAudience{{Peers: []string{"up"}}}})
	up.sees(b.addr, "203.0.113.9/32")
	if got := master.routes(b.addr); len(got) != 0 {
		t.Errorf("the master is told %v", got)
	}
	b.EndMaster(up.addr, "not one of them")
	time.Sleep(100 * time.Millisecond)
	if s := b.Sessions()["up"]; s.State != bgp.Established || s.Flaps != 0 {
		t.Errorf("%+v", s)
	}
	if all := b.Masters(); len(all) != 1 || all[0].Address != master.addr {
		t.Errorf("%+v", all)
	}
}

// sessionsLeft are the peers that the server has, also after Close.
func (b *bed) sessionsLeft() (all []string) {
	_ = b.server.ListPeer(context.Background(), &api.ListPeerRequest{}, func(p *api.Peer) {
		all = append(all, p.GetState().GetNeighborAddress())
	})
	return all
}

// TestListenerChanges: a change that concerns no session ends none, any other one all.
func TestListenerChanges(t *testing.T) {
	if !alone(t) {
		return
	}
	b := listen(t, masters())
	r := newRouter(t, routerASN)
	r.path("203.0.113.1/32", false)
	r.dial(b)
	want := fmt.Sprintf("203.0.113.1/32 by %s of masters", r.addr)
	b.learns(want)
	b.listens(masters(func(l *model.BGPListener) {
		l.Accept, l.Spread.Resilient, l.BFD = []netip.Prefix{netip.MustParsePrefix("203.0.113.1/32")}, true, &model.BFDProfile{}
	}))
	time.Sleep(100 * time.Millisecond)
	b.learns(want)
	flaps := func() (n uint64) {
		err := r.ListPeer(context.Background(), &api.ListPeerRequest{}, func(p *api.Peer) { n = uint64(p.GetState().GetFlops()) })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := flaps(); n != 0 {
		t.Errorf("the session ended %d times", n)
	}
	b.listens(masters(func(l *model.BGPListener) { l.HoldTime = 30 * time.Second }))
	wait(t, "the session to end", func() bool { return flaps() > 0 })
	wait(t, "the next session", func() bool { // before that what was learned may be of the one that ended
		m := b.Masters()
		return len(m) == 1 && m[0].HoldTime == 9*time.Second // that of the router
	})
	b.learns(want)
	before := flaps()
	b.Close("lbd stops")
	if n := len(b.sessionsLeft()); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	wait(t, "the router to know", func() bool { return flaps() > before })
}

// TestNoHoldTime: that a master asked for none is seen as soon as its session is up.
func TestNoHoldTime(t *testing.T) {
	if !alone(t) {
		return
	}
	b := listen(t, masters())
	if _, err := b.joins("127.1.200.1", 0, false); err != nil {
		t.Fatal(err)
	}
	<-b.wake
	if all := b.Masters(); len(all) != 1 || all[0].State != bgp.Established || all[0].HoldTime != 0 {
		t.Errorf("%+v", all)
	}
}

// TestSameSessions: sessions begin anew for each field of their listener but those by which only
// others go.
func TestSameSessions(t *testing.T) {
	fieldtest.Same(t, sameSessions, "Name", "Accept", "BFD", "Spread", "HashSeed")
}

// TestListenerNeedsASpeaker that listens.
func TestListenerNeedsASpeaker(t *testing.T) {
	if !alone(t) {
		return
	}
	b := unstarted(t)
	if err := b.SetListeners(nil); err != nil {
		t.Error(err)
	}
	if err := b.SetListeners([]model.BGPListener{masters()}); err == nil {
		t.Error("before the start")
	}
	b.EndMaster(host(), "")
	if b.Masters() != nil || b.Learned() != nil {
		t.Error("masters of nobody")
	}
	if err := b.Start(bgp.Global{RouterID: routerID, ASN: lbdASN}); err != nil {
		t.Fatal(err)
	}
	if err := b.SetListeners([]model.BGPListener{masters()}); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Error(err)
	}
}

// TestStrangersAreForgotten: who connects and goes, or says nothing, takes the room of no master.
func TestStrangersAreForgotten(t *testing.T) {
	if !alone(t) {
		return
	}
	b, r := listen(t, masters()), newRouter(t, routerASN)
	connect := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
		c, err := d.Dial("tcp", netip.AddrPortFrom(b.addr, b.global.ListenPort).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	goes, silent := connect("127.1.200.1"), connect("127.1.200.2")
	_ = silent
	wait(t, "both to be known", func() bool { return len(b.Masters()) == 2 })
	_ = goes.Close()
	wait(t, "the one that went to be forgotten", func() bool { return len(b.Masters()) == 1 })
	b.EndMaster(netip.MustParseAddr("127.1.200.2"), "no room")
	wait(t, "the silent one to be forgotten", func() bool { return len(b.Masters()) == 0 })
	r.path("203.0.113.1/32", false)
	r.dial(b)
	b.learns(fmt.Sprintf("203.0.113.1/32 by %s of masters", r.addr))
}
