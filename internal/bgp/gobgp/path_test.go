package gobgp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"lbd.dev/lbd/internal/bgp"
	"lbd.dev/lbd/internal/model"
)

func TestRoutesOfEachPeer(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	one, two, inner := newRouter(t, routerASN), newRouter(t, 4200000001), newRouter(t, lbdASN)
	for name, r := range map[string]*router{"one": one, "two": two, "inner": inner} {
		r.neighbor(b.addr, lbdASN)
		b.add(b.peer(name, r))
	}
	full := vip("203.0.113.1", "inner", "one", "two")
	full.To[0].PathAttributes = model.PathAttributes{
		Communities: []uint32{64512<<16 | 7}, LargeCommunities: [][3]uint32{{64512, 1, 2}},
		LocalPref: 250, MED: 33, MEDSet: true, Prepend: 2,
	}
	b.set(full)
	b.set(vip("203.0.113.2", "one"))
	b.set(vip("203.0.113.3", "inner", "two"))
	b.up("one")
	b.up("two")
	b.up("inner")

	at1 := one.sees(b.addr, "203.0.113.1/32", "203.0.113.2/32")["203.0.113.1/32"]
	want := route4{
		nextHop: b.addr.String(), asPath: []uint32{lbdASN, lbdASN, lbdASN}, localPref: -1, med: 33,
		communities: []uint32{64512<<16 | 7}, large: [][3]uint32{{64512, 1, 2}},
	}
	same(t, "eBGP", at1, want)
	same(t, "eBGP, 4 bytes", two.sees(b.addr, "203.0.113.1/32", "203.0.113.3/32")["203.0.113.1/32"], want)
	want.asPath, want.localPref = nil, 250
	same(t, "iBGP", inner.sees(b.addr, "203.0.113.1/32", "203.0.113.3/32")["203.0.113.1/32"], want)
	plain := inner.routes(b.addr)["203.0.113.3/32"]
	same(t, "iBGP without attributes", plain, route4{nextHop: b.addr.String(), localPref: 100, med: -1})

	// A drain: GRACEFUL_SHUTDOWN to all, LOCAL_PREF 0 to iBGP.
	leaving := vip("203.0.113.1", "inner", "one", "two")
	leaving.To[0].PathAttributes, leaving.To[0].Shutdown = full.To[0].PathAttributes, true
	b.set(leaving)
	wait(t, "GRACEFUL_SHUTDOWN", func() bool {
		return slices.Contains(one.routes(b.addr)["203.0.113.1/32"].communities, gracefulShutdown) &&
			slices.Contains(two.routes(b.addr)["203.0.113.1/32"].communities, gracefulShutdown) &&
			inner.routes(b.addr)["203.0.113.1/32"].localPref == 0
	})

	// Only the path to one peer moves; the others get neither update nor withdrawal.
	toOne, toInner := b.updates("one", one), b.updates("inner", inner)
	b.set(vip("203.0.113.2", "two"))
	one.sees(b.addr, "203.0.113.1/32")
	two.sees(b.addr, "203.0.113.1/32", "203.0.113.2/32", "203.0.113.3/32")
	if d := b.updates("inner", inner) - toInner; d != 0 {
		t.Errorf("inner got %d updates for a path that is not its", d)
	}
	if d := b.updates("one", one) - toOne; d != 1 {
		t.Errorf("one got %d updates, want a withdrawal", d)
	}
	if err := b.DeletePath(netip.MustParsePrefix("203.0.113.1/32")); err != nil {
		t.Fatal(err)
	}
	if err := b.DeletePath(netip.MustParsePrefix("203.0.113.77/32")); err != nil {
		t.Errorf("deleting what is not there: %v", err)
	}
	one.sees(b.addr)
	inner.sees(b.addr, "203.0.113.3/32")

	// A peer that goes and comes gets its paths again, the others nothing.
	toOne, toInner = b.updates("one", one), b.updates("inner", inner)
	b.RemovePeer("two", "")
	b.add(b.peer("two", two))
	b.up("two")
	two.sees(b.addr, "203.0.113.2/32", "203.0.113.3/32")
	if a, b := b.updates("one", one)-toOne, b.updates("inner", inner)-toInner; a != 0 || b != 0 {
		t.Errorf("one got %d and inner %d updates for another session", a, b)
	}
}

func same(t *testing.T, what string, got, want route4) {
	t.Helper()
	if got.nextHop != want.nextHop || !slices.Equal(got.asPath, want.asPath) || got.localPref != want.localPref ||
		got.med != want.med || !slices.Equal(got.communities, want.communities) || !slices.Equal(got.large, want.large) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s", what)
		}
	}
}

