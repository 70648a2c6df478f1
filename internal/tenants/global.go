package tenants

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

const (
	// maxGlobal bounds the Services that share addresses. A Tenant has as many clusters.
	maxGlobal = 16
	// shareScale makes whole numbers of the shares of nodes: most counts of nodes divide it.
	shareScale = 600
)

// global is what the Services of a Tenant with one global name have together.
type global struct {
	name string // of their VIPs and their LoadBalancer
	// first is the Service whose spec counts, s, of the cluster c. The others are to have the addresses that
	// it has.
	first model.Key
	s     *Service
	c     *cluster
	has   []netip.Addr
	rank  int
	// sharing are those that share the addresses already, and count before others.
	sharing, joined, others int
	counted                 bool // their addresses are
	lb                      model.LoadBalancer
}

// The ranks of Services with one global name: what shares the addresses already comes first, so that neither an
// older Service that takes the name, nor one that is accepted again, has the others change theirs.
const (
	rankShares = iota
	rankHas    // addresses of its own
	rankNew
)

// globals are those that there are, by name. Of equal ranks the oldest is the first.
func (in *Input) globals(keys []model.Key, clusters map[string]*cluster, newest map[nodePort]model.Key) map[string]*global {
	all := make(map[string]*global)
	for _, key := range keys {
		c, s := clusters[key.Namespace], in.Services[key]
		if c == nil || s.Spec.GlobalName == "" || c.judgeService(key, s, newest).Reason != ReasonAccepted {
			continue
		}
		name := c.globalName(s.Spec.GlobalName)
		g := all[name]
		if g == nil {
			g = &global{name: name, rank: rankNew + 1}
			all[name] = g
		}
		given, rank := c.given(s, in, nil), rankNew
		switch {
		case len(given) == 0 || s.Shared != "" && s.Shared != s.Spec.GlobalName:
			given = nil
		case s.Shared == "":
			rank = rankHas
		default:
			rank = rankShares
			g.sharing++
		}
		if rank < g.rank {
			g.rank, g.first, g.s, g.c, g.has = rank, key, s, c, given
		}
	}
	return all
}

// reserve begins to count what each tenant has, with the addresses that are shared: who goes leaves them to the others,
// and not to an older Service that waits for one.
func (in *Input) reserve(keys []model.Key, clusters map[string]*cluster, globals map[string]*global) map[*v1alpha1.Tenant]*used {
	has := make(map[*v1alpha1.Tenant]*used)
	for _, c := range clusters {
		if has[c.tenant] == nil {
			has[c.tenant] = &used{rests: c.rests(in, clusters)}
		}
	}
	for _, key := range keys {
		c, s := clusters[key.Namespace], in.Services[key]
		if c == nil || s.Spec.GlobalName == "" {
			continue
		}
		g, u, n := globals[c.globalName(s.Spec.GlobalName)], has[c.tenant], len(s.Spec.Families)
		if g != nil && g.first == key && g.rank == rankShares && u.addresses+n <= int(c.tenant.Spec.Limits.Addresses) {
			u.addresses, g.counted = u.addresses+n, true
		}
	}
	return has
}

func (c *cluster) globalName(name string) string {
	return model.GlobalName(c.tenant.Metadata.Name, name)
}

// apart leaves of the addresses of a Service those that others do not share under a name that it has no more.
func (c *cluster) apart(s *Service, given []netip.Addr, globals map[string]*global) []netip.Addr {
	if s.Shared == "" || s.Shared == s.Spec.GlobalName {
		return given
	}
	if g := globals[c.globalName(s.Shared)]; g != nil {
		return slices.DeleteFunc(given, func(a netip.Addr) bool { return slices.Contains(g.has, a) })
	}
	return given
}

// join tells why a Service has no part in what the others have, or asks for their addresses.
func (g *global) join(key model.Key, s *Service, r *Request, given []netip.Addr) ([]netip.Addr, Verdict) {
	r.Share = g.name
	if key == g.first {
		return given, Verdict{ReasonAccepted, ""}
	}
	given = slices.DeleteFunc(given, func(a netip.Addr) bool { return !slices.Contains(g.has, a) })
	room := maxGlobal - max(g.sharing, 1) - g.others // the first is always one of them
	if len(s.Given) > 0 && s.Shared == s.Spec.GlobalName {
		room = maxGlobal - 1 - g.joined
	}
	if room <= 0 {
		return nil, Verdict{ReasonConflict, fmt.Sprintf("%d other Services have the global name %s, which is the most", maxGlobal, s.Spec.GlobalName)}
	}
	if what := differs(&g.s.Spec, &s.Spec); what != "" {
		return nil, Verdict{ReasonConflict, fmt.Sprintf("the Service %s of the cluster %s had the global name %s first and has other %s", g.first.Name, g.c.spec.Name, s.Spec.GlobalName, what)}
	}
	asks := g.c.request(g.first, g.s)
	if r.Pools, r.Fixed = asks.Pools, g.has; len(r.Fixed) == 0 { // whatever else it asks for, it may never get
		r.Fixed = asks.Fixed
	}
	return given, Verdict{ReasonAccepted, ""}
}

