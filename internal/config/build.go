package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/resolve"
)

var serviceConnections = map[v1alpha1.Connections]model.ServiceConnections{
	v1alpha1.ConnectionsReset: model.ServicesReset, v1alpha1.ConnectionsAuto: model.ServicesAuto, v1alpha1.ConnectionsKeep: model.ServicesKeep,
}

// newNode parses a valid NodeConfiguration. Keys are read elsewhere.
func newNode(c *v1alpha1.NodeConfiguration) Node {
	n := Node{
		Name:               model.NodeName(c.NodeName),
		Labels:             maps.Clone(c.NodeLabels),
		Weight:             int(c.Weight),
		Page:               c.HTTP.HasPage(),
		Pprof:              c.HTTP.Pprof,
		Metrics:            c.Metrics,
		Socket:             c.Socket,
		DrainTimeout:       c.Drain.Timeout.Duration,
		CheckFiles:         c.ClusterCheckFiles,
		NoRelay:            c.Connections == v1alpha1.ConnectionsReset,
		ServiceConnections: serviceConnections[c.ServiceConnections],
		LogFormat:          c.Log.Format,
		Notify:             c.Notify,
		Kubernetes:         c.Kubernetes,
		Machines:           c.Machines,
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

func newPeers(g *v1alpha1.GossipSpec) []Peer {
	var peers []Peer
	for _, text := range g.Peers {
		host, port, err := v1alpha1.SplitPeer(text)
		if err != nil {
			continue
		}
		port = cmp.Or(port, uint16(g.Port))
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
			lb, vips, checks := resolve.LoadBalancer(b, nil, names.communities)
			cfg.LoadBalancers, cfg.VIPs = append(cfg.LoadBalancers, lb), append(cfg.VIPs, vips...)
			maps.Copy(cfg.Checks, checks)
		case *v1alpha1.BGPPeer:
			cfg.Peers = append(cfg.Peers, resolve.Peer(b, names.profiles[b.Spec.BFDProfile], secrets))
		case *v1alpha1.BGPListener:
			l, vips := resolve.Listener(b, names.profiles[b.Spec.BFDProfile], secrets)
			cfg.Listeners, cfg.VIPs = append(cfg.Listeners, l), append(cfg.VIPs, vips...)
		}
	}
	slices.SortFunc(cfg.VIPs, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) })
	slices.SortFunc(cfg.LoadBalancers, func(a, b model.LoadBalancer) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(cfg.Peers, func(a, b model.BGPPeer) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(cfg.Listeners, func(a, b model.BGPListener) int { return strings.Compare(a.Name, b.Name) })
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

// PeerNames are the gossip peers as they were written.
func (c *Config) PeerNames() []string {
	out := make([]string, len(c.Node.Gossip.Peers))
	for i, p := range c.Node.Gossip.Peers {
		out[i] = p.String()
	}
	return out
}

// nodeAddressVariable is the variable of the environment in which a DaemonSet
// gives the address of the Node, which is where the other daemons look for it.
const nodeAddressVariable = "LBD_NODE_ADDRESS"

// DefaultAddress is the address of this host that is listed as a peer, or that of the Node,
// else the one that packets leave with, to the outside or, without a default route, to a peer.
// Nothing is sent: connecting a UDP socket only looks a route up.
func DefaultAddress(peers []Peer) (netip.Addr, error) {
	local := map[netip.Addr]bool{}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("addresses of this host: %w", err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			local[p.Addr().Unmap()] = true
		}
	}
	for _, p := range peers {
		if local[p.Addr] && !p.Addr.IsLoopback() {
			return p.Addr, nil
		}
	}
	if a, err := netip.ParseAddr(os.Getenv(nodeAddressVariable)); err == nil && local[a] {
		return a, nil
	}
	to := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")} // documentation, RFC 5737 and 3849
	for _, p := range peers {
		if p.Addr.IsValid() && !p.Addr.IsLoopback() {
			to = append(to, p.Addr)
		}
	}
	for _, a := range to {
		c, err := net.Dial("udp", netip.AddrPortFrom(a, 9).String())
		if err != nil {
			continue
		}
		from, err := netip.ParseAddrPort(c.LocalAddr().String())
		c.Close()
		if err == nil {
			return from.Addr().Unmap(), nil
		}
	}
	return netip.Addr{}, errors.New("no address of this host among gossip.peers, no default route, and no route to a peer; set gossip.bindAddress")
}
