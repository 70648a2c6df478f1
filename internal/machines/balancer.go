package machines

import (
	"fmt"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
)

// Usable tells whether the balancer is in use: it breaks no rule, and it is for
// lbd itself.
func (b *Balancer) Usable() bool { return len(b.Errors) == 0 && b.Builtin() }

// Builtin tells whether lbd itself provides the load balancer, and not somebody
// else whom providerRef names. Those that do only their own, and leave the status
// of others alone.
func (b *Balancer) Builtin() bool { return b.Spec.ProviderRef == nil }

// Target is Machine.Target of its members.
func (b *Balancer) Target() string {
	if t := b.Spec.TargetKind; t != nil {
		return t.Group + "/" + t.Version + "/" + t.ResourceName()
	}
	return ""
}

// Has tells whether a Machine is a member.
func (b *Balancer) Has(m *Machine) bool {
	s := &b.Spec
	if m.Target != b.Target() {
		return false
	}
	if len(s.Namespaces) == 0 && m.Namespace != b.Namespace || len(s.Namespaces) > 0 && !slices.Contains(s.Namespaces, m.Namespace) {
		return false
	}
	if s.ClusterName != "" && m.Labels[ClusterLabel] != s.ClusterName {
		return false
	}
	if s.MachineSelector == nil {
		if _, ok := m.Labels[ControlPlaneLabel]; !ok {
			return false
		}
	} else if !s.MachineSelector.Matches(m.Labels) {
		return false
	}
	return len(s.FailureDomains) == 0 || slices.Contains(s.FailureDomains, m.FailureDomain)
}

// Members returns the Machines of a balancer, sorted.
func (b *Balancer) Members(all []*Machine) []*Machine {
	var out []*Machine
	for _, m := range all {
		if b.Has(m) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(x, y *Machine) int { return x.Compare(y.Key) })
	return out
}

// Addr is the address that the members share; zero while there is none.
func (b *Balancer) Addr() netip.Addr {
	addr, _ := netip.ParseAddr(b.Status.Address)
	return addr
}

// ClusterKey is that of the Cluster of clusterRef; false without.
func (b *Balancer) ClusterKey() (Key, bool) {
	if b.Spec.ClusterRef == nil {
		return Key{}, false
	}
	return Key{b.Namespace, b.Spec.ClusterRef.Name}, true
}

// adopted tells whether the endpoint is that of a Cluster which is not there now. It
// stays: a definition that is gone for a moment, or a Cluster that is being moved, must
// not cost the members their address.
func (b *Balancer) adopted(c *Cluster) bool {
	_, ref := b.ClusterKey()
	return ref && c == nil && b.Status.Endpoint != nil && slices.ContainsFunc(b.Status.Conditions, func(x v1alpha1.Condition) bool {
		return x.Type == v1alpha1.ConditionEndpointAssigned && x.Reason == EndpointAdopted
	})
}

// Request is the address that a balancer asks for: Fixed, one of Pool, or one of
// any pool.
type Request struct {
	Fixed netip.Addr
	Pool  string
}

// Request returns what the balancer asks for. What the Cluster already has counts
// more than what the balancer says.
func (b *Balancer) Request(c *Cluster) Request {
	if b.adopted(c) {
		c = &Cluster{Endpoint: b.Status.Endpoint}
	}
	if c != nil && c.Endpoint != nil {
		if addr, err := netip.ParseAddr(c.Endpoint.Host); err == nil && addr.Zone() == "" {
			return Request{Fixed: addr.Unmap()}
		}
	}
	if addr, err := netip.ParseAddr(b.Spec.Address); err == nil {
		return Request{Fixed: addr}
	}
	return Request{Pool: b.Spec.AddressPool}
}

// The reasons of the condition EndpointAssigned.
const (
	EndpointAssigned = "Assigned"       // it is of the balancer
	EndpointAdopted  = "ClusterDecides" // the Cluster had one, which counts
	EndpointPending  = "NoAddress"      // there is no address yet
)

