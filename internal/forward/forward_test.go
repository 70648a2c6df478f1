package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/model"
)

// local is the end of a connection that it was opened at.
func local(c net.Conn) netip.AddrPort {
	at, _ := netip.ParseAddrPort(c.LocalAddr().String())
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// TestForwards: each connection goes to the server of its slot, by a hash that is the same
// on every node and in every version, and the server sees the VIP.
func TestForwards(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	for _, affinity := range []bool{false, true} {
		state := wanted(s1, s2, s2, s3, s3, s3, s3)
		for i := range state.Services {
			state.Services[i].ClientAffinity = affinity
		}
		b.forwards(state)
		seen := make(map[string]int)
		for i := range state.Services {
			s := &state.Services[i]
			for range 60 {
				c := l.open(strings.ToLower(s.Protocol.String()), s.Addr)
				host, from, err := ask(c, patience)
				if err != nil {
					t.Fatal(err)
				}
				if want := s.Slots.Slots[balance.Slot(local(c), affinity, len(s.Slots.Slots))]; server(host, s.Addr) != want {
					t.Errorf("%s from %s: %s, want %s", s.Protocol, local(c), host, want)
				}
				if from != s.Addr.String() {
					t.Errorf("%s of %s sees %s", host, s.Addr, from)
				}
				seen[host]++
			}
		}
		t.Logf("affinity %v: %v", affinity, seen)
		if !affinity && (len(seen) != 3 || seen[s1] > seen[s2] || seen[s2] > seen[s3]) {
			t.Errorf("%v", seen)
		}
	}
}

// TestServersWithTheirOwnPorts: a table may lead to several ports.
func TestServersWithTheirOwnPorts(t *testing.T) {
	l := newLab(t)
	l.serve(s2, target+1)
	state := wanted(s1)
	for i := range state.Services {
		s := &state.Services[i]
		own := netip.AddrPortFrom(addr(s2, s.Addr), target+1)
		s.Slots = slotTable(16, s.Addr, s1, s1)
		for n := 0; n < 16; n += 2 {
			s.Slots.Slots[n] = own
		}
		s.Servers = []netip.AddrPort{server(s1, s.Addr), own}
	}
	l.balancer(b1).forwards(state)
	for i := range state.Services {
		s, seen := &state.Services[i], make(map[string]bool)
		for n := 0; n < 30 || len(seen) < 2 && n < 300; n++ {
			c := l.open(strings.ToLower(s.Protocol.String()), s.Addr)
			want := s.Slots.Slots[balance.Slot(local(c), false, 16)]
			host := l.served(c)
			if addr(host, s.Addr) != want.Addr() {
				t.Errorf("%s from %s: %s, want %s", s.Protocol, local(c), host, want)
			}
			seen[host] = true
		}
		if len(seen) < 2 {
			t.Errorf("%s: only %v", s.Protocol, seen)
		}
	}
}

// TestOwnConnections: those of the balancer itself are forwarded too, whether it owns the
// VIP or not.
func TestOwnConnections(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	for _, owner := range []string{b1, b2} {
		l.move(owner)
		b.forwards(wanted(s1, s2, s3))
		for _, vip := range both {
			for _, network := range []string{"tcp", "udp"} {
				for range 5 {
					c, err := l.dial(b1, network, netip.AddrPortFrom(vip, port))
					if err != nil {
						t.Fatalf("owner %s: %s: %v", owner, vip, err)
					}
					if _, from, err := ask(c, patience); err != nil || from != addr(b1, vip).String() {
						t.Errorf("owner %s: the server sees %s, %v", owner, from, err)
					}
				}
			}
			if _, err := l.dial(b1, "tcp", netip.AddrPortFrom(vip, 444)); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a port of no service: %v", err)
			}
		}
	}
}

// refused tells whether the VIP refuses a connection at once.
func (l *lab) refused(network string, to netip.AddrPort) error {
	l.Helper()
	c, err := l.dial(client, network, to)
	if err == nil {
		_, _, err = ask(c, 500*time.Millisecond)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s %s: %v", network, to, err)
	}
	return nil
}

