package gobgp

import (
	"fmt"
	"time"

	"lbd.dev/lbd/internal/bgp"
)

// A peer without an AS number of its own may have every one but that of this node.
// The server takes any number from such a peer, also that of this node, and says
// which when the session is up. So a peer gets no path until that was heard:
// permitBoth asks admitted. A router that was of the right kind and then moves into
// the AS of this node gets the paths once more, until the keeper hears of it.

// anyNumber is the AS number of such a peer.
type anyNumber struct {
	asn  uint32 // 0 until it was heard
	late bool   // it was heard in this session
}

// anyASN tells whether the peer may have every AS number but that of this node.
func (p *peer) anyASN() bool { return p.conf.PeerASN == 0 }

// admitted tells whether the peer may have paths as far as its AS number goes. A
// peer that an earlier process had a session with was of the right kind then.
func (p *peer) admitted() bool { return !p.anyASN() || p.asn != 0 || p.restarting }

// hearASN takes the AS number that the peer has; it tells whether the session
// changed.
func (s *Speaker) hearASN(p *peer, asn uint32) bool {
	if !p.anyASN() {
		return false
	}
	if asn == p.conf.LocalASN {
		p.asn, p.restarting = 0, false
		s.leave(p)
		s.recast(p) // to nothing
		p.tryAfter(time.Now(), refusedMin)
		return p.fail(fmt.Sprintf("the peer is in AS %d, as this node is, and dynamicASN is external: it may be in every other AS", asn))
	}
	known := p.asn != 0
	p.asn = asn
	if known {
		return false
	}
	if err := s.admit(p); err != nil {
		s.log.Debug("policy not changed", "peer", p.conf.Name, "err", err)
	}
	p.late = !p.restarting
	if p.state == bgp.Established { // the server says it then
		s.catchUp(p)
	}
	return true
}

// catchUp sends the paths to a peer whose AS number was heard in this session: the
// server may have looked for what to send before the policy knew the peer.
func (s *Speaker) catchUp(p *peer) {
	if p.late {
		p.late = false
		s.resend(p)
	}
}

// tooFar tells why a peer is not tried at all; empty if it is. The server sends with
// a TTL of 1 only if it knows that a session is external, so a peer with any AS
// number would be reached over routers that ebgpMultiHop has not allowed.
func (p *peer) tooFar() string {
	c := &p.conf
	if !p.anyASN() || c.Multihop || c.MinTTL > 0 || c.Address.Zone() != "" || bgp.OnSubnet(c.Address) {
		return ""
	}
	return fmt.Sprintf("%s is on no subnet of this node: with dynamicASN external that needs ebgpMultiHop", c.Address)
}
