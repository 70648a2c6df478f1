package tenants

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// How the nodes of a cluster are asked, whatever its Services say: kube-proxy tells at this port
// whether the node takes part, and that it is about to go.
const (
	proxyHealthPort = 10256
	proxyHealthPath = "/healthz"
	checkInterval   = time.Second
	checkTimeout    = time.Second
	checkFall       = 2
	checkRise       = 2
	// checksPerNode bounds the checks of Services with the policy Local, for each node that the Tenant
	// may have: a check of a node that is not there costs the kernel an entry of connection tracking.
	checksPerNode = 4
)

// drainTimeout is how long open connections go on with a node that is to have no new ones. It is the
// longest that a LoadBalancer may have.
const drainTimeout = time.Hour

// used is what the Services of a tenant have; rests are the addresses that they had a moment ago.
type used struct{ services, ports, addresses, checks, rests int }

// nodePort is a port of all nodes of a cluster.
type nodePort struct {
	namespace string
	protocol  v1alpha1.TransportProtocol
	port      int32
}

// judgeServices judges the Services, the older ones first, and says where those that are served lead.
func (out *Output) judgeServices(in *Input, clusters map[string]*cluster) {
	keys := slices.SortedFunc(maps.Keys(in.Services), func(a, b model.Key) int {
		return cmp.Or(in.Services[a].Created.Compare(in.Services[b].Created), a.Compare(b))
	})
	// Of two Services with one NodePort the agent has not yet deleted the older one: a cluster gives
	// a NodePort to one Service at a time.
	newest := make(map[nodePort]model.Key)
	for _, key := range keys {
		for _, p := range in.Services[key].Spec.Ports {
			newest[nodePort{key.Namespace, p.Protocol, p.NodePort}] = key
		}
	}
	globals := in.globals(keys, clusters, newest)
	has := in.reserve(clusters, globals)
	taken := make(map[netip.Addr]*global) // nil: by one Service
	room := in.Room
	for _, key := range keys {
		c, s := clusters[key.Namespace], in.Services[key]
		if c == nil {
			out.Services[key] = noTenant(key.Namespace)
			continue
		}
		u, g := has[c.tenant], globals[c.globalName(s.Spec.GlobalName)]
		given, request := c.given(in, key, s, globals, taken), c.request(key, s)
		verdict := c.judgeService(key, s, newest)
		if verdict.Reason == ReasonAccepted && g != nil {
			verdict = g.join(key, &request)
		}
		if verdict.Reason == ReasonAccepted {
			verdict = c.announced(in, &request, given)
		}
		if verdict.Reason == ReasonAccepted {
			verdict = c.limit(key, s, &request, given, u, g)
		}
		if verdict.Reason == ReasonAccepted {
			for _, a := range given {
				taken[a] = g
			}
			if g != nil {
				g.counted = true
			}
			out.Requests, out.Given[key] = append(out.Requests, request), given
			if verdict = out.serve(key, c, s, given, &room, g); verdict.Reason == ReasonAccepted {
				verdict = c.heard(in, s, given)
			}
		}
		out.Services[key] = verdict
	}
	out.lead(globals)
	slices.SortFunc(out.Requests, func(a, b Request) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(out.Served, func(a, b model.LoadBalancer) int { return cmp.Compare(a.Name, b.Name) })
}

// pools are those that a Service may have addresses of.
func (c *cluster) pools(s *Service) []string {
	if s.Spec.Pool != "" {
		return []string{s.Spec.Pool}
	}
	return c.tenant.Spec.Pools
}

// mayHave are the addresses of the status that the Tenant may have, whoever else does.
func (c *cluster) mayHave(in *Input, s *Service) (out []netip.Addr) {
	for _, a := range s.Given {
		pooled := slices.ContainsFunc(c.pools(s), func(name string) bool { return in.in(name, a) })
		if _, host := in.Hub.Hosts[a]; pooled && !host {
			out = append(out, a)
		}
	}
	return out
}

// judgeService tells which rule of the Tenant a Service breaks.
func (c *cluster) judgeService(key model.Key, s *Service, newest map[nodePort]model.Key) Verdict {
	name := c.tenant.Metadata.Name
	if !slices.Contains(c.tenant.Spec.Sources, s.Spec.Source) {
		return Verdict{ReasonSource, fmt.Sprintf("the Tenant %s may not have the source %s", name, s.Spec.Source)}
	}
	if s.Spec.Pool != "" && !slices.Contains(c.tenant.Spec.Pools, s.Spec.Pool) {
		return Verdict{ReasonPool, fmt.Sprintf("the Tenant %s may not have addresses of the pool %s; its pools are %q", name, s.Spec.Pool, c.tenant.Spec.Pools)}
	}
	ports := make([]int32, 0, len(s.Spec.Ports)+1)
	for _, p := range s.Spec.Ports {
		ports = append(ports, p.NodePort)
		if by := newest[nodePort{key.Namespace, p.Protocol, p.NodePort}]; by != key {
			return Verdict{ReasonConflict, fmt.Sprintf("the newer Service %s has the NodePort %d (%s), too", by.Name, p.NodePort, p.Protocol)}
		}
	}
	if s.Spec.Local != nil {
		ports = append(ports, s.Spec.Local.HealthCheckNodePort)
	}
	for _, p := range ports {
		if !c.nodePorts.Contains(p) {
			return Verdict{ReasonNodePort, fmt.Sprintf("%d is in no range of NodePorts of the cluster, which has %s", p, c.spec.NodePorts)}
		}
	}
	return Verdict{ReasonAccepted, ""}
}

// rests counts the addresses that rest and were of Services of the Tenant.
func (c *cluster) rests(in *Input, clusters map[string]*cluster) (n int) {
	for namespace, rest := range in.Rests {
		if o := clusters[namespace]; o != nil && o.tenant == c.tenant {
			n += rest
		}
	}
	return n
}

// met tells whether a Service needs no other addresses than those that it has.
func (r *Request) met(given []netip.Addr) bool {
	return len(given) >= len(r.Families) && !slices.ContainsFunc(r.Fixed, func(a netip.Addr) bool { return !slices.Contains(given, a) })
}

// Keep asks for these addresses in place of what the Service asks for.
func (r *Request) Keep(given []netip.Addr) {
	r.Fixed, r.Families = given, nil
	for _, a := range given {
		if a.Is4() {
			r.Families = append(r.Families, v1alpha1.FamilyIPv4)
		} else {
			r.Families = append(r.Families, v1alpha1.FamilyIPv6)
		}
	}
}

// limit counts what a Service has, and tells which limit keeps it from that. It is not counted then,
// so that a smaller one that is younger may have what is left.
func (c *cluster) limit(key model.Key, s *Service, r *Request, given []netip.Addr, u *used, g *global) Verdict {
	l := &c.tenant.Spec.Limits
	if c.tenant.Spec.Suspended && len(given) == 0 {
		return Verdict{ReasonSuspended, fmt.Sprintf("the Tenant %s is suspended: what it has stays, and it gets nothing new", c.tenant.Metadata.Name)}
	}
	now := used{u.services + 1, u.ports + len(s.Spec.Ports), u.addresses, u.checks, u.rests}
	shares := g != nil && g.counted // which were counted with the first of them
	if !shares {
		now.addresses += len(s.Spec.Families)
	}
	if s.Spec.Local != nil { // each node of the hub asks each of these nodes about this Service alone
		now.checks += len(s.Spec.Local.Nodes)
	}
	if addresses := now.addresses + u.rests; (!shares || key == g.first.key) && u.rests > 0 && addresses > int(l.Addresses) && !r.met(given) {
		if len(given) == 0 {
			return Verdict{ReasonLimit, fmt.Sprintf("with it the Tenant %s has %d addresses of %d that it may have, with those that Services gave up less than a minute ago",
				c.tenant.Metadata.Name, addresses, l.Addresses)}
		}
		r.Keep(given) // and gets others when those rest no longer
	}
	for _, x := range []struct {
		n    int
		most int32
		what string
	}{{now.services, l.Services, "services"}, {now.ports, l.Ports, "ports"}, {now.addresses, l.Addresses, "addresses"}, {now.checks, checksPerNode * l.Nodes, "nodes of Services with the policy Local"}} {
		if x.n > int(x.most) {
			return Verdict{ReasonLimit, fmt.Sprintf("with it the Tenant %s has %d %s of %d that it may have", c.tenant.Metadata.Name, x.n, x.what, x.most)}
		}
	}
	*u = now
	return Verdict{ReasonAccepted, ""}
}

// request is what a Service may have of the pools.
func (c *cluster) request(key model.Key, s *Service) Request {
	r := Request{Key: key, Families: s.Spec.Families, Pools: c.pools(s), Ports: s.Spec.Ports}
	for _, text := range s.Spec.Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			r.Fixed = append(r.Fixed, a)
		}
	}
	return r
}

