package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// newNode parses a valid NodeConfiguration. Keys are read elsewhere.
func newNode(c *v1alpha1.NodeConfiguration) Node {
	n := Node{
		Name:         model.NodeName(c.NodeName),
		Labels:       maps.Clone(c.NodeLabels),
		Weight:       int(c.Weight),
		Pprof:        c.HTTP.Pprof,
		Socket:       c.Socket,
		DrainTimeout: c.Drain.Timeout.Duration,
		LogFormat:    c.Log.Format,
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

// newVIPs turns a valid VirtualIP into one VIP for each address.
func newVIPs(v *v1alpha1.VirtualIP) []model.VIP {
	base := model.VIP{
		Name:    v.Metadata.Name,
		Kind:    v1alpha1.KindVirtualIP,
		Preempt: v.Spec.Preempt,
	}
	if a := v.Spec.Advertise; a != nil && a.L2 != nil {
		base.L2 = true
		base.Interfaces = slices.Clone(a.L2.Interfaces)
	}
	if s := v.Spec.NodeSelector; s != nil {
		base.NodeSelector = maps.Clone(s.MatchLabels)
	}
	if v.Spec.Partition == v1alpha1.PartitionQuorum {
		base.Partition = model.PartitionQuorum
	}
	if v.Spec.HealthCheck != nil {
		base.Check = v.Metadata.Name
	}
	vips := make([]model.VIP, 0, len(v.Spec.Addresses))
	for _, text := range v.Spec.Addresses {
		if addr, err := netip.ParseAddr(text); err == nil {
			vip := base
			vip.Addr = addr
			vips = append(vips, vip)
		}
	}
	return vips
}

// newConfig turns objects without errors into a Config without keys. node is nil
// where none is required.
func newConfig(objects []*object, node *object) *Config {
	cfg := &Config{Checks: make(map[string]v1alpha1.HealthCheck), node: node}
	if node != nil {
		cfg.Node = newNode(node.node)
	}
	for _, o := range objects {
		if o.vip == nil {
			continue
		}
		cfg.VIPs = append(cfg.VIPs, newVIPs(o.vip)...)
		if o.vip.Spec.HealthCheck != nil {
			cfg.Checks[o.vip.Metadata.Name] = *o.vip.Spec.HealthCheck
		}
	}
	slices.SortFunc(cfg.VIPs, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) })
	cfg.Warnings = warnings(objects)
	return cfg
}

// warnings returns sentences about what is valid but unwise.
func warnings(objects []*object) []string {
	var all []string
	warn := func(o *object, path, text string) {
		all = append(all, fmt.Sprintf("%s:%d: %s: %s: %s", o.file, o.lineOf(path), o.title(), path, text))
	}
	for _, o := range objects {
		if o.vip != nil {
			if h := o.vip.Spec.HealthCheck; h != nil && h.HTTPS != nil && h.HTTPS.InsecureSkipVerify {
				warn(o, "spec.healthCheck.https.insecureSkipVerify", "any server that listens on the port passes the check")
			}
			continue
		}
		if o.node.Gossip.Insecure {
			warn(o, "gossip.insecure", "anybody on the network can take over every VIP; `lbd keygen` prints a key")
		}
		if o.node.HTTP.Pprof && !onLoopback(*o.node.HTTP.Address) {
			warn(o, "http.pprof", "other hosts can profile and slow down this daemon")
		}
	}
	return all
}

// onLoopback tells whether only this host reaches a listener at address.
func onLoopback(address string) bool {
	ap, err := netip.ParseAddrPort(address)
	return err == nil && ap.Addr().IsLoopback()
}
