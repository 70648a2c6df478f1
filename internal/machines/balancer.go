package machines

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
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

// Addrs are the addresses that the members share, that of the endpoint first; none yet
// if it is empty.
func (b *Balancer) Addrs() []netip.Addr {
	texts := []string{b.Status.Address}
	if slices.Contains(b.Status.Addresses, b.Status.Address) { // else it was written by a version that knows one only
		texts = append(texts, b.Status.Addresses...)
	}
	var out []netip.Addr
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out
}

// SetAddrs notes in the status which addresses the members share.
func (b *Balancer) SetAddrs(addrs []netip.Addr) {
	b.Status.Address, b.Status.Addresses = "", nil
	for _, a := range addrs {
		b.Status.Addresses = append(b.Status.Addresses, a.String())
	}
	if len(addrs) > 0 {
		b.Status.Address = b.Status.Addresses[0]
	}
}

// Named are the addresses that the balancer itself names.
func (b *Balancer) Named() []netip.Addr {
	var out []netip.Addr
	for _, text := range append([]string{b.Spec.Address}, b.Spec.Addresses...) {
		if addr, err := netip.ParseAddr(text); err == nil {
			out = append(out, addr)
		}
	}
	return out
}

// ClusterKey is that of the Cluster of clusterRef; false without.
func (b *Balancer) ClusterKey() (model.Key, bool) {
	if b.Spec.ClusterRef == nil {
		return model.Key{}, false
	}
	return model.Key{Namespace: b.Namespace, Name: b.Spec.ClusterRef.Name}, true
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

// Request is the addresses that a balancer asks for: Fixed, or one of each family of
// Pool, or of any pool.
type Request struct {
	Fixed []netip.Addr
	Pool  string
	// Families are ipv4, ipv6 or both, that of the endpoint first; empty: one, whichever
	// the pool has.
	Families []v1alpha1.AddressFamily
}

// Met tells whether these addresses are all that is asked for.
func (r *Request) Met(addrs []netip.Addr) bool {
	for _, addr := range r.Fixed {
		if !slices.Contains(addrs, addr) {
			return false
		}
	}
	for _, f := range r.Families {
		if !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is6() == (f == v1alpha1.FamilyIPv6) }) {
			return false
		}
	}
	return len(addrs) > 0
}

// Request returns what the balancer asks for. What the Cluster already has counts
// more than what the balancer says.
func (b *Balancer) Request(c *Cluster) Request {
	fixed := b.Named()
	r := Request{Fixed: fixed, Pool: b.Spec.AddressPool, Families: b.Spec.Families}
	if len(fixed) > 0 {
		r.Pool, r.Families = "", nil
	}
	if b.adopted(c) {
		c = &Cluster{Endpoint: b.Status.Endpoint}
	}
	if c == nil || c.Endpoint == nil {
		return r
	}
	endpoint, err := netip.ParseAddr(c.Endpoint.Host)
	if err != nil || endpoint.Zone() != "" {
		return r
	}
	endpoint = endpoint.Unmap()
	if len(r.Families) == 2 && slices.Contains(b.Addrs(), endpoint) && b.Status.AddressPool != "" &&
		(r.Pool == "" || !slices.ContainsFunc(strings.Split(b.Status.AddressPool, ","), func(p string) bool { return p != r.Pool })) {
		// The pool gave it and keeps giving it, beside one of the other family.
		if endpoint.Is6() == (r.Families[0] == v1alpha1.FamilyIPv4) {
			r.Families = []v1alpha1.AddressFamily{r.Families[1], r.Families[0]}
		}
		return r
	}
	r = Request{Fixed: []netip.Addr{endpoint}}
	for _, addr := range fixed {
		if addr.Is4() != endpoint.Is4() && len(fixed) == 2 {
			r.Fixed = append(r.Fixed, addr)
		}
	}
	return r
}