// serve leads the addresses of a Service to the nodes of its cluster, if there is room for that.
func (out *Output) serve(key model.Key, c *cluster, s *Service, given []netip.Addr, room *int, g *global) Verdict {
	if len(given) == 0 {
		return Verdict{ReasonNoAddress, "it has no address yet"}
	}
	x := lead(key, s, given)
	var families [2]int // the addresses of each
	for _, a := range given {
		families[btoi(a.Is6())]++
	}
	x.Servers = out.servers(key, c, s, families)
	ways := 0
	var served [2]bool
	for i := range x.Servers {
		family := btoi(x.Servers[i].Addr.Is6())
		ways, served[family] = ways+families[family]*len(x.Ports), true
	}
	if ways > *room {
		return Verdict{ReasonNoRoom, fmt.Sprintf("the hub has no room for %d more ways from an address and a port to a node: nothing is forwarded", ways)}
	}
	*room -= ways
	if g != nil {
		g.lead(x, s)
	} else {
		out.Served = append(out.Served, x)
	}
	for _, a := range x.VIPs {
		if !served[btoi(a.Is6())] {
			return Verdict{ReasonFamilyMissing, fmt.Sprintf("no node of the cluster has an address of the family of %s", a)}
		}
	}
	return Verdict{ReasonAccepted, ""}
}

