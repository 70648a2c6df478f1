package learned

import (
	"fmt"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// session is one peer of one listener.
type session struct {
	listener string
	peer     netip.Addr
}

// paths sorts the learned paths into next hops and refused ones.
func (s *step) paths() {
	all := slices.Clone(s.Paths)
	slices.SortFunc(all, func(a, b model.LearnedPath) int { return a.Compare(&b) })
	all = slices.Compact(all)
	count := make(map[session][2]int)
	for i := range all {
		p := &all[i]
		at := session{p.Listener, p.Peer}
		n := count[at]
		n[family(p.Prefix.Addr())]++
		count[at] = n
	}
	for i := range all {
		p := &all[i]
		hop, why := s.hop(p, count[session{p.Listener, p.Peer}])
		switch {
		case why == "":
			s.hops[p.Prefix] = append(s.hops[p.Prefix], hop)
		case len(s.out.Paths) < MaxRefused:
			s.out.Paths = append(s.out.Paths, model.RefusedPath{LearnedPath: *p, Why: why})
		default:
			s.out.Untold++
		}
	}
}

// Private tells whether an AS number is for private use, RFC 6996.
func Private(asn uint32) bool {
	return 64512 <= asn && asn <= 65534 || 4200000000 <= asn && asn <= 4294967294
}

// family is 0 for IPv4 and 1 for IPv6.
func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// hop is the next hop of a path, or why the path is refused.
func (s *step) hop(p *model.LearnedPath, sent [2]int) (hop model.NextHop, why string) {
	at := slices.IndexFunc(s.Listeners, func(l model.BGPListener) bool { return l.Name == p.Listener })
	if at < 0 {
		return hop, "its BGPListener is configured no more"
	}
	l := &s.Listeners[at]
	if l.PeerASN == 0 && !Private(p.PeerASN) {
		return hop, fmt.Sprintf("AS %d of the master is no private one, and the BGPListener has no peerASN", p.PeerASN)
	}
	if n := sent[family(p.Prefix.Addr())]; n > l.MaxPrefixes {
		return hop, fmt.Sprintf("the master advertises %d prefixes, and maxPrefixes is %d", n, l.MaxPrefixes)
	}
	if of := s.accept[p.Prefix]; of == nil || of.Name != l.Name {
		return hop, "it is none of acceptPrefixes"
	}
	a := p.NextHop
	switch {
	case !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
		return hop, fmt.Sprintf("its next hop %s is no address of a machine", a)
	case a.Is4() && p.Prefix.Addr().Is6():
		return hop, fmt.Sprintf("its next hop %s is not of its family", a)
	case a.Is4() == p.Peer.Is4() && a != p.Peer.WithZone(""):
		return hop, fmt.Sprintf("its next hop %s is another machine than the master that advertises it", a)
	case a.Is4() != p.Peer.Is4() && !slices.ContainsFunc(l.PeerPrefixes, func(p netip.Prefix) bool { return p.Contains(a) }):
		// Nothing tells which address of the other family is the master's own.
		return hop, fmt.Sprintf("its next hop %s is in none of peerPrefixes", a)
	}
	name, why := s.link(a)
	return model.NextHop{Gateway: a, Interface: name, Weight: 1}, why
}

// link is the interface in whose subnet an address is: of several the one with the longest
// prefix, then the first. Or why there is none.
func (s *step) link(a netip.Addr) (name, why string) {
	bits, down := -1, ""
	for n, l := range s.Links {
		for _, p := range l.Prefixes {
			switch {
			case p.Addr() == a:
				return "", fmt.Sprintf("its next hop %s is an address of this machine", a)
			case !p.Contains(a):
			case !l.Up:
				if down == "" || n < down {
					down = n
				}
			case p.Bits() > bits, p.Bits() == bits && n < name:
				name, bits = n, p.Bits()
			}
		}
	}
	switch {
	case bits >= 0:
		return name, ""
	case down != "":
		return "", fmt.Sprintf("its next hop %s is by interface %s, which is down", a, down)
	}
	return "", fmt.Sprintf("its next hop %s is in no subnet of this machine", a)
}
