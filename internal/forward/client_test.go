package forward

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// far is a client on another network: servers answer it by their gateway.
const far = "far"

// seen is a lab whose servers see the addresses of clients: the VIP is their gateway.
func seen(t *testing.T) *lab {
	l := newLab(t)
	l.Add(far)
	l.Plug(far, hub, "02:00:00:00:01:09")
	l.IP(far, "link set eth0 up")
	for _, n := range [][3]string{{"10.9.9.9/24", "10.9.9.0/24", "10.0.0.0/24"}, {"fd99::9/64", "fd99::/64", "fd00::/64"}} {
		l.IP(far, "addr add "+n[0]+" dev eth0 nodad", "route add "+n[2]+" dev eth0")
		for _, b := range []string{b1, b2} {
			l.IP(b, "route add "+n[1]+" dev eth0")
		}
	}
	for _, s := range []string{s1, s2, s3} {
		for _, vip := range both {
			l.IP(s, fmt.Sprintf("route add default via %s dev eth0", vip))
		}
	}
	l.owns(b1)
	return l
}

// owns is move, for the far client, too.
func (l *lab) owns(to string) {
	l.move(to)
	l.knows(far, to, both...)
}

// clients has the servers of a state see the addresses of clients.
func clients(state *model.ForwardState) *model.ForwardState {
	for i := range state.Services {
		s := &state.Services[i]
		s.ClientSource, s.Near = true, []netip.Prefix{netip.PrefixFrom(addr(s1, s.Addr), subnet(s.Addr)).Masked()}
		for _, to := range s.Servers {
			r := model.ForwardReply{Server: to, Protocol: s.Protocol, VIP: netip.AddrPortFrom(s.Addr, s.Port)}
			state.Replies = append(state.Replies, r)
		}
	}
	return state
}

// TestServersSeeClients of other networks. One of their own subnet they would answer directly, so
// they see the VIP. What this host and its containers open is as ever.
func TestServersSeeClients(t *testing.T) {
	l := seen(t)
	pod := l.container(b1)
	l.balancer(b1).forwards(clients(wanted(s1, s2, s3)))
	for _, vip := range both {
		farAddr := map[bool]string{true: "10.9.9.9", false: "fd99::9"}[vip.Is4()]
		for from, want := range map[string]string{far: farAddr, client: vip.String(), pod: addr(b1, vip).String(), b1: addr(b1, vip).String()} {
			for _, network := range []string{"tcp", "udp"} {
				c, err := l.dial(from, network, netip.AddrPortFrom(vip, port))
				if err != nil {
					t.Errorf("%s: %s: %v", from, vip, err)
					continue
				}
				if _, is, err := ask(c, patience); err != nil || is != want {
					t.Errorf("%s: %s %s: the server sees %q, want %s, %v", from, network, vip, is, want, err)
				}
			}
		}
	}
}

// TestClientsOwnerMoves: as TestOwnerMoves.
func TestClientsOwnerMoves(t *testing.T) {
	l := seen(t)
	state := clients(wanted(s1, s2, s3))
	l.balancer(b1).forwards(state)
	l.balancer(b2).forwards(state)
	var open []net.Conn
	var by []string
	for i := range 40 {
		c, err := l.dial(far, []string{"tcp", "udp"}[i/2%2], netip.AddrPortFrom(both[i%2], port))
		if err != nil {
			t.Fatal(err)
		}
		open, by = append(open, c), append(by, l.served(c))
	}
	for _, owner := range []string{b2, b1} {
		l.owns(owner)
		for i, c := range open {
			if host := l.served(c); host != by[i] {
				t.Errorf("%s: %s moved from %s to %s", owner, c.LocalAddr(), by[i], host)
			}
		}
	}
}

// voice is a server of the test, and what it says to a client.
type voice struct {
	listen net.Listener
	packet net.PacketConn
}

// voices has s1 serve by the test, at a port for TCP and for UDP.
func (l *lab) voices(at int) (v voice) {
	var errs [2]error
	l.In(s1, func() {
		v.listen, errs[0] = net.Listen("tcp", fmt.Sprintf(":%d", at))
		v.packet, errs[1] = net.ListenPacket("udp", fmt.Sprintf(":%d", at))
	})
	if errs[0] != nil || errs[1] != nil {
		l.Fatal(errs)
	}
	l.Cleanup(func() { _, _ = v.listen.Close(), v.packet.Close() })
	return v
}

// connected returns what says a word to a client that has just connected.
func (v *voice) connected(t testing.TB, c net.Conn) (say func() error) {
	t.Helper()
	if c.LocalAddr().Network() == "udp" {
		buf := make([]byte, 10)
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		_, from, err := v.packet.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		return func() error { _, err := v.packet.WriteTo([]byte("push\n"), from); return err }
	}
	s, err := v.listen.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	// Probes of the kernel would be a word of the client.
	if err := c.(*net.TCPConn).SetKeepAlive(false); err != nil {
		t.Fatal(err)
	}
	return func() error { _, err := s.Write([]byte("push\n")); return err }
}

