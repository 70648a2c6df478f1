package gobgp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	api "github.com/osrg/gobgp/v4/api"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"lbd.dev/lbd/internal/bgp"
	"lbd.dev/lbd/internal/model"
)

var _ bgp.Listener = (*Speaker)(nil)

// Paths of masters are read as they come in, from what the server logs: its own events of them
// wait in a queue without bound. The import policy refuses them like all others (policy.go), so
// the server itself has none of them, and no router can be told of one whatever a master writes
// into its communities.

// listeners are those that the server has. Speaker.mu guards all but rules and learned.
type listeners struct {
	byName map[string]*listener
	last   int      // how many there have been
	stale  []string // peer groups that had sessions when they were to be removed
	out    map[netip.Addr]keptOut

	arriving arriving

	mu    sync.Mutex
	rules []rule

	learned learned
}

// keptOut is a master of which no session is taken.
type keptOut struct {
	until time.Time
	why   string
}

// listener is one of them.
type listener struct {
	conf  model.BGPListener
	group string // as the server calls it
}

// rule says whose masters are in a prefix.
type rule struct {
	peers    netip.Prefix
	listener *model.BGPListener
}

// of is the name of the listener of an address; "" if it has none.
func (l *listeners) of(addr netip.Addr) string {
	if conf := l.conf(addr); conf != nil {
		return conf.Name
	}
	return ""
}

// conf is the listener of the most specific prefix that an address is in; nil if it is in none.
func (l *listeners) conf(addr netip.Addr) (conf *model.BGPListener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bits := -1
	for _, r := range l.rules {
		if r.peers.Contains(addr) && r.peers.Bits() > bits {
			conf, bits = r.listener, r.peers.Bits()
		}
	}
	return conf
}

// sameSessions tells whether sessions can go on although something else has changed.
func sameSessions(a, b *model.BGPListener) bool {
	return a.LocalASN == b.LocalASN && a.PeerASN == b.PeerASN && a.HoldTime == b.HoldTime && a.Password == b.Password &&
		a.MaxPrefixes == b.MaxPrefixes && slices.Equal(a.PeerPrefixes, b.PeerPrefixes)
}

// SetListeners makes the listeners those given.
func (s *Speaker) SetListeners(want []model.BGPListener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(want) == 0 && len(s.listeners.byName) == 0:
		return nil
	case s.server == nil:
		return errNotStarted
	case s.closing:
		return errors.New("the BGP speaker is closed")
	case len(s.global.Listen) == 0:
		return errors.New("the BGP speaker listens on no address")
	}
	l := &s.listeners
	var errs []error
	for name, is := range l.byName {
		i := slices.IndexFunc(want, func(w model.BGPListener) bool { return w.Name == name })
		if i < 0 || !sameSessions(&want[i], &is.conf) {
			errs = append(errs, s.endListener(is))
		}
	}
	var rules []rule // before the sessions: a path that comes without a rule is lost
	for i := range want {
		conf := want[i]
		for _, p := range conf.PeerPrefixes {
			rules = append(rules, rule{p, &conf})
		}
	}
	l.mu.Lock()
	l.rules = rules
	l.mu.Unlock()
	for i := range want {
		if l.byName[want[i].Name] == nil {
			errs = append(errs, s.beginListener(&want[i]))
		}
	}
	l.stale = slices.DeleteFunc(l.stale, func(group string) bool {
		return s.server.DeletePeerGroup(s.ctx, &api.DeletePeerGroupRequest{Name: group}) == nil
	})
	return errors.Join(errs...)
}

// beginListener has the server take sessions. s.mu is held.
func (s *Speaker) beginListener(conf *model.BGPListener) error {
	for _, peers := range conf.PeerPrefixes {
		// The server would listen without the key, to anybody.
		if err := canSign(&bgp.Peer{BGPPeer: model.BGPPeer{Address: peers.Addr(), Password: conf.Password}}); err != nil {
			return fmt.Errorf("BGPListener %q: %w", conf.Name, keyError(err))
		}
	}
	l := &s.listeners
	l.last++
	is := &listener{conf: *conf, group: fmt.Sprintf("listener%d", l.last)}
	group := &api.PeerGroup{
		Conf: &api.PeerGroupConf{
			PeerGroupName: is.group, LocalAsn: conf.LocalASN, PeerAsn: conf.PeerASN, AuthPassword: conf.Password,
		},
		Timers:    &api.Timers{Config: &api.TimersConfig{HoldTime: holdSeconds(conf.HoldTime), KeepaliveInterval: seconds(conf.HoldTime / 3)}},
		Transport: &api.Transport{PassiveMode: true},
	}
	for _, family := range []*api.Family{ipv4, ipv6} {
		group.AfiSafis = append(group.AfiSafis, &api.AfiSafi{
			Config:       &api.AfiSafiConfig{Family: family, Enabled: true},
			PrefixLimits: &api.PrefixLimit{Family: family, MaxPrefixes: uint32(conf.MaxPrefixes)},
		})
	}
	if err := s.server.AddPeerGroup(s.ctx, &api.AddPeerGroupRequest{PeerGroup: group}); err != nil {
		return fmt.Errorf("BGPListener %q: %w", conf.Name, err)
	}
	for _, peers := range conf.PeerPrefixes {
		if err := s.server.AddDynamicNeighbor(s.ctx, &api.AddDynamicNeighborRequest{
			DynamicNeighbor: &api.DynamicNeighbor{Prefix: peers.Masked().String(), PeerGroup: is.group},
		}); err != nil {
			return errors.Join(fmt.Errorf("BGPListener %q: %w", conf.Name, err), s.endListener(is))
		}
	}
	if l.byName == nil {
		l.byName = make(map[string]*listener)
	}
	l.byName[conf.Name] = is
	return nil
}

