package config

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// restartOnly returns an error for each field that is not the same in next as in
// now and that a running daemon cannot change.
func restartOnly(now, next *Config) []*Error {
	var errs []*Error
	check := func(path string, same bool, old, value any) {
		if same {
			return
		}
		o := next.node
		errs = append(errs, o.about(o.placeOf(path), v1alpha1.FieldError{Path: path, Value: value, Rule: fmt.Sprintf(
			"cannot change while lbd runs, which uses %v; `lbd restart` takes it, or put it back", old)}))
	}
	a, b := &now.Node, &next.Node
	check("nodeName", a.Name == b.Name, a.Name, string(b.Name))
	check("gossip.bindAddress", a.Gossip.BindAddress == b.Gossip.BindAddress,
		orDefault(a.Gossip.BindAddress), orDefault(b.Gossip.BindAddress))
	check("gossip.port", a.Gossip.Port == b.Gossip.Port, a.Gossip.Port, b.Gossip.Port)
	check("gossip.label", a.Gossip.Label == b.Gossip.Label, a.Gossip.Label, b.Gossip.Label)
	check("gossip.insecure", a.Gossip.Insecure == b.Gossip.Insecure, a.Gossip.Insecure, b.Gossip.Insecure)
	check("gossip.detection", a.Gossip.Detection == b.Gossip.Detection, a.Gossip.Detection, string(b.Gossip.Detection))
	check("http.address", a.HTTPAddress == b.HTTPAddress, cmp.Or(a.HTTPAddress, v1alpha1.HTTPOff), cmp.Or(b.HTTPAddress, v1alpha1.HTTPOff))
	check("metrics.address", a.Metrics.Address == b.Metrics.Address, cmp.Or(a.Metrics.Address, v1alpha1.HTTPOff), cmp.Or(b.Metrics.Address, v1alpha1.HTTPOff))
	check("metrics.certFile", a.Metrics.CertFile == b.Metrics.CertFile, cmp.Or(a.Metrics.CertFile, "none"), b.Metrics.CertFile)
	check("metrics.keyFile", a.Metrics.KeyFile == b.Metrics.KeyFile, cmp.Or(a.Metrics.KeyFile, "none"), b.Metrics.KeyFile)
	// The default follows the address, about which enough is said.
	check("http.page", a.Page == b.Page || a.HTTPAddress != b.HTTPAddress, a.Page, b.Page)
	check("http.pprof", a.Pprof == b.Pprof, a.Pprof, b.Pprof)
	check("socket", a.Socket == b.Socket, a.Socket, b.Socket)
	check("bgp.listenAddresses", slices.Equal(now.BGP.Listen, next.BGP.Listen), orNone(now.BGP.Listen), orNone(next.BGP.Listen))
	check("bgp.listenPort", now.BGP.ListenPort == next.BGP.ListenPort, now.BGP.ListenPort, next.BGP.ListenPort)
	check("bgp.routerID", now.BGP.RouterID == next.BGP.RouterID, orDefault(now.BGP.RouterID), orDefault(next.BGP.RouterID))
	sameCluster(a.Kubernetes, b.Kubernetes, check)
	sameMachines(a.Machines, b.Machines, check)
	check("log.format", a.LogFormat == b.LogFormat, a.LogFormat, string(b.LogFormat))
	if now.BGP.RouterID == next.BGP.RouterID {
		errs = append(errs, samePeerRouterID(now, next)...)
	}
	return errs
}

// sameCluster refuses a change of the cluster that is served.
func sameCluster(a, b *v1alpha1.KubernetesSpec, check func(path string, same bool, old, value any)) {
	if a == nil || b == nil {
		uses := "no cluster"
		if a != nil {
			uses = "one"
		}
		check("kubernetes", a == b, uses, nil)
		return
	}
	check("kubernetes.kubeconfig", a.Kubeconfig == b.Kubeconfig, cmp.Or(a.Kubeconfig, "the service account"), b.Kubeconfig)
	check("kubernetes.loadBalancerClass", a.LoadBalancerClass == b.LoadBalancerClass, a.LoadBalancerClass, b.LoadBalancerClass)
	check("kubernetes.classless", a.Classless == b.Classless, a.Classless, b.Classless)
	check("kubernetes.peerSelector.matchLabels", maps.Equal(a.PeerSelector.MatchLabels, b.PeerSelector.MatchLabels), "others", nil)
	check("kubernetes.peerSelector.matchExpressions",
		reflect.DeepEqual(a.PeerSelector.MatchExpressions, b.PeerSelector.MatchExpressions), "others", nil)
	check("kubernetes.cordonDrains", a.CordonDrains == b.CordonDrains, a.CordonDrains, b.CordonDrains)
}

