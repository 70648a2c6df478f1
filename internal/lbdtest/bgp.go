package lbdtest

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
)

const (
	// deadMan and restartWait are those of package bgp.
	deadMan     = 5 * time.Second
	restartWait = 2 * time.Second
)

// BGP stands for the driver of package bgp, with sessions to routers in memory. A
// peer that no router has the name of stays without a session.
type BGP struct {
	host    *Host
	p       *Process
	routers map[string]*Router
	file    *BGPFile
	changed chan struct{}
	begun   time.Time
	left    bool

	earlier  BGPFile // of the process before, if its paths may still be there
	sessions map[string]*bgpSession
}

var _ announce.Driver = (*BGP)(nil)

type bgpSession struct {
	conf    model.BGPPeer
	peering *peering
	up      bool
	flaps   uint64
}

// BGPFile is the state file of a machine, which outlives the process.
type BGPFile struct {
	at    time.Time
	peers map[string]time.Duration // restart time
	paths []netip.Prefix
}

// NewBGP returns the driver of a process on a machine.
func NewBGP(p *Process, h *Host, file *BGPFile, routers ...*Router) *BGP {
	d := &BGP{
		host: h, p: p, file: file, changed: make(chan struct{}, 1), begun: time.Now(),
		routers: map[string]*Router{}, sessions: map[string]*bgpSession{},
	}
	for _, r := range routers {
		d.routers[r.Name] = r
	}
	d.earlier.peers = map[string]time.Duration{}
	for name, keeps := range file.peers {
		if time.Since(file.at) <= keeps {
			d.earlier.peers[name], d.earlier.paths = keeps, file.paths
		}
	}
	return d
}

// Name returns model.SinkBGP.
func (d *BGP) Name() model.SinkName { return model.SinkBGP }

// Changed fires when a session has begun or ended.
func (d *BGP) Changed() <-chan struct{} { return d.changed }

// Close ends the sessions without graceful restart; the others end with the
// process.
func (d *BGP) Close(context.Context) error {
	for name, s := range d.sessions {
		if !s.conf.GracefulRestart {
			d.remove(name)
		}
	}
	return nil
}

// Apply makes want.BGP true.
func (d *BGP) Apply(_ context.Context, want *model.Desired) (model.Applied, error) {
	if err := d.p.sleep(d.host.net.call()); err != nil {
		return model.Applied{}, err
	}
	w := &want.BGP
	paths := w.Paths
	if !want.ValidUntil.IsZero() && time.Now().After(want.ValidUntil.Add(deadMan)) {
		paths = nil
	}
	d.applyPaths(paths)
	if w.Ready {
		d.applyPeers(w)
		d.applyPaths(paths)
	}
	got := d.report(w, paths)
	d.remember(got.Paths)
	return got, nil
}

// applyPaths tells every session its paths.
func (d *BGP) applyPaths(paths []model.BGPPath) {
	for name, s := range d.sessions {
		to := map[netip.Prefix]bool{}
		for i := range paths {
			if x := paths[i].For(name); x != nil {
				to[paths[i].Prefix] = x.Shutdown
			}
		}
		was := s.up
		if s.up = d.routers[name].tell(s.peering, to); was && !s.up {
			s.flaps++
		}
	}
}

// applyPeers makes the sessions those of the decision.
func (d *BGP) applyPeers(w *model.BGPState) {
	for name, s := range d.sessions {
		i := slices.IndexFunc(w.Peers, func(p model.BGPPeer) bool { return p.Name == name })
		gone := i < 0 || w.Peers[i].GracefulRestart != s.conf.GracefulRestart
		if gone || w.Leave && !s.conf.GracefulRestart {
			d.remove(name)
		}
	}
	d.left = d.left || w.Leave
	if d.left || d.awaited(w) {
		return
	}
	for _, p := range w.Peers {
		r := d.routers[p.Name]
		if r == nil || d.sessions[p.Name] != nil {
			continue
		}
		_, restarting := d.earlier.peers[p.Name]
		s := &bgpSession{conf: p, peering: &peering{
			p: d.p, graceful: p.GracefulRestart, restart: p.RestartTime, restarting: restarting && p.GracefulRestart,
			changed: func() { signal(d.changed) },
		}}
		d.sessions[p.Name] = s
		r.open(d.host, s.peering)
	}
}

func (d *BGP) remove(name string) {
	d.routers[name].cease(d.host, d.sessions[name].peering)
	delete(d.sessions, name)
}

// awaited: routers that kept paths drop what they are not told again at once.
func (d *BGP) awaited(w *model.BGPState) bool {
	waited := time.Since(d.begun)
	if len(d.earlier.peers) == 0 || waited >= restartWait {
		return false
	}
	for _, a := range d.earlier.paths {
		if !slices.ContainsFunc(w.Paths, func(p model.BGPPath) bool { return p.Prefix == a }) {
			time.AfterFunc(restartWait-waited, func() { signal(d.changed) })
			return true
		}
	}
	return false
}

func (d *BGP) report(w *model.BGPState, paths []model.BGPPath) model.Applied {
	got := model.Applied{Paths: map[netip.Prefix][]string{}}
	for _, p := range w.Peers {
		x := model.PeerReport{Name: p.Name, State: "Active"}
		if s := d.sessions[p.Name]; s != nil {
			if x.Flaps = s.flaps; s.up {
				x.State = "Established"
			}
		}
		got.Peers = append(got.Peers, x)
	}
	for _, p := range paths {
		var to []string
		for _, x := range p.To {
			for _, name := range x.Peers {
				if s := d.sessions[name]; s != nil && s.up {
					to = append(to, name)
				}
			}
		}
		slices.Sort(to)
		got.Paths[p.Prefix] = to
	}
	return got
}

// remember writes down what routers with graceful restart have.
func (d *BGP) remember(paths map[netip.Prefix][]string) {
	peers, told := map[string]time.Duration{}, map[netip.Prefix]bool{}
	for a, names := range paths {
		for _, name := range names {
			if s := d.sessions[name]; s.conf.GracefulRestart {
				peers[name], told[a] = s.peering.restart, true
			}
		}
	}
	if len(peers) == 0 && time.Since(d.begun) < restartWait {
		return // what the file says may still be true
	}
	d.file.at, d.file.peers = time.Now(), peers
	d.file.paths = slices.SortedFunc(maps.Keys(told), model.ComparePaths)
}
