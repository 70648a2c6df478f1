package v1alpha1

import (
	"net/netip"
	"time"
)

// LoadBalancer leads the connections to some ports of its addresses to servers on other
// machines, which run no lbd. One node has each address and forwards, as with a VirtualIP. It
// is for files only.
type LoadBalancer struct {
	TypeMeta `json:",inline"`
	// Metadata names the object.
	Metadata ObjectMeta `json:"metadata"`
	// Spec is what is wanted.
	Spec LoadBalancerSpec `json:"spec"`
}

// LoadBalancerSpec is what is wanted of a LoadBalancer.
type LoadBalancerSpec struct {
	// Addresses are those of a VirtualIP: IPv4 and IPv6 addresses without a prefix length, 1 to 64.
	Addresses []string `json:"addresses"`
	// Ports are 1 to 1000.
	Ports []ForwardedPort `json:"ports"`
	// Backends are the servers, 1 to 1000. Each family of Addresses needs one.
	Backends []Backend `json:"backends"`
	// HealthCheck asks each backend, from each node: https, http or tcp, without host. Without
	// it every backend counts as healthy.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// Affinity is what goes to one backend together. Default: connection.
	Affinity Affinity `json:"affinity,omitempty"`
	// OnFailure is what becomes of the connections of a backend that fails. Default: reset.
	OnFailure FailurePolicy `json:"onFailure,omitempty"`
	// DrainTimeout is how long the connections of a backend go on that was given the weight 0
	// or taken out: 0s to 1h. Default: 30s.
	DrainTimeout Duration `json:"drainTimeout,omitzero"`
	// AllowedSources are prefixes of clients. Default: all. To others the ports look filtered.
	AllowedSources []string `json:"allowedSources,omitempty"`
	// Advertise is how the addresses are announced: l2 alone, in the mode active-backup.
	// Default: layer 2 on the interface whose subnet holds the address.
	Advertise *Advertise `json:"advertise,omitempty"`
	// NodeSelector limits the nodes that may own the addresses. Default: all.
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`
	// Preempt lets a better ranked node take an address back from its owner as soon as it can.
	// Default: the owner keeps it.
	Preempt bool `json:"preempt,omitempty"`
	// Partition is what happens when the nodes no longer see each other. Default: available.
	Partition PartitionPolicy `json:"partition,omitempty"`
}

// ForwardedPort is a port of all addresses.
type ForwardedPort struct {
	// Port is what clients connect to: 1 to 65535.
	Port int32 `json:"port"`
	// TargetPort is that of the backends: 1 to 65535. Default: Port.
	TargetPort int32 `json:"targetPort,omitempty"`
	// Protocol is TCP or UDP. Default: TCP.
	Protocol TransportProtocol `json:"protocol,omitempty"`
}

// TransportProtocol is TCP or UDP.
type TransportProtocol string

// The protocols of a ForwardedPort.
const (
	ProtocolTCP TransportProtocol = "TCP"
	ProtocolUDP TransportProtocol = "UDP"
)

// Backend is one server.
type Backend struct {
	// Address is that of the machine, in a family of the object's addresses.
	Address string `json:"address"`
	// Port is 1 to 65535. Default: the targetPort of each port.
	Port int32 `json:"port,omitempty"`
	// Weight is its share of new connections beside those of the others: 0 to 100. With 0 it
	// gets none. Default: 10.
	Weight *int32 `json:"weight,omitempty"`
}

// Affinity is what goes to one backend together.
type Affinity string

// The affinities.
const (
	// AffinityConnection places each connection by itself.
	AffinityConnection Affinity = "connection"
	// AffinityClient has all connections of one client address go to one backend.
	AffinityClient Affinity = "client"
)

// FailurePolicy is what becomes of the connections of a backend that fails its check.
type FailurePolicy string

// The policies for backends that fail.
const (
	// FailureReset ends them: their next packet is answered with a reset.
	FailureReset FailurePolicy = "reset"
	// FailureKeep leaves them alone.
	FailureKeep FailurePolicy = "keep"
)

// The defaults of a LoadBalancer.
const (
	DefaultBackendWeight       = 10
	DefaultBackendDrainTimeout = 30 * time.Second
)

// Default fills in what is unset.
func (l *LoadBalancer) Default() {
	for i := range l.Spec.Ports {
		p := &l.Spec.Ports[i]
		setDefault(&p.TargetPort, p.Port)
		setDefault(&p.Protocol, ProtocolTCP)
	}
	for i := range l.Spec.Backends {
		if b := &l.Spec.Backends[i]; b.Weight == nil {
			b.Weight = new(int32(DefaultBackendWeight))
		}
	}
	if l.Spec.HealthCheck != nil {
		l.Spec.HealthCheck.defaultPace()
	}
	setDefault(&l.Spec.Affinity, AffinityConnection)
	setDefault(&l.Spec.OnFailure, FailureReset)
	setDefault(&l.Spec.DrainTimeout, Duration{DefaultBackendDrainTimeout})
	defaultAdvertise(&l.Spec.Advertise)
	setDefault(&l.Spec.Partition, PartitionAvailable)
}

// Of is the check of one backend.
func (h *HealthCheck) Of(backend netip.Addr) HealthCheck {
	c := *h
	if h.HTTPS != nil {
		https := *h.HTTPS
		https.Host = backend.String()
		c.HTTPS = &https
	}
	if h.HTTP != nil {
		http := *h.HTTP
		http.Host = backend.String()
		c.HTTP = &http
	}
	if h.TCP != nil {
		tcp := *h.TCP
		tcp.Host = backend.String()
		c.TCP = &tcp
	}
	c.defaultTarget()
	return c
}
