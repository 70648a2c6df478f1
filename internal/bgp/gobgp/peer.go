package gobgp

import (
	"errors"
	"fmt"
	"time"

	api "github.com/osrg/gobgp/v4/api"

	"lbd.dev/lbd/internal/bgp"
)

var errNotStarted = errors.New("the BGP speaker has not started")

// peer is one session and what is known of it. Speaker.mu guards it.
type peer struct {
	conf  bgp.Peer
	index int  // in markers
	held  bool // until Release
	// restarting: the next session says that this speaker has restarted.
	restarting bool
	ended      chan struct{} // closed when the session is; nil unless the peer is to go

	life
	failure
	retries
	answers
	silence
	exported
	endpoints
	anyNumber
	counted
}

// life is that of a peer in the server, which is given it anew for each session.
type life struct {
	in     bool // the server has it
	number int  // counts how often it was given it
	// accepted: the server has a session that begins or goes on, and not just a
	// connection that it has opened itself.
	accepted bool
	state    bgp.State
	entered  time.Time // of state
	since    time.Time
	flaps    uint64
}

// begin notes that the server was given the peer.
func (l *life) begin() { l.in, l.accepted, l.state, l.entered = true, false, bgp.Idle, time.Now() }

// move notes a new state other than Idle.
func (l *life) move(to bgp.State, now time.Time) {
	l.state, l.entered = to, now
	if to == bgp.Established {
		l.since = now
	}
}

// lost notes that the session is not Established any more.
func (l *life) lost() {
	if l.state == bgp.Established {
		l.flaps++
		l.since = time.Now()
	}
	l.state, l.entered = bgp.Idle, time.Now()
}

// failure is why there is no session, for people.
type failure struct {
	lastError string
	lastAt    time.Time
}

// fail notes why there is no session; it tells whether that is news.
func (f *failure) fail(text string) bool {
	news := f.lastError != text
	f.lastError, f.lastAt = text, time.Now()
	return news
}

func (p *peer) set() string { return fmt.Sprintf("peer%d", p.index) }

// AddPeer begins a session.
func (s *Speaker) AddPeer(conf bgp.Peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.server == nil:
		return errNotStarted
	case s.closing:
		return errors.New("the BGP speaker is closed")
	case s.peers[conf.Name] != nil:
		return fmt.Errorf("peer %q exists", conf.Name)
	case !conf.Address.IsValid():
		return fmt.Errorf("peer %q has no address", conf.Name)
	case conf.Password != "" && conf.Address.Zone() != "":
		return fmt.Errorf("peer %q: a password does not work with a link-local address", conf.Name)
	case conf.LocalASN == 0:
		return fmt.Errorf("peer %q has no AS number", conf.Name)
	}
	for _, q := range s.peers {
		if q.conf.Address == conf.Address {
			return fmt.Errorf("peers %q and %q have the same address %s", conf.Name, q.conf.Name, conf.Address)
		}
	}
	now := time.Now()
	p := &peer{
		conf: conf, index: s.index(conf.Name), life: life{since: now, entered: now},
		restarting: conf.Restarting && conf.GracefulRestart,
	}
	p.extended = p.restarting // as it was a moment ago
	s.peers[conf.Name] = p
	if conf.Held != "" {
		p.held = true
		p.fail(conf.Held)
		return nil
	}
	s.enter(p)
	s.wake()
	return nil
}

// enter gives the peer to the server. What prevents that may pass, so it is tried
// again.
func (s *Speaker) enter(p *peer) {
	p.tryAt(time.Time{})
	if words := p.tooFar(); words != "" {
		p.fail(words)
		p.tryAfter(time.Now(), refusedMax)
		return
	}
	s.findNextHop(p)
	err := s.admit(p)
	if err == nil {
		err = s.offer(p)
	}
	if err != nil {
		s.log.Debug("peer not added", "peer", p.conf.Name, "err", err)
		p.fail(err.Error())
		p.tryAfter(time.Now(), 0)
	}
}

func (s *Speaker) offer(p *peer) error {
	conf, err := s.configure(p)
	if err != nil {
		return err
	}
	if len(s.global.Listen) > 0 {
		// The server would listen without the key, to anybody.
		if err := canSign(&p.conf); err != nil {
			return keyError(err)
		}
	}
	p.number++
	s.inbox.expect(p.conf.Address, p)
	if err := s.server.AddPeer(s.ctx, &api.AddPeerRequest{Peer: conf}); err != nil {
		s.inbox.forget(p.conf.Address)
		return err
	}
	p.begin()
	p.await()
	return nil
}

// leave takes the peer from the server, which ends a session with a NOTIFICATION
// (Cease, Peer De-configured).
func (s *Speaker) leave(p *peer) {
	if !p.in {
		return
	}
	s.keepCounters(p)
	if p.conf.Password != "" && len(s.global.Listen) > 0 {
		// Only this removes the key from the listening sockets.
		if conf, err := s.configure(p); err == nil {
			conf.Conf.AuthPassword, conf.Conf.AdminDown = "", true
			if _, err := s.server.UpdatePeer(s.ctx, &api.UpdatePeerRequest{Peer: conf}); err != nil {
				s.log.Debug("key not removed", "peer", p.conf.Name, "err", err)
			}
		}
	}
	if err := s.server.DeletePeer(s.ctx, &api.DeletePeerRequest{Address: p.conf.Address.String()}); err != nil {
		s.log.Debug("peer not deleted", "peer", p.conf.Name, "err", err)
	}
	s.inbox.forget(p.conf.Address)
	p.in = false
	if p.extended {
		p.extended = false
		s.recast(p)
	}
	p.lost()
}

