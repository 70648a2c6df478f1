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

// backends tells of a VIP whose connections go to other machines which share of the new ones
// each server gets, and where that of a client goes, in words.
func backends(v *model.View, d *model.Desired, vip *model.VIP, q *question) (list []v1alpha1.BackendStatus, story []string) {
	i := slices.IndexFunc(v.LoadBalancers, func(lb model.LoadBalancer) bool { return slices.Contains(lb.VIPs, vip.Addr) })
	if i < 0 {
		return nil, nil
	}
	lb := &v.LoadBalancers[i]
	of := d.Memory.Balance[lb.Name].Fills[balance.Family(vip.Addr)]
	gets, story := q.gets(lb, &of, vip.Addr)
	list = shares(lb, &of, balance.Family(vip.Addr), v.Health)
	for n := range list {
		list[n].Client = gets >= 0 && list[n].Backend == backend(&of.Servers[gets])
	}
	return list, story
}

// shares is what the servers of a family get, and how they do.
func shares(lb *model.LoadBalancer, of *model.BalanceFill, family int, health map[string]model.HealthState) (list []v1alpha1.BackendStatus) {
	counts := make([]int, len(of.Servers))
	for _, n := range of.Slots {
		counts[n]++
	}
	for _, x := range lb.Servers {
		if balance.Family(x.Addr) != family {
			continue
		}
		b := v1alpha1.BackendStatus{Backend: backend(&x), Weight: x.Weight}
		if x.Check != "" {
			h := health[x.Check]
			b.State, b.Detail = h.State.String(), h.Detail
			if h.Failing != "" {
				b.State, b.Detail = "failing", h.Failing
			}
		}
		if n := slices.IndexFunc(of.Servers, func(y model.Server) bool { return x.Addr == y.Addr && x.Port == y.Port }); n >= 0 {
			b.Share = perMille(counts[n], len(of.Slots))
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
		target = fmt.Sprintf(", port %d", lb.Ports[i].TargetPort)
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
	return server, []string{fmt.Sprintf("A new connection from %s goes to %s%s, by slot %d of %d. One that is open stays where it is.", client, backend(&x), target, slot, len(of.Slots))}
}

// backend is how people write a server.
func backend(x *model.Server) string {
	if x.Port == 0 {
		return x.Addr.String()
	}
	return netip.AddrPortFrom(x.Addr, x.Port).String()
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
					Received: m.Received, Accepted: acceptedOf(v, d, l.Name, m.Address),
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
		story = append(story, line+") "+said)
	}
	return story
}
