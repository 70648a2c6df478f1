package v1alpha1

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Validate returns every rule that the defaulted object breaks, in the order of
// its fields.
func (c *NodeConfiguration) Validate() []FieldError {
	var k checker
	k.typeMeta(c.TypeMeta, KindNodeConfiguration)
	if c.NodeName == "" {
		k.bad("nodeName", nil, ruleRequired)
	} else {
		k.want(isSubdomain(c.NodeName), "nodeName", c.NodeName, ruleSubdomain)
	}
	k.labels("nodeLabels", c.NodeLabels)
	between(&k, "weight", c.Weight, 1, 1000)
	k.gossip(&c.Gossip)
	if c.HTTP.Address != nil {
		k.httpAddress("http.address", *c.HTTP.Address)
	}
	if c.HTTP.Pprof && c.HTTP.Off() {
		k.bad("http.pprof", true, "needs http.address, which is off")
	}
	if c.HTTP.Page != nil && *c.HTTP.Page && c.HTTP.Off() {
		k.bad("http.page", true, "needs http.address, which is off")
	}
	k.metrics(c)
	k.want(isAbsPath(c.Socket) && len(c.Socket) <= maxUnixPath, "socket", c.Socket,
		fmt.Sprintf("must be an absolute path of at most %d bytes", maxUnixPath))
	oneOf(&k, "connections", c.Connections, ConnectionsKeep, ConnectionsReset)
	oneOf(&k, "serviceConnections", c.ServiceConnections, ConnectionsAuto, ConnectionsKeep, ConnectionsReset)
	if c.ServiceConnections == ConnectionsKeep && c.Connections == ConnectionsReset {
		k.bad("serviceConnections", c.ServiceConnections, "needs connections: keep")
	}
	k.duration("drain.timeout", c.Drain.Timeout, time.Second, time.Hour)
	k.bgp(&c.BGP)
	if c.Kubernetes != nil {
		k.kubernetes(c.Kubernetes)
	}
	if c.Machines != nil {
		k.machines(c.Machines)
	}
	if d := c.ClusterCheckFiles; d != "" {
		k.want(isAbsPath(d), "clusterCheckFiles", d, ruleAbsPath)
	}
	for i := range c.Notify {
		k.notify(fmt.Sprintf("notify[%d]", i), &c.Notify[i])
	}
	oneOf(&k, "log.level", c.Log.Level, LogDebug, LogInfo, LogWarn, LogError)
	oneOf(&k, "log.format", c.Log.Format, LogText, LogJSON)
	return k.errs
}

// kubernetes checks the section about a cluster.
func (k *checker) kubernetes(s *KubernetesSpec) {
	if s.Kubeconfig != "" {
		k.want(isAbsPath(s.Kubeconfig), "kubernetes.kubeconfig", s.Kubeconfig, ruleAbsPath)
	}
	k.want(isLabelKey(s.LoadBalancerClass), "kubernetes.loadBalancerClass", s.LoadBalancerClass,
		"must be [prefix/]name, with a name of at most 63 letters, digits, -, _ and .")
	k.selector("kubernetes.peerSelector", s.PeerSelector)
}

// machines checks the section about Machines.
func (k *checker) machines(s *MachinesSpec) {
	if s.Kubeconfig != "" {
		k.want(isAbsPath(s.Kubeconfig), "machines.kubeconfig", s.Kubeconfig, ruleAbsPath)
	}
	k.namespaces("machines.namespaces", s.Namespaces)
	k.want(s.ClusterName == "" || isQualified(s.ClusterName), "machines.clusterName", s.ClusterName, ruleLabelValue)
	k.eachOnce("machines.drainLabels", s.DrainLabels, func(at, key string) {
		if strings.Count(key, "/") > 1 {
			// cluster.x-k8s.io/control-plane/selected-for-upgrade has been proposed.
			k.bad(at, key, "has two slashes: every API server refuses it as the key of a label and of an annotation, "+
				"so no Machine can ever have it; use %s", DefaultDrainLabels()[0])
			return
		}
		k.want(isLabelKey(key), at, key, "must be [prefix/]name, with a name of at most 63 letters, digits, -, _ and .")
	})
	k.duration("machines.hookTimeout", s.HookTimeout, time.Second, time.Hour)
}

// notify checks a program that is told of addresses.
func (k *checker) notify(path string, s *NotifySpec) {
	k.command(path+".command", s.Command)
	states := make([]string, len(s.States))
	for i, state := range s.States {
		states[i] = string(state)
	}
	k.eachOnce(path+".states", states, func(at, state string) {
		oneOf(k, at, NotifyState(state), NotifyOwner, NotifyStandby, NotifyFault)
	})
	k.eachOnce(path+".virtualIPs", s.VirtualIPs, func(at, name string) {
		k.want(isSubdomain(name), at, name, ruleSubdomain)
	})
	k.duration(path+".timeout", s.Timeout, 100*time.Millisecond, 5*time.Minute)
}

// Off tells whether the listener is disabled; unset means it is not.
func (h *HTTPSpec) Off() bool {
	return h.Address != nil && (*h.Address == "" || *h.Address == HTTPOff)
}