// sameMachines refuses a change of which Machines are watched, and of what drains for
// them.
func sameMachines(a, b *v1alpha1.MachinesSpec, check func(path string, same bool, old, value any)) {
	if a == nil || b == nil {
		uses := "no Machines"
		if a != nil {
			uses = "some"
		}
		check("machines", a == b, uses, nil)
		return
	}
	check("machines.kubeconfig", a.Kubeconfig == b.Kubeconfig, cmp.Or(a.Kubeconfig, "the service account"), b.Kubeconfig)
	check("machines.namespaces", slices.Equal(a.Namespaces, b.Namespaces), "others", nil)
	check("machines.clusterName", a.ClusterName == b.ClusterName, cmp.Or(a.ClusterName, "all clusters"), b.ClusterName)
	check("machines.balancer", a.Balancer == b.Balancer, a.Balancer, b.Balancer)
	check("machines.peers", a.Peers == b.Peers, a.Peers, b.Peers)
	check("machines.providerID", a.ProviderID == b.ProviderID, cmp.Or(a.ProviderID, "none"), b.ProviderID)
	check("machines.drainLabels", slices.Equal(a.DrainLabels, b.DrainLabels), "others", nil)
	check("machines.drainOnDeletion", *a.DrainOnDeletion == *b.DrainOnDeletion, *a.DrainOnDeletion, *b.DrainOnDeletion)
	check("machines.drainOnRemediation", a.DrainOnRemediation == b.DrainOnRemediation, a.DrainOnRemediation, b.DrainOnRemediation)
	check("machines.hookTimeout", a.HookTimeout == b.HookTimeout, a.HookTimeout, b.HookTimeout)
}

// samePeerRouterID refuses a change of the BGP identifier by way of a BGPPeer:
// sessions keep the one they began with.
func samePeerRouterID(now, next *Config) []*Error {
	if now.BGP.RouterID.IsValid() || !now.hasPeers() {
		return nil // the same for certain, or none is in use
	}
	old, _ := now.peerRouterID()
	value, peer := next.peerRouterID()
	if old == value || !next.hasPeers() {
		return nil
	}
	rule := fmt.Sprintf("cannot change while lbd runs, which uses %v; `lbd restart` takes it, or put it back", orDefault(old))
	o, f := next.node, v1alpha1.FieldError{Path: "bgp.routerID", Rule: "was that of a BGPPeer and " + rule}
	if peer != "" {
		o, f = next.peerObjects[peer], v1alpha1.FieldError{Path: "spec.routerID", Value: orDefault(value), Rule: rule}
	}
	return []*Error{o.about(o.placeOf(f.Path), f)}
}

// own calls f for each peer of this node.
func (c *Config) own(f func(p *model.BGPPeer)) {
	for i := range c.Peers {
		p := &c.Peers[i]
		if len(p.NodeSelectors) == 0 || slices.ContainsFunc(p.NodeSelectors, func(s map[string]string) bool { return v1alpha1.Selector{MatchLabels: s}.Matches(c.Node.Labels) }) {
			f(p)
		}
	}
}

// hasPeers tells whether this node has a session, or takes some.
func (c *Config) hasPeers() bool {
	has := len(c.Listeners) > 0
	c.own(func(*model.BGPPeer) { has = true })
	return has
}

// peerRouterID returns the BGP identifier that the peers of this node ask for,
// and the name of the first that does.
func (c *Config) peerRouterID() (id netip.Addr, name string) {
	c.own(func(p *model.BGPPeer) {
		if p.RouterID.IsValid() && name == "" {
			id, name = p.RouterID, p.Name
		}
	})
	return id, name
}

// orNone shows a list of addresses.
func orNone(addrs []netip.Addr) any {
	if len(addrs) == 0 {
		return "none"
	}
	return addrs
}

// orDefault shows a bind address.
func orDefault(addr netip.Addr) string {
	if !addr.IsValid() {
		return "the default"
	}
	return addr.String()
}