// Check is the health check of the members, defaulted; nil: none. An API server is
// asked unless the object says otherwise: before kubeadm init nothing listens, and a
// member that has the address then keeps it from one that works. No file of the hosts
// is known that would verify its certificate.
func (b *Balancer) Check() *v1alpha1.HealthCheck {
	s := &b.Spec
	if s.HealthCheck != nil || !b.controlPlane() {
		return s.HealthCheck
	}
	port := s.Port.MachinePort
	if e := b.Status.Endpoint; e != nil && s.Port.MachinePort == s.Port.Port {
		port = e.Port // that of the Cluster, which counts
	}
	h := &v1alpha1.HealthCheck{HTTPS: &v1alpha1.HTTPSCheck{Port: port, InsecureSkipVerify: true}}
	h.Default()
	return h
}

// controlPlane tells whether each member has an API server: they are Machines that
// must have ControlPlaneLabel.
func (b *Balancer) controlPlane() bool {
	s := &b.Spec
	switch {
	case s.TargetKind != nil, s.Port.Protocol == v1alpha1.MachineUDP:
		return false
	case s.MachineSelector == nil:
		return true
	}
	_, ok := s.MachineSelector.MatchLabels[ControlPlaneLabel]
	return ok || slices.ContainsFunc(s.MachineSelector.MatchExpressions, func(e v1alpha1.SelectorRequirement) bool {
		return e.Key == ControlPlaneLabel && (e.Operator == v1alpha1.SelectorExists || e.Operator == v1alpha1.SelectorIn)
	})
}

// The reasons of the condition EndpointAssigned.
const (
	EndpointAssigned = "Assigned"       // it is of the balancer
	EndpointAdopted  = "ClusterDecides" // the Cluster had one, which counts
	EndpointPending  = "NoAddress"      // there is no address yet
)

// Endpoint decides where clients connect, given the address that the members have,
// and whether the Cluster is to be told. It does not wait for a member: a control
// plane creates no Machine before there is an endpoint. One to which nothing would be
// forwarded is withheld, see Refusal: a Cluster that was told of it would keep it for good.
func (b *Balancer) Endpoint(addr netip.Addr, c *Cluster, members []*Machine, avoid []netip.Addr) (e *v1alpha1.MachineEndpoint, tell bool, condition v1alpha1.Condition) {
	e, tell, condition = b.endpoint(addr, c)
	if e == nil {
		return e, tell, condition
	}
	at := *b // as if it had this endpoint
	at.Status.Endpoint = e
	if why := at.Refusal(members, avoid); why != "" {
		condition.Status, condition.Reason, condition.Message = v1alpha1.ConditionFalse, PortTranslation, why
		return nil, false, condition
	}
	return e, tell, condition
}

// endpoint is Endpoint whatever the Machines listen on.
func (b *Balancer) endpoint(addr netip.Addr, c *Cluster) (e *v1alpha1.MachineEndpoint, tell bool, condition v1alpha1.Condition) {
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
		counts := b.Request(c).Fixed
		for _, want := range b.Named() {
			if addr.IsValid() && !slices.Contains(counts, want) {
				condition.Message += fmt.Sprintf("; its address counts, not %s", want)
			}
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

// URL returns an endpoint of the balancer in one string.
func (b *Balancer) URL(e *v1alpha1.MachineEndpoint) string {
	if e == nil {
		return ""
	}
	scheme, h := "tcp", b.Check()
	switch {
	case b.Spec.Port.Protocol == v1alpha1.MachineUDP:
		scheme = "udp"
	case h != nil && h.HTTPS != nil:
		scheme = "https"
	case h != nil && h.HTTP != nil:
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
	PortTranslation = "PortTranslation" // its connections cannot be forwarded; of Ready and EndpointAssigned too
)

// Acceptance says whether the balancer is in use as it is written.
func (b *Balancer) Acceptance(members []*Machine, avoid []netip.Addr) v1alpha1.Condition {
	c := v1alpha1.Condition{Type: v1alpha1.ConditionAccepted, Status: v1alpha1.ConditionFalse}
	why := b.Refusal(members, avoid)
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
	case why != "":
		c.Reason, c.Message = PortTranslation, why
	default:
		c.Status, c.Reason, c.Message = v1alpha1.ConditionTrue, Accepted, "the object is in use as it is written"
	}
	return c
}
