package box

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// routedNet is a prefix of several addresses that masters may have.
const routedNet = "203.0.113.0/24"

// routerConfig is that of the router: b1 has one session for both families, b2 one for each.
const routerConfig = `
router id 10.1.0.1;
protocol device { }
protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; merge paths on; }
protocol kernel { ipv6 { import none; export where source = RTS_BGP; }; merge paths on; }
protocol bfd { interface "eth0" { interval 100 ms; multiplier 3; }; }
template bgp box {
  local as 64500;
  direct;
  connect delay time 1;
  connect retry time 1;
  error wait time 1, 2;
  hold time 9;
  bfd on;
}
protocol bgp b1 from box { neighbor 10.1.0.21 as 64512; ipv4 { import all; export none; }; ipv6 { import all; export none; }; }
protocol bgp b2 from box { neighbor 10.1.0.22 as 64512; ipv4 { import all; export none; }; }
protocol bgp b2six from box { neighbor fd01::22 as 64512; ipv6 { import all; export none; }; }
`

// newRoutedSite has a router in front of the boxes, which tell it of the VIPs:
//
//	client --- out0 --- router --- up0 --- b1, b2 --- br0 --- s1, s2, and the test process
//
// The sessions of s1 are of IPv4, those of s2 of IPv6, and each carries both families.
func newRoutedSite(t *testing.T) *site {
	s := newHosts(t, "198.51.100.200", "2001:db8:5::200")
	s.bridge("out0")
	s.master(1, [2]string{"10.0.0.21", "10.0.0.22"})
	s.master(2, [2]string{"fd00::21", "fd00::22"})
	s.routedBox(1, "10.1.0.1")
	s.routedBox(2, "10.1.0.1", "fd01::1")
	for _, h := range []string{"router", "client"} {
		s.Add(h)
	}
	s.plug("router", "up0", "eth0", "10.1.0.1/24", "fd01::1/64")
	s.plug("router", "out0", "eth1", "10.2.0.1/24", "fd02::1/64")
	s.sysctl("router", "net.ipv4.ip_forward=1", "net.ipv4.fib_multipath_hash_policy=1",
		"net.ipv6.conf.all.forwarding=1", "net.ipv6.fib_multipath_hash_policy=1")
	s.plug("client", "out0", "eth0", "10.2.0.9/24", "fd02::9/64")
	s.IP("client", "route add default via 10.2.0.1", "route add default via fd02::1")
	s.route()
	return s
}

// routedBox is a box whose routers are these, of one session for both families or of one for each.
func (s *site) routedBox(number int, routers ...string) {
	s.t.Helper()
	var peers strings.Builder
	for i, r := range routers {
		families := "ipv4, ipv6"
		if len(routers) > 1 {
			families = []string{"ipv4", "ipv6"}[i]
		}
		peers.WriteString(`---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: tor` + []string{"", "six"}[i] + `}
spec: {myASN: 64512, peerASN: 64500, peerAddress: "` + r + `", families: [` + families + `], bfdProfile: fast, connectTime: 1s}
`)
	}
	s.box(number, ", "+routedNet, "upstream: bgp", peers.String())
	s.IP([]string{"b1", "b2"}[number-1], "route add default via 10.1.0.1", "route add default via fd01::1")
}

// route has BIRD run on the router.
func (s *site) route() {
	s.t.Helper()
	dir := s.t.TempDir()
	file := filepath.Join(dir, "bird.conf")
	if err := os.WriteFile(file, []byte(routerConfig), 0o600); err != nil {
		s.t.Fatal(err)
	}
	bird := exec.Command("ip", "netns", "exec", s.NS("router"), "bird", "-f", "-c", file, "-s", filepath.Join(dir, "sock"), "-P", filepath.Join(dir, "pid"))
	bird.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := bird.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _, _ = bird.Process.Kill(), bird.Wait() })
}

// TestSiteRouted: boxes tell a router of what masters advertise to them, over sessions of both
// families. It is told by exactly those boxes that have a master, what is open is kept when
// a box loses all of them or dies, and it works again when they are back.
func TestSiteRouted(t *testing.T) {
	s := newRoutedSite(t)
	s.start("b1", "b2", "s1", "s2")
	s.await("s1 s2", "b1", "b2")
	s.await("b1 b2", "router")
	for _, a := range []string{gateway, gateway6} {
		s.owner(a, "b1", "b2")
	}
	all := s.open(40)
	s.tell("A client opens 40 connections by the router and both boxes: %s.", spread(all))
	if !strings.Contains(spread(all), ",") {
		t.Errorf("all connections went to one master: %s", spread(all))
	}
	s.severalAddresses()
	time.Sleep(2 * time.Second) // BFD comes up a while after BGP
	both := func(name, to string) {
		for _, br := range []string{"br0", "up0"} {
			s.Exec("ip", "link", "set", cable(name, br), to)
		}
	}
	for _, c := range []struct {
		what  string
		do    func()
		boxes string
		ends  bool // what is open
	}{
		{"The cable from b1 to the masters is pulled", func() { s.Exec("ip", "link", "set", cable("b1", "br0"), "down") }, "b2", false},
		{"It is plugged in", func() { s.Exec("ip", "link", "set", cable("b1", "br0"), "up") }, "b1 b2", false},
		{"Both masters are killed", func() { s.kill("s1"); s.kill("s2") }, "", true},
		{"They start again", func() { s.start("s1", "s2") }, "b1 b2", true},
		{"The daemon of b1 is killed", func() { s.kill("b1") }, "b2", false},
		{"It starts again", func() { s.start("b1") }, "b1 b2", false},
		{"The box b2 dies", func() { both("b2", "down") }, "b1", false},
	} {
		begin := time.Now()
		c.do()
		at := s.await(c.boxes, "router").Sub(begin)
		s.tell("%s: the router sends to %q after %d ms.", c.what, c.boxes, at.Milliseconds())
		// The hold time is three times as long.
		if c.boxes != "b1 b2" && at > 3*time.Second {
			t.Errorf("%s: the router knew after %v", c.what, at)
		}
		if c.ends {
			all = nil
		}
		if lost, of := kept(all); len(lost) > 0 {
			t.Errorf("%s: lost %d of %d: %q", c.what, len(lost), of, lost)
		}
		if c.boxes != "" {
			s.await("s1 s2", strings.Fields(c.boxes)...)
			all = append(all, s.open(10)...)
		}
	}
}

// severalAddresses: the test process has a prefix of many addresses, of which b1 tells the router as long.
func (s *site) severalAddresses() {
	s.t.Helper()
	prefix := netip.MustParsePrefix(routedNet)
	speaker := s.speaker()
	for _, c := range []struct {
		do   func() error
		want string
	}{
		{func() error {
			return speaker.SetPath(model.BGPPath{Prefix: prefix, To: []model.BGPAudience{{Peers: []string{"b1"}}}})
		}, "b1"},
		{func() error { return speaker.DeletePath(prefix) }, ""},
	} {
		if err := c.do(); err != nil {
			s.t.Fatal(err)
		}
		for end := time.Now().Add(patience); s.hops("router", routedNet) != c.want; time.Sleep(2 * time.Millisecond) {
			if time.Now().After(end) {
				s.t.Fatalf("the router sends what is for %s to %q, not to %q", routedNet, s.hops("router", routedNet), c.want)
			}
		}
	}
}
