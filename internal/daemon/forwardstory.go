package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/model"
)

// ErrQuestion is the error of Explain for a question that makes no sense.
var ErrQuestion = errors.New("invalid question")

// questionError says what makes no sense; it is ErrQuestion.
type questionError string

func (e questionError) Error() string      { return string(e) }
func (questionError) Is(target error) bool { return target == ErrQuestion }

// question is what a person wants to know of a VIP.
type question struct {
	vip    string         // name or address
	port   uint16         // 0: none
	client netip.AddrPort // invalid: none; without a port that is 0
}

// ask reads VIP or VIP:PORT, and a client as ADDRESS or ADDRESS:PORT.
func ask(vip, client string) (q question, err error) {
	q.vip = vip
	if at, err := netip.ParseAddrPort(vip); err == nil {
		q.vip, q.port = at.Addr().String(), at.Port()
	} else if _, err := netip.ParseAddr(vip); err != nil { // else it may be of IPv6
		if name, port, is := strings.Cut(vip, ":"); is {
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil || n == 0 {
				return q, questionError(fmt.Sprintf("%q is not a VIP with a port; an address of IPv6 with a port is written as [fd00::1]:443", vip))
			}
			q.vip, q.port = name, uint16(n)
		}
	}
	if client == "" {
		return q, nil
	}
	if q.client, err = netip.ParseAddrPort(client); err != nil {
		a, err := netip.ParseAddr(client)
		if err != nil {
			return q, questionError(fmt.Sprintf("client %q is neither an address nor one with a port", client))
		}
		q.client = netip.AddrPortFrom(a, 0)
	}
	q.client = netip.AddrPortFrom(q.client.Addr().Unmap(), q.client.Port())
	return q, nil
}

// balancer is a LoadBalancer that is configured, or that is still handed over.
type balancer struct {
	*model.LoadBalancer
	vips   []netip.Addr // those too that are configured no more
	memory model.BalanceMemory
}

// balancers are all, sorted by name, those of tenants last.
func balancers(v *model.View, d *model.Desired) (all []balancer) {
	configured := make(map[string]bool, len(v.LoadBalancers))
	add := func(lb *model.LoadBalancer, vips []netip.Addr) {
		m := d.Memory.Balance[lb.Name]
		vips = slices.SortedFunc(slices.Values(slices.Concat(vips, m.Removed)), netip.Addr.Compare)
		all = append(all, balancer{lb, slices.Compact(vips), m})
	}
	for i := range v.LoadBalancers {
		configured[v.LoadBalancers[i].Name] = true
		add(&v.LoadBalancers[i], v.LoadBalancers[i].VIPs)
	}
	for name, m := range d.Memory.Balance {
		if !configured[name] && m.Wanted != nil {
			add(m.Wanted, nil)
		}
	}
	slices.SortFunc(all, func(a, b balancer) int {
		switch ofTenant := model.OfTenant(a.Name); {
		case ofTenant == model.OfTenant(b.Name):
			return strings.Compare(a.Name, b.Name)
		case ofTenant:
			return 1
		}
		return -1
	})
	return all
}

// backends tells of a VIP whose connections go to other machines which share of the new ones
// each server gets, and where that of a client goes, in words.
func backends(v *model.View, d *model.Desired, vip *model.VIP, q *question) (list []v1alpha1.BackendStatus, story []string) {
	all := balancers(v, d)
	i := slices.IndexFunc(all, func(b balancer) bool { return slices.Contains(b.vips, vip.Addr) })
	if i < 0 {
		return nil, nil
	}
	family := balance.Family(vip.Addr)
	of := all[i].memory.Fills[family]
	gets, story := q.gets(all[i].LoadBalancer, &of, vip.Addr)
	if n := slices.IndexFunc(d.Forward.Services, func(s model.ForwardService) bool { return s.Addr == vip.Addr && len(s.Sources) > 0 }); n >= 0 && gets >= 0 && q.client.Port() != 0 {
		from := d.Forward.Services[n].Sources
		story = append(story, fmt.Sprintf("The backend sees it come from %s.", from[balance.Source(q.client, len(from))]))
	}
	list = shares(&all[i], family, v.Health, v.Self)
	for n := range list {
		list[n].Client = gets >= 0 && list[n].Backend == backend(of.Servers[gets].Addr, of.Servers[gets].Port)
	}
	return list, story
}

func balancerStatus(v *model.View, d *model.Desired) (out []v1alpha1.BalancerStatus) {
	all := balancers(v, d)
	for i := range all {
		s := v1alpha1.BalancerStatus{Name: all[i].Name, Addresses: []string{}, Ports: []v1alpha1.BalancerPort{}, Backends: []v1alpha1.BackendStatus{}}
		for _, a := range all[i].vips {
			s.Addresses = append(s.Addresses, a.String())
		}
		for _, p := range all[i].Ports {
			s.Ports = append(s.Ports, v1alpha1.BalancerPort{Protocol: p.Protocol.String(), Port: int32(p.Port), TargetPort: int32(p.TargetPort)})
		}
		for family := range all[i].memory.Fills {
			s.Backends = append(s.Backends, shares(&all[i], family, v.Health, v.Self)...)
		}
		out = append(out, s)
	}
	return out
}

