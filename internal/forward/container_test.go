package forward

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// container connects another host behind a balancer, as a container is, by an interface and a
// subnet of its own.
func (l *lab) container(b string) string {
	l.Helper()
	const name = "pod"
	l.Add(name)
	l.ExecOn(b, "ip", "link", "add", "cni0", "type", "veth", "peer", "name", "eth0", "netns", l.NS(name))
	for host, dev := range map[string]string{b: "cni0", name: "eth0"} {
		l.IP(host, "link set "+dev+" up")
	}
	for _, a := range [][2]string{{"10.9.0.1/24", "10.9.0.2/24"}, {"fd09::1/64", "fd09::2/64"}} {
		l.IP(b, "addr add "+a[0]+" dev cni0 nodad")
		l.IP(name, "addr add "+a[1]+" dev eth0 nodad")
		gateway, _, _ := strings.Cut(a[0], "/")
		l.IP(name, "route add default via "+gateway)
	}
	return name
}

// TestContainers: those of a balancer are served whoever owns the VIP, and a connection goes on
// when the VIP moves. No route leads back to them from the LAN: they come with the address of
// their host.
func TestContainers(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	pod := l.container(b1)
	b.forwards(wanted(s1, s2, s3))
	for _, owner := range []string{b1, b2} {
		l.move(owner)
		for _, vip := range both {
			for _, network := range []string{"tcp", "udp"} {
				c, err := l.dial(pod, network, netip.AddrPortFrom(vip, port))
				if err != nil {
					t.Fatalf("owner %s: %s: %v", owner, vip, err)
				}
				if _, from, err := ask(c, patience); err != nil || from != addr(b1, vip).String() {
					t.Errorf("owner %s: the server sees %s, %v", owner, from, err)
				}
				other := map[string]string{b1: b2, b2: b1}[owner]
				l.move(other)
				if _, _, err := ask(c, patience); err != nil {
					t.Errorf("after a move from %s to %s: %v", owner, other, err)
				}
				l.move(owner)
			}
		}
	}
	state := wanted(s1)
	for i := range state.Services {
		state.Services[i].AllowedSources = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}
	}
	b.forwards(state)
	if _, err := l.dial(pod, "tcp", netip.AddrPortFrom(vip4, port)); err == nil {
		t.Error("a container that is none of the allowed sources is served")
	}
}

// TestUnclaimed: while no node has a VIP, what this host and its containers send to that address
// reaches whoever has it. What comes from the LAN was sent here, and is forwarded.
func TestUnclaimed(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	pod := l.container(b1)
	l.IP(s1, "route add 10.9.0.0/24 via "+addr(b1, vip4).String()) // the way back to the container
	l.IP(s1, "route add fd09::/64 via "+addr(b1, vip6).String())
	for _, vip := range both {
		l.IP(s1, fmt.Sprintf("addr add %s/%d dev eth0 nodad", vip, vip.BitLen()))
	}
	forwards := func(claimed bool) {
		state := wanted(s2)
		for i := range state.Services {
			state.Services[i].Port, state.Services[i].Claimed = target, claimed
		}
		b.forwards(state)
	}
	forwards(false)
	l.move(s1)
	reach := func(from, want string) {
		t.Helper()
		for _, vip := range both {
			c, err := l.dial(from, "tcp", netip.AddrPortFrom(vip, target))
			if err != nil {
				t.Errorf("%s to %s: %v", from, vip, err)
				continue
			}
			if got := l.served(c); got != want {
				t.Errorf("%s to %s: %s, want %s", from, vip, got, want)
			}
		}
	}
	reach(b1, s1)
	reach(pod, s1)
	l.move(b1)
	reach(client, s2)
	forwards(true)
	reach(b1, s2)
	reach(pod, s2)
}
