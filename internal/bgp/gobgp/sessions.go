package gobgp

import (
	"net/netip"
	"time"

	api "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	bgptypes "lbd.dev/lbd/internal/bgp"
)

// counted is what a peer sent and was sent.
type counted struct {
	base counters // of earlier lives
}

type counters struct{ updatesOut, updatesIn, keepalivesOut, keepalivesIn, noticesOut, noticesIn uint64 }

// Sessions returns the truth about every peer.
func (s *Speaker) Sessions() map[string]bgptypes.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]bgptypes.Session, len(s.peers))
	if s.server == nil {
		return out
	}
	s.drain()
	known := s.list("")
	for name, p := range s.peers {
		if p.in {
			s.renewNextHop(p)
		}
		out[name] = p.session(known[p.conf.Address])
	}
	return out
}

// list asks the server for one peer, or for all.
func (s *Speaker) list(addr string) map[netip.Addr]*api.Peer {
	out := make(map[netip.Addr]*api.Peer)
	err := s.server.ListPeer(s.ctx, &api.ListPeerRequest{Address: addr}, func(p *api.Peer) {
		if a, err := netip.ParseAddr(p.GetState().GetNeighborAddress()); err == nil {
			out[a] = p
		}
	})
	if err != nil {
		s.log.Debug("peers not listed", "err", err)
	}
	return out
}

// session puts together what the keeper and the server know.
func (p *peer) session(known *api.Peer) bgptypes.Session {
	out := bgptypes.Session{
		State: p.state, Since: p.since, Flaps: p.flaps, LastError: p.lastError, LastAt: p.lastAt,
	}
	c := p.base
	if known != nil && p.in {
		c = c.plus(known)
		for _, f := range known.GetAfiSafis() {
			out.Received += uint32(f.GetState().GetReceived())
		}
	}
	out.UpdatesOut, out.UpdatesIn = c.updatesOut, c.updatesIn
	out.KeepalivesOut, out.KeepalivesIn = c.keepalivesOut, c.keepalivesIn
	out.NotificationsOut, out.NotificationsIn = c.noticesOut, c.noticesIn
	if known == nil || p.state != bgptypes.Established {
		return out
	}
	out.PeerASN = known.GetState().GetPeerAsn()
	out.HoldTime = time.Duration(known.GetTimers().GetState().GetNegotiatedHoldTime()) * time.Second
	if a, err := netip.ParseAddr(known.GetTransport().GetLocalAddress()); err == nil {
		out.Local = a.Unmap()
	}
	p.families(known, &out)
	return out
}

// families finds out what is advertised.
func (p *peer) families(known *api.Peer, out *bgptypes.Session) {
	agreed, extended := capabilities(known)
	over6 := p.conf.Address.Is6()
	if !p.admitted() {
		return // for the moment until the keeper has heard of its AS
	}
	switch {
	case !p.conf.IPv4:
	case !agreed[bgp.RF_IPv4_UC]:
		out.NoIPv4 = "the peer does not take IPv4 paths in this session"
	case over6 && !(extended && p.extended):
		out.NoIPv4 = "the peer does not take IPv4 paths over IPv6 (extended next hop, RFC 8950)"
	default:
		out.IPv4 = true
	}
	switch {
	case !p.conf.IPv6:
	case !agreed[bgp.RF_IPv6_UC]:
		out.NoIPv6 = "the peer does not take IPv6 paths in this session"
	case !over6 && !p.nextHop.IsValid():
		out.NoIPv6 = "this node has no IPv6 address on the interface to the peer, so there is no next hop for IPv6 paths"
	default:
		out.IPv6 = true
	}
}

// capabilities reads what the peer said in its OPEN: the families (RFC 4760), and
// whether it takes IPv6 next hops of IPv4 paths (RFC 8950).
func capabilities(known *api.Peer) (families map[bgp.Family]bool, extended bool) {
	families = make(map[bgp.Family]bool)
	caps, _ := apiutil.UnmarshalCapabilities(known.GetState().GetRemoteCap()) // the server has read them before
	for _, c := range caps {
		switch c := c.(type) {
		case *bgp.CapMultiProtocol:
			families[c.CapValue] = true
		case *bgp.CapExtendedNexthop:
			for _, t := range c.Tuples {
				extended = extended || t.NLRIAFI == bgp.AFI_IP && t.NLRISAFI == uint16(bgp.SAFI_UNICAST) && t.NexthopAFI == bgp.AFI_IP6
			}
		}
	}
	if len(families) == 0 {
		families[bgp.RF_IPv4_UC] = true // RFC 4760 section 8
	}
	return families, extended
}

// plus adds the counters of the present life.
func (c counters) plus(p *api.Peer) counters {
	in, out := p.GetState().GetMessages().GetReceived(), p.GetState().GetMessages().GetSent()
	c.updatesOut += out.GetUpdate()
	c.updatesIn += in.GetUpdate()
	c.keepalivesOut += out.GetKeepalive()
	c.keepalivesIn += in.GetKeepalive()
	c.noticesOut += out.GetNotification()
	c.noticesIn += in.GetNotification()
	return c
}

// keepCounters saves the counters of a life that ends.
func (s *Speaker) keepCounters(p *peer) {
	if known := s.list(p.conf.Address.String())[p.conf.Address]; known != nil {
		p.base = p.base.plus(known)
	}
}
