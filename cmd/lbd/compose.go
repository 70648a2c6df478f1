package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/address"
	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/bgp"
	"lbd.dev/lbd/internal/bgp/bfd"
	"lbd.dev/lbd/internal/bgp/gobgp"
	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/control"
	"lbd.dev/lbd/internal/daemon"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/forward"
	"lbd.dev/lbd/internal/gossip"
	"lbd.dev/lbd/internal/health"
	"lbd.dev/lbd/internal/layer2"
	"lbd.dev/lbd/internal/link"
	"lbd.dev/lbd/internal/logqueue"
	"lbd.dev/lbd/internal/notify"
	"lbd.dev/lbd/internal/page"
	"lbd.dev/lbd/internal/preflight"
	"lbd.dev/lbd/internal/relay"
	"lbd.dev/lbd/internal/resolve"
	"lbd.dev/lbd/internal/route"
	"lbd.dev/lbd/internal/source"
)

// parts are the daemon and what commands and signals reach of it.
type parts struct {
	daemon  *daemon.Daemon
	control *control.Server
	config  *config.Source
	restart *restarter
	gossip  *gossip.Gossip
	notify  *notify.Driver
	forward *forward.Driver
	drivers []announce.Driver
}

// compose is the one place that names every adapter: a new source or announcer
// is one line here.
func compose(cfg *config.Config, path string, level *slog.LevelVar, lines *logqueue.Queue, systemd *supervisor) (*parts, error) {
	p, log := &parts{}, lines.Logger
	reg := prometheus.NewRegistry()
	p.restart = newRestarter(path)
	b := &backend{restarter: p.restart, forward: forward.New(forward.Options{Logger: log.With("part", "forward")})}
	p.forward = b.forward
	p.control = control.New(control.Options{
		Logger: log.With("part", "control"), Socket: cfg.Node.Socket, HTTPAddress: cfg.Node.HTTPAddress,
		Page: newPage(cfg, b, log), Pprof: cfg.Node.Pprof, Gatherer: reg, Backend: b, InDaemonSet: inDaemonSet(), Metrics: nodeMetrics(&cfg.Node, log.With("part", "control")),
	})
	// First of all: it is what keeps two daemons from running on one node.
	if err := p.control.Listen(); err != nil {
		return nil, err
	}
	group, err := newGossip(cfg, log)
	if err != nil {
		return nil, errors.Join(err, p.control.Close())
	}
	p.gossip = group
	checks := health.New(health.Options{Logger: log.With("part", "health"), Forwarded: resolve.BackendCheck})
	checks.SetChecks(cfg.Checks)
	p.notify = newNotify(cfg, log)
	both := &joined{parts: p, checks: checks, log: log, files: cfg}
	p.config = p.watch(cfg, path, level, both, log)
	management := newMachines(cfg, both, log.With("part", "machines"))
	cluster := newSpeaker(cfg, both, log.With("part", "kubernetes"))
	addresses, err := address.New(address.Options{Logger: log.With("part", "address")})
	if err != nil {
		return nil, errors.Join(err, p.abandon(context.Background()))
	}
	announcer := layer2.New(layer2.Options{
		Logger: log.With("part", "layer2"), Standstill: gossip.Detection(cfg.Node.Gossip.Detection).TakenAfter(),
	})
	routers := newBGP(cfg, log)
	// Programs are waited for when all else is closed: notify comes first.
	p.drivers = []announce.Driver{p.notify, group.Driver(), addresses, announcer, routers, relay.New(relay.Options{Logger: log.With("part", "relay")}),
		b.forward, route.New(route.Options{Logger: log.With("part", "route")})}
	if management != nil {
		p.drivers = append(p.drivers, management.Driver())
	}

	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&adapterMetrics{gossip: group, layer2: announcer, address: addresses, health: checks, bgp: routers, cluster: cluster, machines: management, notify: p.notify, forward: b.forward, config: p.config, log: lines})
	p.daemon, err = daemon.New(daemon.Options{
		Logger: log, Metrics: reg, Node: cfg.Node.Name, Version: programVersion(),
		Sources: optional([]source.Source{p.config, link.New(link.Options{Logger: log.With("part", "link")}), checks, group.Source()}, cluster, management),
		Drivers: p.drivers,
		Unable:  preflight.MissingCapabilities(),
		Extras: []func(*v1alpha1.NodeStatus){
			configStatus(p.config), gossipStatus(group), healthStatus(checks), clusterStatus(cluster), machinesStatus(management), lines.Status,
			httpStatus(p.control), trackingStatus(b.forward.Lacks), tenantStatus(tenantsIn(cluster)),
		},
		Beat: systemd.watchdog(),
	})
	if err != nil {
		return nil, errors.Join(err, p.abandon(context.Background()))
	}
	b.Daemon, b.config, b.tenants = p.daemon, p.config, tenantsIn(cluster)
	return p, nil
}

