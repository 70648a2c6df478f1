package v1alpha1

import "time"

// NodeConfiguration configures one daemon. It is read from files only, and there
// is exactly one for each node.
type NodeConfiguration struct {
	TypeMeta `json:",inline"`

	// NodeName names this node in the group; it must be unique there. It is a
	// DNS-1123 subdomain, as node names of Kubernetes are. Default: LBD_NODE_NAME of
	// the environment, else the host name in lower case.
	NodeName string `json:"nodeName,omitempty"`
	// NodeLabels are what node selectors match in a standalone group.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// Weight scales the share of VIPs of this node, relative to the other nodes:
	// 1 to 1000. Default: 100.
	Weight int32 `json:"weight,omitempty"`
	// Gossip is how the nodes of the group talk to each other.
	Gossip GossipSpec `json:"gossip,omitzero"`
	// HTTP serves /metrics, /healthz and /readyz, and the page for people.
	HTTP HTTPSpec `json:"http,omitzero"`
	// Metrics serves /metrics to other hosts. Default: nothing does but HTTP.
	Metrics MetricsSpec `json:"metrics,omitzero"`
	// Socket is the path of the unix socket for the commands. Default:
	// /run/lbd/lbd.sock.
	Socket string `json:"socket,omitempty"`
	// Drain is how addresses are handed over.
	Drain DrainSpec `json:"drain,omitzero"`
	// Connections is what becomes of open connections when VIPs move. Default: keep.
	Connections Connections `json:"connections,omitempty"`
	// ServiceConnections is the same for Services, whose packets kube-proxy translates:
	// auto keeps their connections where that can work, and says why where it cannot; keep
	// makes a problem of that, and asks for Connections: keep. Default: auto.
	ServiceConnections Connections `json:"serviceConnections,omitempty"`
	// BGP is what all BGP sessions of this node share.
	BGP BGPSpec `json:"bgp,omitzero"`
	// Kubernetes makes the daemon announce the Services of a cluster, and use its
	// objects of lbd.dev beside those of files. Default: no cluster.
	Kubernetes *KubernetesSpec `json:"kubernetes,omitempty"`
	// Machines makes the daemon watch the Machines of Cluster API: it withdraws before
	// its own goes. Default: none.
	Machines *MachinesSpec `json:"machines,omitempty"`
	// ClusterCheckFiles is the absolute path of the one directory in and below which
	// health checks of objects of a cluster, or of a management cluster, may name files:
	// whoever may write such objects has this node read them, and prove itself with the
	// client certificates among them. Default: none.
	ClusterCheckFiles string `json:"clusterCheckFiles,omitempty"`
	// Notify are programs that are run when an address comes to this node or leaves it.
	// Default: none.
	Notify []NotifySpec `json:"notify,omitempty"`
	// Log is what is logged and how.
	Log LogSpec `json:"log,omitzero"`
}

// NotifySpec is a program that is told what this node is to an address. It is run once for
// each address after the start, and then for each change. Only addresses of files count: an
// object of a cluster runs no program.
type NotifySpec struct {
	// Command is the program and its arguments. No shell reads it.
	Command []string `json:"command"`
	// States are those that the program is run for. Default: all.
	States []NotifyState `json:"states,omitempty"`
	// VirtualIPs are the names of the VirtualIP and LoadBalancer objects of files whose
	// addresses count. Default: all of them.
	VirtualIPs []string `json:"virtualIPs,omitempty"`
	// Timeout is when the program is killed: 100ms to 5m. Default: 10s.
	Timeout Duration `json:"timeout,omitzero"`
}

// NotifyState is what this node is to an address.
type NotifyState string

// The states of an address on a node.
const (
	NotifyOwner   NotifyState = "owner"   // the node announces it
	NotifyStandby NotifyState = "standby" // it does not
	NotifyFault   NotifyState = "fault"   // and could not, for a reason that a person should look at
)

// MachinesSpec is where the Machines of Cluster API are and when a node drains for
// them.
type MachinesSpec struct {
	// Kubeconfig is the absolute path of a kubeconfig file of the management cluster.
	// It may appear, and change, while lbd runs. Default: the service account of the
	// pod.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Namespaces are those whose Machines are watched, at most 64. Default: all.
	Namespaces []string `json:"namespaces,omitempty"`
	// ClusterName limits the Machines to those of one cluster. Default: all.
	ClusterName string `json:"clusterName,omitempty"`
	// Balancer has this node forward connections to the Machines of every MachineLoadBalancer
	// in Namespaces whose machinePort is not its port, and of ClusterName if that is given.
	// Default: only for those that its own Machine is a member of.
	Balancer bool `json:"balancer,omitempty"`
	// Peers makes gossip peers of the Machines of the control plane of the cluster that this
	// node is of, besides those of gossip.peers: as Machines are replaced, so are they.
	Peers bool `json:"peers,omitempty"`
	// ProviderID is the spec.providerID of the Machine of this node. Default: it is
	// found by the name of the node, then by its addresses.
	ProviderID string `json:"providerID,omitempty"`
	// DrainLabels are keys of labels or annotations of a Machine; with any value but
	// "false" its node drains. Default: DefaultDrainLabels.
	DrainLabels []string `json:"drainLabels,omitempty"`
	// DrainOnDeletion drains the node whose Machine is being deleted. Default: true.
	DrainOnDeletion *bool `json:"drainOnDeletion,omitempty"`
	// DrainOnRemediation drains the node whose Machine a MachineHealthCheck found
	// unhealthy, or wants replaced.
	DrainOnRemediation bool `json:"drainOnRemediation,omitempty"`
	// HookTimeout has no effect: the controller ends holds. 1s to 1h. Default: 60s.
	HookTimeout Duration `json:"hookTimeout,omitzero"`
}