// heard waits for a word of the server.
func heard(c net.Conn, within time.Duration) error {
	buf := make([]byte, 5)
	_ = c.SetReadDeadline(time.Now().Add(within))
	_, err := io.ReadFull(c, buf)
	if err == nil && string(buf) != "push\n" {
		return fmt.Errorf("heard %q", buf)
	}
	return err
}

// pushed is a state in which s1 serves at a port, by these ports of the VIPs.
func pushed(at uint16, ports ...uint16) *model.ForwardState {
	state := &model.ForwardState{}
	for _, vip := range both {
		servers := []netip.AddrPort{netip.AddrPortFrom(addr(s1, vip), at)}
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			for _, listens := range ports {
				state.Services = append(state.Services, model.ForwardService{
					Addr: vip, Protocol: p, Port: listens, Slots: &model.SlotTable{Slots: servers}, Servers: servers, Interface: "eth0",
				})
			}
		}
	}
	clients(state)
	if len(ports) > 1 {
		for i := range state.Replies {
			state.Replies[i].VIP = netip.AddrPort{}
		}
		state.Replies = slices.Compact(state.Replies)
	}
	return state
}

// TestServerGoesOnToSpeak: a client that says nothing hears its server although the owner, and
// with it all that was known of the connection, is gone.
func TestServerGoesOnToSpeak(t *testing.T) {
	l := seen(t)
	v := l.voices(443)
	state := pushed(443, 443)
	l.balancer(b1).forwards(state)
	second := l.balancer(b2)
	second.forwards(state)
	for _, vip := range both {
		for _, network := range []string{"tcp", "udp"} {
			l.owns(b1)
			c, err := l.dial(far, network, netip.AddrPortFrom(vip, 443))
			if err != nil {
				t.Fatal(err)
			}
			say := v.connected(t, c)
			l.owns(b2)
			if err := say(); err != nil {
				t.Fatal(err)
			}
			if err := heard(c, patience); err != nil {
				t.Errorf("%s %s: %v", network, vip, err)
			}
		}
	}
	// The connections are those of the VIP: they end with those of the server.
	cut := *state
	for _, vip := range both {
		cut.Cut = append(cut.Cut, model.CutServer{VIP: vip, Server: netip.AddrPortFrom(addr(s1, vip), 443), Protocol: model.TCP})
	}
	if entries := l.ExecOn(b2, "cat", "/proc/net/nf_conntrack"); strings.Count(entries, "ESTABLISHED") != len(both) {
		t.Errorf("tracked are\n%s", entries)
	}
	second.forwards(&cut)
	if entries := l.ExecOn(b2, "cat", "/proc/net/nf_conntrack"); strings.Contains(entries, "ESTABLISHED") {
		t.Errorf("left are\n%s", entries)
	}
}

// TestOtherPortOfServer: the client knows another port than that of the server.
func TestOtherPortOfServer(t *testing.T) {
	l := seen(t)
	v := l.voices(7000)
	state := pushed(7000, 443)
	l.balancer(b1).forwards(state)
	l.balancer(b2).forwards(state)
	for _, vip := range both {
		l.owns(b1)
		c, err := l.dial(far, "tcp", netip.AddrPortFrom(vip, 443))
		if err != nil {
			t.Fatal(err)
		}
		say := v.connected(t, c)
		l.owns(b2)
		if err := say(); err != nil {
			t.Fatal(err)
		}
		if err := heard(c, patience); err != nil {
			t.Errorf("%s: %v", vip, err)
		}
	}
}

// TestManyNamesOfServer: which of two ports a client knows only a node can tell that knows the
// connection. The server is not heard, and nothing ends, until the client says something.
func TestManyNamesOfServer(t *testing.T) {
	l := seen(t)
	v := l.voices(7000)
	state := pushed(7000, 443, 444)
	l.balancer(b1).forwards(state)
	l.balancer(b2).forwards(state)
	for _, vip := range both {
		l.owns(b1)
		c, err := l.dial(far, "tcp", netip.AddrPortFrom(vip, 444))
		if err != nil {
			t.Fatal(err)
		}
		say := v.connected(t, c)
		l.owns(b2)
		if err := say(); err != nil {
			t.Fatal(err)
		}
		if err := heard(c, 300*time.Millisecond); err == nil {
			t.Errorf("%s: heard", vip)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := heard(c, patience); err != nil {
			t.Errorf("%s: %v", vip, err)
		}
	}
}

// TestClientsListAndLoad: as TestListsAndLoads, after a change from one to the other.
func TestClientsListAndLoad(t *testing.T) {
	l := seen(t)
	b := l.balancer(b1)
	b.forwards(wanted(s1, s2))
	b.forwards(clients(wanted(s1, s2)))
	changed := l.list(b1)
	b.loads(changed)
	if after := l.list(b1); after != changed || !strings.Contains(changed, "@replies") {
		t.Errorf("listed\n%s\nloaded\n%s", changed, after)
	}
	b.forwards(wanted(s1, s2)) // which leaves nothing of it
	if rest := l.list(b1); strings.Contains(rest, "6443 : 10.0.0.100") {
		t.Errorf("left behind\n%s", rest)
	}
}
