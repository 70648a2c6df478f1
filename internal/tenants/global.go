package tenants

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
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
	// first is the Service whose spec counts. The others are to have the addresses that it has.
	first   member
	members map[model.Key]Verdict // whether each may share them
	counted bool                  // the addresses are
	lb      model.LoadBalancer
}

// member is a Service with a global name, and the addresses that it shares already, or has of its own.
type member struct {
	key     model.Key
	service *Service
	cluster *cluster
	has     []netip.Addr
	rank    int
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
	members := make(map[string][]member)
	for _, key := range keys {
		c, s := clusters[key.Namespace], in.Services[key]
		if c == nil || s.Spec.GlobalName == "" || c.judgeService(key, s, newest).Reason != ReasonAccepted {
			continue
		}
		m := member{key, s, c, c.mayHave(in, s), rankShares}
		switch {
		case len(m.has) == 0 || s.Shared != "" && s.Shared != s.Spec.GlobalName:
			m.has, m.rank = nil, rankNew
		case s.Shared == "":
			m.rank = rankHas
		}
		name := c.globalName(s.Spec.GlobalName)
		members[name] = append(members[name], m)
	}
	all := make(map[string]*global, len(members))
	for name, list := range members {
		all[name] = newGlobal(name, list)
	}
	return all
}

// newGlobal says which of the Services, the older ones first, may share.
func newGlobal(name string, all []member) *global {
	slices.SortStableFunc(all, func(a, b member) int { return cmp.Compare(a.rank, b.rank) })
	g, room := &global{name: name, first: all[0], members: map[model.Key]Verdict{all[0].key: {ReasonAccepted, ""}}}, maxGlobal-1
	for _, m := range all[1:] {
		verdict := g.admits(m.service, room)
		if verdict.Reason == ReasonAccepted {
			room--
		}
		g.members[m.key] = verdict
	}
	return g
}

// admits tells why a Service may not share the addresses of the first.
func (g *global) admits(s *Service, room int) Verdict {
	if room == 0 {
		return Verdict{ReasonConflict, fmt.Sprintf("%d other Services ask for the global name %s, which is the most", maxGlobal, s.Spec.GlobalName)}
	}
	if what := differs(&g.first.service.Spec, &s.Spec); what != "" {
		return Verdict{ReasonConflict, fmt.Sprintf("the Service %s of the cluster %s had the global name %s first and has other %s", g.first.key.Name, g.first.cluster.spec.Name, s.Spec.GlobalName, what)}
	}
	return Verdict{ReasonAccepted, ""}
}

// reserve begins to count what each tenant has, with the addresses that are shared: who goes leaves them to the others,
// and not to an older Service that waits for one.
func (in *Input) reserve(clusters map[string]*cluster, globals map[string]*global) map[*v1alpha1.Tenant]*used {
	has := make(map[*v1alpha1.Tenant]*used)
	for _, c := range clusters {
		if has[c.tenant] == nil {
			has[c.tenant] = &used{rests: c.rests(in, clusters)}
		}
	}
	byAge := slices.SortedFunc(maps.Values(globals), func(a, b *global) int {
		return cmp.Or(a.first.service.Created.Compare(b.first.service.Created), a.first.key.Compare(b.first.key))
	})
	for _, g := range byAge {
		tenant, n := g.first.cluster.tenant, len(g.first.service.Spec.Families)
		if u := has[tenant]; g.first.rank == rankShares && u.addresses+n <= int(tenant.Spec.Limits.Addresses) {
			u.addresses, g.counted = u.addresses+n, true
		}
	}
	return has
}

func (c *cluster) globalName(name string) string {
	return model.GlobalName(c.tenant.Metadata.Name, name)
}

// given are the addresses of the status of a Service that it goes on to have. taken are those of older Services, with the
// global name under which they have them.
func (c *cluster) given(in *Input, key model.Key, s *Service, globals map[string]*global, taken map[netip.Addr]*global) []netip.Addr {
	g, former := globals[c.globalName(s.Spec.GlobalName)], globals[c.globalName(s.Shared)]
	return slices.DeleteFunc(c.mayHave(in, s), func(a netip.Addr) bool {
		by, is := taken[a]
		return is && (by == nil || by != g) ||
			former != nil && former != g && slices.Contains(former.first.has, a) || // which it leaves to those with the name
			g != nil && key != g.first.key && !slices.Contains(g.first.has, a) // it gives up its own
	})
}

// join asks for the addresses of the others, if the Service may share them.
func (g *global) join(key model.Key, r *Request) Verdict {
	r.Share = g.name
	if first := &g.first; key != first.key {
		asks := first.cluster.request(first.key, first.service)
		r.Pools, r.Fixed = asks.Pools, first.has
		if len(r.Fixed) == 0 { // whatever else it asks for, it may never get
			r.Fixed = asks.Fixed
		}
	}
	return g.members[key]
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