// newPage is nil if none is wanted.
func newPage(cfg *config.Config, b *backend, log *slog.Logger) control.Page {
	if !cfg.Node.Page {
		return nil
	}
	return page.New(log.With("part", "page"), b)
}

// nodeMetrics is the HTTPS listener of a node. Only one that serves a cluster has an API
// server to ask.
func nodeMetrics(n *config.Node, log *slog.Logger) *control.SecureMetrics {
	if n.Kubernetes == nil {
		return nil
	}
	return secureMetrics(n.Metrics, n.Kubernetes.Kubeconfig, log)
}

// bgpState is the file beside the socket in which it is noted what BGP peers keep
// over a restart. The directory is gone after a reboot, as are the addresses.
const bgpState = "bgp.json"

func newBGP(cfg *config.Config, log *slog.Logger) *bgp.Driver {
	return bgp.New(bgp.Options{
		Logger:    log.With("part", "bgp"),
		Speaker:   func(changed func()) bgp.Speaker { return gobgp.New(log.With("part", "bgp"), changed) },
		BFD:       func(changed func()) bgp.BFD { return bfd.New(log.With("part", "bfd"), changed) },
		StateFile: filepath.Join(filepath.Dir(cfg.Node.Socket), bgpState),
	})
}

func newNotify(cfg *config.Config, log *slog.Logger) *notify.Driver {
	d := notify.New(notify.Options{Logger: log.With("part", "notify"), Node: cfg.Node.Name})
	d.SetPrograms(cfg.Node.Notify, cfg.VIPs)
	return d
}

// watch returns the source of configuration; what does not go through the View is
// handed on with each change.
func (p *parts) watch(cfg *config.Config, path string, level *slog.LevelVar, both *joined, log *slog.Logger) *config.Source {
	return config.NewSource(config.SourceOptions{
		Config: cfg, Path: path, Logger: log.With("part", "config"),
		OnStatus: func(st config.Status) { p.daemon.NoteConfiguration(st.Generation, st.Err) },
		OnChange: func(c *config.Config) {
			level.Set(c.Node.LogLevel)
			both.change(func() { both.files = c }, both.apply, both.peers)
			p.notify.SetPrograms(c.Node.Notify, c.VIPs)
			if !c.Node.Gossip.Insecure {
				if err := p.gossip.SetKeys(c.Node.Gossip.Keys); err != nil {
					log.Error("gossip keys", "err", err)
				}
			}
		},
	})
}

// abandon closes what compose opened when the daemon cannot start.
func (p *parts) abandon(ctx context.Context) error {
	var errs []error
	for i := len(p.drivers) - 1; i >= 0; i-- {
		errs = append(errs, p.drivers[i].Close(ctx))
	}
	if len(p.drivers) == 0 && p.gossip != nil {
		errs = append(errs, p.gossip.Driver().Close(ctx))
	}
	return errors.Join(errs...)
}

func newGossip(cfg *config.Config, log *slog.Logger) (*gossip.Gossip, error) {
	g := cfg.Node.Gossip
	bind := g.BindAddress
	var elsewhere func() (netip.Addr, error)
	if !bind.IsValid() {
		elsewhere = func() (netip.Addr, error) { return config.DefaultAddress(g.Peers) }
		var err error
		if bind, err = elsewhere(); err != nil {
			return nil, err
		}
	}
	return gossip.New(gossip.Options{
		Logger: log.With("part", "gossip"), Name: cfg.Node.Name, BindAddr: bind, Port: g.Port, Peers: cfg.PeerNames(),
		Label: g.Label, Keys: g.Keys, Insecure: g.Insecure, Detection: gossip.Detection(g.Detection),
		Rules: election.RulesVersion, Version: programVersion(), Elsewhere: elsewhere,
	})
}

// backend is the daemon as the control socket needs it.
type backend struct {
	*daemon.Daemon
	*restarter
	config  *config.Source
	forward *forward.Driver
	tenants tenantsOf // nil without a cluster
}

func (b backend) Reload(ctx context.Context) error { return b.config.Reload(ctx) }

// Status adds how many connections the backends of LoadBalancers have.
func (b backend) Status(ctx context.Context) (v1alpha1.NodeStatus, error) {
	s, err := b.Daemon.Status(ctx)
	if err != nil || len(s.LoadBalancers) == 0 {
		return s, err
	}
	if counts, err := b.forward.Count(); err == nil { // else they are missing
		open := openBy(&counts)
		for i := range s.LoadBalancers {
			lb := &s.LoadBalancers[i]
			countBackends(lb.Addresses, lb.Backends, open)
		}
	}
	return s, nil
}