// shares is what the servers of a family get and why, and how they do.
func shares(of *balancer, family int, health map[string]model.HealthState, self model.NodeName) (list []v1alpha1.BackendStatus) {
	fill := &of.memory.Fills[family]
	counts := make(map[netip.AddrPort]int, len(fill.Servers))
	for _, n := range fill.Slots {
		counts[netip.AddrPortFrom(fill.Servers[n].Addr, fill.Servers[n].Port)]++
	}
	known := of.memory.Servers
	if len(known) == 0 {
		for _, x := range of.Servers {
			known = append(known, model.ServerMemory{Addr: x.Addr, Port: x.Port, Ports: x.Ports, State: model.ServerOut, Why: model.ServerNoPlace})
		}
	}
	rest := of.Servers // both lists are sorted
	for i := range known {
		m := &known[i]
		var x model.Server // none: it is configured no more
		if len(rest) > 0 && rest[0].Addr == m.Addr && rest[0].Port == m.Port {
			x, rest = rest[0], rest[1:]
		}
		if balance.Family(m.Addr) != family {
			continue
		}
		why := m.Why
		switch {
		case m.State != model.ServerIn:
		case !x.Addr.IsValid():
			why = model.ServerRemoved // none of those instead of it has been checked yet
		case x.Leaving:
			why = model.ServerNoneBetter
		case x.Weight == 0:
			why = model.ServerNoWeight
		}
		b := v1alpha1.BackendStatus{
			Backend: backend(m.Addr, m.Port), Weight: x.Weight, State: m.State.String(), Reason: why.String(), By: string(m.By), Since: m.Since,
			Share: perMille(counts[netip.AddrPortFrom(m.Addr, m.Port)], len(fill.Slots)),
		}
		if b.By == "" && why != model.ServerWell && !why.Configured() {
			b.By = string(self)
		}
		if h := health[x.Check]; x.Check != "" {
			b.Health, b.Detail = h.State.String(), h.Detail
			if h.Failing != "" {
				b.Health, b.Detail = "failing", h.Failing
			}
		}
		list = append(list, b)
	}
	return list
}

// gets is the number of the server that gets a connection of the client, -1 if none does or
// none was asked about.
func (q *question) gets(lb *model.LoadBalancer, of *model.BalanceFill, vip netip.Addr) (server int, story []string) {
	say := func(f string, a ...any) (int, []string) { return -1, []string{fmt.Sprintf(f, a...)} }
	target := ""
	if q.port != 0 {
		i := slices.IndexFunc(lb.Ports, func(p model.ForwardPort) bool { return p.Port == q.port })
		if i < 0 {
			return say("Port %d is not forwarded: connections to it are refused.", q.port)
		}
		if target = fmt.Sprintf(", port %d", lb.Ports[i].TargetPort); lb.Ports[i].TargetPort == 0 {
			target = ""
		}
	}
	if !q.client.IsValid() {
		return -1, nil
	}
	from := q.client.Addr()
	if from.Is4() != vip.Is4() {
		return say("%s is of another family than %s.", from, vip)
	}
	allowed := func(p netip.Prefix) bool { return p.Contains(from) }
	if len(lb.AllowedSources) > 0 && !slices.ContainsFunc(lb.AllowedSources, allowed) {
		return say("%s gets no answer: it is in none of the allowedSources.", from)
	}
	if q.client.Port() == 0 && !lb.ClientAffinity {
		return say("Without affinity each connection of %s is placed by its port: ask for %s.", from, netip.AddrPortFrom(from, 50000))
	}
	if len(of.Slots) == 0 {
		return say("No server can serve: connections are refused.")
	}
	slot := balance.Slot(q.client, lb.ClientAffinity, len(of.Slots))
	server = int(of.Slots[slot])
	x := of.Servers[server]
	if x.Port != 0 {
		target = ""
	}
	client := q.client.String()
	if lb.ClientAffinity {
		client = from.String()
	}
	return server, []string{fmt.Sprintf("A new connection from %s goes to %s%s, by slot %d of %d. One that is open stays where it is.", client, backend(x.Addr, x.Port), target, slot, len(of.Slots))}
}

// backend is how people write a server.
func backend(addr netip.Addr, port uint16) string {
	if port == 0 {
		return addr.String()
	}
	return netip.AddrPortFrom(addr, port).String()
}

// perMille rounds a share.
func perMille(n, of int) int { return (2000*n + of) / (2 * max(of, 1)) }

