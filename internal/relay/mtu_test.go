package relay

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// beyond is a client behind host C, which is its router.
const beyond = "r"

// bulkPort is where a server sends all that it is asked for.
const bulkPort = 6444

var beyondNets = map[bool][2]string{true: {"10.9.0.1", "10.9.0.2"}, false: {"fd09::1", "fd09::2"}}

// narrow puts a client behind host C by a link that takes packets of mtu bytes, while the
// cards at both ends, and so the client and the servers, are for larger ones.
func (l *lab) narrow(mtu int, hosts []string) {
	l.Helper()
	l.Add(beyond)
	l.IP(hostC, fmt.Sprintf("link add far0 mtu %d type veth peer name eth0 mtu 1500 netns %s", mtu, l.NS(beyond)))
	l.IP(hostC, "link set far0 up")
	l.IP(beyond, "link set eth0 up")
	l.ExecOn(hostC, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding")
	for _, vip := range []netip.Addr{vip4, vip6} {
		net, bits := beyondNets[vip.Is4()], subnet(vip)
		l.IP(hostC, fmt.Sprintf("addr add %s/%d dev far0 nodad", net[0], bits))
		l.IP(beyond, fmt.Sprintf("addr add %s/%d dev eth0 nodad", net[1], bits))
		l.IP(beyond, fmt.Sprintf("route add default via %s", net[0]))
		for _, h := range hosts {
			l.IP(h, fmt.Sprintf("route add %s/%d via %s", net[1], vip.BitLen(), nodeAddr(hostC, vip)))
		}
	}
	for _, h := range hosts {
		ln := l.listen(h, fmt.Sprintf(":%d", bulkPort))
		go sendBulk(ln, h)
	}
}

// bulk is more than is sent before an answer must come.
const bulk = 200 << 10

// sendBulk answers each byte with the name of the host, and much more.
func sendBulk(ln net.Listener, host string) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			for b := make([]byte, 1); ; {
				if _, err := c.Read(b); err != nil {
					return
				}
				if _, err := c.Write(append([]byte(host), make([]byte, bulk-1)...)); err != nil {
					return
				}
			}
		}()
	}
}

// fetch asks for all that a server sends, and returns who it was.
func fetch(c net.Conn) (string, error) {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte{1}); err != nil {
		return "", err
	}
	b := make([]byte, bulk)
	n, err := io.ReadFull(c, b)
	if err != nil {
		return "", fmt.Errorf("after %d of %d bytes: %w", n, len(b), err)
	}
	return string(b[:1]), nil
}

// TestPathIsNarrowerThanTheNetwork: a client is behind a tunnel. Its router tells the address
// that packets are too big, not the node that has the connection: that one has to hear it.
func TestPathIsNarrowerThanTheNetwork(t *testing.T) {
	t.Parallel()
	hosts := nodes[:3]
	for name, make := range map[string]func(*lab, netip.Addr){
		"moved": func(l *lab, vip netip.Addr) { l.ring(vip, hosts...) },
		"balanced": func(l *lab, vip netip.Addr) {
			for _, d := range l.balanced(vip, hosts, hostB) {
				if d.host == hostB {
					d.relay(owning(hosts, hostB, vip, hostA)) // all that is new
				}
			}
		},
		"translated": func(l *lab, vip netip.Addr) {
			for _, h := range hosts {
				l.script(h, fmt.Sprintf(`table %[1]s proxy { chain in {
					type nat hook prerouting priority dstnat
					%[1]s daddr %[2]s tcp dport %[3]d dnat to %[4]s
				}; }`, familyOf(vip), vip, bulkPort, nodeAddr(h, vip)))
			}
			l.trackedRing(vip, hosts...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLabOf(t, hosts)
			l.narrow(1300, hosts)
			for _, vip := range []netip.Addr{vip4, vip6} {
				l.steer(vip, hostA)
				make(l, vip)
				var c net.Conn
				var err error
				l.In(beyond, func() { c, err = net.DialTimeout("tcp", netip.AddrPortFrom(vip, bulkPort).String(), 5*time.Second) })
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				l.steer(vip, hostB)
				if who, err := fetch(c); err != nil || who != hostA {
					t.Errorf("%s: served by %q, %v; want %s", vip, who, err, hostA)
				}
			}
		})
	}
}
