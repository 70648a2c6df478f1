package bgp

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/bgp/bfd"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

const (
	strictWords = "BFD (strict): waits for the BFD session to come up"
	// bfdAnew is how long a peer may take to begin its BFD session anew. FRR does
	// so whenever the BGP session comes up. Packets go once a second meanwhile (RFC
	// 5880 section 6.8.3).
	bfdAnew = 3 * time.Second
)

// watched are the BFD sessions of peers.
type watched struct {
	bfd  BFD
	news chan struct{}
	ways map[string]way // by peer; Driver.peerMu guards it
}

// bfdState is what is known of the BFD session of a peer.
type bfdState struct {
	status *bfd.Status // nil without a session
	wasUp  bool
	held   bool      // strict: the BGP session waits
	doubt  time.Time // until when the peer may begin its BFD session anew
}

func (b *bfdState) isUp() bool { return b.status != nil && b.status.State == bfd.Up }

// way is how packets of a BFD session go. It is found out anew only while the
// session is not up, so that it never breaks what works, and not at each turn.
type way struct {
	peer, source netip.Addr // for which
	at           time.Time
	local        netip.Addr
	multihop     bool
}

func (w way) key() bfd.Key {
	return bfd.Key{Peer: w.peer.WithZone(""), Local: w.local, Interface: w.peer.Zone(), Multihop: w.multihop}
}

// wayAgain is the least time between two looks.
const wayAgain = 5 * time.Second

// applyBFD makes the BFD sessions those of the decision. One begins when the BGP
// session first comes up, or before it if it is strict, and goes on when the BGP
// session is begun anew. FRR makes its own BFD session anew when it first sees the
// BGP session up; if BFD was up by then, it would take that for a failure.
func (d *Driver) applyBFD(w *model.BGPState) error {
	var want []bfd.Session
	ways := make(map[string]way)
	d.peerMu.Lock()
	for i := range w.Peers {
		p := &w.Peers[i]
		if p.BFD == nil || w.Leave && !p.GracefulRestart {
			continue
		}
		old, known := d.ways[p.Name]
		s := d.peers[p.Name]
		if !p.BFD.Strict && !known && (s == nil || s.state != Established) {
			continue
		}
		if !known || old.peer != p.Address || old.source != p.Source || (s == nil || !s.isUp()) && time.Since(old.at) >= wayAgain {
			old = way{p.Address, p.Source, time.Now(), localFor(p), isMultihop(p)}
		}
		ways[p.Name] = old
		want = append(want, bfdSession(p, old))
	}
	d.ways = ways
	want = append(want, d.masterSessions()...)
	closed := d.closed
	d.peerMu.Unlock()
	if closed {
		return nil
	}
	err := d.bfd.Apply(want)
	d.lookBFD()
	return err
}

// unwatched tells whether a BGP session is up whose BFD session has to begin.
func (d *Driver) unwatched(w *model.BGPState) bool {
	d.peerMu.Lock()
	defer d.peerMu.Unlock()
	return slices.ContainsFunc(w.Peers, func(p model.BGPPeer) bool {
		_, known := d.ways[p.Name]
		s := d.peers[p.Name]
		return p.BFD != nil && !known && s != nil && s.state == Established
	})
}

func bfdSession(p *model.BGPPeer, w way) bfd.Session {
	b, k := p.BFD, w.key()
	s := bfd.Session{
		Peer: k.Peer, Local: k.Local, Interface: k.Interface, Multihop: k.Multihop, MinTTL: b.MinTTL,
		Transmit: b.Transmit, Receive: b.Receive, Multiplier: b.Multiplier, Passive: b.Passive,
	}
	switch b.AuthType {
	case "keyed-sha1":
		s.Auth = &bfd.Auth{Type: bfd.KeyedSHA1, KeyID: b.AuthKeyID, Key: []byte(b.AuthKey)}
	case "meticulous-keyed-sha1":
		s.Auth = &bfd.Auth{Type: bfd.MeticulousKeyedSHA1, KeyID: b.AuthKeyID, Key: []byte(b.AuthKey)}
	}
	return s
}

// isMultihop tells whether routers may be between this node and the peer: RFC
// 5883 then, not RFC 5881.
func isMultihop(p *model.BGPPeer) bool {
	switch {
	case p.Address.Zone() != "", p.Address.IsLinkLocalUnicast(), p.MinTTL == 255:
		return false
	case p.External():
		return p.Multihop || p.MinTTL > 0
	}
	return !OnSubnet(p.Address)
}

// OnSubnet tells whether an address is on a subnet of this node.
func OnSubnet(addr netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.Contains(addr.AsSlice())
	})
}

