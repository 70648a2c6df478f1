package gobgp

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	api "github.com/osrg/gobgp/v4/api"

	"lbd.dev/lbd/internal/bgp"
)

// lookAgain is the least time between two looks at the addresses of this node.
const lookAgain = 30 * time.Second

// endpoints are what the addresses of both ends allow for paths of the other family.
type endpoints struct {
	nextHop netip.Addr // of IPv6 paths over an IPv4 session
	looked  time.Time  // for nextHop
	// extended: the peer takes IPv6 next hops of IPv4 paths; see extend.
	extended bool
}

// findNextHop looks for the next hop of IPv6 paths over an IPv4 session: a global
// address of the interface that holds the local end. In all other sessions the
// local end itself will do (RFC 2545, RFC 8950).
func (s *Speaker) findNextHop(p *peer) {
	p.nextHop, p.looked = netip.Addr{}, time.Now()
	if !p.conf.IPv6 || p.conf.Address.Is6() {
		return
	}
	local := p.conf.Source
	if !local.IsValid() {
		local = bgp.SourceTo(p.conf.Address, defaultPort)
	}
	p.nextHop = besides(local)
}

// renewNextHop follows a change of the addresses of this node. It reads all of
// them, which may be many, so it looks seldom.
func (s *Speaker) renewNextHop(p *peer) {
	if time.Since(p.looked) < lookAgain {
		return
	}
	old := p.nextHop
	s.findNextHop(p)
	if p.nextHop == old {
		return
	}
	s.recast(p)
	s.resend(p)
}

// extend lets a peer over IPv6 have IPv4 paths once its OPEN has said that it
// takes them (RFC 8950 section 4). The server does not look.
func (s *Speaker) extend(p *peer, known *api.Peer) {
	if !p.conf.IPv4 || p.conf.Address.Is4() {
		return
	}
	_, extended := capabilities(known)
	if extended == p.extended {
		return
	}
	p.extended = extended
	s.recast(p)
	s.resend(p)
}

// besides returns a global IPv6 address of the interface that has the address
// local. Host addresses count only if there is nothing else: they may be VIPs.
func besides(local netip.Addr) netip.Addr {
	ifaces, err := net.Interfaces()
	if err != nil || !local.IsValid() {
		return netip.Addr{}
	}
	for _, iface := range ifaces {
		addrs, err := iface.Addrs()
		if err != nil {
			continue
		}
		here := false
		var best, host netip.Addr
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			addr, _ := netip.AddrFromSlice(n.IP)
			addr = addr.Unmap()
			here = here || addr == local
			if !addr.Is6() || !addr.IsGlobalUnicast() {
				continue
			}
			to := &best
			if ones, _ := n.Mask.Size(); ones == 128 {
				to = &host
			}
			if !to.IsValid() || addr.Less(*to) {
				*to = addr
			}
		}
		if here && best.IsValid() {
			return best
		}
		if here {
			return host
		}
	}
	return netip.Addr{}
}

// linkLocal is the link-local address of an interface.
func linkLocal(name string) (netip.Addr, error) {
	iface, err := net.InterfaceByName(name)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("interface %q: does not exist", name)
	}
	addrs, err := iface.Addrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("interface %q: %w", name, err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok && addr.Is6() && addr.IsLinkLocalUnicast() {
				return addr, nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("interface %q: has no IPv6 link-local address", name)
}
