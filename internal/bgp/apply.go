package bgp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// sessions are what the driver asked of the speaker. Driver.peerMu guards them.
type sessions struct {
	peers   map[string]*session
	started bool
	listens bool // routers can connect; settled when the speaker starts
	left    bool
	closed  bool
}

// session is what the driver asked of one peer.
type session struct {
	conf model.BGPPeer
	bfdState
	// Of the last report, for the log.
	state  State
	fault  string
	told   int // reasons since toldAt
	toldAt time.Time
	err    error // of AddPeer
}

// Apply makes want.BGP true: paths are added before others are withdrawn, and
// before sessions begin. What is unchanged is not touched.
func (d *Driver) Apply(ctx context.Context, want *model.Desired) (model.Applied, error) {
	w := &want.BGP
	var errs []error
	if err := d.applyBFD(w); err != nil {
		errs = append(errs, err)
	}
	if err := d.start(w); err != nil {
		errs = append(errs, err)
	}
	if d.isStarted() {
		errs = append(errs, d.applyPaths(ctx, want)...)
		d.applyPeers(w)
		errs = append(errs, d.applyListeners(w))
	}
	applied := d.report(w)
	d.reportMasters(&applied)
	if d.unwatched(w) { // a session that is new
		if err := d.applyBFD(w); err != nil {
			errs = append(errs, err)
		}
	}
	if err := d.remember(w, applied.Paths); err != nil {
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if err != nil {
		applied.Err = err.Error()
	}
	return applied, err
}

func (d *Driver) isStarted() bool {
	d.peerMu.Lock()
	defer d.peerMu.Unlock()
	return d.started
}

// start starts the speaker with the first peer or listener.
func (d *Driver) start(w *model.BGPState) error {
	if d.isStarted() || len(w.Peers) == 0 && len(w.Listeners) == 0 || !w.Ready || w.Leave {
		return nil
	}
	listen := w.Listen
	if len(listen) == 0 && (len(w.Listeners) > 0 || slices.ContainsFunc(w.Peers, func(p model.BGPPeer) bool { return p.Passive })) {
		listen = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	g := Global{RouterID: w.RouterID, Listen: listen, ListenPort: w.ListenPort}
	if len(w.Peers) > 0 {
		g.ASN = w.Peers[0].LocalASN
	} else {
		g.ASN = w.Listeners[0].LocalASN
	}
	err := d.speaker.Start(g)
	if err != nil {
		return err
	}
	d.log.Info("BGP speaker started", "router_id", w.RouterID, "listen", listen)
	d.peerMu.Lock()
	d.started, d.listens = true, len(listen) > 0
	d.peerMu.Unlock()
	return nil
}

// samePeer tells whether a session can go on. A changed restart time does not end
// it and counts with the next one: an address that is added must not take the
// paths to others away.
func samePeer(a, b *model.BGPPeer) bool {
	return a.LocalASN == b.LocalASN && a.PeerASN == b.PeerASN && a.Address == b.Address && a.Port == b.Port &&
		a.Source == b.Source && a.HoldTime == b.HoldTime && a.KeepaliveTime == b.KeepaliveTime &&
		a.ConnectTime == b.ConnectTime && a.Password == b.Password && a.Multihop == b.Multihop &&
		a.MinTTL == b.MinTTL && a.Passive == b.Passive && a.GracefulRestart == b.GracefulRestart &&
		a.IPv4 == b.IPv4 && a.IPv6 == b.IPv6 && a.MaxPrefixes == b.MaxPrefixes &&
		a.Lacks == b.Lacks
}

// applyPeers makes the sessions those of the decision.
func (d *Driver) applyPeers(w *model.BGPState) {
	if w.Leave {
		d.leave()
		return
	}
	wanted := make(map[string]*model.BGPPeer, len(w.Peers))
	for i := range w.Peers {
		wanted[w.Peers[i].Name] = &w.Peers[i]
	}
	d.peerMu.Lock()
	var gone, retimed []string
	for name, s := range d.peers {
		p := wanted[name]
		switch {
		case p == nil:
			gone = append(gone, name)
		case !samePeer(&s.conf, p):
			gone = append(gone, name)
			d.log.Info("BGP peer changed; its session begins anew", "peer", name)
		default:
			s.conf.BFD, s.conf.NodeSelectors, s.conf.ShutdownDelay = p.BFD, p.NodeSelectors, p.ShutdownDelay
			if s.conf.RestartTime != p.RestartTime {
				s.conf.RestartTime = p.RestartTime
				retimed = append(retimed, name)
			}
		}
	}
	closed := d.closed || d.left
	d.peerMu.Unlock()
	if closed {
		return
	}
	for _, name := range retimed {
		d.speaker.SetRestartTime(name, wanted[name].RestartTime)
	}
	for _, name := range gone {
		d.remove(name, "")
	}
	if d.awaited(w) {
		return
	}
	for i := range w.Peers {
		d.add(&w.Peers[i])
	}
	d.settleBFD()
}

// awaited tells whether sessions have to wait: routers that kept the paths of an
// earlier process drop what they are not told again at once.
func (d *Driver) awaited(w *model.BGPState) bool {
	waited := time.Since(d.memory.begun)
	if len(d.memory.peers) == 0 || waited >= restartWait {
		return false
	}
	for _, prefix := range d.memory.prefixes {
		if !hasPath(w.Paths, prefix) {
			time.AfterFunc(restartWait-waited, d.notify)
			return true
		}
	}
	return false
}

// add begins a session unless it is there. One that cannot be is tried again.
func (d *Driver) add(p *model.BGPPeer) {
	d.peerMu.Lock()
	defer d.peerMu.Unlock()
	s := d.peers[p.Name]
	if s != nil && s.err == nil {
		return
	}
	if s == nil {
		s = &session{conf: *p}
		d.peers[p.Name] = s
		if w, ok := d.ways[p.Name]; ok {
			s.status = d.bfdStatus(w.key())
			s.wasUp = s.isUp()
		}
	}
	if isOwn(p.Address) {
		s.refuse(d, fmt.Errorf("peerAddress %s is an address of this node, which has no session with itself", p.Address))
		return
	}
	if p.Lacks != "" {
		s.refuse(d, errors.New(p.Lacks))
		return
	}
	peer := Peer{BGPPeer: *p, Restarting: d.memory.restarting(p)}
	s.held = p.BFD != nil && p.BFD.Strict && !s.isUp()
	if s.held {
		peer.Held = strictWords
	}
	s.refuse(d, d.speaker.AddPeer(peer))
}

// refuse notes why there can be no session, nil if there can.
func (s *session) refuse(d *Driver, err error) {
	if err != nil && (s.err == nil || s.err.Error() != err.Error()) {
		d.log.Warn("BGP peer refused", "peer", s.conf.Name, "err", err)
	}
	s.err = err
}

// remove ends a session for good.
func (d *Driver) remove(name, words string) {
	d.speaker.RemovePeer(name, words)
	d.peerMu.Lock()
	delete(d.peers, name)
	d.peerMu.Unlock()
}

// leave ends the sessions without graceful restart.
func (d *Driver) leave() {
	d.peerMu.Lock()
	d.left = true
	var end []string
	for name, s := range d.peers {
		if !s.conf.GracefulRestart {
			end = append(end, name)
		}
	}
	d.peerMu.Unlock()
	for _, name := range end {
		d.remove(name, stopping)
	}
}