// The keys of labels or annotations by which a user takes a Machine out of load
// balancers; its node keeps all other addresses.
const (
	// DisabledLabel is for all of which the Machine is a member.
	DisabledLabel = "loadbalancer.cluster.x-k8s.io/disabled"
	// DisabledPrefix and the name of a MachineLoadBalancer are for this one.
	DisabledPrefix = "disabled.loadbalancer.cluster.x-k8s.io/"
)

// DefaultDrainLabels returns the default of MachinesSpec.DrainLabels.
func DefaultDrainLabels() []string {
	return []string{"controlplane.cluster.x-k8s.io/selected-for-upgrade", "lbd.dev/drain"}
}

// KubernetesSpec is how the daemon serves a cluster. The name of the node must be
// that of its Node.
type KubernetesSpec struct {
	// Kubeconfig is the absolute path of a kubeconfig file. Default: the service
	// account of the pod.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// LoadBalancerClass is the spec.loadBalancerClass of the Services that lbd
	// serves. Default: lbd.dev/lbd.
	LoadBalancerClass string `json:"loadBalancerClass,omitempty"`
	// Classless has lbd serve Services without a class too.
	Classless bool `json:"classless,omitempty"`
	// PeerSelector matches the Nodes that run lbd: their addresses are gossip peers
	// besides gossip.peers. Default: all.
	PeerSelector Selector `json:"peerSelector,omitzero"`
	// CordonDrains moves Services away from a Node that is cordoned.
	CordonDrains bool `json:"cordonDrains,omitempty"`
}

// GossipSpec configures the traffic between the daemons of a group. All of it,
// heartbeats included, uses one port, UDP and TCP.
type GossipSpec struct {
	// BindAddress is the address of this node that the others reach. Default: the
	// one among Peers, else LBD_NODE_ADDRESS of the environment if this host has it,
	// else that of the interface with the default route.
	BindAddress string `json:"bindAddress,omitempty"`
	// Port is for UDP and TCP. Default: 7947.
	Port int32 `json:"port,omitempty"`
	// Peers are the nodes of the group: an IP address or a host name, each with an
	// optional port (default: Port). This node may be listed. Absent ones are
	// retried for ever. A majority of them is what partition: quorum counts.
	Peers []string `json:"peers,omitempty"`
	// KeyFile is the absolute path of a keyring: one base64 key of 32 bytes a
	// line, # begins a comment, the first key encrypts. Required unless Insecure.
	KeyFile string `json:"keyFile,omitempty"`
	// Insecure lets gossip run without encryption and authentication.
	Insecure bool `json:"insecure,omitempty"`
	// Label is the name of the cluster. Daemons with another label are not heard,
	// which keeps two clusters on one LAN apart. It has the syntax of a label
	// value of Kubernetes. Default: "lbd".
	Label string `json:"label,omitempty"`
	// Detection is how fast a silent node is noticed. Default: lan.
	Detection Detection `json:"detection,omitempty"`
}

// Connections is what becomes of open connections when VIPs move.
type Connections string

// The ways to treat open connections.
const (
	// ConnectionsKeep relays packets that no socket of a node can place to the other
	// nodes that have the VIP, or had it.
	ConnectionsKeep Connections = "keep"
	// ConnectionsAuto keeps those of Services where that can work.
	ConnectionsAuto Connections = "auto"
	// ConnectionsReset takes this node out of that: it relays nothing, and nothing is
	// relayed to it.
	ConnectionsReset Connections = "reset"
)

// Detection is a profile of failure detection.
type Detection string

// The profiles of failure detection.
const (
	DetectionLAN  Detection = "lan"  // one LAN, shared with other traffic
	DetectionFast Detection = "fast" // one quiet LAN, hosts with spare CPU time
	DetectionWAN  Detection = "wan"  // several sites
)