// TestRefuses: nobody waits for an answer from a service without servers, or from a port
// of no service.
func TestRefuses(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	b.forwards(wanted())
	for _, vip := range both {
		for _, network := range []string{"tcp", "udp"} {
			for _, p := range []uint16{port, 444} {
				if err := l.refused(network, netip.AddrPortFrom(vip, p)); err != nil {
					t.Error(err)
				}
			}
		}
	}
	b.forwards(wanted(s1))
	for _, vip := range both {
		for _, network := range []string{"tcp", "udp"} {
			if err := l.refused(network, netip.AddrPortFrom(vip, 444)); err != nil {
				t.Error(err)
			}
			l.served(l.open(network, vip))
		}
	}
}

// TestAllowedSources: to others the VIP is not there.
func TestAllowedSources(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	other := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("10.0.0.8/32")}
	for _, refused := range []bool{false, true} {
		for _, allowed := range []bool{false, true} {
			state := wanted(s1)
			if refused {
				state = wanted()
			}
			for i := range state.Services {
				state.Services[i].AllowedSources = other
				if allowed {
					state.Services[i].AllowedSources = append(slices.Clone(other), netip.MustParsePrefix("10.0.0.9/29"), netip.MustParsePrefix("fd00::/120"))
				}
			}
			b.forwards(state)
			for _, vip := range both {
				for _, network := range []string{"tcp", "udp"} {
					c, err := l.dial(client, network, netip.AddrPortFrom(vip, port))
					if err == nil {
						_, _, err = ask(c, time.Second)
					}
					timeout := net.Error(nil)
					switch {
					case allowed && refused && !errors.Is(err, syscall.ECONNREFUSED),
						allowed && !refused && err != nil,
						!allowed && (!errors.As(err, &timeout) || !timeout.Timeout()):
						t.Errorf("allowed %v, refused %v: %s %s: %v", allowed, refused, network, vip, err)
					}
				}
			}
		}
	}
}

// TestChangesKeepConnections: of many changes no open connection, and nobody who opens
// one, notices anything.
func TestChangesKeepConnections(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	b.forwards(wanted(s1, s2, s3))
	var open []net.Conn
	var by []string
	for i := range 60 {
		c := l.open([]string{"tcp", "udp"}[i/2%2], both[i%2])
		open, by = append(open, c), append(by, l.served(c))
	}
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		dials := 0
		for {
			select {
			case <-stop:
				done <- dials
				return
			default:
			}
			c, err := l.dial(client, "tcp", netip.AddrPortFrom(both[dials%2], port))
			if err != nil {
				t.Errorf("dial %d: %v", dials, err)
			} else if _, _, err = ask(c, patience); err != nil {
				t.Errorf("connection %d: %v", dials, err)
			}
			dials++
			time.Sleep(5 * time.Millisecond)
		}
	}()
	var took []time.Duration
	for i := range 30 {
		state := wanted([][]string{{s1}, {s2, s3}, {s3, s2, s1}, {s1, s1, s2}}[i%4]...)
		if i%3 == 0 {
			state.Services = append(state.Services, model.ForwardService{Addr: vip6, Protocol: model.UDP, Port: 1000 + uint16(i)})
		}
		start := time.Now()
		b.forwards(state)
		took = append(took, time.Since(start))
		time.Sleep(20 * time.Millisecond)
	}
	close(stop)
	slices.Sort(took)
	t.Logf("%d dials; a change of 4 services took %s, at most %s", <-done, took[len(took)/2], took[len(took)-1])
	for i, c := range open {
		if host := l.served(c); host != by[i] {
			t.Errorf("%s moved from %s to %s", c.LocalAddr(), by[i], host)
		}
	}
}

