package health

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/sockdiag"
)

// What is forwarded to a server on this very host reaches its programs only: the kernel translates
// the destination of a connection once. A connection that begins here, as that of a check does, is
// translated on its way to the NodePort of a Service, or to the port of a container, and passes
// although nothing that is forwarded would.

// lookEvery is how often it is looked whether a server is on this host.
const lookEvery = 10 * time.Second

const notHere = "no program of this node listens there: what is forwarded to this node itself reaches no NodePort and no port of a container"

// forwarded is the server of a check to which connections are forwarded.
type forwarded struct {
	to     netip.AddrPort
	here   bool // it is on this host
	looked time.Time
}

// newForwarded returns nil if the check does not ask an address.
func newForwarded(c v1alpha1.HealthCheck) *forwarded {
	var host string
	var port int32
	switch {
	case c.HTTPS != nil:
		host, port = c.HTTPS.Host, c.HTTPS.Port
	case c.HTTP != nil:
		host, port = c.HTTP.Host, c.HTTP.Port
	case c.TCP != nil:
		host, port = c.TCP.Host, c.TCP.Port
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	return &forwarded{to: netip.AddrPortFrom(addr, uint16(port))}
}

// missed is the error of a server that passed its check, and that nothing which is forwarded would
// reach; nil if it would, or that is not known.
func (f *forwarded) missed() error {
	if now := time.Now(); f.looked.IsZero() || now.Sub(f.looked) >= lookEvery {
		f.here, f.looked = isHere(f.to.Addr()), now
	}
	if !f.here {
		return nil
	}
	listens := false
	err := sockdiag.TCP(sockdiag.Listening, false, func(s sockdiag.Socket) {
		a := s.Local.Addr()
		listens = listens || s.Local.Port() == f.to.Port() && (a == f.to.Addr() || a.IsUnspecified() && (a.Is6() || f.to.Addr().Is4()))
	})
	if err != nil || listens {
		return nil
	}
	return fmt.Errorf("%s: %s", f.to, notHere)
}

// isHere tells whether an address is one of this host: then it is also the one from which the host
// speaks to it. Nothing is sent.
func isHere(a netip.Addr) bool {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap() == a
}