// RemovePeer ends a session for good.
func (s *Speaker) RemovePeer(name, words string) {
	s.mu.Lock()
	p := s.peers[name]
	if p == nil {
		s.mu.Unlock()
		return
	}
	p.ended = make(chan struct{})
	ended := p.ended
	tell := words != "" && p.in && p.state == bgp.Established
	if tell {
		err := s.server.ShutdownPeer(s.ctx, &api.ShutdownPeerRequest{Address: p.conf.Address.String(), Communication: words})
		tell = err == nil
	}
	s.mu.Unlock()
	if tell {
		select {
		case <-ended:
		case <-time.After(shutdownWait):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(p)
	if err := s.forbid(p); err != nil {
		s.log.Debug("policy not removed", "peer", name, "err", err)
	}
	delete(s.peers, name)
}

// shutdownWait bounds how long a router that takes nothing holds a removal up.
const shutdownWait = 500 * time.Millisecond

// Reset ends a session and begins it again.
func (s *Speaker) Reset(name, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[name]
	if p == nil || p.ended != nil || p.held {
		return
	}
	p.fail(reason)
	s.leave(p)
	p.forgive()
	s.enter(p)
	s.wake()
}

// SetRestartTime changes what the next OPEN says. The server is given a peer anew
// for each session, so only one that waits for its first message must be replaced.
func (s *Speaker) SetRestartTime(name string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[name]
	if p == nil || p.ended != nil || p.conf.RestartTime == d {
		return
	}
	s.drain() // what state is it in?
	p.conf.RestartTime = d
	if p.in && p.state < bgp.OpenSent && p.conf.GracefulRestart {
		s.leave(p)
		s.enter(p)
		s.wake()
	}
}

// Hold ends a session until Release.
func (s *Speaker) Hold(name, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[name]; p != nil && p.ended == nil && !p.held {
		p.held = true
		p.tryAt(time.Time{})
		p.fail(reason)
		s.leave(p)
	}
}

// Release begins a session that was held.
func (s *Speaker) Release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[name]; p != nil && p.ended == nil && p.held {
		p.held = false
		p.forgive()
		s.enter(p)
		s.wake()
	}
}

// configure is the peer as the server wants it.
func (s *Speaker) configure(p *peer) (*api.Peer, error) {
	c := &p.conf
	transport := &api.Transport{PassiveMode: c.Passive, RemotePort: uint32(c.Port)}
	if c.Source.IsValid() {
		transport.LocalAddress = c.Source.WithZone("").String()
	}
	if zone := c.Address.Zone(); zone != "" {
		// The server loses its own next hop when the local address has a zone; bound to
		// the interface it needs none.
		transport.BindInterface = zone
		if !c.Source.IsValid() {
			local, err := linkLocal(zone)
			if err != nil {
				return nil, err
			}
			transport.LocalAddress = local.String()
		}
	}
	conf := &api.Peer{
		Conf: &api.PeerConf{
			NeighborAddress: c.Address.String(), LocalAsn: c.LocalASN, PeerAsn: c.PeerASN, AuthPassword: c.Password,
		},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime: holdSeconds(c.HoldTime), KeepaliveInterval: seconds(c.KeepaliveTime),
			ConnectRetry: max(seconds(c.ConnectTime), 1),
		}},
		Transport: transport,
	}
	switch {
	case c.MinTTL > 0:
		conf.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: uint32(c.MinTTL)}
	case c.Multihop && c.External():
		conf.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: 255}
	}
	if c.GracefulRestart {
		conf.GracefulRestart = &api.GracefulRestart{
			Enabled: true, RestartTime: uint32(seconds(c.RestartTime)), DeferralTime: 1, LocalRestarting: p.restarting,
		}
	}
	for _, f := range []struct {
		on     bool
		family *api.Family
	}{{c.IPv4, ipv4}, {c.IPv6, ipv6}} {
		if f.on {
			conf.AfiSafis = append(conf.AfiSafis, &api.AfiSafi{
				Config:            &api.AfiSafiConfig{Family: f.family, Enabled: true},
				PrefixLimits:      &api.PrefixLimit{Family: f.family, MaxPrefixes: c.MaxPrefixes},
				MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: c.GracefulRestart}},
			})
		}
	}
	return conf, nil
}

// seconds rounds up to what the server can do.
func seconds(d time.Duration) uint64 {
	return uint64((d + time.Second - 1) / time.Second)
}

// holdSeconds is the hold time; the server takes 0 for its own default, so never
// becomes the longest one that there is. The lower one of both sides counts
// anyway.
func holdSeconds(d time.Duration) uint64 {
	if d == 0 {
		return 65535
	}
	return min(seconds(d), 65535)
}
