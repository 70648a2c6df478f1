package forward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/testnet"
)

// TestMain runs the tests in namespaces of their own.
func TestMain(m *testing.M) { testnet.Main(m) }

// The hosts of a lab.
const (
	hub    = "hub" // the switch
	client = "c"
	b1, b2 = "b1", "b2" // the balancers
	s1     = "s1"
	s2     = "s2"
	s3     = "s3"
)

var (
	hosts = map[string]int{client: 9, b1: 1, b2: 2, s1: 11, s2: 12, s3: 13}
	vip4  = netip.MustParseAddr("10.0.0.100")
	vip6  = netip.MustParseAddr("fd00::100")
	both  = []netip.Addr{vip4, vip6}
)

const (
	port   = 443  // of the VIPs
	target = 6443 // of the servers
)

// patience is how long something may take on a busy machine.
const patience = 30 * time.Second

// lab is a client, two balancers and three servers on one switch.
type lab struct {
	testing.TB
	*testnet.Net
}

// newLab is for a test beside others.
func newLab(t *testing.T) *lab {
	t.Helper()
	t.Parallel()
	return quietLab(t)
}

// quietLab is for a test that measures, or in which something is looked for at its time.
func quietLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{t, testnet.New(t)}
	l.Switch(hub)
	for h := range hosts {
		l.Add(h)
		l.Plug(h, hub, mac(h))
		lines := []string{"link set eth0 up"}
		for _, vip := range both {
			lines = append(lines, fmt.Sprintf("addr add %s/%d dev eth0 nodad", addr(h, vip), subnet(vip)))
		}
		l.IP(h, lines...)
	}
	for _, b := range []string{b1, b2} {
		l.ExecOn(b, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.netfilter.nf_conntrack_tcp_be_liberal=1",
			"net.netfilter.nf_conntrack_udp_timeout=600", "net.netfilter.nf_conntrack_udp_timeout_stream=600") // longer than any test is slow
	}
	for _, s := range []string{s1, s2, s3} {
		l.serve(s, target)
	}
	l.move(b1)
	return l
}

func subnet(a netip.Addr) int {
	if a.Is4() {
		return 24
	}
	return 64
}

func mac(host string) string { return fmt.Sprintf("02:00:00:00:00:%02d", hosts[host]) }

// addr is the address of a host in the family of vip.
func addr(host string, vip netip.Addr) netip.Addr {
	if vip.Is4() {
		return netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", hosts[host]))
	}
	return netip.MustParseAddr(fmt.Sprintf("fd00::%d", hosts[host]))
}

// server is where a server serves.
func server(host string, vip netip.Addr) netip.AddrPort {
	return netip.AddrPortFrom(addr(host, vip), target)
}

// move has the VIPs taken over by a balancer.
func (l *lab) move(to string) {
	l.Helper()
	for h := range hosts {
		if h != to {
			l.knows(h, to, both...)
		}
	}
}

// knows has a host send what is for these addresses to another one.
func (l *lab) knows(host, to string, addrs ...netip.Addr) {
	l.Helper()
	of := make(map[netip.Addr]string)
	for _, a := range addrs {
		of[a] = mac(to)
	}
	l.Neigh(host, "eth0", of)
}

// serve answers each line and each datagram with the name of the host and with the client
// as it sees it.
func (l *lab) serve(host string, port uint16) {
	l.Helper()
	var ln net.Listener
	var pc net.PacketConn
	var errs [2]error
	l.In(host, func() {
		ln, errs[0] = net.Listen("tcp", fmt.Sprintf(":%d", port))
		pc, errs[1] = net.ListenPacket("udp", fmt.Sprintf(":%d", port))
	})
	if errs[0] != nil || errs[1] != nil {
		l.Fatal(errs)
	}
	l.Cleanup(func() { _, _ = ln.Close(), pc.Close() })
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo([]byte(answer(host, from)), from)
		}
	}()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if _, err := c.Write([]byte(answer(host, c.RemoteAddr()))); err != nil {
						return
					}
				}
			}()
		}
	}()
}

func answer(host string, from net.Addr) string {
	at, _ := netip.ParseAddrPort(from.String())
	return host + " " + at.Addr().Unmap().String() + "\n"
}

// dial opens a connection from a host.
func (l *lab) dial(from, network string, to netip.AddrPort) (c net.Conn, err error) {
	l.Helper()
	return l.dialFrom(from, network, 0, to)
}

