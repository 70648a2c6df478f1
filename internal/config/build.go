package config

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/resolve"
)

// newNode parses a valid NodeConfiguration. Keys are read elsewhere.
func newNode(c *v1alpha1.NodeConfiguration) Node {
	n := Node{
		Name:         model.NodeName(c.NodeName),
		Labels:       maps.Clone(c.NodeLabels),
		Weight:       int(c.Weight),
		Page:         c.HTTP.HasPage(),
		Pprof:        c.HTTP.Pprof,
		Metrics:      c.Metrics,
		Socket:       c.Socket,
		DrainTimeout: c.Drain.Timeout.Duration,
		CheckFiles:   c.ClusterCheckFiles,
		NoRelay:      c.Connections == v1alpha1.ConnectionsReset,
		KeepServices: c.ServiceConnections == v1alpha1.ConnectionsKeep,
		LogFormat:    c.Log.Format,
		Notify:       c.Notify,
		Kubernetes:   c.Kubernetes,
		Machines:     c.Machines,
		Gossip: Gossip{
			Port:      uint16(c.Gossip.Port),
			Peers:     newPeers(&c.Gossip),
			KeyFile:   c.Gossip.KeyFile,
			Insecure:  c.Gossip.Insecure,
			Label:     c.Gossip.Label,
			Detection: c.Gossip.Detection,
		},
	}
	if !c.HTTP.Off() {
		n.HTTPAddress = *c.HTTP.Address
	}
	if c.Metrics.Off() {
		n.Metrics.Address = ""
	}
	// Valid or empty, and slog knows each valid level by its name.
	n.Gossip.BindAddress, _ = netip.ParseAddr(c.Gossip.BindAddress)
	_ = n.LogLevel.UnmarshalText([]byte(c.Log.Level))
	return n
}

// newPeers parses valid peers.
func newPeers(g *v1alpha1.GossipSpec) []Peer {
	var peers []Peer
	for _, text := range g.Peers {
		host, port, err := v1alpha1.SplitPeer(text)
		if err != nil {
			continue
		}
		if port == 0 {
			port = uint16(g.Port)
		}
		addr, _ := netip.ParseAddr(host) // zero for a host name
		peers = append(peers, Peer{Host: host, Addr: addr, Port: port})
	}
	return peers
}

// newConfig turns objects without errors into a Config without gossip keys. node
// is nil where none is required; secrets has what the files contain that objects
// name.
func newConfig(objects []*object, node *object, secrets map[string]string) *Config {
	names := newNamed(objects, true)
	cfg := &Config{Checks: make(map[string]v1alpha1.HealthCheck), node: node, peerObjects: names.peers}
	if node != nil {
		cfg.Node = newNode(node.node)
		cfg.BGP = newBGP(&node.node.BGP)
	}
	for _, o := range objects {
		switch b := o.body.(type) {
		case *v1alpha1.VirtualIP:
			cfg.VIPs = append(cfg.VIPs, resolve.VIPs(b, names.communities)...)
			if b.Spec.HealthCheck != nil {
				cfg.Checks[b.Metadata.Name] = *b.Spec.HealthCheck
			}
		case *v1alpha1.LoadBalancer:
			lb, vips, checks := resolve.LoadBalancer(b)
			cfg.LoadBalancers, cfg.VIPs = append(cfg.LoadBalancers, lb), append(cfg.VIPs, vips...)
			maps.Copy(cfg.Checks, checks)
		case *v1alpha1.BGPPeer:
			cfg.Peers = append(cfg.Peers, resolve.Peer(b, names.profiles[b.Spec.BFDProfile], secrets))
		}
	}
	slices.SortFunc(cfg.VIPs, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) })
	slices.SortFunc(cfg.LoadBalancers, func(a, b model.LoadBalancer) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(cfg.Peers, func(a, b model.BGPPeer) int { return strings.Compare(a.Name, b.Name) })
	cfg.warnings = warnings(objects, names)
	return cfg
}

// newBGP parses the valid section about BGP of a NodeConfiguration.
func newBGP(b *v1alpha1.BGPSpec) model.BGPConfig {
	cfg := model.BGPConfig{ListenPort: uint16(b.ListenPort)}
	cfg.RouterID, _ = netip.ParseAddr(b.RouterID) // zero: none
	for _, text := range b.ListenAddresses {
		if addr, err := netip.ParseAddr(text); err == nil {
			cfg.Listen = append(cfg.Listen, addr)
		}
	}
	return cfg
}
