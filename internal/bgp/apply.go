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

// maxErrors bounds the errors of paths that one report tells.
const maxErrors = 5

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
	}
	applied := d.report(w)
	if d.unwatched(w) { // a session that is new
		if err := d.applyBFD(w); err != nil {
			errs = append(errs, err)
		}
	}
	if err := d.remember(w, applied.VIPs); err != nil {
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

// start starts the speaker with the first peer.
func (d *Driver) start(w *model.BGPState) error {
	if d.isStarted() || len(w.Peers) == 0 || !w.Ready || w.Leave {
		return nil
	}
	listen := w.Listen
	if len(listen) == 0 && slices.ContainsFunc(w.Peers, func(p model.BGPPeer) bool { return p.Passive }) {
		listen = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	err := d.speaker.Start(Global{RouterID: w.RouterID, ASN: w.Peers[0].LocalASN, Listen: listen, ListenPort: w.ListenPort})
	if err != nil {
		return err
	}
	d.log.Info("BGP speaker started", "router_id", w.RouterID, "listen", listen)
	d.peerMu.Lock()
	d.started, d.listens = true, len(listen) > 0
	d.peerMu.Unlock()
	return nil
}

// applyPaths makes the paths those of the decision, unless that is too old to
// rely on.
func (d *Driver) applyPaths(ctx context.Context, want *model.Desired) (errs []error) {
	d.pathMu.Lock()
	defer d.pathMu.Unlock()
	paths := want.BGP.Paths
	if until := want.ValidUntil; !until.IsZero() {
		past := !time.Now().Before(until.Add(deadMan))
		if past {
			paths = nil
		} else if d.expired {
			d.expired = false
			d.log.Info("decisions are made again", "paths", len(paths))
		}
		d.validUntil = until
		switch {
		case want.BGP.Leave:
			d.validUntil = time.Time{} // no decision follows
			d.dead.Stop()
		case !past || !d.expired: // it is not told twice: each time has Apply called
			d.dead.Reset(max(time.Until(until.Add(deadMan)), 0))
		}
	}
	failed := 0
	fail := func(err error) {
		d.stats.errors.Add(1)
		if failed++; failed <= maxErrors {
			errs = append(errs, err)
		}
	}
	wanted := make(map[netip.Addr]struct{}, len(paths))
	for i := range paths {
		p := &paths[i]
		wanted[p.Addr] = struct{}{}
		had, ok := d.paths[p.Addr]
		if ok && samePath(&had, p) {
			continue
		}
		if ctx.Err() != nil {
			fail(fmt.Errorf("path %s: %w", p.Addr, ctx.Err()))
			return errs
		}
		if err := d.speaker.SetPath(*p); err != nil {
			fail(err)
			continue
		}
		d.stats.set.Add(1)
		d.paths[p.Addr] = *p
		if !ok || had.Shutdown != p.Shutdown {
			d.log.Debug("path set", "vip", p.Addr, "peers", p.Peers, "shutdown", p.Shutdown)
		}
	}
	for addr := range d.paths {
		if _, ok := wanted[addr]; ok {
			continue
		}
		if err := d.speaker.DeletePath(addr); err != nil {
			fail(err)
			continue
		}
		d.stats.deleted.Add(1)
		delete(d.paths, addr)
		d.log.Debug("path withdrawn", "vip", addr)
	}
	if failed > maxErrors {
		errs = append(errs, fmt.Errorf("and %d more paths", failed-maxErrors))
	}
	return errs
}

func samePath(a, b *model.BGPPath) bool {
	return a.Shutdown == b.Shutdown && a.LocalPref == b.LocalPref && a.MED == b.MED && a.MEDSet == b.MEDSet &&
		a.Prepend == b.Prepend && slices.Equal(a.Peers, b.Peers) &&
		slices.Equal(a.Communities, b.Communities) && slices.Equal(a.LargeCommunities, b.LargeCommunities)
}

// samePeer tells whether a session can go on. A changed restart time does not end
// it and counts with the next one: an address that is added must not take the
// paths to others away.
func samePeer(a, b *model.BGPPeer) bool {
	return a.LocalASN == b.LocalASN && a.PeerASN == b.PeerASN && a.Address == b.Address && a.Port == b.Port &&
		a.Source == b.Source && a.HoldTime == b.HoldTime && a.KeepaliveTime == b.KeepaliveTime &&
		a.ConnectTime == b.ConnectTime && a.Password == b.Password && a.Multihop == b.Multihop &&
		a.MinTTL == b.MinTTL && a.Passive == b.Passive && a.GracefulRestart == b.GracefulRestart &&
		a.IPv4 == b.IPv4 && a.IPv6 == b.IPv6 && a.MaxPrefixes == b.MaxPrefixes
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
	waited := time.Since(d.begun)
	if len(d.memory.peers) == 0 || waited >= restartWait {
		return false
	}
	for _, addr := range d.memory.addrs {
		if _, found := slices.BinarySearchFunc(w.Paths, addr, func(p model.BGPPath, a netip.Addr) int { return p.Addr.Compare(a) }); !found {
			time.AfterFunc(restartWait-waited, d.notify)
			return true
		}
	}
	return false
}

// add begins a session unless it is there.
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
	peer := Peer{BGPPeer: *p, Restarting: d.memory.restarting(p)}
	s.held = p.BFD != nil && p.BFD.Strict && !s.isUp()
	if s.held {
		peer.Held = strictWords
	}
	s.err = d.speaker.AddPeer(peer)
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