func TestReservedCommunityIsRefused(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	p := vip("203.0.113.1", "x")
	p.To[0].LargeCommunities = [][3]uint32{{markerASN, 1, 0}}
	if err := b.SetPath(p); err == nil || !strings.Contains(err.Error(), "reserved") {
		t.Errorf("err %v", err)
	}
}

// v6 gives lo addresses of a subnet.
func v6(t *testing.T, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		ipRun(t, "addr", "add", a+"/64", "dev", "lo", "nodad")
		t.Cleanup(func() { ipRun(t, "addr", "del", a+"/64", "dev", "lo") })
	}
}

func TestRoutesOfBothFamilies(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	ipRun(t, "addr", "add", b.addr.String()+"/32", "dev", "lo")
	r := newRouter(t, routerASN)
	r.neighbor(b.addr, lbdASN)
	b.set(vip("203.0.113.1", "r"))
	b.set(vip("2001:db8:1::1", "r"))
	b.add(b.peer("r", r))
	// Without an IPv6 address there is no next hop.
	s := b.up("r")
	r.sees(b.addr, "203.0.113.1/32")
	if s.IPv6 || !strings.Contains(s.NoIPv6, "no IPv6 address") {
		t.Errorf("%+v", s)
	}
	// It comes later, and a VIP is not taken for it.
	ipRun(t, "addr", "add", "2001:db8:0::1/128", "dev", "lo", "nodad")
	t.Cleanup(func() { ipRun(t, "addr", "del", "2001:db8:0::1/128", "dev", "lo") })
	v6(t, "fd00:1::1")
	b.mu.Lock()
	b.peers["r"].looked = time.Time{}
	b.mu.Unlock()
	b.Sessions() // looks
	got := r.sees(b.addr, "203.0.113.1/32", "2001:db8:1::1/128")
	if s := b.Sessions()["r"]; !s.IPv6 || s.NoIPv6 != "" {
		t.Errorf("%+v", s)
	}
	if h := got["2001:db8:1::1/128"].nextHop; h != "fd00:1::1" {
		t.Errorf("next hop %s", h)
	}
	if h := got["203.0.113.1/32"].nextHop; h != b.addr.String() {
		t.Errorf("next hop %s", h)
	}
}

func TestRoutesOfIPv4OverIPv6(t *testing.T) {
	if !alone(t) {
		return
	}
	v6(t, "fd00:2::1", "fd00:2::2")
	b := newBed(t)
	b.addr = netip.MustParseAddr("fd00:2::1")
	r := newRouterAt(t, routerASN, netip.MustParseAddr("fd00:2::2"))
	r.neighbor(b.addr, lbdASN)
	b.set(vip("203.0.113.1", "r"))
	b.set(vip("2001:db8:1::1", "r"))
	b.add(b.peer("r", r))
	s := b.up("r")
	if !s.IPv4 || !s.IPv6 || s.NoIPv4+s.NoIPv6 != "" || s.Local != b.addr {
		t.Errorf("%+v", s)
	}
	for p, route := range r.sees(b.addr, "203.0.113.1/32", "2001:db8:1::1/128") {
		if route.nextHop != "fd00:2::1" {
			t.Errorf("%s: next hop %s", p, route.nextHop)
		}
	}
}

// TestIPv4OverIPv6WithoutConsent: a router that does not offer RFC 8950 gets no
// IPv4 path, and that is said.
func TestIPv4OverIPv6WithoutConsent(t *testing.T) {
	if !alone(t) {
		return
	}
	v6(t, "fd00:4::1", "fd00:4::2")
	b := newBed(t)
	b.addr = netip.MustParseAddr("fd00:4::1")
	addr := netip.MustParseAddr("fd00:4::2")
	routers := newPipe(t, addr) // offers IPv4 only
	b.set(vip("203.0.113.1", "r"))
	p := b.peer("r", &router{asn: routerASN, addr: addr})
	b.add(p)
	r := <-routers
	s := b.up("r")
	if s.IPv4 || !strings.Contains(s.NoIPv4, "RFC 8950") {
		t.Errorf("%+v", s)
	}
	b.set(vip("203.0.113.2", "r"))
	time.Sleep(200 * time.Millisecond)
	if n := r.paths.Load(); n != 0 {
		t.Errorf("the router was told %d paths", n)
	}
}

