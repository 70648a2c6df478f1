package allocator

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"lbd.dev/lbd/internal/ipam"
)

// The annotations of a Service, without prefix. lbd.dev/ counts before metallb.io/
// and that before metallb.universe.tf/.
const (
	// annotationIPs asks for addresses, separated by commas.
	annotationIPs = "loadBalancerIPs"
	// annotationPool asks for pools by name, separated by commas: several if the
	// families of the Service come from different ones.
	annotationPool = "address-pool"
	// annotationShare is the sharing key.
	annotationShare = "allow-shared-ip"
	// annotationCount is the number of addresses of each family.
	annotationCount = "addresses-per-family"
)

// AllocatedFrom is the annotation that notes which addresses of the status come
// from which pool: "192.0.2.1=prod,2001:db8::1=prod6". It is written together with
// the status, and by it a status of lbd is told from one of somebody else.
const AllocatedFrom = "lbd.dev/allocated-from"

// AddressPool and LoadBalancerIPs are annotations as lbd itself has them.
const (
	AddressPool     = "lbd.dev/" + annotationPool
	LoadBalancerIPs = "lbd.dev/" + annotationIPs
)

// prefixes of annotations, by precedence. Only the first has annotationCount.
var prefixes = [...]string{"lbd.dev/", "metallb.io/", "metallb.universe.tf/"}

// The rules that a Service may break, beside those of ipam.
const (
	// BadAnnotation: an annotation, or spec.loadBalancerIP, cannot be read, or two of
	// them contradict each other.
	BadAnnotation = "BadAnnotation"
)

// ask is an annotation of a Service: its full key and value.
func (s *service) ask(name string) (key, value string, ok bool) {
	for _, prefix := range prefixes {
		if v, ok := s.Annotations[prefix+name]; ok {
			return prefix + name, strings.TrimSpace(v), true
		}
		if name == annotationCount {
			break
		}
	}
	return "", "", false
}

// basics is the part of a request that nobody can write wrongly.
func (a *Allocator) basics(s *service) ipam.Request {
	r := ipam.Request{
		Owner: s.Key, Created: s.Created, NamespaceLabels: a.namespaces[s.Namespace], Labels: s.Labels, Rested: s.Rested,
		Sharing: ipam.Sharing{Ports: s.Ports, Local: s.Local, Selector: s.Selector},
	}
	_, r.Sharing.Key, _ = s.ask(annotationShare)
	if s.Share != "" {
		r.Sharing.Key = " " + s.Share // the value of an annotation begins with no space
	}
	for _, f := range s.Families {
		if f == ipam.IPv6.String() {
			r.Families = append(r.Families, ipam.IPv6)
		} else {
			r.Families = append(r.Families, ipam.IPv4)
		}
	}
	switch s.Policy {
	case "PreferDualStack":
		r.Policy = ipam.PreferDualStack
	case "RequireDualStack":
		r.Policy = ipam.RequireDualStack
	}
	return r
}

// request is what the Service asks for. The error completes no sentence: it is one.
func (a *Allocator) request(s *service) (r ipam.Request, err error) {
	r = a.basics(s)
	if r.Addresses, err = s.addresses(); err != nil {
		return r, err
	}
	if key, value, ok := s.ask(annotationPool); ok {
		for name := range strings.SplitSeq(value, ",") {
			name = strings.TrimSpace(name)
			if name == "" {
				return r, fmt.Errorf("annotation %s: %q has no name of a pool where one must be", key, value)
			}
			r.Pools = append(r.Pools, name)
		}
		// Who asks for a pool does not want to stay outside.
		r.LeaveStrays = true
	}
	if key, value, ok := s.ask(annotationCount); ok {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > ipam.MaxCount {
			return r, fmt.Errorf("annotation %s: %q is not a number from 1 to %d", key, value, ipam.MaxCount)
		}
		r.Count = n
	}
	return r, nil
}

// addresses are those that the Service asks for.
func (s *service) addresses() ([]netip.Addr, error) {
	key, value, ok := s.ask(annotationIPs)
	if !ok {
		if s.LoadBalancerIP == "" {
			return nil, nil
		}
		addr, err := netip.ParseAddr(s.LoadBalancerIP)
		if err != nil {
			return nil, fmt.Errorf("spec.loadBalancerIP: %q is not an IP address", s.LoadBalancerIP)
		}
		return []netip.Addr{addr}, nil
	}
	var list []netip.Addr
	for text := range strings.SplitSeq(value, ",") {
		addr, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %q is not an IP address; several are separated by commas", key, strings.TrimSpace(text))
		}
		list = append(list, addr)
	}
	if s.LoadBalancerIP != "" {
		if addr, err := netip.ParseAddr(s.LoadBalancerIP); err != nil || len(list) != 1 || list[0] != addr {
			return nil, fmt.Errorf("annotation %s asks for %s and spec.loadBalancerIP for %s: leave one of them out", key, join(list), s.LoadBalancerIP)
		}
	}
	return list, nil
}

// Relevant tells whether an annotation of a Service counts here; the others need
// not be kept.
func Relevant(key string) bool {
	if key == AllocatedFrom {
		return true
	}
	for _, prefix := range prefixes {
		switch name, ok := strings.CutPrefix(key, prefix); {
		case !ok:
		case name == annotationIPs, name == annotationPool, name == annotationShare, name == annotationCount:
			return true
		}
	}
	return false
}
