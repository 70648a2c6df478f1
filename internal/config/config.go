// Package config turns the YAML files that users write into facts for the
// daemon: strictly, with every error at once, and again whenever they change.
//
// A file becomes nodes, nodes become the structs of api/v1alpha1, and valid ones
// become a Config, which holds parsed values only. Nothing is applied unless all
// of it is valid.
package config

import (
	"embed"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// Config is a valid configuration. It must not be changed once it was handed
// out.
type Config struct {
	Node Node
	VIPs []model.VIP // sorted by Addr
	// LoadBalancers are sorted by Name; their VIPs are among VIPs.
	LoadBalancers []model.LoadBalancer
	// Checks are the health checks, defaulted, by model.VIP.Check, which is the
	// name of the object, and by model.Server.Check.
	Checks map[string]v1alpha1.HealthCheck
	// Peers are all BGPPeers, also those that are not for this node, sorted by
	// Name. They hold passwords; never log one.
	Peers []model.BGPPeer
	// Listeners are sorted by Name; their VIPs are among VIPs. They hold passwords, too.
	Listeners []model.BGPListener
	// BGP is what all sessions of this node share.
	BGP model.BGPConfig
	// Warnings are sentences about what is valid but unwise, each with its file.
	Warnings []string

	// warnings are Warnings with their places.
	warnings []*Error
	// hostName stands in for nodeName where the files have none.
	hostName string
	// node is what Node was made of; its positions make errors clickable. So do
	// peerObjects, by name.
	node        *object
	peerObjects map[string]*object
	// watched are the files besides the configuration whose content is part of it.
	watched []string
}

// SecretFiles are the files that only the daemon should be able to read: the keyring,
// those with passwords that are on this node, and kubeconfigs, which need not exist yet.
func (c *Config) SecretFiles() []string {
	files := slices.DeleteFunc(slices.Clone(c.watched), missing)
	if k := c.Node.Kubernetes; k != nil && k.Kubeconfig != "" {
		files = append(files, k.Kubeconfig)
	}
	if m := c.Node.Machines; m != nil && m.Kubeconfig != "" {
		files = append(files, m.Kubeconfig)
	}
	if key := c.Node.Metrics.KeyFile; key != "" {
		files = append(files, key)
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// Node is the parsed NodeConfiguration.
type Node struct {
	Name   model.NodeName
	Labels map[string]string
	Weight int
	Gossip Gossip
	// HTTPAddress is "ip:port" or ":port" for net.Listen; empty: no listener.
	HTTPAddress string
	Page, Pprof bool
	// Metrics is the HTTPS listener of /metrics; an empty Address: none.
	Metrics      v1alpha1.MetricsSpec
	Socket       string
	DrainTimeout time.Duration
	// NoRelay: connections are reset when VIPs move.
	NoRelay bool
	// ServiceConnections is what becomes of those of Services otherwise.
	ServiceConnections model.ServiceConnections
	LogLevel           slog.Level
	LogFormat          v1alpha1.LogFormat
	// Kubernetes is the cluster that is served, defaulted; nil: none.
	Kubernetes *v1alpha1.KubernetesSpec
	// CheckFiles is where checks of objects of a cluster may read files; empty: nowhere.
	CheckFiles string
	// Notify are the programs that are told of addresses, defaulted.
	Notify []v1alpha1.NotifySpec
	// Machines is where the Machines of Cluster API are, defaulted; nil: none are
	// watched.
	Machines *v1alpha1.MachinesSpec
}

// Gossip is the parsed part of the NodeConfiguration about gossip.
type Gossip struct {
	// BindAddress is the zero Addr if the files have none; the default is then the
	// address of the interface with the default route.
	BindAddress netip.Addr
	Port        uint16
	Peers       []Peer
	KeyFile     string
	// Keys are those of KeyFile, 32 bytes each; the first encrypts. Empty if
	// Insecure.
	Keys      [][]byte
	Insecure  bool
	Label     string
	Detection v1alpha1.Detection
}

// Peer is where a daemon of the group listens.
type Peer struct {
	Host string     // IP address or host name, as written
	Addr netip.Addr // Host, if it is an IP address
	Port uint16
}

// String returns "host:port", with brackets around an IPv6 address.
func (p Peer) String() string {
	return net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port)))
}

//go:embed testdata/reference.yaml
var reference string

// elsewhere are the kinds that the files of the node of the reference cannot have.
//
//go:embed testdata/box.yaml testdata/services.yaml testdata/machines.yaml testdata/tenants.yaml
var elsewhere embed.FS

//go:embed testdata/minimal.yaml
var minimal string

// Reference returns a configuration with every field and what it means. Kinds that it cannot have
// follow as comments.
func Reference() string {
	var b strings.Builder
	b.WriteString(reference)
	for _, name := range []string{"box", "services", "machines", "tenants"} {
		text, err := elsewhere.ReadFile("testdata/" + name + ".yaml")
		if err != nil {
			panic(err) // it is embedded
		}
		b.WriteString("\n# ---\n")
		for line := range strings.Lines(string(text)) {
			b.WriteString("# " + line)
		}
	}
	return b.String()
}

// Minimal returns the shortest configuration of a control plane with three
// nodes.
func Minimal() string { return minimal }