// listenerStatus tells what is learned by each BGPListener.
func listenerStatus(v *model.View, d *model.Desired) []v1alpha1.ListenerStatus {
	var out []v1alpha1.ListenerStatus
	for i := range v.Listeners {
		l := &v.Listeners[i]
		s := v1alpha1.ListenerStatus{Name: l.Name, Masters: []v1alpha1.MasterStatus{}, Routes: learnedRoutes(v, d, l)}
		for _, m := range v.Applied[model.SinkBGP].Masters {
			if m.Listener == l.Name {
				s.Masters = append(s.Masters, v1alpha1.MasterStatus{
					Address: m.Address.String(), ASN: m.ASN, State: m.State, HoldTime: duration(m.HoldTime), BFD: m.BFD, BFDDetect: duration(m.BFDDetect),
					Received: m.Received, Accepted: acceptedOf(v, d, l.Name, m.Address), Error: m.Error,
				})
			}
		}
		for _, p := range d.Refused.Paths {
			if p.Listener == l.Name {
				s.Refused = append(s.Refused, v1alpha1.RefusedPathStatus{Prefix: p.Prefix.String(), Master: p.Peer.String(), NextHop: text(p.NextHop), Why: p.Why})
			}
		}
		out = append(out, s)
	}
	return out
}

// acceptedOf are the prefixes for which packets go to a master.
func acceptedOf(v *model.View, d *model.Desired, listener string, master netip.Addr) (out []string) {
	for _, p := range v.Applied[model.SinkBGP].Learned {
		used := func(h model.NextHop) bool { return h.Gateway == p.NextHop }
		if p.Listener == listener && p.Peer == master && slices.ContainsFunc(routeTo(d, p.Prefix).NextHops, used) && !refused(d, &p) {
			out = append(out, p.Prefix.String())
		}
	}
	return out
}

func refused(d *model.Desired, p *model.LearnedPath) bool {
	return slices.ContainsFunc(d.Refused.Paths, func(r model.RefusedPath) bool { return r.LearnedPath == *p })
}

// routeTo is the wanted route to a prefix; none has no prefix.
func routeTo(d *model.Desired, prefix netip.Prefix) (r model.Route) {
	if i := slices.IndexFunc(d.Routes.Routes, func(x model.Route) bool { return x.Prefix == prefix }); i >= 0 {
		r = d.Routes.Routes[i]
	}
	return r
}

// learnedRoutes are where packets go that a listener accepts masters for, as the kernel has it.
func learnedRoutes(v *model.View, d *model.Desired, l *model.BGPListener) []v1alpha1.LearnedRouteStatus {
	out := []v1alpha1.LearnedRouteStatus{}
	for _, prefix := range slices.SortedFunc(slices.Values(l.Accept), model.ComparePaths) {
		is := v.Applied[model.SinkRoute].Routes[prefix]
		r := v1alpha1.LearnedRouteStatus{Prefix: prefix.String(), Resilient: is.Resilient, Error: is.Err}
		for _, h := range is.NextHops {
			r.NextHops = append(r.NextHops, h.Gateway.String())
		}
		for _, m := range d.Memory.Learned.Routes {
			if m.Prefix == prefix {
				r.Since = m.Since
			}
		}
		for _, no := range d.Refused.Prefixes {
			if no.Listener == l.Name && no.Prefix == prefix {
				r.Error = no.Why
			}
		}
		out = append(out, r)
	}
	return out
}

// masters tells in sentences where packets for a VIP of masters go, and why not to others.
func masters(v *model.View, d *model.Desired, vip *model.VIP) (story []string) {
	for _, l := range listenerStatus(v, d) {
		for _, r := range l.Routes {
			if p, err := netip.ParsePrefix(r.Prefix); err != nil || p.Addr() != vip.Addr {
				continue
			}
			switch {
			case len(r.NextHops) == 0:
				story = append(story, fmt.Sprintf("no master of BGPListener %s gets packets for %s: they are answered as unreachable", l.Name, r.Prefix))
			case r.Resilient:
				story = append(story, fmt.Sprintf("packets for %s go to %s; a change moves only connections of a master that has left", r.Prefix, strings.Join(r.NextHops, ", ")))
			default:
				story = append(story, fmt.Sprintf("packets for %s go to %s; a change may move connections of any master", r.Prefix, strings.Join(r.NextHops, ", ")))
			}
			if r.Error != "" {
				story = append(story, r.Error)
			}
			story = append(story, told(&l, r.Prefix)...)
		}
	}
	return story
}

// told is what each master says of a prefix.
func told(l *v1alpha1.ListenerStatus, prefix string) (story []string) {
	for _, m := range l.Masters {
		said := "does not advertise it"
		if slices.Contains(m.Accepted, prefix) {
			said = "advertises it"
		}
		for _, r := range l.Refused {
			if r.Master == m.Address && r.Prefix == prefix {
				said = "is refused: " + r.Why
			}
		}
		line := fmt.Sprintf("master %s (AS %d, session %s", m.Address, m.ASN, m.State)
		if m.BFD != "" {
			line += ", BFD " + m.BFD
		}
		if m.Error != "" {
			said = m.Error
		}
		story = append(story, line+") "+said)
	}
	return story
}
