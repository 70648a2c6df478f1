package allocator

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/internal/ipam"
	"lbd.dev/lbd/internal/model"
)

// typeLoadBalancer is the spec.type of the Services that get addresses.
const typeLoadBalancer = "LoadBalancer"

// Service is what counts of a Service of Kubernetes.
type Service struct {
	model.Key
	UID string
	// Version is the resourceVersion; it is handed back with Write.
	Version             string
	Created             time.Time
	Labels, Annotations map[string]string
	Type                string  // spec.type
	Class               *string // spec.loadBalancerClass
	// Families and Policy are spec.ipFamilies and spec.ipFamilyPolicy.
	Families []string
	Policy   string
	// Local: spec.externalTrafficPolicy is Local.
	Local          bool
	Selector       map[string]string
	Ports          []ipam.Port
	LoadBalancerIP string // spec.loadBalancerIP
	// Ingress is status.loadBalancer.ingress.
	Ingress []Ingress
	// Rested: see ipam.Request.
	Rested bool
	// Share: Services with the same share addresses. No annotation says it. Empty: the annotation counts.
	Share string
}

// Ingress is one entry of status.loadBalancer.ingress. Its ipMode and ports are
// left to the API server.
type Ingress struct{ IP, Hostname string }

// Addresses are those that the status has.
func (s *Service) Addresses() []netip.Addr { return statusOf(s.Ingress) }

// service is a Service with what was decided about it.
type service struct {
	Service
	// status are the addresses of Ingress, in its order.
	status []netip.Addr
	// homes are the pools that addresses came from, those too that have left them.
	homes map[netip.Addr]string
	// left are addresses that the Service lost while its status had them.
	left []netip.Addr
	// failure, conflict and stray are what events said last.
	failure, conflict, stray, foreign string
	// written is what the status was decided to be when it last was so; "": never.
	written string
	// repairs counts how often others changed it since, of late, and repaired is when
	// that was put right last.
	repairs  int
	repaired time.Time
}

// ours tells whether the Service is to have addresses of lbd.
func (a *Allocator) ours(s *service) bool {
	switch {
	case s.Type != typeLoadBalancer:
		return false
	case s.Class == nil:
		return a.opts.Classless
	}
	return *s.Class == a.opts.Class
}

// asks tells whether annotations of lbd itself ask for something. Those of MetalLB
// may be meant for it.
func (s *service) asks() bool {
	for key := range s.Annotations {
		if key != AllocatedFrom && strings.HasPrefix(key, prefixes[0]) {
			return true
		}
	}
	return false
}

// statusOf reads the addresses of a status; entries that are none are left out.
func statusOf(ingress []Ingress) []netip.Addr {
	var list []netip.Addr
	for _, x := range ingress {
		if addr, err := netip.ParseAddr(x.IP); err == nil {
			list = append(list, addr)
		}
	}
	return list
}

// mark is the text of the annotation AllocatedFrom: address=pool, by comma.
func mark(addrs []netip.Addr, homes map[netip.Addr]string) string {
	parts := make([]string, len(addrs))
	for i, addr := range addrs {
		parts[i] = addr.String() + "=" + homes[addr]
	}
	return strings.Join(parts, ",")
}

// marked reads the annotation; what does not fit is left out.
func marked(text string) map[netip.Addr]string {
	homes := map[netip.Addr]string{}
	for part := range strings.SplitSeq(text, ",") {
		at, pool, ok := strings.Cut(part, "=")
		if addr, err := netip.ParseAddr(at); ok && err == nil {
			homes[addr] = pool
		}
	}
	return homes
}

// without returns the addresses of x that y does not have.
func without(x, y []netip.Addr) []netip.Addr {
	var rest []netip.Addr
	for _, addr := range x {
		if !slices.Contains(y, addr) {
			rest = append(rest, addr)
		}
	}
	return rest
}

func join(addrs []netip.Addr) string {
	words := make([]string, len(addrs))
	for i, addr := range addrs {
		words[i] = addr.String()
	}
	return strings.Join(words, ", ")
}
