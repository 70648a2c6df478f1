package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
)

// balancer makes the virtual_servers of an address a LoadBalancer, nil if they cannot be one.
func (k *keepalived) balancer(a netip.Addr, list []*directive) *v1alpha1.LoadBalancer {
	lb := &v1alpha1.LoadBalancer{TypeMeta: typeMeta(v1alpha1.KindLoadBalancer), Metadata: v1alpha1.ObjectMeta{Name: objectName("lb-" + strings.ReplaceAll(a.String(), ":", "-"))}}
	s := &lb.Spec
	s.Addresses = []string{a.String()}
	if dev := k.interfaces[a]; dev != "" {
		s.Advertise = &v1alpha1.Advertise{L2: &v1alpha1.L2Advertise{Interfaces: []string{dev}}}
	}
	for i, d := range list {
		title := fmt.Sprintf("virtual_server %s %s", a, cut(d.word(2)))
		k.settings(title, d)
		port, err := strconv.ParseUint(d.word(2), 10, 16)
		backends, target := k.backends(title, d)
		switch {
		case err != nil || port == 0:
			k.note(title, d, "is left out: a LoadBalancer has a port")
			continue
		case target == 0:
			k.note(title, d, "is left out: its real_servers have different ports, or there are none")
			continue
		case len(s.Ports) > 0 && !slices.EqualFunc(s.Backends, backends, func(x, y v1alpha1.Backend) bool { return x.Address == y.Address && *x.Weight == *y.Weight }):
			k.note(title, d, "is left out: all ports of an address have the same servers, and %s has others", list[0].word(2))
			continue
		}
		p := v1alpha1.ForwardedPort{Port: int32(port), Protocol: v1alpha1.TransportProtocol(strings.ToUpper(d.value("protocol")))}
		if target != p.Port {
			p.TargetPort = target
		}
		if p.Protocol == v1alpha1.ProtocolTCP {
			p.Protocol = "" // the default
		}
		s.Ports, s.Backends = append(s.Ports, p), backends
		if server := d.get("real_server"); server.get("inhibit_on_failure") != nil {
			s.OnFailure = v1alpha1.FailureKeep
		}
		if d.get("persistence_timeout") != nil {
			s.Affinity = v1alpha1.AffinityClient
		}
		if i == 0 || s.HealthCheck == nil {
			s.HealthCheck = k.backendCheck(title, d, target)
		}
	}
	if len(s.Ports) == 0 {
		return nil
	}
	return lb
}

// settings notes what differs between IPVS and a LoadBalancer.
func (k *keepalived) settings(title string, d *directive) {
	for i := range d.block {
		x := &d.block[i]
		switch x.words[0] {
		case "real_server", "protocol", "delay_loop", "persistence_timeout", "ip_family":
		case "lb_algo", "lvs_sched":
			k.note(title, x, "%s is left out: a connection goes to a server by its hash, in shares by weight, so that the other balancer finds it again", x.word(1))
		case "lb_kind", "lvs_method":
			if strings.EqualFold(x.word(1), "NAT") {
				k.note(title, x, "%s is left out: servers see the address as their client; set source: client to have them see clients, once an address of this object is the gateway of the servers", x.word(1))
				continue
			}
			k.note(title, x, "%s is left out: servers need nothing, and see the address as their client; take it from their lo where they have it there", x.word(1))
		case "sorry_server":
			k.note(title, x, "is left out: where no server is well, nobody has the address")
		default:
			k.note(title, x, "has no equal, and is left out")
		}
	}
}

// backends are the real_servers, and the port that they share; 0: none.
func (k *keepalived) backends(title string, d *directive) (out []v1alpha1.Backend, port int32) {
	for i := range d.block {
		x := &d.block[i]
		if x.words[0] != "real_server" {
			continue
		}
		a, err := netip.ParseAddr(x.word(1))
		n, perr := strconv.ParseUint(x.word(2), 10, 16)
		if err != nil || perr != nil || n == 0 {
			k.note(title, x, "%q is no address with a port, and is left out", cut(strings.Join(x.words[1:], " ")))
			continue
		}
		if port != 0 && port != int32(n) {
			return nil, 0
		}
		port = int32(n)
		b := v1alpha1.Backend{Address: a.String(), Weight: new(int32(1))}
		if w, err := strconv.ParseInt(x.value("weight"), 10, 32); err == nil && w >= 0 {
			b.Weight = new(int32(min(w, 100)))
			if w > 100 {
				k.note(title, x, "its weight %d becomes 100, the highest", w)
			}
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(x, y v1alpha1.Backend) int { return strings.Compare(x.Address, y.Address) })
	return out, port
}

// backendCheck is the check of the first real_server, nil if it has none that lbd knows.
func (k *keepalived) backendCheck(title string, d *directive, target int32) *v1alpha1.HealthCheck {
	server := d.get("real_server")
	h := &v1alpha1.HealthCheck{}
	var from *directive
	for i := range server.block {
		x := &server.block[i]
		page := func() (path string, status []int32) {
			if url := x.get("url"); url != nil {
				path = url.value("path")
				if n, err := strconv.ParseInt(url.value("status_code"), 10, 32); err == nil {
					status = []int32{int32(n)}
				}
			}
			return path, status
		}
		switch x.words[0] {
		case "weight", "inhibit_on_failure":
			continue
		case "TCP_CHECK":
			h.TCP = &v1alpha1.TCPCheck{Port: count(x.value("connect_port"), target)}
		case "HTTP_GET":
			h.HTTP = &v1alpha1.HTTPCheck{Port: count(x.value("connect_port"), target)}
			h.HTTP.Path, h.HTTP.ExpectedStatus = page()
		case "SSL_GET":
			h.HTTPS = &v1alpha1.HTTPSCheck{Port: count(x.value("connect_port"), target), InsecureSkipVerify: true}
			h.HTTPS.Path, h.HTTPS.ExpectedStatus = page()
			k.keep(title, x, "accepts every certificate, as with keepalived: give healthCheck.https caFile and serverName instead of insecureSkipVerify")
		default:
			k.note(title, x, "has no equal for servers, and is left out")
			continue
		}
		from = x
		break
	}
	if from == nil {
		return nil
	}
	if s, err := seconds(d.value("delay_loop")); err == nil {
		h.Interval.Duration = s
	}
	if s, err := seconds(from.value("connect_timeout")); err == nil {
		if h.Timeout.Duration = s; h.Interval.Duration > 0 {
			h.Timeout.Duration = min(s, h.Interval.Duration)
		} else {
			h.Interval.Duration = s
		}
	}
	return h
}