// Explain marks an unknown VIP as not found, and a question that makes no sense.
func (b backend) Explain(ctx context.Context, vip, client string) ([]v1alpha1.Explanation, error) {
	list, err := b.Daemon.Explain(ctx, vip, client)
	if errors.Is(err, daemon.ErrUnknownVIP) {
		return nil, fmt.Errorf("%w: %w", control.ErrNotFound, unknownVIP(err, vip, b.tenants))
	}
	if errors.Is(err, daemon.ErrQuestion) {
		return nil, fmt.Errorf("%w: %w", control.ErrQuestion, err)
	}
	explainTenants(list, b.tenants)
	if slices.ContainsFunc(list, func(e v1alpha1.Explanation) bool { return len(e.Backends) > 0 }) {
		if counts, err := b.forward.Count(); err == nil { // else they are missing
			open := openBy(&counts)
			for i := range list {
				countBackends([]string{list[i].Address}, list[i].Backends, open)
			}
		}
	}
	return list, err
}

// backendBy is a backend, as people write it, by one VIP.
type backendBy struct{ vip, backend string }

// openBy is how many connections are open, which only the kernel knows. A backend is named with
// its port only if it has one of its own.
func openBy(counts *forward.Counts) map[backendBy]int {
	open := make(map[backendBy]int, 2*len(counts.Open))
	for way, n := range counts.Open {
		open[backendBy{way.VIP.String(), way.Server.String()}] += n
		open[backendBy{way.VIP.String(), way.Server.Addr().String()}] += n
	}
	return open
}

// countBackends adds how many connections each backend has by these VIPs.
func countBackends(vips []string, backends []v1alpha1.BackendStatus, open map[backendBy]int) {
	for n := range backends {
		connections := 0
		for _, vip := range vips {
			connections += open[backendBy{vip, backends[n].Backend}]
		}
		backends[n].Connections = &connections
	}
}

// Events marks an unknown VIP as not found.
func (b backend) Events(ctx context.Context, vip string, since time.Duration, after uint64) (v1alpha1.NodeEvents, error) {
	list, err := b.Daemon.Events(ctx, vip, since, after)
	if errors.Is(err, daemon.ErrUnknownVIP) {
		return list, fmt.Errorf("%w: %w", control.ErrNotFound, err)
	}
	return list, err
}

func httpStatus(c *control.Server) func(*v1alpha1.NodeStatus) {
	return func(s *v1alpha1.NodeStatus) {
		if err := c.HTTPError(); err != nil {
			s.Drivers = append(s.Drivers, v1alpha1.DriverStatus{Name: "http", Error: err.Error()})
		}
	}
}

// trackingStatus says what new connections lack.
func trackingStatus(lacks func() []string) func(*v1alpha1.NodeStatus) {
	return func(s *v1alpha1.NodeStatus) {
		for _, l := range lacks() {
			s.Drivers = append(s.Drivers, v1alpha1.DriverStatus{Name: "conntrack", Error: l})
		}
	}
}

func configStatus(c *config.Source) func(*v1alpha1.NodeStatus) {
	return func(s *v1alpha1.NodeStatus) {
		st := c.Status()
		s.Config = v1alpha1.ConfigStatus{Path: st.Path, Generation: st.Generation, LoadedAt: st.Loaded, Error: st.Err, Warnings: st.Warnings}
	}
}

func gossipStatus(g *gossip.Gossip) func(*v1alpha1.NodeStatus) {
	return func(s *v1alpha1.NodeStatus) {
		st := g.Stats()
		s.Gossip = v1alpha1.GossipStatus{
			Error: st.Fault, KeyMismatches: st.KeyMismatches.Count, LastMismatchFrom: st.KeyMismatches.Peer, LastMismatchAt: st.KeyMismatches.At,
			Absent: st.Absent, NameConflicts: st.NameConflicts.Count, LastConflictName: st.NameConflicts.Name,
			LastConflictFrom: st.NameConflicts.Peer, LastConflictAt: st.NameConflicts.At,
		}
	}
}

func healthStatus(h *health.Source) func(*v1alpha1.NodeStatus) {
	return func(s *v1alpha1.NodeStatus) {
		stats := h.Stats()
		for i := range s.Health {
			if st, ok := stats[s.Health[i].Name]; ok {
				s.Health[i].LastDuration = st.Last.Round(time.Microsecond).String()
				s.Health[i].Successes, s.Health[i].Failures = st.Successes, st.Failures
			}
		}
	}
}
