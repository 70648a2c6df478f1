package propagate

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
)

// The annotations of a Service that count.
const (
	// AnnotationAddresses asks for addresses, separated by commas, at most one of each family.
	AnnotationAddresses = "lbd.dev/loadBalancerIPs"
	// AnnotationPool asks for one of the pools of the Tenant.
	AnnotationPool = "lbd.dev/address-pool"
	// AnnotationSource says what the Pods see as the address of a client: vip or client.
	AnnotationSource = "lbd.dev/source"
	// AnnotationGlobal is the name with whose others the Service shares its addresses, and AnnotationWeight its share
	// of new connections beside them, which means nothing without the name.
	AnnotationGlobal = "lbd.dev/global-name"
	AnnotationWeight = "lbd.dev/weight"
)

// Relevant tells whether an annotation counts; the others need not be kept.
func Relevant(key string) bool {
	switch key {
	case AnnotationAddresses, AnnotationPool, AnnotationSource, AnnotationGlobal, AnnotationWeight:
		return true
	}
	return false
}

// The bounds of a TenantService.
const (
	maxPorts      = 100
	maxSources    = 200
	maxLocalNodes = 1000
	maxEndpoints  = 100
)

// Service is what counts of a Service of type LoadBalancer.
type Service struct {
	UID string
	// Class is spec.loadBalancerClass; empty: none.
	Class string
	// Annotations need only have those that are Relevant.
	Annotations map[string]string
	// LoadBalancerIP is the field of the same name.
	LoadBalancerIP string
	// Families are those of its cluster IPs.
	Families []v1alpha1.AddressFamily
	Ports    []Port
	// Local is externalTrafficPolicy Local, and HealthCheckNodePort what comes with it.
	Local               bool
	HealthCheckNodePort int32
	// ClientIP is sessionAffinity ClientIP.
	ClientIP bool
	// SourceRanges are loadBalancerSourceRanges.
	SourceRanges []string
	// Ingress are the addresses of its status, and Condition is the one of type ConditionType; without
	// a type: there is none.
	Ingress   []string
	Condition v1alpha1.Condition
}

// Port is one of its ports.
type Port struct {
	Protocol       string // TCP, UDP or SCTP
	Port, NodePort int32  // 0: it has no NodePort
}

// wanted is what the TenantService is to say, and why not, or not all of what the Service says. nil: the
// hub is to have none. What cannot be read does not cost a Service its address: the hub keeps what it has
// of that in has.
func (s *Service) wanted(endpoints []v1alpha1.TenantEndpoints, has *v1alpha1.TenantServiceSpec) (*v1alpha1.TenantServiceSpec, *v1alpha1.Condition) {
	spec := &v1alpha1.TenantServiceSpec{Families: slices.Clone(s.Families), Affinity: v1alpha1.AffinityConnection, Source: v1alpha1.SourceVIP}
	if why := s.ports(spec); why != nil {
		return nil, why
	}
	if s.Local {
		spec.Local = &v1alpha1.TenantLocal{HealthCheckNodePort: s.HealthCheckNodePort, Nodes: endpoints[:min(len(endpoints), maxLocalNodes)]}
	}
	if s.ClientIP {
		spec.Affinity = v1alpha1.AffinityClient
	}
	bad := s.asks(spec)
	if bad == "" {
		bad = broken(spec)
	}
	switch {
	case bad == "":
		return spec, nil
	case has == nil:
		return nil, new(no(ReasonInvalid, bad))
	}
	why := new(no(ReasonInvalid, bad+"; until it is put right, the hub keeps what it has"))
	spec.Addresses, spec.Pool, spec.Source, spec.AllowedSources = has.Addresses, has.Pool, has.Source, has.AllowedSources
	spec.GlobalName, spec.Weight = has.GlobalName, has.Weight
	if broken(spec) != "" { // by what else the Service says
		return has, why
	}
	return spec, why
}

// broken gives a spec its defaults, and says which rule of the hub it breaks; empty: none.
func broken(spec *v1alpha1.TenantServiceSpec) string {
	object := v1alpha1.TenantService{TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindTenantService},
		Metadata: v1alpha1.ObjectMeta{Name: "a.b"}, Spec: *spec}
	object.Default()
	*spec = object.Spec
	if errs := object.Validate(); len(errs) > 0 {
		return errs[0].Error()
	}
	return ""
}