// HasPage tells whether the page is served: as Page says, else if only the host itself reaches
// the listener. The address must have its default.
func (h *HTTPSpec) HasPage() bool {
	if h.Page != nil {
		return *h.Page
	}
	at, err := netip.ParseAddrPort(*h.Address)
	return err == nil && at.Addr().IsLoopback()
}

// Off tells whether the listener is disabled.
func (m *MetricsSpec) Off() bool { return m.Address == "" || m.Address == HTTPOff }

// metrics checks the section about the HTTPS listener.
func (k *checker) metrics(c *NodeConfiguration) {
	m := &c.Metrics
	k.httpAddress("metrics.address", m.Address)
	if !m.Off() && c.Kubernetes == nil {
		k.bad("metrics.address", m.Address, "needs kubernetes, whose API server says who may read; without a cluster set http.address")
	}
	if (m.CertFile == "") != (m.KeyFile == "") {
		k.bad("metrics", nil, "has only one of certFile and keyFile")
	}
	if m.CertFile != "" {
		k.want(isAbsPath(m.CertFile), "metrics.certFile", m.CertFile, ruleAbsPath)
	}
	if m.KeyFile != "" {
		k.want(isAbsPath(m.KeyFile), "metrics.keyFile", m.KeyFile, ruleAbsPath)
	}
}

// gossip checks the section about gossip.
func (k *checker) gossip(g *GossipSpec) {
	if g.BindAddress != "" {
		addr, err := netip.ParseAddr(g.BindAddress)
		if err != nil {
			k.bad("gossip.bindAddress", g.BindAddress, "is not an IP address")
		} else {
			k.nodeAddress("gossip.bindAddress", g.BindAddress, addr)
		}
	}
	k.port("gossip.port", g.Port)
	k.peers(g)
	switch {
	case g.KeyFile == "" && !g.Insecure:
		k.bad("gossip.keyFile", nil, "is required: write one with `lbd keygen`, "+
			"or set gossip.insecure: true to run without encryption")
	case g.KeyFile != "" && g.Insecure:
		k.bad("gossip.insecure", true, "and gossip.keyFile exclude each other")
	}
	if g.KeyFile != "" {
		k.want(isAbsPath(g.KeyFile), "gossip.keyFile", g.KeyFile, ruleAbsPath)
	}
	k.want(isQualified(g.Label), "gossip.label", g.Label,
		"must be 1 to 63 letters, digits, -, _ and ., beginning and ending with a letter or digit")
	oneOf(k, "gossip.detection", g.Detection, DetectionLAN, DetectionFast, DetectionWAN)
}

// peers checks each peer, and that none is listed twice: each counts for a
// quorum.
func (k *checker) peers(g *GossipSpec) {
	seen := make(map[string]int)
	for i, peer := range g.Peers {
		path := fmt.Sprintf("gossip.peers[%d]", i)
		host, port, err := SplitPeer(peer)
		if err != nil {
			k.bad(path, peer, "%v", err)
			continue
		}
		name := strings.ToLower(host)
		if addr, err := netip.ParseAddr(host); err == nil {
			if !k.nodeAddress(path, peer, addr) {
				continue
			}
			name = addr.String()
		}
		port = cmp.Or(port, uint16(g.Port))
		name += " " + strconv.Itoa(int(port))
		if first, dup := seen[name]; dup {
			k.bad(path, peer, "is the same peer as gossip.peers[%d]", first)
			continue
		}
		seen[name] = i
	}
}

// nodeAddress checks that addr can be the gossip address of a node.
func (k *checker) nodeAddress(path, value string, addr netip.Addr) bool {
	rule := ""
	switch {
	case addr.Is4In6():
		rule = "is an IPv4 address in IPv6 form; write " + addr.Unmap().WithZone("").String()
	case addr.Zone() != "", addr.Is6() && addr.IsLinkLocalUnicast():
		rule = "is an IPv6 link-local address, which gossip cannot use"
	case addr.IsUnspecified():
		rule = "must be one address of the node, not all"
	case addr.IsMulticast(), addr == broadcast:
		rule = "is not the address of one node"
	}
	k.want(rule == "", path, value, rule)
	return rule == ""
}

// bgp checks the section about BGP.
func (k *checker) bgp(b *BGPSpec) {
	k.eachOnce("bgp.listenAddresses", b.ListenAddresses, func(at, text string) {
		addr, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			k.bad(at, text, "is not an IP address")
		case addr.Is4In6():
			k.bad(at, text, "is an IPv4 address in IPv6 form; write %v", addr.Unmap().WithZone(""))
		case addr.Zone() != "", addr.Is6() && addr.IsLinkLocalUnicast():
			k.bad(at, text, "is an IPv6 link-local address; listen on :: for peers on the link")
		case addr.IsMulticast(), addr == broadcast:
			k.bad(at, text, "is not the address of one node")
		}
	})
	k.port("bgp.listenPort", b.ListenPort)
	k.routerID("bgp.routerID", b.RouterID)
}

// httpAddress checks where the HTTP listener is to be.
func (k *checker) httpAddress(path, value string) {
	if value == "" || value == HTTPOff {
		return
	}
	full := value
	if strings.HasPrefix(full, ":") {
		full = "0.0.0.0" + full
	}
	if ap, err := netip.ParseAddrPort(full); err != nil || ap.Port() == 0 || ap.Addr().Zone() != "" {
		k.bad(path, value, "must be IP:port, :port for every address, or off")
	}
}
