package gobgp

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v4/api"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"lbd.dev/lbd/internal/bgp"
)

func TestWrongAS(t *testing.T) {
	t.Run("of the peer", func(t *testing.T) {
		if !alone(t) {
			return
		}
		b, r := newBed(t), newRouter(t, 64999)
		r.neighbor(b.addr, lbdASN)
		p := b.peer("r", r)
		p.PeerASN = routerASN
		b.add(p)
		b.fails("r", "another AS than the configured 64513", "received 64999")
	})
	t.Run("of this node", func(t *testing.T) {
		if !alone(t) {
			return
		}
		b, r := newBed(t), newRouter(t, routerASN)
		r.neighbor(b.addr, 64998)
		b.add(b.peer("r", r))
		b.fails("r", "the peer expects another AS of this node than the configured 64512")
		// It does not hammer: the tries become rarer.
		before, begin := b.Sessions()["r"].NotificationsIn, time.Now()
		time.Sleep(3 * time.Second)
		n, took := b.Sessions()["r"].NotificationsIn-before, time.Since(begin)
		if n > uint64(took/time.Second) {
			t.Errorf("%d tries in %v", n, took)
		}
	})
}

func TestSameRouterID(t *testing.T) {
	if !alone(t) {
		return
	}
	b := unstarted(t)
	r := newRouter(t, lbdASN)
	got, err := r.GetBgp(t.Context(), &api.GetBgpRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(bgp.Global{RouterID: netip.MustParseAddr(got.Global.RouterId), ASN: lbdASN}); err != nil {
		t.Fatal(err)
	}
	r.neighbor(b.addr, lbdASN)
	b.add(b.peer("r", r))
	b.fails("r", "BGP identifier (router ID)")
}

func TestCannotConnect(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	nobody := &router{asn: routerASN, addr: host()}
	b.add(b.peer("refused", nobody))
	b.fails("refused", "connection refused", "port 179")

	far := b.peer("far", &router{asn: routerASN, addr: netip.MustParseAddr("192.0.2.1")})
	far.Source = netip.Addr{}
	b.add(far)
	b.fails("far", "no route to 192.0.2.1")

	stranger := b.peer("stranger", &router{asn: routerASN, addr: host()})
	stranger.Source = netip.MustParseAddr("10.200.200.200")
	b.add(stranger)
	b.fails("stranger", "does not have the source address 10.200.200.200")
}

func TestPeerClosesAtOnce(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	addr := host()
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 179).String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	b.add(b.peer("r", &router{asn: routerASN, addr: addr}))
	b.fails("r", "closed the connection while the session was opened")
}

