package forward

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/sockdiag"
)

// sourced is wanted with two VIPs more of each family, which servers see as clients beside the VIP.
func sourced(l *lab, servers ...string) (*model.ForwardState, map[netip.Addr][]netip.Addr) {
	sources := map[netip.Addr][]netip.Addr{
		vip4: {vip4, netip.MustParseAddr("10.0.0.101"), netip.MustParseAddr("10.0.0.102")},
		vip6: {vip6, netip.MustParseAddr("fd00::101"), netip.MustParseAddr("fd00::102")},
	}
	state := &model.ForwardState{}
	for _, s := range wanted(servers...).Services {
		for _, vip := range sources[s.Addr] {
			one := s
			one.Addr, one.Sources = vip, sources[s.Addr]
			state.Services = append(state.Services, one)
		}
	}
	slices.SortFunc(state.Services, func(a, b model.ForwardService) int {
		if c := a.Addr.Compare(b.Addr); c != 0 {
			return c
		}
		return int(a.Protocol) - int(b.Protocol)
	})
	return state, sources
}

// takes has all addresses of both families taken over by a balancer.
func (l *lab) takes(to string, sources map[netip.Addr][]netip.Addr) {
	l.Helper()
	for _, all := range sources {
		for h := range hosts {
			if h != to {
				l.knows(h, to, all...)
			}
		}
	}
}

// TestSources: servers see the source that the hash of a connection chooses in the list of its VIP, and their
// answers come back. A balancer that takes over without knowing the
// connections gives them the same.
func TestSources(t *testing.T) {
	l := newLab(t)
	state, sources := sourced(l, s1, s2, s3)
	l.balancer(b1).forwards(state)
	l.balancer(b2).forwards(state)
	l.takes(b1, sources)
	type one struct {
		net.Conn
		server, source string
	}
	var open []one
	used := make(map[string]int)
	for i := range 120 {
		of := sources[both[i%2]]
		// Its own port for each: the lists of all VIPs are one here, so two from one port would be the same to a server.
		c, err := l.dialFrom(client, []string{"tcp", "udp"}[i/2%2], 30000+uint16(i), netip.AddrPortFrom(of[i/4%len(of)], port))
		if err != nil {
			t.Fatal(err)
		}
		host, seen, err := ask(c, patience)
		if err != nil {
			t.Fatal(err)
		}
		from := local(c)
		if want := of[balance.Source(from, len(of))].String(); seen != want {
			t.Errorf("%s: the server sees %s, want %s", from, seen, want)
		}
		used[seen]++
		open = append(open, one{c, host, seen})
	}
	if len(used) != 6 {
		t.Errorf("used are %v", used)
	}
	l.In(b1, func() { // in a planned move, what servers say to a source has to be found by its ring
		known := make(map[string]bool)
		if err := sockdiag.Translated(func(a netip.Addr) { known[a.String()] = true }); err != nil || len(known) != 6 {
			t.Errorf("this host has connections of %v, %v", known, err)
		}
	})
	l.IP(b1, "link set eth0 down") // it crashes
	l.takes(b2, sources)
	for _, c := range open {
		if host, seen, err := ask(c, patience); err != nil || host != c.server || seen != c.source {
			t.Errorf("%s: %s sees %s, before that %s saw %s; %v", c.LocalAddr(), host, seen, c.server, c.source, err)
		}
	}
}

// TestSourcesOfOneServerPort: two clients with one port on one server keep it, if they have two
// sources.
func TestSourcesOfOneServerPort(t *testing.T) {
	l := newLab(t)
	state, sources := sourced(l, s1)
	l.balancer(b1).forwards(state)
	l.takes(b1, sources)
	for _, vip := range both {
		n, pairs := len(sources[vip]), 0
		for from := uint16(30000); pairs < 5; from++ {
			at := func(host string) netip.AddrPort { return netip.AddrPortFrom(addr(host, vip), from) }
			if balance.Source(at(client), n) == balance.Source(at(s2), n) {
				continue
			}
			pairs++
			for _, host := range []string{client, s2} {
				d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(at(host))}
				var c net.Conn
				var err error
				l.In(host, func() { c, err = d.Dial("tcp", netip.AddrPortFrom(vip, port).String()) })
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				if l.served(c) != s1 {
					t.Error("not s1")
				}
			}
			kept := 0
			l.In(b1, func() {
				if err := sockdiag.Forwarded(func(e sockdiag.Entry) {
					if !e.Ended && e.To.Addr() == vip && e.From.Port() == from && e.Seen.Port() == from {
						kept++
					}
				}); err != nil {
					t.Fatal(err)
				}
			})
			if kept != 2 {
				t.Errorf("%s port %d: %d connections have kept it, want 2", vip, from, kept)
			}
		}
	}
}

// TestSourcesChange: what is open goes on as it is, and what is listed can be loaded again.
func TestSourcesChange(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	state, sources := sourced(l, s1)
	b.forwards(state)
	l.takes(b1, sources)
	var open []net.Conn
	for i := range 12 {
		open = append(open, l.open("tcp", both[i%2]))
		l.served(open[i])
	}
	before := l.list(b1)
	b.loads(before)
	if after := l.list(b1); after != before {
		t.Errorf("listed\n%s\nloaded\n%s", before, after)
	}
	state.Services = slices.Clone(state.Services)
	for i := range state.Services {
		state.Services[i].Sources = nil
	}
	b.forwards(state)
	for _, c := range open {
		l.served(c)
	}
	for _, vip := range both {
		if _, seen, err := ask(l.open("tcp", vip), patience); err != nil || seen != vip.String() {
			t.Errorf("the server sees %s, %v", seen, err)
		}
	}
}
