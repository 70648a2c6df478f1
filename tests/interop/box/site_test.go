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
// The boxes name no master. The VIP is an address of the clients' network, for which a box answers
// ARP. Masters have a VIP of the boxes as their gateway.
type site struct {
	*testnet.Net
	t     *testing.T
	bin   string
	hosts map[string]*host
}

// host is a machine with lbd.
type host struct {
	name, dir string
	cmd       *exec.Cmd
	log       bytes.Buffer
}

const (
	siteVIP = "10.1.0.100"
	gateway = "10.0.0.1"
	service = "6443"
)

// newSite makes the hosts; daemons run after start.
func newSite(t *testing.T) *site {
	bin := os.Getenv("LBD_BIN")
	if bin == "" {
		testnet.Require(t, errors.New("LBD_BIN names no lbd: make build, then LBD_BIN=$PWD/bin/lbd"))
	}
	runtime.LockOSThread() // by which daemons are started: they end with it
	s := &site{Net: testnet.New(t), t: t, bin: bin, hosts: make(map[string]*host)}
	for _, br := range []string{"br0", "up0"} {
		s.Exec("ip", "link", "add", br, "type", "bridge", "mcast_snooping", "0", "forward_delay", "0")
		t.Cleanup(func() { _ = exec.Command("ip", "link", "del", br).Run() })
		s.Exec("ip", "link", "set", br, "up")
	}
	s.Exec("ip", "addr", "add", "10.0.0.10/24", "dev", "br0")
	for i := 1; i <= 3; i++ {
		s.master(fmt.Sprintf("s%d", i), fmt.Sprintf("10.0.0.1%d", i))
	}
	s.box("b1", "1")
	s.box("b2", "2")
	s.Add("client")
	s.plug("client", "up0", "eth0", "10.1.0.9/24")
	return s
}

// plug connects a host to a bridge.
func (s *site) plug(name, bridge, iface, addr string) {
	s.t.Helper()
	port := cable(name, bridge)
	s.Exec("ip", "link", "add", port, "type", "veth", "peer", "name", iface, "netns", s.NS(name))
	s.t.Cleanup(func() { _ = exec.Command("ip", "link", "del", port).Run() })
	s.Exec("ip", "link", "set", port, "master", bridge, "up")
	s.IP(name, "link set "+iface+" up")
	s.IP(name, "addr add "+addr+" dev "+iface)
}

// cable is the end of a link at a bridge.
func cable(name, bridge string) string { return bridge + "-" + name }

func (s *site) sysctl(name string, settings ...string) {
	s.t.Helper()
	s.ExecOn(name, append([]string{"sysctl", "-q", "-w"}, settings...)...)
}

// master is a host whose daemon advertises the VIP while its service runs.
func (s *site) master(name, addr string) {
	s.t.Helper()
	s.Add(name)
	s.plug(name, "br0", "eth0", addr+"/24")
	s.IP(name, "route add default via "+gateway)
	s.configure(name, addr, "10.0.0.11, 10.0.0.12, 10.0.0.13", fmt.Sprintf(`---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: b1}
spec: {myASN: 64513, peerASN: 64512, peerAddress: 10.0.0.21, families: [ipv4], bfdProfile: fast, connectTime: 1s}
---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: b2}
spec: {myASN: 64513, peerASN: 64512, peerAddress: 10.0.0.22, families: [ipv4], bfdProfile: fast, connectTime: 1s}
---
apiVersion: lbd.dev/v1alpha1
kind: VirtualIP
metadata: {name: control-plane}
spec:
  addresses: [%s]
  healthCheck: {tcp: {port: %s}}
  advertise: {bgp: {}}
`, siteVIP, service))
	s.In(name, func() { s.serve(name) })
}

// box is a host that learns of masters. No file of it names one.
func (s *site) box(name, number string) {
	s.t.Helper()
	s.Add(name)
	s.plug(name, "br0", "eth0", "10.0.0.2"+number+"/24")
	s.plug(name, "up0", "eth1", "10.1.0.2"+number+"/24")
	s.sysctl(name, "net.ipv4.ip_forward=1", "net.ipv4.fib_multipath_hash_policy=3", "net.ipv4.fib_multipath_hash_fields=0x37")
	s.configure(name, "10.0.0.2"+number, "10.0.0.21, 10.0.0.22", fmt.Sprintf(`---
apiVersion: lbd.dev/v1alpha1
kind: VirtualIP
metadata: {name: gateway}
spec: {addresses: [%s]}
---
apiVersion: lbd.dev/v1alpha1
kind: BGPListener
metadata: {name: masters}
spec: {asn: 64512, peerPrefixes: [10.0.0.0/24], acceptPrefixes: [%s/32], maxPrefixes: 4, bfdProfile: fast}
`, gateway, siteVIP))
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
	l, err := net.Listen("tcp", ":"+service)
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

// hops are the masters to which the kernel of a box sends, by number.
func (s *site) hops(name string) string {
	out, _ := exec.Command("ip", "-n", s.NS(name), "route", "show", siteVIP).CombinedOutput()
	var found []string
	for i := 1; i <= 3; i++ {
		if strings.Contains(string(out), fmt.Sprintf("via 10.0.0.1%d ", i)) {
			found = append(found, fmt.Sprintf("s%d", i))
		}
	}
	return strings.Join(found, " ")
}

// await waits until the kernel of each box sends to exactly these masters.
func (s *site) await(masters string, boxes ...string) time.Time {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		if !slices.ContainsFunc(boxes, func(b string) bool { return s.hops(b) != masters }) {
			return time.Now()
		}
		if time.Now().After(end) {
			for _, b := range boxes {
				out, _ := s.lbd(b, "status")
				s.t.Logf("%s sends to %q\n%s", b, s.hops(b), out)
			}
			s.t.Fatalf("%v send to other masters than %q", boxes, masters)
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

// dial connects the client to the VIP.
func (s *site) dial(wait time.Duration) (c conn, err error) {
	s.In("client", func() {
		d := net.Dialer{Timeout: wait, LocalAddr: &net.TCPAddr{IP: netip.MustParseAddr("10.1.0.9").AsSlice()}}
		if c.Conn, err = d.Dial("tcp", net.JoinHostPort(siteVIP, service)); err != nil {
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
