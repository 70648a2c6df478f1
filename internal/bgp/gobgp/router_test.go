package gobgp

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"lbd.dev/lbd/internal/bgp"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/testnet"
)

// aloneEnv names the test that the test binary runs in a process and a network
// namespace of its own; see alone.
const aloneEnv = "LBD_GOBGP_ALONE"

func TestMain(m *testing.M) {
	if args := os.Getenv(speakerEnv); args != "" {
		speak(args)
	}
	flag.Parse()
	if os.Getenv(aloneEnv) == "" {
		_ = flag.Set("test.parallel", "8") // they mostly wait
	} else if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "namespace: %v: %s\n", err, out)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// alone runs a test in a process of its own, for a process has one speaker, and
// in a network namespace, so that it touches no interface of the host. There MPTCP
// is off, as in the daemon: TCP MD5 does not work with it. The test must start
// all its routers before it gives any of them a peer: servers share globals. So each subtest
// that starts some is one of these.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneEnv) == t.Name() {
		return true
	}
	testnet.NeedRoot(t)
	t.Parallel()
	runtime.LockOSThread() // Pdeathsig watches the thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", append(testnet.Covered(), "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v", "-test.timeout=2m")...)
	cmd.Env = append(os.Environ(), aloneEnv+"="+t.Name(), "GODEBUG=multipathtcp=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("it did not run:\n%s", out)
	} else {
		t.Logf("%s", out)
	}
	return false
}

// lastHost numbers loopback addresses, so that each test has its own.
var lastHost atomic.Uint32

func host() netip.Addr {
	n := lastHost.Add(1)
	return netip.AddrFrom4([4]byte{127, 1, byte(n >> 8), byte(n)})
}

func ipRun(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// bed is a speaker under test.
type bed struct {
	*Speaker
	t    *testing.T
	addr netip.Addr
	wake chan struct{}
}

const lbdASN, routerASN = 64512, 64513

var routerID = netip.MustParseAddr("10.9.9.9")

func newBed(t *testing.T, listen ...netip.Addr) *bed {
	t.Helper()
	b := unstarted(t)
	if err := b.Start(bgp.Global{RouterID: routerID, ASN: lbdASN, Listen: listen}); err != nil {
		t.Fatal(err)
	}
	return b
}

func unstarted(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, addr: host(), wake: make(chan struct{}, 1)}
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("LBD_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	b.Speaker = New(log, func() {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	})
	// The server ends with the process of the test: GoBGP's own StopBgp races with sessions that are
	// coming up.
	t.Cleanup(func() { b.Close("") })
	return b
}

// peer is a session with a router on loopback.
func (b *bed) peer(name string, r *router) bgp.Peer {
	return bgp.Peer{BGPPeer: model.BGPPeer{
		Name: name, LocalASN: lbdASN, PeerASN: r.asn, Address: r.addr, Port: 179, Source: b.addr,
		HoldTime: 9 * time.Second, KeepaliveTime: 3 * time.Second, ConnectTime: time.Second,
		IPv4: true, IPv6: true, MaxPrefixes: 1000,
	}}
}

func (b *bed) add(p bgp.Peer) {
	b.t.Helper()
	if err := b.AddPeer(p); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) set(p model.BGPPath) {
	b.t.Helper()
	if err := b.SetPath(p); err != nil {
		b.t.Fatal(err)
	}
}

// patience is how long a test waits for what should come soon: what a machine may take
// that does much else. A peer that is asked in vain is asked again after askAgain.
const patience = askAgain + 30*time.Second

// until waits for a session to be as asked for.
func (b *bed) until(name, what string, ok func(bgp.Session) bool) bgp.Session {
	b.t.Helper()
	deadline := time.After(patience)
	for {
		s := b.Sessions()[name]
		if ok(s) {
			return s
		}
		select {
		case <-b.wake:
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			b.t.Fatalf("peer %s is not %s after %v: %+v", name, what, patience, s)
		}
	}
}

func (b *bed) up(name string) bgp.Session {
	b.t.Helper()
	return b.until(name, "Established", isUp)
}

func isUp(s bgp.Session) bool { return s.State == bgp.Established }

func (b *bed) fails(name string, words ...string) bgp.Session {
	b.t.Helper()
	return b.until(name, fmt.Sprintf("failing with %q", words), func(s bgp.Session) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(s.LastError, w) })
	})
}

// router is a GoBGP server that takes everything.
type router struct {
	*server.BgpServer
	t    *testing.T
	addr netip.Addr
	asn  uint32
}

func newRouter(t *testing.T, asn uint32) *router {
	t.Helper()
	return newRouterAt(t, asn, host())
}

func newRouterAt(t *testing.T, asn uint32, addr netip.Addr) *router {
	t.Helper()
	return newRouterOn(t, asn, addr, "")
}

