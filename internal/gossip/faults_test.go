package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/testnet"
)

func shell(t *testing.T, line string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
}

// netOf is the network of the hosts, of one of the families.
type netOf string

var eachNet = []netOf{"10.9.0.", "fd09::"}

func (f netOf) addr(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprint(f, n)) }

// set adds addresses to this host, or takes them away. The kernel takes a moment until one
// of IPv6 can be used.
func (f netOf) set(t *testing.T, how string, numbers ...int) {
	t.Helper()
	for _, n := range numbers {
		shell(t, fmt.Sprintf("ip addr %s %s/%d dev lo", how, f.addr(n), f.addr(n).BitLen()))
	}
	shell(t, "while ip addr show dev lo tentative | grep -q inet6; do sleep 0.01; done")
}

// hosts starts nodes with addresses that can be taken away.
func (f netOf) hosts(t *testing.T) (nodes [2]*member) {
	t.Helper()
	shell(t, "ip link set lo up")
	f.set(t, "add", 1, 2)
	for i := range nodes {
		g, err := New(Options{
			Name: model.NodeName(string(rune('a' + i))), BindAddr: f.addr(1 + i), Port: 7947,
			Peers: []string{f.addr(1).String(), f.addr(2).String()}, Keys: [][]byte{key1},
		})
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = run(g)
		t.Cleanup(nodes[i].kill)
	}
	eventually(t, "both see both", func() bool { return len(nodes[0].alive()) == 1 && len(nodes[1].alive()) == 1 })
	return nodes
}

// TestPeersDieWhenNothingCanBeSent: a firewall that drops what this node sends is as good as
// a cut cable, and this node must see its peers as dead; a person must see why.
func TestPeersDieWhenNothingCanBeSent(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	for _, f := range eachNet {
		nodes := f.hosts(t)
		if fault := nodes[0].Stats().Fault; fault != "" {
			t.Errorf("a fault before there is one: %q", fault)
		}
		shell(t, "nft 'table inet cut { chain out { type filter hook output priority 0; udp dport 7947 drop; tcp dport 7947 drop; }; }'")
		eventually(t, "the peer is dead", func() bool { return nodes[0].other("b").State == model.MemberDead })
		if fault := nodes[0].Stats().Fault; fault != "nothing can be sent to "+f.addr(2).String()+": operation not permitted" {
			t.Errorf("fault: %q", fault)
		}
		if nodes[0].Stats().Dropped[DroppedUnsent] == 0 {
			t.Error("nothing is counted")
		}
		shell(t, "nft delete table inet cut")
		eventually(t, "the peer is back", func() bool { return len(nodes[0].alive()) == 1 && nodes[0].Stats().Fault == "" })
	}
}

// TestRenumberedHost: the address that the user gave is gone.
func TestRenumberedHost(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	for _, f := range eachNet {
		nodes := f.hosts(t)
		f.set(t, "del", 1)
		f.set(t, "add", 9)
		eventually(t, "the peer is dead", func() bool { return nodes[0].other("b").State == model.MemberDead })
		eventually(t, "people are told", func() bool {
			return strings.HasPrefix(nodes[0].Stats().Fault, "this node speaks from "+f.addr(1).String()+", which is not an address of this host any more")
		})
		f.set(t, "add", 1)
		eventually(t, "the peer is back", func() bool { return len(nodes[0].alive()) == 1 && nodes[0].Stats().Fault == "" })
	}
}

// TestRenumberedHostIsFollowed: the address was found and not given, so it is found again.
func TestRenumberedHostIsFollowed(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	shell(t, "ip link add other type veth peer name end; ip link set other up; ip addr add 10.9.1.1/32 dev other; ip addr add fd09:1::1/128 dev other")
	for i, other := range []string{"10.9.1.1", "fd09:1::1"} {
		t.Run(other, func(t *testing.T) { // both wait as long as the promise says
			t.Parallel()
			followed(t, eachNet[i], netip.MustParseAddr(other))
		})
	}
}

