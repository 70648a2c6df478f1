package gobgp

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v4/api"

	"lbd.dev/lbd/internal/bgp"
)

// dynamic is a session with a router that may be in every AS but that of this node.
func (b *bed) dynamic(name string, r *router) bgp.Peer {
	p := b.peer(name, r)
	p.PeerASN = 0
	return p
}

// TestRoutesOfAnyASN: a router is taken whatever its AS is, is told the paths as an
// eBGP peer, and may come back with another AS.
func TestRoutesOfAnyASN(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	r, wide := newRouter(t, routerASN), newRouter(t, 4200000001)
	r.neighbor(b.addr, lbdASN)
	wide.neighbor(b.addr, lbdASN)
	path := vip("203.0.113.1", "r", "wide")
	path.To[0].Prepend, path.To[0].LocalPref = 1, 200
	b.set(path)
	for name, r := range map[string]*router{"r": r, "wide": wide} {
		b.add(b.dynamic(name, r))
		s := b.up(name)
		if s.PeerASN != r.asn || s.LastError != "" || s.Flaps != 0 || !s.IPv4 {
			t.Errorf("%s: %+v", name, s)
		}
		got := r.sees(b.addr, "203.0.113.1/32")["203.0.113.1/32"]
		if len(got.asPath) != 2 || got.asPath[0] != lbdASN || got.localPref != -1 {
			t.Errorf("%s: route %+v", name, got)
		}
	}
	// Once its AS is known, a session that comes back has the paths as before.
	if err := r.ResetPeer(t.Context(), &api.ResetPeerRequest{Address: b.addr.String()}); err != nil {
		t.Fatal(err)
	}
	b.until("r", "down", func(s bgp.Session) bool { return s.Flaps == 1 })
	if s := b.up("r"); s.PeerASN != routerASN {
		t.Errorf("%+v", s)
	}
	r.sees(b.addr, "203.0.113.1/32")
}

// TestRoutesOfOwnASN: a router in the AS of this node is refused where it must be in
// another, gets no path, and is taken once it is in another.
func TestRoutesOfOwnASN(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	r, other := newRouter(t, lbdASN), newRouter(t, routerASN)
	r.neighbor(b.addr, lbdASN)
	other.neighbor(b.addr, lbdASN)
	b.set(vip("203.0.113.1", "r", "other"))
	b.add(b.dynamic("r", r))
	b.add(b.dynamic("other", other))
	b.fails("r", "the peer is in AS 64512, as this node is, and dynamicASN is external")
	b.up("other")
	other.sees(b.addr, "203.0.113.1/32")
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if n := r.told(b.addr); n > 0 {
			t.Fatalf("the router was told %d prefixes", n)
		}
	}
	b.mu.Lock()
	refused, taken := len(b.peers["r"].statements), len(b.peers["other"].statements)
	b.mu.Unlock()
	if refused > 0 || taken == 0 {
		t.Errorf("%d statements of the export policy are for the refused peer, %d for the other", refused, taken)
	}
	if s := b.Sessions()["other"]; !isUp(s) || s.Flaps != 0 {
		t.Errorf("the other peer: %+v", s)
	}

	// The same host, in another AS: the neighbour on the router says so.
	if err := r.DeletePeer(t.Context(), &api.DeletePeerRequest{Address: b.addr.String()}); err != nil {
		t.Fatal(err)
	}
	r.neighbor(b.addr, lbdASN, func(p *api.Peer) { p.Conf.LocalAsn = 64999 })
	if s := b.up("r"); s.PeerASN != 64999 {
		t.Errorf("%+v", s)
	}
	r.sees(b.addr, "203.0.113.1/32")
}

// told is how many updates the router has had of the speaker at addr, those that end the
// list of a family (RFC 4724 section 2) left out.
func (r *router) told(addr netip.Addr) (n uint64) {
	r.t.Helper()
	err := r.ListPeer(context.Background(), &api.ListPeerRequest{Address: addr.String(), EnableAdvertised: false}, func(p *api.Peer) {
		n = p.GetState().GetMessages().GetReceived().GetUpdate()
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// TestInternalASN: a router that must be in the AS of this node and is in another is
// refused.
func TestInternalASN(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	r, other := newRouter(t, lbdASN), newRouter(t, routerASN)
	r.neighbor(b.addr, lbdASN)
	other.neighbor(b.addr, lbdASN)
	for name, r := range map[string]*router{"r": r, "other": other} {
		p := b.peer(name, r)
		p.PeerASN = lbdASN // what dynamicASN internal is resolved to
		b.add(p)
	}
	b.fails("other", "the peer has another AS than the configured 64512")
	if s := b.up("r"); s.PeerASN != lbdASN {
		t.Errorf("%+v", s)
	}
}

// TestAnyASNPassive: the AS of a router that connects by itself is looked at too.
func TestAnyASNPassive(t *testing.T) {
	if !alone(t) {
		return
	}
	at := host()
	b := newBed(t, at)
	b.addr = at
	r, own := newRouter(t, routerASN), newRouter(t, lbdASN)
	for name, r := range map[string]*router{"r": r, "own": own} {
		p := b.dynamic(name, r)
		p.Passive, p.ConnectTime, p.Source = true, 0, netip.Addr{}
		b.add(p)
		r.neighbor(at, lbdASN, func(p *api.Peer) {
			p.Transport = &api.Transport{LocalAddress: r.addr.String()}
			p.Timers.Config.ConnectRetry = 1
		})
	}
	b.up("r")
	b.fails("own", "the peer is in AS 64512, as this node is")
}

// TestAnyASNFar: a router behind another is not tried unless that is allowed.
func TestAnyASNFar(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	p := b.dynamic("r", &router{addr: netip.MustParseAddr("192.0.2.9")})
	p.Source = netip.Addr{}
	b.add(p)
	b.fails("r", "192.0.2.9 is on no subnet of this node", "ebgpMultiHop")
	for _, change := range []func(*bgp.Peer){
		func(p *bgp.Peer) { p.Name, p.Address, p.Multihop = "far", p.Address.Next(), true },
		func(p *bgp.Peer) { p.Name, p.Address, p.MinTTL = "ttl", p.Address.Next().Next(), 254 },
	} {
		q := p
		change(&q)
		b.add(q)
		s := b.until(q.Name, "tried", func(s bgp.Session) bool { return s.LastError != "" })
		if strings.Contains(s.LastError, "subnet of this node") {
			t.Errorf("%s: %s", q.Name, s.LastError)
		}
	}
}