// TestFailedServer: its connections are reset, its flows of datagrams move, and all others
// go on. One that is drained keeps what it has.
func TestFailedServer(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	b.forwards(wanted(s1, s2, s3))
	type held struct {
		net.Conn
		by string
	}
	var open []held
	for i := range 48 {
		c := l.open([]string{"tcp", "udp"}[i/2%2], both[i%2])
		open = append(open, held{c, l.served(c)})
	}
	b.forwards(wanted(s2, s3)) // s1 is drained
	for _, c := range open {
		if host := l.served(c); host != c.by {
			t.Errorf("drained: %s moved from %s to %s", c.LocalAddr(), c.by, host)
		}
	}
	l.IP(s1, "link set eth0 down")
	state := wanted(s2, s3)
	for _, vip := range both {
		state.Cut = append(state.Cut, model.CutServer{VIP: vip, Server: server(s1, vip), Protocol: model.TCP},
			model.CutServer{VIP: vip, Server: server(s1, vip), Protocol: model.UDP})
	}
	b.forwards(state)
	for range 30 {
		for _, vip := range both {
			if host := l.served(l.open("tcp", vip)); host == s1 {
				t.Error("a new connection is with the failed server")
			}
		}
	}
	cut := 0
	for _, c := range open {
		host, _, err := ask(c, patience)
		switch {
		case c.by != s1 && (err != nil || host != c.by):
			t.Errorf("%s with %s: %s, %v", c.LocalAddr(), c.by, host, err)
		case c.by == s1 && c.LocalAddr().Network() == "tcp" && !errors.Is(err, syscall.ECONNRESET):
			t.Errorf("%s with the failed server: %s, %v", c.LocalAddr(), host, err)
		case c.by == s1 && c.LocalAddr().Network() == "udp" && (err != nil || host == s1):
			t.Errorf("datagrams from %s to the failed server: %s, %v", c.LocalAddr(), host, err)
		}
		if c.by == s1 {
			cut++
		}
	}
	if cut < 4 {
		t.Errorf("only %d were with the failed server", cut)
	}
}

// TestDoubtedServer: who waits for the first answer of a server that may have failed gets
// another one with the next packet; connections that it has answered go on.
func TestDoubtedServer(t *testing.T) {
	l := quietLab(t)
	b := l.balancer(b1)
	b.forwards(wanted(s1, s2, s3))
	var with []net.Conn
	for range 48 {
		if c := l.open("tcp", vip4); l.served(c) == s1 {
			with = append(with, c)
		}
	}
	l.IP(s1, "link set eth0 down")
	type dialed struct {
		took time.Duration
		err  error
	}
	dials := make(chan dialed)
	const many = 24
	for range many {
		go func() {
			began := time.Now()
			_, err := l.dial(client, "tcp", netip.AddrPortFrom(vip4, port))
			dials <- dialed{time.Since(began), err}
		}()
	}
	time.Sleep(500 * time.Millisecond)
	state := wanted(s2, s3)
	for _, vip := range both {
		state.Cut = append(state.Cut, model.CutServer{VIP: vip, Server: server(s1, vip), Protocol: model.TCP, Unanswered: true})
	}
	b.forwards(state)
	again := 0
	for range many {
		d := <-dials
		if d.err != nil {
			t.Error(d.err)
		}
		if d.took > 900*time.Millisecond { // the first packet is sent again after 1 s
			again++
		}
	}
	if again == 0 || len(with) == 0 {
		t.Errorf("%d were with the server before, %d sent their first packet again", len(with), again)
	}
	l.IP(s1, "link set eth0 up")
	l.knows(s1, b1, both...)
	for _, c := range with {
		if host := l.served(c); host != s1 {
			t.Errorf("%s moved to %s", c.LocalAddr(), host)
		}
	}
}

// TestLooksBeforeTheNextPacket: what a packet began that was on its way while the rules changed is
// found before the client sends the packet again, after 1 s.
func TestLooksBeforeTheNextPacket(t *testing.T) {
	var c cuts
	servers := []model.CutServer{{VIP: vip4, Server: server(s1, vip4), Protocol: model.TCP, Unanswered: true}}
	began := time.Now()
	for _, at := range []time.Duration{0, 500 * time.Millisecond} {
		due := c.want(servers, began.Add(at))
		if len(due) != 1 {
			t.Fatalf("no look after %v", at)
		}
		for _, d := range due {
			d.looks++
		}
	}
	if due := c.want(servers, began.Add(900*time.Millisecond)); len(due) > 0 {
		t.Error("a look that is not due yet")
	}
}