// localFor is the local address of a session: the configured one, else that of
// the route.
func localFor(p *model.BGPPeer) netip.Addr {
	if p.Source.IsValid() || p.Address.Zone() != "" {
		return p.Source.WithZone("")
	}
	return SourceTo(p.Address, cmp.Or(p.Port, 179))
}

// SourceTo is the address from which this node would send to another; invalid
// without a route, when no packet leaves anyway. Connecting a UDP socket sends nothing.
func SourceTo(a netip.Addr, port uint16) netip.Addr {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, port)))
	if err != nil {
		return netip.Addr{}
	}
	defer func() { _ = c.Close() }()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("")
}

// isOwn tells whether an address is one of this node: it would answer itself from
// there.
func isOwn(a netip.Addr) bool { return SourceTo(a, 179) == a.WithZone("") }

// watch answers changes of BFD until ctx ends.
func (d *Driver) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.news:
			d.lookBFD()
			d.settleBFD()
			d.notify()
		}
	}
}

// lookBFD reads the status of all BFD sessions.
func (d *Driver) lookBFD() {
	all := d.bfd.Status()
	byKey := make(map[bfd.Key]*bfd.Status, len(all))
	for i := range all {
		byKey[all[i].Key] = &all[i]
	}
	d.peerMu.Lock()
	defer d.peerMu.Unlock()
	for name, s := range d.peers {
		if w, ok := d.ways[name]; ok {
			s.status = byKey[w.key()]
		} else {
			s.status = nil
		}
	}
	for _, m := range d.masters {
		m.status = nil
		if m.conf != nil {
			m.status = byKey[m.way.key()]
		}
	}
}

// bfdStatus reads the status of one BFD session.
func (d *Driver) bfdStatus(key bfd.Key) *bfd.Status {
	for _, s := range d.bfd.Status() {
		if s.Key == key {
			return &s
		}
	}
	return nil
}

// settleBFD ends the BGP sessions whose BFD session went down, and begins those
// that waited for it (RFC 5882 section 4).
func (d *Driver) settleBFD() {
	type act struct{ name, reason string }
	var reset, hold []act
	var release []string
	d.peerMu.Lock()
	ended := d.failedMasters()
	if !d.left && !d.closed {
		for name, s := range d.peers {
			strict := s.conf.BFD != nil && s.conf.BFD.Strict
			up := s.isUp()
			failed := s.failed(time.Now())
			if !s.doubt.IsZero() {
				time.AfterFunc(time.Until(s.doubt), d.lookAgain)
			}
			switch {
			case failed && strict:
				hold, s.held = append(hold, act{name, bfdWords(s.status)}), true
			case failed:
				reset = append(reset, act{name, bfdWords(s.status)})
			case s.held && (up || !strict):
				release, s.held = append(release, name), false
			}
			s.wasUp = up
		}
	}
	d.peerMu.Unlock()
	d.endMasters(ended)
	for _, a := range reset {
		d.log.Info("BFD went down; BGP session ended", "peer", a.name, "reason", a.reason)
		d.speaker.Reset(a.name, a.reason)
	}
	for _, a := range hold {
		d.log.Info("BFD went down; BGP session ended until it is up again", "peer", a.name, "reason", a.reason)
		d.speaker.Hold(a.name, a.reason)
	}
	for _, name := range release {
		d.speaker.Release(name)
	}
}

// failed tells whether the BFD session has gone down because the path is broken.
// If only the peer says that it is down, and not because it heard nothing, then
// it began anew, and gets time for that. The way back up goes by Init, which has
// no diagnostic.
func (b *bfdState) failed(now time.Time) bool {
	s := b.status
	switch {
	case s == nil || b.isUp() || !s.PathFailed():
		b.doubt = time.Time{}
		return false
	case !b.doubt.IsZero():
		if now.Before(b.doubt) && (s.Diag == bfd.DiagNeighborDown || s.State == bfd.Init) {
			return false
		}
		b.doubt = time.Time{}
		return true
	case b.wasUp && s.State == bfd.Init && s.RemoteDiag == bfd.DiagNone, // it was Down too shortly to be seen
		b.wasUp && s.Diag == bfd.DiagNeighborDown && (s.RemoteDiag == bfd.DiagNone || s.RemoteDiag == bfd.DiagNeighborDown):
		b.doubt = now.Add(bfdAnew)
		return false
	}
	return b.wasUp
}

// lookAgain has BFD looked at.
func (d *Driver) lookAgain() { wake.Up(d.news) }

// bfdWords tells why a BFD session went down.
func bfdWords(s *bfd.Status) string {
	if s.Diag == bfd.DiagTimeExpired {
		return "BFD: no packet from the peer within the detection time"
	}
	return fmt.Sprintf("BFD: the session went down (%v; the peer says: %v)", s.Diag, s.RemoteDiag)
}
