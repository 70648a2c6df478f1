package box

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/testnet"
)

// A site is two boxes between the network of the clients and that of three masters, as daemons:
//
//	client --- up0 --- b1, b2 --- br0 --- s1, s2, s3, and the test process
//
// The boxes name no master. The VIPs, one of each family, are addresses of the clients' network, for
// which a box answers ARP and ND. Masters have VIPs of the boxes as their gateways.
type site struct {
	*testnet.Net
	t     *testing.T
	bin   string
	hosts map[string]*host
	names map[string]string // of hosts by their addresses
	vips  []string
}

// host is a machine with lbd.
type host struct {
	name, dir string
	cmd       *exec.Cmd
	log       bytes.Buffer
}

const (
	siteVIP  = "10.1.0.100"
	siteVIP6 = "fd01::100"
	gateway  = "10.0.0.1"
	gateway6 = "fd00::1"
	service  = "6443"
)

// newSite makes the hosts; daemons run after start.
func newSite(t *testing.T) *site {
	s := newHosts(t, siteVIP, siteVIP6)
	for i := 1; i <= 3; i++ {
		s.master(i, [2]string{"10.0.0.21", "10.0.0.22"})
	}
	for i := 1; i <= 2; i++ {
		s.box(i, "", "maxPrefixes: 4", "")
	}
	s.Add("client")
	s.plug("client", "up0", "eth0", "10.1.0.9/24", "fd01::9/64")
	return s
}

// newHosts makes the networks of a site with these VIPs.
func newHosts(t *testing.T, vips ...string) *site {
	bin := os.Getenv("LBD_BIN")
	if bin == "" {
		testnet.Require(t, errors.New("LBD_BIN names no lbd: make build, then LBD_BIN=$PWD/bin/lbd"))
	}
	runtime.LockOSThread() // by which daemons are started: they end with it
	s := &site{Net: testnet.New(t), t: t, bin: bin, hosts: make(map[string]*host), names: make(map[string]string), vips: vips}
	for _, br := range []string{"br0", "up0"} {
		s.bridge(br)
	}
	s.Exec("ip", "addr", "add", "10.0.0.10/24", "dev", "br0")
	return s
}

func (s *site) bridge(name string) {
	s.t.Helper()
	s.Exec("ip", "link", "add", name, "type", "bridge", "mcast_snooping", "0", "forward_delay", "0")
	s.t.Cleanup(func() { _ = exec.Command("ip", "link", "del", name).Run() })
	s.Exec("ip", "link", "set", name, "up")
}

// plug connects a host to a bridge.
func (s *site) plug(name, bridge, iface string, addrs ...string) {
	s.t.Helper()
	port := cable(name, bridge)
	s.Exec("ip", "link", "add", port, "type", "veth", "peer", "name", iface, "netns", s.NS(name))
	s.t.Cleanup(func() { _ = exec.Command("ip", "link", "del", port).Run() })
	s.Exec("ip", "link", "set", port, "master", bridge, "up")
	s.IP(name, "link set "+iface+" up")
	for _, addr := range addrs {
		s.IP(name, "addr add "+addr+" dev "+iface)
		s.names[netip.MustParsePrefix(addr).Addr().String()] = name
	}
}

// cable is the end of a link at a bridge.
func cable(name, bridge string) string { return bridge + "-" + name }

func (s *site) sysctl(name string, settings ...string) {
	s.t.Helper()
	s.ExecOn(name, append([]string{"sysctl", "-q", "-w"}, settings...)...)
}

