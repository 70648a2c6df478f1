package gossip

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// sockets starts three nodes on real sockets of the loopback interface.
func sockets(t *testing.T) (nodes [3]*member) {
	t.Helper()
	var peers []string
	for i := range nodes {
		g, err := New(Options{
			Name: model.NodeName(string(rune('a' + i))), BindAddr: netip.AddrFrom4([4]byte{127, 0, 0, byte(11 + i)}),
			Peers: peers, Keys: [][]byte{key1}, Label: "udp", Version: "v1",
		})
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = run(g)
		peers = append(peers, peerAddr(g.Addr()))
		t.Cleanup(nodes[i].kill)
	}
	eventually(t, "all see all", func() bool {
		for _, n := range nodes {
			if len(n.alive()) != 2 {
				return false
			}
		}
		return true
	})
	return nodes
}

func eventually(t *testing.T, what string, cond func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !cond() {
		if time.Since(start) > 2*time.Minute { // a busy machine, and the race detector
			t.Fatalf("not within 2 minutes: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(start)
}

func TestRealSockets(t *testing.T) {
	nodes := sockets(t)
	a, b, c := nodes[0], nodes[1], nodes[2]
	b.standby(vip1)
	c.standby(vip1)
	a.claim(vip1, 3, "b", "c")
	took := eventually(t, "claim", func() bool { return len(b.claims(vip1)) == 1 && len(c.claims(vip1)) == 1 })
	eventually(t, "five heartbeats", func() bool { return b.heard("a").Received >= 5 })
	t.Logf("heartbeats: %+v", b.heard("a")) // a busy machine may have made some late
	start := time.Now()
	_ = a.close() // as a crash
	eventually(t, "late", func() bool { return !b.other("a").Late.IsZero() && !c.other("a").Late.IsZero() })
	late := time.Since(start)
	if b.other("a").State != model.MemberAlive {
		t.Error("memberlist was faster than the heartbeats")
	}
	t.Logf("claim after %v, late after %v", took, late)
	leaving := time.Now()
	if err := b.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("leave took %v", time.Since(leaving))
	eventually(t, "left", func() bool { return c.other("b").State == model.MemberLeft })
}

func TestRestartOnTheSamePort(t *testing.T) {
	nodes := sockets(t)
	a, b := nodes[0], nodes[1]
	a.claim(vip1, 4, "b")
	eventually(t, "claim", func() bool { return len(b.claims(vip1)) == 1 })
	self := a.Addr()
	a.kill()
	g, err := New(Options{
		Name: "a", BindAddr: self.Addr(), Port: self.Port(), Peers: []string{peerAddr(b.Addr())}, Keys: [][]byte{key1}, Label: "udp",
	})
	if err != nil {
		t.Fatal(err)
	}
	again := run(g)
	t.Cleanup(again.kill)
	took := eventually(t, "epoch of the former life", func() bool {
		return see(again, func(g *model.Gossip) uint64 { return g.Seen[vip1] }) == 4
	})
	t.Logf("knows its former epoch after %v", took)
	again.claim(vip1, 5, "b")
	eventually(t, "new claim", func() bool {
		claims := b.claims(vip1)
		return len(claims) == 1 && claims[0].Epoch == 5
	})
	eventually(t, "alive", func() bool { return b.other("a").State == model.MemberAlive })
}

func TestPortInUse(t *testing.T) {
	loopback := netip.MustParseAddr("127.0.0.14") // nothing else has ports of it
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: loopback.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	port := udp.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	_, err = New(Options{Name: "a", BindAddr: loopback, Port: port, Insecure: true})
	if err == nil || !strings.Contains(err.Error(), "another process uses the port") {
		t.Errorf("err = %v", err)
	}
	// TCP of the same port is free again.
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: loopback.AsSlice(), Port: int(port)})
	if err != nil {
		t.Fatalf("the TCP port leaks: %v", err)
	}
	tcp.Close()
}

func TestHostNames(t *testing.T) {
	g, err := New(Options{
		Name: "a", BindAddr: netip.MustParseAddr("127.0.0.1"), Insecure: true,
		Peers: []string{"localhost", "a", "127.0.0.1", "127.0.0.9", "127.0.0.9", "host.invalid"},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := run(g)
	t.Cleanup(m.kill)
	eventually(t, "synced", m.synced)
	// localhost, a and 127.0.0.1 are this node; 127.0.0.9 counts once.
	if n := see(m, func(g *model.Gossip) int { return len(g.Configured) }); n != 2 {
		t.Errorf("peers = %d, want 2", n)
	}
	g.SetPeers([]string{"127.0.0.9", "127.0.0.8", "::bad::", "127.0.0.7:1"})
	eventually(t, "new peers", func() bool { return see(m, func(g *model.Gossip) int { return g.Peers }) == 3 })
}