// endListener takes no more sessions, and ends those that are there. s.mu is held.
func (s *Speaker) endListener(is *listener) error {
	delete(s.listeners.byName, is.conf.Name)
	var errs []error
	for _, peers := range is.conf.PeerPrefixes {
		errs = append(errs, s.server.DeleteDynamicNeighbor(s.ctx, &api.DeleteDynamicNeighborRequest{
			Prefix: peers.Masked().String(), PeerGroup: is.group,
		}))
	}
	s.shutMasters(is.group, "")
	s.listeners.stale = append(s.listeners.stale, is.group)
	return errors.Join(errs...)
}

// shutMasters ends the sessions of a listener.
func (s *Speaker) shutMasters(group, words string) {
	for addr, p := range s.list("") {
		if p.GetConf().GetPeerGroup() != group {
			continue
		}
		if err := s.server.ShutdownPeer(s.ctx, &api.ShutdownPeerRequest{Address: addr.String(), Communication: words}); err != nil {
			s.log.Debug("session not ended", "peer", addr, "err", err)
		}
	}
}

// closeListeners ends all sessions with masters, and waits until they know, but not for long.
func (s *Speaker) closeListeners(words string) {
	s.mu.Lock()
	groups := make(map[string]bool)
	for _, is := range s.listeners.byName {
		groups[is.group] = true
		s.shutMasters(is.group, words)
	}
	s.mu.Unlock()
	if len(groups) == 0 {
		return
	}
	for end := time.Now().Add(shutdownWait); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		left := false
		for _, p := range s.list("") {
			left = left || groups[p.GetConf().GetPeerGroup()]
		}
		if !left {
			return
		}
	}
}

// EndMaster ends the session of a master.
func (s *Speaker) EndMaster(addr netip.Addr, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, out := s.listeners.out[addr]; s.server == nil || out || s.peerAt(addr) != nil || s.listeners.of(addr) == "" {
		return
	}
	if s.listeners.learned.forget(addr) {
		s.changed()
	}
	if known := s.list(addr.String())[addr]; known.GetState().GetSessionState() != api.PeerState_SESSION_STATE_ESTABLISHED {
		s.dropMaster(addr) // the server ends by a message only sessions that are up
		return
	}
	if err := s.server.ResetPeer(s.ctx, &api.ResetPeerRequest{Address: addr.String(), Communication: reason}); err != nil {
		s.log.Debug("session not ended", "peer", addr, "err", err)
	}
}

// dropMaster has the server forget a master that has no session.
func (s *Speaker) dropMaster(addr netip.Addr) {
	s.listeners.arriving.forget(addr)
	if err := s.server.DeletePeer(s.ctx, &api.DeletePeerRequest{Address: addr.String()}); err != nil {
		s.log.Debug("master not forgotten", "address", addr, "err", err)
	}
}

// peerAt is the peer with its own object at an address, if there is one. s.mu is held.
func (s *Speaker) peerAt(addr netip.Addr) *peer {
	for _, p := range s.peers {
		if p.conf.Address == addr {
			return p
		}
	}
	return nil
}

// Masters are those that are connected, and those that are kept out.
func (s *Speaker) Masters() (out []bgp.Master) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listeners.byName) == 0 {
		return nil
	}
	of := make(map[string]string, len(s.listeners.byName))
	for name, is := range s.listeners.byName {
		of[is.group] = name
	}
	for addr, p := range s.list("") {
		name, is := of[p.GetConf().GetPeerGroup()]
		if !is {
			continue
		}
		m := bgp.Master{Listener: name, Address: addr, ASN: p.GetState().GetPeerAsn()}
		if st := p.GetState().GetSessionState(); st > api.PeerState_SESSION_STATE_UNSPECIFIED {
			m.State = bgp.State(st - api.PeerState_SESSION_STATE_IDLE)
		}
		for _, f := range p.GetAfiSafis() {
			m.Received += uint32(f.GetState().GetReceived())
		}
		if m.State == bgp.Established {
			m.HoldTime = time.Duration(p.GetTimers().GetState().GetNegotiatedHoldTime()) * time.Second
			if a, err := netip.ParseAddr(p.GetTransport().GetLocalAddress()); err == nil {
				m.Local = a.Unmap()
			}
		}
		out = append(out, m)
	}
	for addr, k := range s.listeners.out {
		if name := s.listeners.of(addr); name != "" {
			out = append(out, bgp.Master{Listener: name, Address: addr, Error: k.why})
		}
	}
	slices.SortFunc(out, func(a, b bgp.Master) int { return a.Address.Compare(b.Address) })
	return out
}