// master is a host whose daemon advertises the VIPs to the boxes while its service runs.
func (s *site) master(number int, boxes [2]string) {
	s.t.Helper()
	name, addr := fmt.Sprintf("s%d", number), fmt.Sprintf("10.0.0.1%d", number)
	s.Add(name)
	s.plug(name, "br0", "eth0", addr+"/24", fmt.Sprintf("fd00::1%d/64", number))
	s.IP(name, "route add default via "+gateway, "route add default via "+gateway6)
	s.configure(name, addr, "10.0.0.11, 10.0.0.12, 10.0.0.13", fmt.Sprintf(`---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: b1}
spec: {myASN: 64513, peerASN: 64512, peerAddress: %q, bfdProfile: fast, connectTime: 1s}
---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: b2}
spec: {myASN: 64513, peerASN: 64512, peerAddress: %q, bfdProfile: fast, connectTime: 1s}
---
apiVersion: lbd.dev/v1alpha1
kind: VirtualIP
metadata: {name: control-plane}
spec:
  addresses: [%q, %q]
  healthCheck: {tcp: {port: %s}}
  advertise: {bgp: {}}
`, boxes[0], boxes[1], s.vips[0], s.vips[1], service))
	s.In(name, func() { s.serve(name) })
}

// box is a host that learns of masters. No file of it names one.
func (s *site) box(number int, accept, spec, more string) {
	s.t.Helper()
	name := fmt.Sprintf("b%d", number)
	s.Add(name)
	s.plug(name, "br0", "eth0", fmt.Sprintf("10.0.0.2%d/24", number), fmt.Sprintf("fd00::2%d/64", number))
	s.plug(name, "up0", "eth1", fmt.Sprintf("10.1.0.2%d/24", number), fmt.Sprintf("fd01::2%d/64", number))
	s.sysctl(name, "net.ipv4.ip_forward=1", "net.ipv4.fib_multipath_hash_policy=3", "net.ipv4.fib_multipath_hash_fields=0x37",
		"net.ipv6.conf.all.forwarding=1", "net.ipv6.fib_multipath_hash_policy=3", "net.ipv6.fib_multipath_hash_fields=0x37")
	s.configure(name, fmt.Sprintf("10.0.0.2%d", number), "10.0.0.21, 10.0.0.22", fmt.Sprintf(`---
apiVersion: lbd.dev/v1alpha1
kind: VirtualIP
metadata: {name: gateway}
spec: {addresses: [%s, %q]}
---
apiVersion: lbd.dev/v1alpha1
kind: BGPListener
metadata: {name: masters}
spec:
  asn: 64512
  peerPrefixes: [10.0.0.0/24, "fd00::/64"]
  acceptPrefixes: [%s/32, "%s/128"%s]
  bfdProfile: fast
  %s
`, gateway, gateway6, s.vips[0], s.vips[1], accept, spec)+more)
}

const nodeFile = `apiVersion: lbd.dev/v1alpha1
kind: NodeConfiguration
nodeName: %s
gossip: {bindAddress: %s, peers: [%s], insecure: true}
http: {address: 127.0.0.1:7477}
socket: %s/lbd.sock
---
apiVersion: lbd.dev/v1alpha1
kind: BFDProfile
metadata: {name: fast}
spec: {transmitInterval: 100, receiveInterval: 100, detectMultiplier: 3}
`

func (s *site) configure(name, addr, peers, objects string) {
	s.t.Helper()
	h := &host{name: name, dir: s.t.TempDir()}
	s.hosts[name] = h
	if err := os.WriteFile(h.file(), []byte(fmt.Sprintf(nodeFile, name, addr, peers, h.dir)+objects), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (h *host) file() string { return filepath.Join(h.dir, "lbd.yaml") }

// serve answers each connection with the name of the host, and each line with itself.
func (s *site) serve(name string) {
	// One socket for both would be of IPv4 if Go found no ::1 in the namespace of the test process.
	for _, network := range []string{"tcp4", "tcp6"} {
		l, err := net.Listen(network, ":"+service)
		if err != nil {
			s.t.Error(err)
			return
		}
		s.t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer func() { _ = c.Close() }()
					if _, err := fmt.Fprintln(c, name); err == nil {
						_, _ = io.Copy(c, c)
					}
				}()
			}
		}()
	}
}