func TestRoutesWithoutAFamily(t *testing.T) {
	if !alone(t) {
		return
	}
	b, r := newBed(t), newRouter(t, routerASN)
	v6(t, "fd00:3::1")
	r.neighbor(b.addr, lbdASN, func(p *api.Peer) { p.AfiSafis = p.AfiSafis[:1] })
	b.set(vip("203.0.113.1", "r"))
	b.set(vip("2001:db8:1::1", "r"))
	b.add(b.peer("r", r))
	s := b.up("r")
	r.sees(b.addr, "203.0.113.1/32")
	if s.IPv6 || !s.IPv4 || !strings.Contains(s.NoIPv6, "does not take IPv6") {
		t.Errorf("%+v", s)
	}
}

func TestTwins(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	for i, zone := range []string{"eth8", "eth9"} {
		p := b.peer(zone, &router{asn: routerASN, addr: netip.MustParseAddr("fe80::1%" + zone)})
		p.Source = netip.Addr{}
		b.add(p)
		if i == 0 {
			b.set(vip("203.0.113.1", "eth8"))
		}
	}
	b.set(vip("203.0.113.2", "eth8", "eth9"))
	if err := b.SetPath(vip("203.0.113.1", "eth8")); err == nil || !strings.Contains(err.Error(), "same link-local address") {
		t.Errorf("err %v", err)
	}
	b.fails("eth8", `interface "eth8": does not exist`)
}

func TestRoutesOfOthersAreRefused(t *testing.T) {
	if !alone(t) {
		return
	}
	b, r, other := newBed(t), newRouter(t, routerASN), newRouter(t, 64514)
	r.neighbor(b.addr, lbdASN)
	other.neighbor(b.addr, lbdASN)
	r.announce("198.51.100.0/24", "203.0.113.1/32", "0.0.0.0/0")
	b.set(vip("203.0.113.1", "other", "r"))
	b.add(b.peer("r", r))
	b.add(b.peer("other", other))
	b.up("r")
	b.up("other")
	s := b.until("r", "sent 3 prefixes", func(s bgp.Session) bool { return s.Received == 3 })
	if s.LastError != "" {
		t.Errorf("%+v", s)
	}
	got := other.sees(b.addr, "203.0.113.1/32")
	if p := got["203.0.113.1/32"].asPath; len(p) != 1 {
		t.Errorf("the other router got what the first said: %v", p)
	}
	var table []string
	if err := b.server.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: packet.RF_IPv4_UC}, func(prefix packet.NLRI, paths []*apiutil.Path) {
		for _, p := range paths {
			table = append(table, prefix.String()+" "+p.PeerAddress.String())
		}
	}); err != nil {
		t.Fatal(err)
	}
	if len(table) != 1 || strings.Contains(table[0], r.addr.String()) {
		t.Errorf("the table has %v", table)
	}
}

// TestRoutesOverLinkLocal has the session between the two ends of a cable.
func TestRoutesOverLinkLocal(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	ipRun(t, "link", "add", "eth1", "type", "veth", "peer", "name", "eth2")
	t.Cleanup(func() { ipRun(t, "link", "del", "eth1") })
	for name, addr := range map[string]string{"eth1": "fe80::a1", "eth2": "fe80::a2"} {
		ipRun(t, "link", "set", name, "addrgenmode", "none")
		ipRun(t, "link", "set", name, "up")
		ipRun(t, "addr", "add", addr+"/64", "dev", name, "nodad")
	}
	b.addr = netip.MustParseAddr("fe80::a1%eth2") // as the router sees it
	r := newRouterOn(t, routerASN, netip.MustParseAddr("fe80::a2"), "eth2")
	r.neighbor(b.addr, lbdASN, func(p *api.Peer) {
		p.Transport.LocalAddress, p.Transport.BindInterface = "fe80::a2", "eth2"
	})
	b.set(vip("203.0.113.1", "r"))
	b.set(vip("2001:db8:1::1", "r"))
	p := b.peer("r", r)
	p.Address, p.Source = netip.MustParseAddr("fe80::a2%eth1"), netip.Addr{}
	b.add(p)
	if s := b.up("r"); !s.IPv4 || !s.IPv6 {
		t.Errorf("%+v", s)
	}
	for prefix, route := range r.sees(b.addr, "203.0.113.1/32", "2001:db8:1::1/128") {
		if route.nextHop != "fe80::a1" {
			t.Errorf("%s: next hop %s", prefix, route.nextHop)
		}
	}
	b.Reset("r", "test")
	b.fails("r", "test")
	b.up("r")
	if err := b.AddPeer(func() bgp.Peer { p.Name, p.Password = "x", "x"; return p }()); err == nil || !strings.Contains(err.Error(), "password") {
		t.Errorf("err %v", err)
	}
}