// lead is a Service with its addresses, without servers.
func lead(key model.Key, s *Service, given []netip.Addr) model.LoadBalancer {
	x := model.LoadBalancer{
		Name: model.TenantName(key), VIPs: slices.SortedFunc(slices.Values(given), netip.Addr.Compare),
		ClientAffinity: s.Spec.Affinity == v1alpha1.AffinityClient, ClientSource: s.Spec.Source == v1alpha1.SourceClient,
		// kube-proxy fails the check of a node that is about to go, and that of a Service whose last
		// local endpoint ends, while what is open there still works.
		KeepFailed: true, DrainTimeout: drainTimeout,
		AtOnce: true,
	}
	for _, p := range s.Spec.Ports {
		x.Ports = append(x.Ports, forwardPort(p))
	}
	for _, text := range s.Spec.AllowedSources {
		if p, err := netip.ParsePrefix(text); err == nil {
			x.AllowedSources = append(x.AllowedSources, p)
		}
	}
	return x
}

func forwardPort(p v1alpha1.TenantPort) model.ForwardPort {
	protocol := model.TCP
	if p.Protocol == v1alpha1.ProtocolUDP {
		protocol = model.UDP
	}
	return model.ForwardPort{Protocol: protocol, Port: uint16(p.Port), TargetPort: uint16(p.NodePort)}
}

// servers are the nodes that a Service with addresses of these families leads to. With the policy Local
// they need endpoints, and are asked about the Service alone. All others of a cluster share their
// list, however many they are.
func (out *Output) servers(key model.Key, c *cluster, s *Service, families [2]int) []model.Server {
	if l := s.Spec.Local; l != nil {
		endpoints := make(map[string]int, len(l.Nodes))
		for _, e := range l.Nodes {
			endpoints[e.Name] = int(e.Endpoints)
		}
		return out.list(c, families, checked{key.String(), l.HealthCheckNodePort, "/"}, func(n *node) (int, bool) {
			return endpoints[n.name], endpoints[n.name] > 0
		})
	}
	shared := &c.servers[btoi(families[0] > 0)][btoi(families[1] > 0)]
	if *shared == nil {
		*shared = out.list(c, families, checked{key.Namespace, proxyHealthPort, proxyHealthPath}, func(n *node) (int, bool) { return n.weight, true })
	}
	return *shared
}

// checked is how a node is asked, and about what.
type checked struct {
	of   string
	port int32
	path string
}

// list makes servers of the nodes that have a weight, by each of their addresses of these families.
func (out *Output) list(c *cluster, families [2]int, how checked, weight func(*node) (int, bool)) []model.Server {
	list := []model.Server{}
	for i := range c.nodes {
		n := &c.nodes[i]
		w, has := weight(n)
		if !has {
			continue
		}
		for _, a := range n.addrs {
			if families[btoi(a.Is6())] == 0 {
				continue
			}
			server := model.Server{Addr: a, Weight: w, Check: "tenant/" + how.of + "/" + a.String()}
			if n.state != v1alpha1.TenantNodeServing { // the checks of the hub say whether it serves at all
				server.Weight, server.Leaving = 0, true
			}
			list = append(list, server)
			out.Checks[server.Check] = v1alpha1.HealthCheck{
				Interval: v1alpha1.Duration{Duration: checkInterval}, Timeout: v1alpha1.Duration{Duration: checkTimeout}, Fall: checkFall, Rise: checkRise,
				HTTP: &v1alpha1.HTTPCheck{Host: a.String(), Port: how.port, Path: how.path},
			}
		}
	}
	slices.SortFunc(list, func(a, b model.Server) int { return a.Addr.Compare(b.Addr) })
	return list
}