// Endpoint decides where clients connect, given the address that the members have,
// and whether the Cluster is to be told. It does not wait for a member: a control
// plane creates no Machine before there is an endpoint.
func (b *Balancer) Endpoint(addr netip.Addr, c *Cluster) (e *v1alpha1.MachineEndpoint, tell bool, condition v1alpha1.Condition) {
	port := b.Spec.Port.Port
	condition = v1alpha1.Condition{Type: v1alpha1.ConditionEndpointAssigned, Status: v1alpha1.ConditionTrue, Reason: EndpointAssigned}
	key, ref := b.ClusterKey()
	if b.adopted(c) {
		condition.Reason = EndpointAdopted
		condition.Message = fmt.Sprintf("Cluster %s had this controlPlaneEndpoint and is not there now", key)
		return b.Status.Endpoint, false, condition
	}
	if c != nil && c.Endpoint != nil {
		condition.Reason = EndpointAdopted
		condition.Message = fmt.Sprintf("Cluster %s has this controlPlaneEndpoint", c.Key)
		if port != c.Endpoint.Port {
			condition.Message += fmt.Sprintf("; its port counts, not %d", port)
		}
		if want, err := netip.ParseAddr(b.Spec.Address); err == nil && addr.IsValid() && want != addr {
			condition.Message += fmt.Sprintf("; its address counts, not %s", want)
		}
		if !addr.IsValid() {
			condition.Message += "; no address has been found for the members"
		}
		return c.Endpoint, false, condition
	}
	if !addr.IsValid() {
		condition.Status, condition.Reason = v1alpha1.ConditionFalse, EndpointPending
		condition.Message = "no address has been found"
		return nil, false, condition
	}
	e = &v1alpha1.MachineEndpoint{Host: addr.String(), Port: port}
	condition.Message = "the address is " + e.Host
	switch {
	case ref && c == nil:
		condition.Message += fmt.Sprintf("; Cluster %s does not exist yet", key)
	case ref:
		condition.Message += fmt.Sprintf("; Cluster %s is told", key)
	}
	return e, ref && c != nil && !c.Deleting, condition
}

// URL returns an endpoint in one string.
func URL(e *v1alpha1.MachineEndpoint, s *v1alpha1.MachineLoadBalancerSpec) string {
	if e == nil {
		return ""
	}
	scheme := "tcp"
	switch {
	case s.Port.Protocol == v1alpha1.MachineUDP:
		scheme = "udp"
	case s.HealthCheck != nil && s.HealthCheck.HTTPS != nil, s.HealthCheck == nil && s.MachineSelector == nil && s.TargetKind == nil:
		scheme = "https" // an API server, which is what control planes have
	case s.HealthCheck != nil && s.HealthCheck.HTTP != nil:
		scheme = "http"
	}
	host := e.Host
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("%s://%s:%d", scheme, host, e.Port)
}

// The reasons of the condition Accepted.
const (
	Accepted        = "Accepted"
	Invalid         = "Invalid"         // it breaks a rule
	UnknownProvider = "UnknownProvider" // providerRef names a kind that lbd does not know
	PortTranslation = "PortTranslation" // lbd never changes ports
)

// Acceptance says whether the balancer is in use as it is written.
func (b *Balancer) Acceptance() v1alpha1.Condition {
	c := v1alpha1.Condition{Type: v1alpha1.ConditionAccepted, Status: v1alpha1.ConditionFalse}
	p := b.Spec.Port
	switch {
	case len(b.Errors) > 0:
		c.Reason, c.Message = Invalid, "the object is not used"
		for i := range b.Errors {
			c.Message = b.Errors[len(b.Errors)-1-i].Error() + "; " + c.Message
		}
	case !b.Builtin():
		r := b.Spec.ProviderRef
		kind := r.Kind
		if r.APIGroup != "" {
			kind += "." + r.APIGroup
		}
		c.Reason = UnknownProvider
		c.Message = fmt.Sprintf("lbd does not provide %s %q and leaves the endpoint and the members to whoever does; without providerRef it provides the address itself", kind, r.Name)
	case p.MachinePort != p.Port:
		c.Reason = PortTranslation
		c.Message = fmt.Sprintf("lbd moves addresses and changes no ports: clients must connect to %d, and port is %d", p.MachinePort, p.Port)
	default:
		c.Status, c.Reason, c.Message = v1alpha1.ConditionTrue, Accepted, "the object is in use as it is written"
	}
	return c
}