// newRouterOn makes a router that listens on one interface.
func newRouterOn(t *testing.T, asn uint32, addr netip.Addr, iface string) *router {
	t.Helper()
	n := lastHost.Add(1)
	r := &router{server.NewBgpServer(), t, addr, asn}
	go r.Serve()
	err := r.StartBgp(t.Context(), &api.StartBgpRequest{Global: &api.Global{
		Asn: asn, RouterId: fmt.Sprintf("10.8.%d.%d", n>>8, n&255), ListenPort: 179, ListenAddresses: []string{addr.WithZone("").String()},
		BindToDevice: iface,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r // which ends with the process, too
}

// neighbor has the router wait for a speaker.
func (r *router) neighbor(addr netip.Addr, asn uint32, change ...func(*api.Peer)) {
	r.t.Helper()
	p := &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: addr.String(), PeerAsn: asn},
		Transport: &api.Transport{PassiveMode: true},
		Timers:    &api.Timers{Config: &api.TimersConfig{HoldTime: 9, KeepaliveInterval: 3, IdleHoldTimeAfterReset: 1}},
	}
	for _, f := range []*api.Family{ipv4, ipv6} {
		p.AfiSafis = append(p.AfiSafis, &api.AfiSafi{Config: &api.AfiSafiConfig{Family: f, Enabled: true}})
	}
	for _, c := range change {
		c(p)
	}
	if err := r.AddPeer(r.t.Context(), &api.AddPeerRequest{Peer: p}); err != nil {
		r.t.Fatal(err)
	}
}

// unraced fails unless `make unit` runs a test without the race detector, which it does by these
// names: GoBGP's own ListPath, by which tests look into a router, races with its sessions, and the
// detector takes most of the memory that others measure.
func unraced(t *testing.T) {
	t.Helper()
	if !strings.HasPrefix(t.Name(), "TestRoutes") && !strings.HasPrefix(t.Name(), "TestMemory") {
		t.Fatal("the name of a test with ListPath must begin with TestRoutes, of one that measures with TestMemory")
	}
}

// routes are what the router was told by the speaker at addr.
func (r *router) routes(addr netip.Addr) map[string]route4 {
	r.t.Helper()
	unraced(r.t)
	out := make(map[string]route4)
	for _, f := range []packet.Family{packet.RF_IPv4_UC, packet.RF_IPv6_UC} {
		err := r.ListPath(apiutil.ListPathRequest{
			TableType: api.TableType_TABLE_TYPE_ADJ_IN, Name: addr.String(), Family: f,
		}, func(prefix packet.NLRI, paths []*apiutil.Path) {
			for _, p := range paths {
				out[prefix.String()] = readRoute(p)
			}
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	return out
}

// route4 is what an UPDATE said.
type route4 struct {
	nextHop     string
	asPath      []uint32
	localPref   int64 // -1: none
	med         int64
	communities []uint32
	large       [][3]uint32
}

func readRoute(p *apiutil.Path) route4 {
	out := route4{localPref: -1, med: -1}
	for _, attribute := range p.Attrs {
		switch a := attribute.(type) {
		case *packet.PathAttributeNextHop:
			out.nextHop = a.Value.String()
		case *packet.PathAttributeMpReachNLRI:
			out.nextHop = a.Nexthop.String()
		case *packet.PathAttributeAsPath:
			for _, s := range a.Value {
				out.asPath = append(out.asPath, s.GetAS()...)
			}
		case *packet.PathAttributeLocalPref:
			out.localPref = int64(a.Value)
		case *packet.PathAttributeMultiExitDisc:
			out.med = int64(a.Value)
		case *packet.PathAttributeCommunities:
			out.communities = a.Value
		case *packet.PathAttributeLargeCommunities:
			for _, c := range a.Values {
				out.large = append(out.large, [3]uint32{c.ASN, c.LocalData1, c.LocalData2})
			}
		}
	}
	return out
}

// sees waits until the router has exactly these prefixes.
func (r *router) sees(addr netip.Addr, prefixes ...string) map[string]route4 {
	r.t.Helper()
	slices.Sort(prefixes)
	deadline := time.Now().Add(patience)
	for {
		got := r.routes(addr)
		var have []string
		for p := range got {
			have = append(have, p)
		}
		slices.Sort(have)
		if slices.Equal(have, prefixes) {
			return got
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("router %s has %v, want %v", r.addr, have, prefixes)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// updates is how many updates a router was told in all. The speaker counts what it has
// sent a moment after that, so this waits until both have the same number; what the
// router has taken in is in it.
func (b *bed) updates(name string, r *router) (n uint64) {
	b.t.Helper()
	wait(b.t, "agreement with the router on the number of updates", func() bool {
		err := r.ListPeer(context.Background(), &api.ListPeerRequest{Address: b.addr.String()}, func(p *api.Peer) {
			n = p.GetState().GetMessages().GetReceived().GetUpdate()
		})
		if err != nil {
			b.t.Fatal(err)
		}
		return b.Sessions()[name].UpdatesOut == n
	})
	return n
}

// received is how many prefixes the router has of the speaker at addr.
func (r *router) received(addr netip.Addr) (n uint64) {
	r.t.Helper()
	err := r.ListPeer(context.Background(), &api.ListPeerRequest{Address: addr.String()}, func(p *api.Peer) {
		for _, f := range p.AfiSafis {
			n += f.GetState().GetReceived()
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// announce has the router advertise prefixes of its own.
func (r *router) announce(prefixes ...string) {
	r.t.Helper()
	for _, p := range prefixes {
		r.path(p, false)
	}
}