// HTTPSpec configures the HTTP listener.
type HTTPSpec struct {
	// Address is IP:port, or :port for every address of the node. "" or "off"
	// disables the listener. Default: 127.0.0.1:7477.
	Address *string `json:"address,omitempty"`
	// Page serves the page for people too, to everybody who can connect. Default: true if
	// Address is a loopback address, else false.
	Page *bool `json:"page,omitempty"`
	// Pprof serves /debug/pprof too.
	Pprof bool `json:"pprof,omitempty"`
}

// MetricsSpec configures the HTTPS listener of /metrics. Who asks sends a bearer token, and
// the API server of Kubernetes says whether its owner may get the non-resource URL /metrics.
type MetricsSpec struct {
	// Address is IP:port, or :port for every address of the node; it needs Kubernetes. ""
	// and "off" disable the listener. With it HTTP has no /metrics. Default: off.
	Address string `json:"address,omitempty"`
	// CertFile and KeyFile are absolute paths of the certificate of the listener, with its
	// chain, and of its key, in PEM. They may change while lbd runs. Default: a certificate
	// that the daemon makes and signs when it starts.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
}

// DrainSpec configures how addresses are handed over.
type DrainSpec struct {
	// Timeout is how long a VIP that was handed over stays bound for connections
	// that are still open: 1s to 1h. Default: 30s.
	Timeout Duration `json:"timeout,omitzero"`
}

// BGPSpec configures what all BGP sessions of a node share.
type BGPSpec struct {
	// ListenAddresses are addresses of this node on which peers may connect;
	// 0.0.0.0 and :: mean all. Default: none, and all if a BGPPeer is passive.
	ListenAddresses []string `json:"listenAddresses,omitempty"`
	// ListenPort is the TCP port of ListenAddresses. Default: 179.
	ListenPort int32 `json:"listenPort,omitempty"`
	// RouterID is the BGP identifier in dotted form, unique in the AS and not
	// 0.0.0.0 (RFC 6286). Default: that of the BGPPeers, else one is chosen.
	RouterID string `json:"routerID,omitempty"`
}

// LogSpec configures the log.
type LogSpec struct {
	// Level is the least important level that is logged. Default: info.
	Level LogLevel `json:"level,omitempty"`
	// Format is that of a line. Default: text.
	Format LogFormat `json:"format,omitempty"`
}

// LogLevel is the importance of a line of the log.
type LogLevel string

// The levels of the log.
const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// LogFormat is how a line of the log is written.
type LogFormat string

// The formats of the log.
const (
	LogText LogFormat = "text" // key=value
	LogJSON LogFormat = "json" // one object a line
)

// The defaults of a NodeConfiguration.
const (
	DefaultWeight       = 100
	DefaultGossipPort   = 7947
	DefaultGossipLabel  = "lbd"
	DefaultHTTPAddress  = "127.0.0.1:7477"
	DefaultSocket       = "/run/lbd/lbd.sock"
	DefaultDrainTimeout = 30 * time.Second
	DefaultHookTimeout  = 60 * time.Second

	DefaultNotifyTimeout = 10 * time.Second
)

// DefaultLoadBalancerClass is that of Services that are for lbd.
const DefaultLoadBalancerClass = "lbd.dev/lbd"

// HTTPOff is the HTTPSpec.Address that disables the listener.
const HTTPOff = "off"

// Default fills in what is unset, but for NodeName and Gossip.BindAddress, which
// only the host knows.
func (c *NodeConfiguration) Default() {
	setDefault(&c.Weight, DefaultWeight)
	setDefault(&c.Gossip.Port, DefaultGossipPort)
	setDefault(&c.Gossip.Label, DefaultGossipLabel)
	setDefault(&c.Gossip.Detection, DetectionLAN)
	setDefault(&c.Connections, ConnectionsKeep)
	setDefault(&c.ServiceConnections, ConnectionsAuto)
	setDefault(&c.HTTP.Address, new(DefaultHTTPAddress))
	setDefault(&c.Socket, DefaultSocket)
	setDefault(&c.Drain.Timeout, Duration{DefaultDrainTimeout})
	setDefault(&c.BGP.ListenPort, DefaultBGPPort)
	if c.Kubernetes != nil {
		setDefault(&c.Kubernetes.LoadBalancerClass, DefaultLoadBalancerClass)
	}
	if c.Machines != nil {
		c.Machines.Default()
	}
	for i := range c.Notify {
		setDefault(&c.Notify[i].Timeout, Duration{DefaultNotifyTimeout})
	}
	setDefault(&c.Log.Level, LogInfo)
	setDefault(&c.Log.Format, LogText)
}

// Default fills in what is unset.
func (m *MachinesSpec) Default() {
	if m.DrainLabels == nil {
		m.DrainLabels = DefaultDrainLabels()
	}
	setDefault(&m.DrainOnDeletion, new(true))
	setDefault(&m.HookTimeout, Duration{DefaultHookTimeout})
}

// setDefault sets *p to v if it is zero.
func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