func (s *site) start(names ...string) {
	s.t.Helper()
	for _, name := range names {
		h := s.hosts[name]
		cmd := exec.Command("ip", "netns", "exec", s.NS(name), s.bin, "run", "--config", h.file())
		cmd.Stdout, cmd.Stderr = &h.log, &h.log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			s.t.Fatal(err)
		}
		h.cmd = cmd
		s.t.Cleanup(func() {
			_, _ = cmd.Process.Kill(), cmd.Wait()
			if s.t.Failed() {
				s.t.Logf("%s:\n%s", name, h.log.String())
			}
		})
	}
}

// kill ends a daemon at once.
func (s *site) kill(name string) { _ = s.hosts[name].cmd.Process.Kill() }

// lbd runs a command on a host.
func (s *site) lbd(name string, args ...string) (string, error) {
	out, err := exec.Command("ip", append([]string{"netns", "exec", s.NS(name), s.bin, "--config", s.hosts[name].file()}, args...)...).CombinedOutput()
	return string(out), err
}

// status is what a daemon says; nothing while it does not answer.
func (s *site) status(name string) (st v1alpha1.NodeStatus) {
	if out, err := s.lbd(name, "status", "-o", "json"); err == nil {
		_ = json.Unmarshal([]byte(out), &st)
	}
	return st
}

// via finds the next hops of a route in the words of ip.
var via = regexp.MustCompile(`via (?:inet6 )?(\S+)`)

// hops are the hosts to which the kernel of another one sends what is for a VIP.
func (s *site) hops(name, vip string) string {
	family := "-4"
	if strings.Contains(vip, ":") {
		family = "-6"
	}
	out, _ := exec.Command("ip", "-n", s.NS(name), family, "route", "show", vip).CombinedOutput()
	var found []string
	for _, to := range via.FindAllStringSubmatch(string(out), -1) {
		if to := s.names[to[1]]; to != "" {
			found = append(found, to)
		}
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

// await waits until the kernel of each of these hosts sends what is for the VIPs to exactly so many.
func (s *site) await(want string, hosts ...string) time.Time {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		is := ""
		for _, h := range hosts {
			for _, vip := range s.vips {
				if to := s.hops(h, vip); to != want {
					is += fmt.Sprintf("%s sends what is for %s to %q\n", h, vip, to)
				}
			}
		}
		if is == "" {
			return time.Now()
		}
		if time.Now().After(end) {
			for name := range s.hosts {
				out, _ := s.lbd(name, "status")
				s.t.Logf("%s\n%s", name, out)
			}
			s.t.Fatalf("%sand not to %q", is, want)
		}
	}
}

// owner waits until one of the boxes owns an address, and names it.
func (s *site) owner(addr string, boxes ...string) string {
	s.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, b := range boxes {
			for _, v := range s.status(b).VIPs {
				if v.Address == addr && v.Owner == b && v.Announced {
					return b
				}
			}
		}
	}
	out, _ := s.lbd(boxes[0], "status")
	s.t.Fatalf("no box owns %s: %s", addr, out)
	return ""
}

// conn is a connection of the client.
type conn struct {
	net.Conn
	master string
}

// dial connects the client to a VIP.
func (s *site) dial(vip string, wait time.Duration) (c conn, err error) {
	s.In("client", func() {
		if c.Conn, err = net.DialTimeout("tcp", net.JoinHostPort(vip, service), wait); err != nil {
			return
		}
		c.master, err = c.line(wait)
	})
	return c, err
}

// line reads one.
func (c conn) line(wait time.Duration) (string, error) {
	_ = c.SetDeadline(time.Now().Add(wait))
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := c.Read(one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			return string(line), nil
		}
		line = append(line, one[0])
	}
}

// lives tells whether a connection still works.
func (c conn) lives(wait time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(wait))
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return err
	}
	_, err := c.line(wait)
	return err
}