// Learned are the paths of masters.
func (s *Speaker) Learned() (out []model.LearnedPath) {
	s.listeners.learned.mu.Lock()
	defer s.listeners.learned.mu.Unlock()
	for from, paths := range s.listeners.learned.paths {
		conf := s.listeners.conf(from.addr)
		if conf == nil || s.inbox.has(from.addr) {
			continue
		}
		asn := cmp.Or(s.listeners.learned.asns[from.addr], conf.PeerASN)
		for prefix, nextHop := range paths {
			out = append(out, model.LearnedPath{Listener: conf.Name, Peer: from.addr, PeerASN: asn, Prefix: prefix, NextHop: nextHop})
		}
	}
	return out
}

// learned are the paths that came in.
type learned struct {
	mu    sync.Mutex
	paths map[from]map[netip.Prefix]netip.Addr // next hops
	asns  map[netip.Addr]uint32                // of masters that may have every number
}

// from is a master and a family.
type from struct {
	addr netip.Addr
	six  bool
}

// take notes what the server tells of a master; it tells whether one, or a path of one, came or went.
func (s *Speaker) take(addr netip.Addr, e event) (news bool) {
	conf := s.listeners.conf(addr)
	if conf == nil {
		return false
	}
	l := &s.listeners.learned
	switch e.kind {
	case asnHeard:
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.asns == nil {
			l.asns = make(map[netip.Addr]uint32)
		}
		l.asns[addr] = e.asn
	case updateRead:
		gone, come := e.update.read(conf.LocalASN)
		l.note(addr, gone, come, int(conf.MaxPrefixes))
		return len(gone)+len(come) > 0
	case peerDown:
		return l.forget(addr)
	case stateChanged:
		if s.listeners.arriving.hear(addr, e.new, time.Now()) {
			s.wake()
		}
	}
	return false
}

// forget drops the paths of a master whose session has ended; it tells whether there were any.
func (l *learned) forget(addr netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	had := len(l.paths[from{addr, false}])+len(l.paths[from{addr, true}]) > 0
	delete(l.paths, from{addr, false})
	delete(l.paths, from{addr, true})
	delete(l.asns, addr)
	return had
}

// note takes what a master withdraws and advertises. What is beyond the limit of a family is left
// out: the server ends the session a moment later.
func (l *learned) note(addr netip.Addr, gone []netip.Prefix, come map[netip.Prefix]netip.Addr, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paths == nil {
		l.paths = make(map[from]map[netip.Prefix]netip.Addr)
	}
	for _, p := range gone {
		delete(l.paths[from{addr, p.Addr().Is6()}], p)
	}
	for p, nextHop := range come {
		of := from{addr, p.Addr().Is6()}
		if _, has := l.paths[of][p]; !has && most > 0 && len(l.paths[of]) >= most {
			continue
		}
		if l.paths[of] == nil {
			l.paths[of] = make(map[netip.Prefix]netip.Addr)
		}
		l.paths[of][p] = nextHop
	}
}

// read reads what an UPDATE withdraws and advertises. A path that has been at this node already, as
// its AS number says, counts as withdrawn (RFC 4271 section 9.1.2).
func (u *update) read(asn uint32) (gone []netip.Prefix, come map[netip.Prefix]netip.Addr) {
	gone, come = prefixes(u.withdrawn), make(map[netip.Prefix]netip.Addr)
	var nextHop netip.Addr
	looped := false
	for _, attribute := range u.attributes {
		switch a := attribute.(type) {
		case *packet.PathAttributeNextHop:
			nextHop = a.Value
		case *packet.PathAttributeAsPath:
			for _, part := range a.Value {
				looped = looped || slices.Contains(part.GetAS(), asn)
			}
		case *packet.PathAttributeMpUnreachNLRI:
			gone = append(gone, prefixes(a.Value)...)
		case *packet.PathAttributeMpReachNLRI:
			for _, p := range prefixes(a.Value) {
				come[p] = a.Nexthop // the other one is link-local
			}
		}
	}
	for _, p := range prefixes(u.nlri) {
		come[p] = nextHop
	}
	if looped {
		gone, come = slices.AppendSeq(gone, maps.Keys(come)), nil
	}
	return gone, come
}

// prefixes is how many prefixes are in an UPDATE.
func (u *update) prefixes() int {
	n := len(u.nlri) + len(u.withdrawn)
	for _, attribute := range u.attributes {
		switch a := attribute.(type) {
		case *packet.PathAttributeMpUnreachNLRI:
			n += len(a.Value)
		case *packet.PathAttributeMpReachNLRI:
			n += len(a.Value)
		}
	}
	return n
}

// prefixes are those of the two families that a listener has.
func prefixes(all []packet.PathNLRI) (out []netip.Prefix) {
	for _, n := range all {
		if p, is := n.NLRI.(*packet.IPAddrPrefix); is {
			out = append(out, p.Prefix)
		}
	}
	return out
}