// ports fills in the ports, or says why there is nothing that the hub can lead clients to.
func (s *Service) ports(spec *v1alpha1.TenantServiceSpec) *v1alpha1.Condition {
	if len(s.Ports) > maxPorts {
		return new(no(ReasonTooMuch, fmt.Sprintf("the Service has %d ports; a hub serves %d at most", len(s.Ports), maxPorts)))
	}
	for _, p := range s.Ports {
		protocol := v1alpha1.TransportProtocol(p.Protocol)
		switch {
		case protocol != v1alpha1.ProtocolTCP && protocol != v1alpha1.ProtocolUDP:
			return new(no(ReasonProtocol, fmt.Sprintf("port %d has the protocol %s; a hub serves TCP and UDP", p.Port, p.Protocol)))
		case p.NodePort == 0:
			return new(no(ReasonNoNodePort, fmt.Sprintf("port %d has no NodePort, by which a hub reaches the nodes: set spec.allocateLoadBalancerNodePorts to true", p.Port)))
		}
		spec.Ports = append(spec.Ports, v1alpha1.TenantPort{Port: p.Port, NodePort: p.NodePort, Protocol: protocol})
	}
	if s.Local && s.HealthCheckNodePort == 0 {
		return new(no(ReasonNoNodePort, "the Service has externalTrafficPolicy Local and no healthCheckNodePort"))
	}
	return nil
}

// asks fills in what annotations and fields ask for, or says what of it cannot be read.
func (s *Service) asks(spec *v1alpha1.TenantServiceSpec) string {
	from, text := "annotation "+AnnotationAddresses, s.Annotations[AnnotationAddresses]
	if text == "" {
		from, text = "spec.loadBalancerIP", s.LoadBalancerIP
	}
	if text != "" {
		for part := range strings.SplitSeq(text, ",") {
			a, err := netip.ParseAddr(strings.TrimSpace(part))
			if err != nil {
				return fmt.Sprintf("%s: %q is not an IP address; several are separated by commas", from, strings.TrimSpace(part))
			}
			spec.Addresses = append(spec.Addresses, a.String())
		}
	}
	spec.Pool = strings.TrimSpace(s.Annotations[AnnotationPool])
	if source, ok := s.Annotations[AnnotationSource]; ok {
		spec.Source = v1alpha1.SourceAddress(strings.TrimSpace(source))
		if spec.Source != v1alpha1.SourceVIP && spec.Source != v1alpha1.SourceClient {
			return fmt.Sprintf("annotation %s: %q is neither vip nor client", AnnotationSource, source)
		}
	}
	if bad := s.shares(spec); bad != "" {
		return bad
	}
	if len(s.SourceRanges) > maxSources {
		return fmt.Sprintf("spec.loadBalancerSourceRanges: it has %d; a hub takes %d at most", len(s.SourceRanges), maxSources)
	}
	for _, text := range s.SourceRanges {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return fmt.Sprintf("spec.loadBalancerSourceRanges: %q is not a prefix", text)
		}
		spec.AllowedSources = append(spec.AllowedSources, p.Masked().String())
	}
	slices.Sort(spec.AllowedSources)
	spec.AllowedSources = slices.Compact(spec.AllowedSources)
	return ""
}

// shares fills in with whom the Service shares addresses, or says what of it cannot be read.
func (s *Service) shares(spec *v1alpha1.TenantServiceSpec) string {
	spec.GlobalName = strings.TrimSpace(s.Annotations[AnnotationGlobal])
	text, has := s.Annotations[AnnotationWeight]
	if !has || spec.GlobalName == "" {
		return ""
	}
	weight, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil || weight < 0 || weight > v1alpha1.DefaultTenantWeight {
		return fmt.Sprintf("annotation %s: %q is no number from 0 to %d", AnnotationWeight, text, v1alpha1.DefaultTenantWeight)
	}
	spec.Weight = new(int32(weight))
	return ""
}
