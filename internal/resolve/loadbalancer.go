package resolve

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// LoadBalancer turns a valid LoadBalancer into its value, its VIPs, and the checks of its
// backends by their names. nodes are the servers that its spec.backendNodes selects, communities are
// those of VIPs.
func LoadBalancer(l *v1alpha1.LoadBalancer, nodes []model.Server, communities map[string]v1alpha1.CommunityValue) (model.LoadBalancer, []model.VIP, map[string]v1alpha1.HealthCheck) {
	s := &l.Spec
	out := model.LoadBalancer{
		Name: l.Metadata.Name, ClientAffinity: s.Affinity == v1alpha1.AffinityClient,
		KeepFailed: s.OnFailure == v1alpha1.FailureKeep, ClientSource: s.Source == v1alpha1.SourceClient, DrainTimeout: s.DrainTimeout.Duration,
	}
	vips := VIPs(&v1alpha1.VirtualIP{Metadata: l.Metadata, Spec: v1alpha1.VirtualIPSpec{
		Addresses: s.Addresses, Advertise: s.Advertise, NodeSelector: s.NodeSelector, Preempt: s.Preempt, Partition: s.Partition,
	}}, communities)
	for i := range vips {
		vips[i].Kind, vips[i].Unbound = model.KindLoadBalancer, true
		out.VIPs = append(out.VIPs, vips[i].Addr)
	}
	slices.SortFunc(out.VIPs, netip.Addr.Compare)
	for _, text := range s.SourceAddresses {
		if a, err := netip.ParseAddr(text); err == nil {
			out.Sources = append(out.Sources, a)
		}
	}
	slices.SortFunc(out.Sources, netip.Addr.Compare)
	for _, p := range s.Ports {
		protocol := model.TCP
		if p.Protocol == v1alpha1.ProtocolUDP {
			protocol = model.UDP
		}
		out.Ports = append(out.Ports, model.ForwardPort{Protocol: protocol, Port: uint16(p.Port), TargetPort: uint16(p.TargetPort)})
	}
	checks := make(map[string]v1alpha1.HealthCheck)
	for _, b := range s.Backends {
		out.Servers = append(out.Servers, server(&b))
	}
	out.Servers = append(out.Servers, nodes...)
	for i := range out.Servers {
		if x := &out.Servers[i]; s.HealthCheck != nil {
			x.Check = l.Metadata.Name + "/" + serverName(x)
			checks[x.Check] = s.HealthCheck.Of(x.Addr)
		}
	}
	slices.SortFunc(out.Servers, func(a, b model.Server) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port)) })
	for _, text := range s.AllowedSources {
		if p, err := netip.ParsePrefix(text); err == nil {
			out.AllowedSources = append(out.AllowedSources, p)
		}
	}
	return out, vips, checks
}

func server(b *v1alpha1.Backend) model.Server {
	addr, _ := netip.ParseAddr(b.Address) // it is valid
	x := model.Server{Addr: addr, Port: uint16(b.Port), Weight: v1alpha1.DefaultBackendWeight}
	if b.Weight != nil {
		x.Weight = int(*b.Weight)
	}
	return x
}

// BackendCheck tells whether a check that a configuration names is that of a backend.
func BackendCheck(name string) bool { return strings.Contains(name, "/") }

// serverName tells the servers of one LoadBalancer apart. No name of a VirtualIP has a slash.
func serverName(x *model.Server) string {
	if x.Port == 0 {
		return x.Addr.String()
	}
	return netip.AddrPortFrom(x.Addr, x.Port).String()
}

// NoBackendCheck is the warning about a LoadBalancer without spec.healthCheck.
const NoBackendCheck = "there is none: every backend counts as healthy, and gets connections even while nothing listens on it"