// dialFrom connects from a port; 0: one that the kernel chooses.
func (l *lab) dialFrom(from, network string, own uint16, to netip.AddrPort) (c net.Conn, err error) {
	l.Helper()
	d := net.Dialer{Timeout: 3 * time.Second}
	switch at := netip.AddrPortFrom(addr(from, to.Addr()), own); {
	case own == 0: // not every host has an address that addr knows
	case network == "udp":
		d.LocalAddr = net.UDPAddrFromAddrPort(at)
	default:
		d.LocalAddr = net.TCPAddrFromAddrPort(at)
	}
	l.In(from, func() { c, err = d.Dial(network, to.String()) })
	if err == nil {
		l.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// open opens one from the client to the VIP.
func (l *lab) open(network string, vip netip.Addr) net.Conn {
	l.Helper()
	c, err := l.dial(client, network, netip.AddrPortFrom(vip, port))
	if err != nil {
		l.Fatal(err)
	}
	return c
}

// ask returns who serves a connection, and the client as it sees it. A datagram is sent
// until it is answered.
func ask(c net.Conn, within time.Duration) (host, seen string, err error) {
	wait := within
	if c.RemoteAddr().Network() == "udp" {
		wait = min(wait, 200*time.Millisecond)
	}
	buf := make([]byte, 100)
	for end := time.Now().Add(within); ; {
		_ = c.SetDeadline(time.Now().Add(wait))
		if _, err = c.Write([]byte("who\n")); err == nil {
			var n int
			if n, err = c.Read(buf); err == nil {
				host, seen, _ = strings.Cut(strings.TrimSpace(string(buf[:n])), " ")
				return host, seen, nil
			}
		}
		if !time.Now().Before(end) || wait == within || errors.Is(err, syscall.ECONNREFUSED) {
			return "", "", err
		}
	}
}

// served is who serves a connection.
func (l *lab) served(c net.Conn) string {
	l.Helper()
	host, _, err := ask(c, patience)
	if err != nil {
		l.Fatalf("%s: %v", c.LocalAddr(), err)
	}
	return host
}

// slotTable has so many slots, filled with the servers in turn.
func slotTable(n int, vip netip.Addr, servers ...string) *model.SlotTable {
	t := &model.SlotTable{Slots: make([]netip.AddrPort, n)}
	for i := range t.Slots {
		t.Slots[i] = server(servers[i%len(servers)], vip)
	}
	return t
}

// wanted is that of a service of TCP and of UDP for each VIP, new connections of which the
// servers get; all three may have some.
func wanted(servers ...string) *model.ForwardState {
	out := &model.ForwardState{}
	for _, vip := range both {
		var slots *model.SlotTable
		if len(servers) > 0 {
			slots = slotTable(1024, vip, servers...)
		}
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			out.Services = append(out.Services, model.ForwardService{
				Addr: vip, Protocol: p, Port: port, Slots: slots,
				Servers:   []netip.AddrPort{server(s1, vip), server(s2, vip), server(s3, vip)},
				Interface: "eth0", Claimed: true,
			})
		}
	}
	return out
}

// balancer is a driver on a host.
type balancer struct {
	*lab
	host string
	*Driver
}

// loads puts rules in the place of all that there are, and waits until the driver has heard of that. What it
// decides before is put right by the next Apply, which no test of this package causes.
func (b *balancer) loads(rules string) {
	b.Helper()
	file := b.TempDir() + "/rules"
	if err := os.WriteFile(file, []byte("flush ruleset\n"+rules), 0o600); err != nil {
		b.Fatal(err)
	}
	b.ExecOn(b.host, "nft", "-f", file)
	for end := time.Now().Add(patience); !b.removed.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatal("the driver has not heard that its tables were replaced")
		}
	}
}

func (l *lab) balancer(host string) *balancer {
	b := &balancer{l, host, New(Options{Logger: slog.New(slog.DiscardHandler)})}
	l.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			l.Error(err)
		}
	})
	return b
}

// apply makes the state true, once all sources are heard.
func (b *balancer) apply(state *model.ForwardState) model.Applied {
	b.Helper()
	return b.want(&model.Desired{Synced: true, Forward: *state})
}

func (b *balancer) want(want *model.Desired) (got model.Applied) {
	b.Helper()
	var err error
	b.In(b.host, func() { got, err = b.Apply(context.Background(), want) })
	if err != nil {
		b.Fatal(err)
	}
	return got
}

// forwards is apply, for a state that has to be forwarded.
func (b *balancer) forwards(state *model.ForwardState) {
	b.Helper()
	got := b.apply(state)
	for i := range state.Services {
		if v := got.VIPs[state.Services[i].Addr]; !v.Forwarding || v.Err != "" {
			b.Fatalf("%s: %+v", state.Services[i].Addr, v)
		}
	}
}