func TestPeerEndsTheSession(t *testing.T) {
	for _, c := range []struct {
		name  string
		words []string
		end   func(*testing.T, *router, *bed) error
	}{
		{"shutdown", []string{"shut down at the peer", `saying "maintenance"`}, func(t *testing.T, r *router, b *bed) error {
			return r.ShutdownPeer(t.Context(), &api.ShutdownPeerRequest{Address: b.addr.String(), Communication: "maintenance"})
		}},
		{"removed", []string{"removed from the configuration of the peer"}, func(t *testing.T, r *router, b *bed) error {
			return r.DeletePeer(t.Context(), &api.DeletePeerRequest{Address: b.addr.String()})
		}},
		{"too many", []string{"advertises more prefixes than the peer allows"}, func(t *testing.T, r *router, b *bed) error {
			b.set(vip("203.0.113.2", "r"))
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !alone(t) {
				return
			}
			b, r := newBed(t), newRouter(t, routerASN)
			r.neighbor(b.addr, lbdASN, func(p *api.Peer) {
				for _, f := range p.AfiSafis {
					f.PrefixLimits = &api.PrefixLimit{Family: f.Config.Family, MaxPrefixes: 1}
				}
			})
			b.set(vip("203.0.113.1", "r"))
			b.add(b.peer("r", r))
			b.up("r")
			wait(t, "path", func() bool { return r.received(b.addr) == 1 }) // now it is up over there too
			if err := c.end(t, r, b); err != nil {
				t.Fatal(err)
			}
			s := b.fails("r", c.words...)
			if s.Flaps != 1 || s.LastAt.IsZero() {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestHoldTimer(t *testing.T) {
	for _, graceful := range []bool{false, true} {
		t.Run(fmt.Sprintf("graceful restart %v", graceful), func(t *testing.T) {
			if !alone(t) {
				return
			}
			b := newBed(t)
			addr := host()
			l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 179).String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			// A router that goes silent once the session is there.
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer func() { _ = c.Close() }()
				_ = l.Close()
				p := bgp.Peer{}
				p.LocalASN, p.HoldTime, p.IPv4 = routerASN, 3*time.Second, true
				if m, err := receive(c); err != nil || m == nil {
					return
				}
				open := openMessage(&p, netip.MustParseAddr("10.7.7.7"))
				if graceful {
					caps := open.Body.(*packet.BGPOpen).OptParams[0].(*packet.OptionParameterCapability)
					caps.Capability = append(caps.Capability, packet.NewCapGracefulRestart(false, false, 10,
						[]*packet.CapGracefulRestartTuple{packet.NewCapGracefulRestartTuple(packet.RF_IPv4_UC, true)}))
				}
				_ = send(c, open)
				_ = send(c, packet.NewBGPKeepAliveMessage())
				time.Sleep(30 * time.Second)
			}()
			p := b.peer("r", &router{asn: routerASN, addr: addr})
			p.GracefulRestart, p.RestartTime = graceful, 10*time.Second
			b.add(p)
			// On a busy machine it may be over already.
			s := b.until("r", "Established", func(s bgp.Session) bool { return isUp(s) || s.Flaps > 0 })
			if isUp(s) && s.HoldTime != 3*time.Second {
				t.Errorf("hold time %v", s.HoldTime)
			}
			b.fails("r", "hold timer expired: nothing was heard")
		})
	}
}

func TestPrefixLimit(t *testing.T) {
	if !alone(t) {
		return
	}
	b, r, other := newBed(t), newRouter(t, routerASN), newRouter(t, 64514)
	r.neighbor(b.addr, lbdASN)
	other.neighbor(b.addr, lbdASN)
	for i := range 20 {
		r.announce(fmt.Sprintf("198.51.%d.0/24", i))
	}
	b.add(b.peer("other", other))
	b.up("other")
	p := b.peer("r", r)
	p.MaxPrefixes = 10
	b.add(p)
	b.fails("r", "sent more than 10 prefixes", "maxPrefixes")
	b.mu.Lock()
	pause := time.Until(b.peers["r"].due)
	b.mu.Unlock()
	if s := b.Sessions()["r"]; s.State != bgp.Idle || s.Flaps != 1 || pause < overLimit-5*time.Second {
		t.Errorf("it is tried again in %v: %+v", pause, s)
	}
	if s := b.Sessions()["other"]; s.Flaps != 0 || s.State != bgp.Established {
		t.Errorf("the other session: %+v", s)
	}
}

// md5Peer is a neighbor with a password.
func md5(password string) func(*api.Peer) {
	return func(p *api.Peer) { p.Conf.AuthPassword = password }
}

func TestPassword(t *testing.T) {
	t.Run("right", func(t *testing.T) {
		if !alone(t) {
			return
		}
		b, r := newBed(t), newRouter(t, routerASN)
		r.neighbor(b.addr, lbdASN, md5("secret"))
		p := b.peer("r", r)
		p.Password = "secret"
		b.add(p)
		b.up("r")
	})
	for name, password := range map[string]string{"wrong": "other", "missing": ""} {
		t.Run(name, func(t *testing.T) {
			if !alone(t) {
				return
			}
			b, r := newBed(t), newRouter(t, routerASN)
			r.neighbor(b.addr, lbdASN, md5("secret"))
			p := b.peer("r", r)
			p.Password = password
			b.add(p)
			b.fails("r", "no answer", "TCP MD5 password")
		})
	}
}

// TestPasswordWhenListening: the router connects.
func TestPasswordWhenListening(t *testing.T) {
	if !alone(t) {
		return
	}
	at := host()
	b := newBed(t, at)
	b.addr = at
	dial := func(r *router, password string) {
		r.neighbor(at, lbdASN, md5(password), func(p *api.Peer) {
			p.Transport = &api.Transport{LocalAddress: r.addr.String()}
			p.Timers.Config.ConnectRetry = 1
		})
	}
	right, wrong := newRouter(t, routerASN), newRouter(t, routerASN)
	for name, r := range map[string]*router{"right": right, "wrong": wrong} {
		p := b.peer(name, r)
		p.Passive, p.Password = true, "secret"
		b.add(p)
	}
	dial(right, "secret")
	dial(wrong, "guess")
	b.up("right")
	time.Sleep(3 * time.Second)
	if s := b.Sessions()["wrong"]; s.State == bgp.Established {
		t.Error("a session with the wrong password")
	}
	// The password is taken away: the router without one gets in, so the old key is
	// gone from the socket.
	b.RemovePeer("right", "")
	p := b.peer("right", right)
	p.Passive = true
	b.add(p)
	if err := right.DeletePeer(t.Context(), &api.DeletePeerRequest{Address: at.String()}); err != nil {
		t.Fatal(err)
	}
	dial(right, "")
	b.up("right")
}

// TestNoSessionWithoutItsKey: a peer whose key cannot be set stays out.
func TestNoSessionWithoutItsKey(t *testing.T) {
	if !alone(t) {
		return
	}
	at := host()
	b := newBed(t, at)
	b.addr = at
	dial := func(r *router) {
		r.neighbor(at, lbdASN, func(p *api.Peer) {
			p.Transport = &api.Transport{LocalAddress: r.addr.String()}
			p.Timers.Config.ConnectRetry = 1
		})
	}
	early, late := newRouter(t, routerASN), newRouter(t, routerASN)
	// The kernel takes keys of 80 bytes at most.
	p := b.peer("early", early)
	p.Passive, p.Password = true, strings.Repeat("x", 81)
	b.add(p)
	// Of this one only the server finds out.
	q := b.peer("late", late)
	q.Passive = true
	b.add(q)
	b.inbox.put(q.Address, event{kind: md5Failed, err: os.NewSyscallError("setsockopt", syscall.ENOMEM)})
	dial(early)
	dial(late)
	b.fails("early", "TCP MD5 password", "invalid argument")
	b.fails("late", "TCP MD5 password", "cannot allocate memory")
	time.Sleep(4 * time.Second)
	for name, s := range b.Sessions() {
		if s.State != bgp.Idle || s.Since.After(time.Now().Add(-3500*time.Millisecond)) || len(b.list("")) != 0 {
			t.Errorf("%s got in: %+v", name, s)
		}
	}
}

func TestGTSM(t *testing.T) {
	if !alone(t) {
		return
	}
	b, near, far := newBed(t), newRouter(t, routerASN), newRouter(t, routerASN)
	near.neighbor(b.addr, lbdASN, func(p *api.Peer) { p.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: 255} })
	far.neighbor(b.addr, lbdASN) // answers with TTL 1 once it has accepted
	for name, r := range map[string]*router{"near": near, "far": far} {
		p := b.peer(name, r)
		p.MinTTL = 255
		b.add(p)
	}
	b.up("near")
	b.fails("far", "sent no OPEN for 3s", "packets with a TTL below 255 were dropped (TTL security)")
	if s := b.Sessions()["far"]; s.State == bgp.Established {
		t.Error("a session with a router that sends with TTL 1")
	}
}

func TestListenFails(t *testing.T) {
	if !alone(t) {
		return
	}
	at := host()
	b := unstarted(t)
	g := bgp.Global{RouterID: routerID, ASN: lbdASN, Listen: []netip.Addr{netip.MustParseAddr("10.200.200.201")}}
	if err := b.Start(g); err == nil || !strings.Contains(err.Error(), "no such address on this node") {
		t.Errorf("err %v", err)
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(at, 179).String())
	if err != nil {
		t.Fatal(err)
	}
	g.Listen = []netip.Addr{at}
	if err := b.Start(g); err == nil || !strings.Contains(err.Error(), "the port is in use") {
		t.Errorf("err %v", err)
	}
	_ = l.Close()
	if err := b.Start(g); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestHoldAndRelease(t *testing.T) {
	if !alone(t) {
		return
	}
	b, r := newBed(t), newRouter(t, routerASN)
	r.neighbor(b.addr, lbdASN)
	p := b.peer("r", r)
	p.Held = "waits"
	b.add(p)
	time.Sleep(2500 * time.Millisecond)
	if s := b.Sessions()["r"]; s.State != bgp.Idle || s.LastError != "waits" {
		t.Errorf("%+v", s)
	}
	b.Release("r")
	b.up("r")
	b.Hold("r", "BFD")
	s := b.until("r", "down", func(s bgp.Session) bool { return !isUp(s) })
	if s.LastError != "BFD" || s.Flaps != 1 {
		t.Errorf("%+v", s)
	}
	time.Sleep(2500 * time.Millisecond)
	if s := b.Sessions()["r"]; s.State != bgp.Idle {
		t.Errorf("%+v", s)
	}
	b.Release("r")
	b.up("r")
}

// TestRemoveSaysWhy looks at what the router was told.
func TestRemoveSaysWhy(t *testing.T) {
	for words, want := range map[string]string{
		"node stops": `the session was shut down at the peer, saying "node stops"`,
		"":           "this node was removed from the configuration of the peer",
	} {
		t.Run(cmp.Or(words, "nothing to say"), func(t *testing.T) {
			if !alone(t) {
				return
			}
			b, addr := newBed(t), host()
			routers := newPipe(t, addr)
			b.set(vip("203.0.113.1", "r"))
			b.add(b.peer("r", &router{asn: routerASN, addr: addr}))
			r := <-routers
			b.up("r")
			b.RemovePeer("r", words)
			select {
			case n := <-r.notices:
				if got := receivedWords(n, &bgp.Peer{}); got != want {
					t.Errorf("the router was told: %s", got)
				}
			case <-time.After(patience):
				t.Error("the router was told nothing")
			}
			if _, ok := b.Sessions()["r"]; ok {
				t.Error("the peer is still there")
			}
		})
	}
}