func followed(t *testing.T, f netOf, other netip.Addr) {
	t.Helper()
	f.hosts(t)
	f.set(t, "add", 3)
	found, to := f.addr(3), f.addr(4)
	var next atomic.Pointer[netip.Addr]
	next.Store(&found)
	g, err := New(Options{
		Name: "c", BindAddr: found, Port: 7947, Peers: []string{f.addr(1).String()}, Keys: [][]byte{key1},
		Elsewhere: func() (netip.Addr, error) { return *next.Load(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.close() })
	ended := make(chan error, 1)
	go func() { ended <- g.Source().Run(t.Context(), func(func(*model.View)) {}) }()
	eventually(t, "the third has joined", func() bool { return g.Stats().Members[model.MemberAlive] == 2 })
	// Its link may be down; the host has another address, on another interface.
	next.Store(&other)
	f.set(t, "del", 3)
	eventually(t, "people are told", func() bool { return strings.Contains(g.Stats().Fault, "not an address of this host any more") })
	select {
	case err := <-ended:
		t.Fatalf("it ended with %v", err)
	case <-time.After(movedAfter + 3*tendEvery):
	}
	f.set(t, "add", 4)
	next.Store(&to)
	select {
	case err := <-ended:
		if want := fmt.Sprintf("was %s and is %s now", found, to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on with an address that nobody reaches")
	}
}

// TestDatagramErrorsAsMemberlistWantsThem: any other error and a probe counts as not made.
func TestDatagramErrorsAsMemberlistWantsThem(t *testing.T) {
	a := openDatagrams(t, "udp", "127.0.0.1:0")
	err := a.write(make([]byte, 70_000), a.local())
	op, ok := err.(*net.OpError)
	if !ok || op.Net != "udp" || op.Op != "write" {
		t.Errorf("%T %v, want a *net.OpError of writing to udp", err, err)
	}
	if errors.Unwrap(err) == nil {
		t.Error("the cause is lost")
	}
}

// TestManyInterfacesHoldNothingUp: whether the address is still there is looked at while some
// host is not reached, again and again, on hosts with hundreds of pods too. It must not take
// what asking for each interface takes.
func TestManyInterfacesHoldNothingUp(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	var batch strings.Builder
	for i := range 200 {
		fmt.Fprintf(&batch, "link add name pod%d type veth peer name peer%d\naddr add 10.10.%d.%d/32 dev pod%d\n", i, i, i/200, i%200+1, i)
	}
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	gone := netip.MustParseAddr("10.9.9.9")
	fastest := func(f func()) time.Duration {
		best := time.Hour
		for range 5 {
			from := time.Now()
			f()
			best = min(best, time.Since(from))
		}
		return best
	}
	each := fastest(func() {
		if at := interfaceOf(gone); at != "" {
			t.Errorf("%s is on %s", gone, at)
		}
	})
	s := &transport{}
	s.faults.note(gone, errors.New("no route"))
	g := &Gossip{sockets: s, self: netip.AddrPortFrom(gone, 7947), log: slog.New(slog.DiscardHandler), home: "pod199", elsewhere: func() (netip.Addr, error) {
		return netip.MustParseAddr("10.10.0.200"), nil
	}}
	now := time.Now()
	if err := g.look(now); err != nil || g.fault(now) == "" {
		t.Errorf("the address has just gone: %v, %q", err, g.fault(now))
	}
	s.faults.note(gone, errors.New("no route"))
	once := fastest(func() {
		if err := g.look(now.Add(movedAfter - time.Millisecond)); err != nil {
			t.Error(err)
		}
	})
	t.Logf("each interface: %v, look: %v", each, once)
	if once > each/10 {
		t.Errorf("look takes %v, each interface %v", once, each)
	}
	for i := range s.faults.hosts { // the last failure was just now
		s.faults.hosts[i] = fault{errors.New("no route"), now.Add(movedAfter)}
	}
	if err := g.look(now.Add(movedAfter)); err == nil || !strings.Contains(err.Error(), "is 10.10.0.200 now") {
		t.Errorf("the address is another one on its interface: %v", err)
	}
}

// TestNarrowNetwork: packets of gossip and heartbeats that the network takes in parts only, as
// an overlay or a tunnel between nodes does, arrive.
func TestNarrowNetwork(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	shell(t, "ip link set lo mtu 1280")
	for _, f := range eachNet {
		nodes := f.hosts(t)
		a, b := nodes[0], nodes[1]
		var vips []netip.Addr
		a.apply(func(gs *model.GroupState) {
			gs.Settled, gs.VIPs = true, nil
			for v := vip1; len(vips) < 500; v = v.Next() {
				vips = append(vips, v)
				gs.VIPs = append(gs.VIPs, model.GroupVIP{Addr: v, Standing: model.ReasonOwner, Seen: 3, Claim: model.Claim{Owner: "a", Epoch: 3}})
			}
			gs.Heartbeats = []model.HeartbeatTarget{{Node: "b", VIPs: vips}}
		})
		eventually(t, "all claims", func() bool { return len(b.claims(vips[0])) == 1 && len(b.claims(vips[len(vips)-1])) == 1 })
		eventually(t, "heartbeats", func() bool { return b.heard("a").Received >= 5 })
	}
	out, err := exec.Command("sh", "-c", "nstat -asz IpFragCreates Ip6FragCreates | awk 'NR > 1 {print $2}'").Output()
	if parts := strings.Fields(string(out)); err != nil || len(parts) != 2 || parts[0] == "0" || parts[1] == "0" {
		t.Errorf("no packet was sent in parts: %v, %q", err, out)
	}
}
