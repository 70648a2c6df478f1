package daemon_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"lbd.dev/lbd/internal/model"
)

// router stands for the BGP driver and a router that takes what it is told. It
// notes each change of what it is told, and what the kernel held at that moment.
type router struct {
	bed    *bed
	mu     sync.Mutex
	events []string
	state  model.BGPState
	closed time.Time
}

func (*router) Name() model.SinkName     { return model.SinkBGP }
func (*router) Changed() <-chan struct{} { return nil }

func (r *router) Apply(_ context.Context, d *model.Desired) (model.Applied, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = d.BGP
	a := model.Applied{Paths: map[netip.Prefix][]string{}}
	var peers []string
	for _, p := range d.BGP.Peers {
		peers = append(peers, p.Name)
		a.Peers = append(a.Peers, model.PeerReport{Name: p.Name, State: "Established", Paths: len(d.BGP.Paths), BFD: "Up", UpdatesOut: 7})
	}
	now := "nothing"
	for _, p := range d.BGP.Paths {
		a.Paths[p.Prefix] = p.To[0].Peers
		now = strings.Join(p.To[0].Peers, ",")
		if p.To[0].Shutdown {
			now += " gshut"
		}
	}
	if d.BGP.Leave {
		now += " leave"
	}
	if r.bed != nil && len(r.bed.host.Loopback()) == 0 {
		now += " unbound"
	}
	if len(peers) > 0 && (len(r.events) == 0 || r.events[len(r.events)-1] != now) {
		r.events = append(r.events, now)
	}
	return a, nil
}

func (r *router) Close(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = time.Now()
	return nil
}

func (r *router) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// wants is what the driver was asked for last.
func (r *router) wants() model.BGPState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// speak has the VIP advertised by BGP to one peer.
func (b *bed) speak(graceful bool) {
	b.config.Set(func(v *model.View) {
		v.VIPs = []model.VIP{{Addr: vip, Name: "cp", Kind: "VirtualIP", BGP: []model.BGPAdvert{{}}, Check: "api"}}
		v.Peers = []model.BGPPeer{{
			Name: "tor1", LocalASN: 1, PeerASN: 2, IPv4: true, IPv6: true, GracefulRestart: graceful, ShutdownDelay: 500 * time.Millisecond,
			Address: netip.MustParseAddr("10.0.0.254"),
		}}
		v.DrainTimeout = 2 * time.Second
	})
	pass(2 * time.Second)
	s := b.status()
	if got := s.VIPs[0]; got.Mode != "bgp" || got.Reason != "Advertised" || !got.Bound || !slices.Equal(got.Peers, []string{"tor1"}) {
		b.t.Fatalf("not advertised: %+v\n%s", got, b.log())
	}
	if len(s.BGP) != 1 || s.BGP[0].State != "Established" || !slices.Equal(s.BGP[0].Advertised, []string{"10.0.0.200/32"}) {
		b.t.Fatalf("sessions %+v", s.BGP)
	}
}

func (b *bed) wantTold(want ...string) {
	b.t.Helper()
	if got := b.router.told(); !slices.Equal(got, want) {
		b.t.Errorf("the router was told %q, want %q", got, want)
	}
}

func TestStopWithdrawsBeforeItUnbinds(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.speak(false)
		b.stop()
		<-b.ended
		b.wantTold("nothing unbound", "tor1", "tor1 gshut", "nothing", "nothing leave")
		if b.router.closed.IsZero() || len(b.host.Loopback()) != 0 {
			t.Errorf("closed %v, addresses %v", b.router.closed, b.host.Loopback())
		}
	})
}

func TestStopLeavesPathsToGracefulRestart(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.speak(true)
		at := time.Now()
		b.stop()
		<-b.ended
		if took := time.Since(at); took > 500*time.Millisecond {
			t.Errorf("took %s for a stop that hands nothing over", took)
		}
		b.wantTold("nothing unbound", "tor1", "tor1 leave")
		if r := b.router.state; len(r.Paths) != 1 || r.Peers[0].RestartTime != 10*time.Second {
			t.Errorf("left %+v", r)
		}
		// The router keeps the path for RestartTime; the address must be there as long.
		pass(19 * time.Second)
		if len(b.host.Loopback()) != 1 {
			t.Error("the address went before the router gave up the path")
		}
		pass(12 * time.Second)
		if len(b.host.Loopback()) != 0 {
			t.Error("the address outlived its lifetime")
		}
	})
}