// TestCutOfOneVIP: connections by another VIP, protocol or port of the same server go on.
func TestCutOfOneVIP(t *testing.T) {
	l := quietLab(t)
	b := l.balancer(b1)
	b.forwards(wanted(s1))
	open := func() (tcp4, udp4, tcp6 net.Conn) {
		tcp4, udp4, tcp6 = l.open("tcp", vip4), l.open("udp", vip4), l.open("tcp", vip6)
		for _, c := range []net.Conn{tcp4, udp4, tcp6} {
			l.served(c)
		}
		return tcp4, udp4, tcp6
	}
	tcp4, udp4, tcp6 := open()
	state := wanted(s2)
	state.Cut = []model.CutServer{
		{VIP: vip4, Server: server(s1, vip4), Protocol: model.TCP},
		{VIP: vip6, Server: netip.AddrPortFrom(addr(s1, vip6), target+1), Protocol: model.TCP},
	}
	b.forwards(state)
	if host, _, err := ask(tcp4, patience); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("cut: %s, %v", host, err)
	}
	for _, c := range []net.Conn{udp4, tcp6} {
		if host := l.served(c); host != s1 {
			t.Errorf("not cut: now with %s", host)
		}
	}
	// An entry that appears although the server is to have none.
	back := wanted(s1)
	back.Cut = state.Cut
	b.forwards(back)
	tcp4, _, _ = open()
	b.forwards(state)
	for end := time.After(patience); ; { // on a busy machine the first that is heard may be an earlier look
		select {
		case <-b.Changed():
		case <-end:
			t.Fatal("nobody looks again")
		}
		b.forwards(state)
		host, _, err := ask(tcp4, patience)
		if errors.Is(err, syscall.ECONNRESET) {
			break
		} else if err != nil || host != s1 {
			t.Fatalf("cut later: %s, %v", host, err)
		}
	}
}

// TestReports what cannot be forwarded, and why.
func TestReports(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	state := wanted(s1)
	l.ExecOn(b1, "sysctl", "-qw", "net.ipv4.ip_forward=0")
	got := b.apply(state)
	if v := got.VIPs[vip4]; v.Forwarding || v.Err != "net.ipv4.ip_forward is 0; set it to 1" {
		t.Errorf("%+v", v)
	}
	if v := got.VIPs[vip6]; !v.Forwarding || v.Err != "" || v.Interface != "" {
		t.Errorf("%+v", v)
	}
	l.ExecOn(b1, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=0")
	got = b.apply(state)
	if v := got.VIPs[vip6]; v.Forwarding || v.Err != "net.ipv6.conf.all.forwarding is 0; set it to 1" || !got.VIPs[vip4].Forwarding {
		t.Errorf("%+v", got)
	}
	l.ExecOn(b1, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
	for what, spoil := range map[string]func(*model.ForwardService){
		"family of a slot":   func(s *model.ForwardService) { s.Slots = slotTable(4, vip6, s2) },
		"family of a server": func(s *model.ForwardService) { s.Servers = []netip.AddrPort{server(s1, vip6)} },
		"protocol":           func(s *model.ForwardService) { s.Protocol = 1 },
		"twice":              func(s *model.ForwardService) { s.Protocol = model.UDP },
	} {
		state := wanted(s1)
		spoil(&state.Services[0])
		got := b.apply(state)
		if v := got.VIPs[vip4]; v.Forwarding || !strings.HasPrefix(v.Err, "forward: ") || !got.VIPs[vip6].Forwarding {
			t.Errorf("%s: %+v", what, got)
		}
		l.served(l.open("tcp", vip6))
	}
	if b.Name() != model.SinkForward {
		t.Error(b.Name())
	}
	b.forwards(wanted(s1))
	if !b.Extend(time.Time{}) {
		t.Error("there is nothing to do, but it does not go on")
	}
	b.apply(&model.ForwardState{})
	if _, err := Cleanup(context.Background()); err != nil {
		t.Error(err)
	}
}