// count counts a Service that is accepted.
func (g *global) count(key model.Key, s *Service, given []netip.Addr) {
	g.counted = true
	switch {
	case key == g.first:
	case len(s.Given) > 0 && s.Shared == s.Spec.GlobalName:
		g.joined++
	default:
		g.others++
	}
}

// differs tells in words what two Services have that share no addresses for that; empty: nothing.
func differs(first, s *v1alpha1.TenantServiceSpec) string {
	ports := func(s *v1alpha1.TenantServiceSpec) (all []model.ForwardPort) {
		for _, p := range s.Ports {
			all = append(all, forwardPort(p))
		}
		slices.SortFunc(all, comparePorts)
		return all
	}
	if a, b := ports(first), ports(s); !slices.EqualFunc(a, b, func(x, y model.ForwardPort) bool { return comparePorts(x, y) == 0 }) {
		return said("ports", portTexts(a), portTexts(b))
	}
	policy := func(s *v1alpha1.TenantServiceSpec) string {
		if s.Local != nil {
			return "Local"
		}
		return "Cluster"
	}
	asked := func(what, first, s string) string {
		if s == "" || s == first {
			return ""
		}
		return said(what, []string{first}, []string{s})
	}
	return cmp.Or(
		said("families", first.Families, s.Families),
		said("externalTrafficPolicy", []string{policy(first)}, []string{policy(s)}),
		said("affinity", []v1alpha1.Affinity{first.Affinity}, []v1alpha1.Affinity{s.Affinity}),
		said("source", []v1alpha1.SourceAddress{first.Source}, []v1alpha1.SourceAddress{s.Source}),
		said("allowedSources", first.AllowedSources, s.AllowedSources),
		asked("pool", first.Pool, s.Pool),
		asked("addresses", strings.Join(slices.Sorted(slices.Values(first.Addresses)), ", "), strings.Join(slices.Sorted(slices.Values(s.Addresses)), ", ")),
	)
}

// comparePorts orders the ports of a Service, wherever they lead.
func comparePorts(a, b model.ForwardPort) int {
	return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

func portTexts(all []model.ForwardPort) (texts []string) {
	for _, p := range all {
		texts = append(texts, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
	}
	return texts
}

// said says how two lists differ, whatever their order.
func said[T ~string](what string, first, s []T) string {
	first, s = slices.Sorted(slices.Values(first)), slices.Sorted(slices.Values(s))
	if slices.Equal(first, s) {
		return ""
	}
	words := func(all []T) string {
		var texts []string
		for _, x := range all {
			if x != "" {
				texts = append(texts, string(x))
			}
		}
		return cmp.Or(listed(texts), "none")
	}
	return fmt.Sprintf("%s: %s, and this one %s", what, words(first), words(s))
}

// lead adds the nodes of a Service, each at the NodePorts of that. Together they get what the weight of the
// Service is beside those of the others, however many nodes a cluster has.
func (g *global) lead(x model.LoadBalancer, s *Service) {
	ports := slices.SortedFunc(slices.Values(x.Ports), comparePorts)
	first := ports[0].TargetPort
	var at []byte
	for i := range ports {
		at = binary.BigEndian.AppendUint16(at, ports[i].TargetPort)
		ports[i].TargetPort = 0
	}
	servers, vips := g.lb.Servers, slices.Concat(g.lb.VIPs, x.VIPs)
	slices.SortFunc(vips, netip.Addr.Compare)
	g.lb = x
	g.lb.Name, g.lb.VIPs, g.lb.Ports = g.name, slices.Compact(vips), ports
	weight := int(s.Spec.Share())
	var total [2]int
	for i := range x.Servers {
		total[btoi(x.Servers[i].Addr.Is6())] += x.Servers[i].Weight
	}
	for _, server := range x.Servers {
		server.Port, server.Ports = first, string(at)
		if all := total[btoi(server.Addr.Is6())]; server.Weight > 0 && weight > 0 {
			server.Weight = max(weight*server.Weight*shareScale/all, 1)
		} else if weight == 0 {
			server.Weight, server.Leaving = 0, false
		}
		servers = append(servers, server)
	}
	g.lb.Servers = servers
}

// lead adds the LoadBalancers of global names.
func (out *Output) lead(globals map[string]*global) {
	for _, g := range globals {
		if g.lb.Name != "" {
			slices.SortFunc(g.lb.Servers, func(a, b model.Server) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port)) })
			out.Served = append(out.Served, g.lb)
		}
	}
}
