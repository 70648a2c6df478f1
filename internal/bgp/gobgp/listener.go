package gobgp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	api "github.com/osrg/gobgp/v3/api"

	"lbd.dev/lbd/internal/bgp"
	"lbd.dev/lbd/internal/model"
)

var _ bgp.Listener = (*Speaker)(nil)

// Paths of masters are read as they come in. The import policy refuses them like all others
// (policy.go), so the server itself has none of them, and no router can be told of one whatever
// a master writes into its communities.

// listeners are those that the server has. Speaker.mu guards all but rules and learned.
type listeners struct {
	byName map[string]*listener
	last   int                      // how many there have been
	stale  []string                 // peer groups that had sessions when they were to be removed
	out    map[netip.Addr]time.Time // who is kept out, and until when

	arriving arriving
	hears    bool

	mu    sync.Mutex
	rules []rule

	learned learned
}

// listener is one of them.
type listener struct {
	conf  model.BGPListener
	group string // as the server calls it
}

// rule says whose masters are in a prefix.
type rule struct {
	peers    netip.Prefix
	listener string
}

// of is the listener of the most specific prefix that an address is in; "" if it is in none.
func (l *listeners) of(addr netip.Addr) (name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bits := -1
	for _, r := range l.rules {
		if r.peers.Contains(addr) && r.peers.Bits() > bits {
			name, bits = r.listener, r.peers.Bits()
		}
	}
	return name
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
	if err := s.hear(); err != nil {
		return err
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
		for _, p := range want[i].PeerPrefixes {
			rules = append(rules, rule{p, want[i].Name})
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
	if _, out := s.listeners.out[addr]; s.server == nil || out || s.peerAt(addr) || s.listeners.of(addr) == "" {
		return
	}
	if s.listeners.learned.forget(addr) {
		s.changed()
	}
	if known := s.list(addr.String())[addr]; known.GetState().GetSessionState() != api.PeerState_ESTABLISHED {
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

// peerAt tells whether a peer with its own object has an address. s.mu is held.
func (s *Speaker) peerAt(addr netip.Addr) bool {
	for _, p := range s.peers {
		if p.conf.Address == addr {
			return true
		}
	}
	return false
}

// Masters are those that are connected.
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
		if st := p.GetState().GetSessionState(); st > api.PeerState_UNKNOWN {
			m.State = bgp.State(st - api.PeerState_IDLE)
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
	slices.SortFunc(out, func(a, b bgp.Master) int { return a.Address.Compare(b.Address) })
	return out
}

// Learned are the paths of masters.
func (s *Speaker) Learned() (out []model.LearnedPath) {
	s.listeners.learned.mu.Lock()
	defer s.listeners.learned.mu.Unlock()
	for addr, paths := range s.listeners.learned.paths {
		name := s.listeners.of(addr)
		if name == "" || s.inbox.has(addr) {
			continue
		}
		for prefix, h := range paths {
			out = append(out, model.LearnedPath{Listener: name, Peer: addr, PeerASN: h.asn, Prefix: prefix, NextHop: h.nextHop})
		}
	}
	return out
}

// learned are the paths that came in, by who sent them.
type learned struct {
	mu    sync.Mutex
	paths map[netip.Addr]map[netip.Prefix]heard
}

type heard struct {
	nextHop netip.Addr
	asn     uint32
}

// hear has the server tell of each path and each session from now on. s.mu is held.
func (s *Speaker) hear() error {
	if s.listeners.hears {
		return nil
	}
	err := s.server.WatchEvent(s.ctx, &api.WatchEventRequest{
		Peer: &api.WatchEventRequest_Peer{},
		Table: &api.WatchEventRequest_Table{Filters: []*api.WatchEventRequest_Table_Filter{
			{Type: api.WatchEventRequest_Table_Filter_ADJIN},
		}},
	}, func(r *api.WatchEventResponse) {
		if s.take(r) {
			s.changed()
		}
	})
	s.listeners.hears = err == nil
	return err
}

// take notes one event, and tells whether a master, or a path of one, came or went.
func (s *Speaker) take(r *api.WatchEventResponse) (news bool) {
	if p := r.GetPeer().GetPeer(); p != nil {
		addr, err := netip.ParseAddr(p.GetState().GetNeighborAddress())
		if err != nil {
			return false
		}
		addr = addr.Unmap()
		state := p.GetState().GetSessionState()
		if !s.inbox.has(addr) && s.listeners.arriving.hear(addr, state, time.Now()) {
			s.wake()
		}
		return state == api.PeerState_ESTABLISHED || s.listeners.learned.forget(addr)
	}
	for _, p := range r.GetTable().GetPaths() {
		addr, err := netip.ParseAddr(p.GetNeighborIp())
		if addr = addr.Unmap(); err != nil || s.listeners.of(addr) == "" || s.inbox.has(addr) {
			continue
		}
		prefix, h, ok := readPath(p)
		if !ok {
			s.log.Debug("path not understood", "peer", addr, "path", p)
			continue
		}
		s.listeners.learned.note(addr, prefix, h, p.GetIsWithdraw())
		news = true
	}
	return news
}

// forget drops the paths of a master whose session has ended; it tells whether there were any.
func (l *learned) forget(addr netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	had := len(l.paths[addr]) > 0
	delete(l.paths, addr)
	return had
}

func (l *learned) note(addr netip.Addr, prefix netip.Prefix, h heard, withdrawn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if withdrawn {
		delete(l.paths[addr], prefix)
		return
	}
	if l.paths == nil {
		l.paths = make(map[netip.Addr]map[netip.Prefix]heard)
	}
	if l.paths[addr] == nil {
		l.paths[addr] = make(map[netip.Prefix]heard)
	}
	l.paths[addr][prefix] = h
}

// readPath reads what a path says. Of two next hops of IPv6 the first one is not link-local.
func readPath(p *api.Path) (prefix netip.Prefix, h heard, ok bool) {
	h.asn = p.GetSourceAsn()
	m, err := p.GetNlri().UnmarshalNew()
	if err != nil {
		return prefix, h, false
	}
	to, is := m.(*api.IPAddressPrefix)
	if !is {
		return prefix, h, false
	}
	addr, err := netip.ParseAddr(to.GetPrefix())
	if err != nil {
		return prefix, h, false
	}
	if prefix, err = addr.Prefix(int(to.GetPrefixLen())); err != nil {
		return prefix, h, false
	}
	for _, raw := range p.GetPattrs() {
		m, err := raw.UnmarshalNew()
		if err != nil {
			continue
		}
		var by string
		switch a := m.(type) {
		case *api.NextHopAttribute:
			by = a.GetNextHop()
		case *api.MpReachNLRIAttribute:
			if hops := a.GetNextHops(); len(hops) > 0 {
				by = hops[0]
			}
		}
		if a, err := netip.ParseAddr(cmp.Or(by, "-")); err == nil {
			h.nextHop = a
		}
	}
	return prefix, h, true
}