func TestBGPMetrics(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.speak(false)
		const want = `
# HELP lbd_bfd_session_up 1 while the BFD session with the peer is up.
# TYPE lbd_bfd_session_up gauge
lbd_bfd_session_up{peer="tor1"} 1
# HELP lbd_bgp_announced_prefixes_total Prefixes that are advertised to the peer now.
# TYPE lbd_bgp_announced_prefixes_total gauge
lbd_bgp_announced_prefixes_total{peer="tor1"} 1
# HELP lbd_bgp_session_up 1 while the session with the peer is established.
# TYPE lbd_bgp_session_up gauge
lbd_bgp_session_up{peer="tor1"} 1
# HELP lbd_bgp_updates_total UPDATE messages sent to the peer.
# TYPE lbd_bgp_updates_total counter
lbd_bgp_updates_total{peer="tor1"} 7
# HELP lbd_vip_announced 1 if this node has bound the VIP and announces it.
# TYPE lbd_vip_announced gauge
lbd_vip_announced{address="10.0.0.200",mode="bgp",vip="cp"} 1
`
		if err := testutil.GatherAndCompare(b.reg, strings.NewReader(want), "lbd_bfd_session_up", "lbd_bgp_announced_prefixes_total",
			"lbd_bgp_session_up", "lbd_bgp_updates_total", "lbd_vip_announced"); err != nil {
			t.Error(err)
		}
		if !strings.Contains(b.log(), "msg=bgp peer=tor1") {
			t.Error("the session is not in the log")
		}
	})
}

// A node that is stopped while addresses linger must not answer for them on the
// LAN in its last moment: whoever took them does.
func TestStopDeadlineStaysSilent(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.gossip.Set(group(b.begin, model.Claim{Owner: "m2", Epoch: 7}))
		b.config.Set(func(v *model.View) {
			v.VIPs = []model.VIP{{Addr: vip, Name: "cp", Kind: "VirtualIP", L2: true, BGP: []model.BGPAdvert{{}}, Check: "api"}}
			v.Peers = []model.BGPPeer{{Name: "tor1", LocalASN: 1, PeerASN: 2, IPv4: true, Address: netip.MustParseAddr("10.0.0.254")}}
			v.DrainTimeout = time.Hour
		})
		pass(2 * time.Second)
		if len(b.host.Loopback()) != 1 || len(b.net.Holders(vip)) != 0 {
			t.Fatalf("on lo %v, answered by %v; want it on lo and silent\n%s", b.host.Loopback(), b.net.Holders(vip), b.log())
		}
		b.host.SetConnections(vip, 1)
		b.hamper(100 * time.Millisecond) // the drivers do not wait for each other
		b.stop()
		for !b.hasEnded() {
			if h := b.net.Holders(vip); len(h) != 0 {
				t.Fatalf("%v answers", h)
			}
			pass(time.Millisecond)
		}
		for range 40 { // what is left for a daemon that is back soon is silent, too
			pass(100 * time.Millisecond)
			if h := b.net.Holders(vip); len(h) != 0 {
				t.Fatalf("%v answers", h)
			}
		}
		if len(b.host.Loopback()) != 0 {
			t.Error("left behind on lo")
		}
	})
}

// A delay that is longer than the time to stop must not leave a router with the
// path of an address that is gone.
func TestStopCutsTheDelayShort(t *testing.T) {
	for name, graceful := range map[string]bool{"plain": false, "graceful": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, b *bed) {
				b.speak(graceful)
				b.config.Set(func(v *model.View) {
					peer := v.Peers[0] // decisions share the slice
					peer.ShutdownDelay = time.Minute
					v.Peers = []model.BGPPeer{peer}
				})
				pass(time.Second)
				if err := b.daemon.SetDraining(t.Context(), true); err != nil {
					t.Fatal(err)
				}
				pass(5 * time.Second)
				at := time.Now()
				b.stop()
				<-b.ended
				if took := time.Since(at); took < 2*time.Second || took > 5*time.Second {
					t.Errorf("took %s", took)
				}
				b.wantTold("nothing unbound", "tor1", "tor1 gshut", "nothing", "nothing leave")
			})
		})
	}
}
