// Package routes judges the Ingresses, HTTPRoutes and GRPCRoutes of tenants, and says what the hub has for those that count:
// for each Service behind them a Service without a selector, with EndpointSlices that have the nodes of the tenant,
// and an Ingress or a route for the engine of the hub. All of it is in the namespace of the cluster that asks for it,
// with names that nobody chooses, and made of known fields alone. It is pure.
package routes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// The reasons of verdicts beside those of internal/tenants.
const (
	ReasonNoClass   tenants.Reason = "IngressNotAllowed"
	ReasonNoGateway tenants.Reason = "GatewayNotAllowed"
	ReasonHostname  tenants.Reason = "HostnameNotAllowed"
	ReasonTaken     tenants.Reason = "HostnameTaken"
)

// Input is all that a decision may look at.
type Input struct {
	// Clusters are those that count, by their namespaces in the hub.
	Clusters map[string]tenants.Cluster
	// Routes are the TenantRoutes that are valid, with their defaults.
	Routes map[model.Key]*Route
	// Have are the objects of the hub that were made here.
	Have map[ID]Have
	// Gateways are the addresses of Gateways of the hub; nil: they are not known.
	Gateways map[model.Key][]string
	// NotRead is a kind of objects in Have that cannot be read, so that there may be others; empty: all of them are known.
	NotRead string
	// Lacking are kinds of routes of which the hub has none, and can have none now.
	Lacking map[string]bool
	// Certificates are the Secrets that agents have written, by namespace and name. Those of a namespace that
	// is not in it are not known.
	Certificates map[string]map[string]*Certificate
}

// Route is a TenantRoute.
type Route struct {
	*v1alpha1.TenantRoute
	Created time.Time
	// Held are the hostnames that its status has: no other tenant gets them while it asks for them, however
	// old the objects are. Else an old object could take a hostname by a change.
	Held []string
	// Shows are the addresses that its status has.
	Shows []string
	// Judged: its status is about what it asks for now.
	Judged bool
}

// Output is the decision.
type Output struct {
	// Verdicts are those of all routes, but for routes whose status stays.
	Verdicts map[model.Key]tenants.Verdict
	// Writes are the objects that are not as they are to be, and Deletes those that are not to be there.
	Writes  []Object
	Deletes []Delete
	// Addresses are those of the engine, and Hostnames those that a route has from now on, by TenantRoute.
	Addresses, Hostnames map[model.Key][]string
	// Pending is why a route that counts has no address, where that is known.
	Pending map[model.Key]string
	// Still: only endpoints change, see standStill.
	Still bool
	// Certificates say whether those of a route are used, of routes that have any; Young: there is one that no
	// route names yet.
	Certificates map[model.Key]tenants.Verdict
	Young        bool

	certificates map[ID]bool // those that are used
	shown        map[ID]bool // Secrets that Ingresses of the hub name
}

// use is what the routes of a tenant have.
type use struct {
	routes   int
	services map[model.Key]bool // by cluster and NodePort-serving Service
	ports    map[port]bool
}

// port is one of a Service behind a route.
type port struct {
	service  model.Key
	nodePort int32
}

// Step decides.
func Step(in *Input) Output {
	out := Output{
		Verdicts: make(map[model.Key]tenants.Verdict), Addresses: make(map[model.Key][]string), Hostnames: make(map[model.Key][]string), Pending: make(map[model.Key]string),
		Certificates: make(map[model.Key]tenants.Verdict), shown: make(map[ID]bool),
	}
	if in.NotRead != "" {
		out.standStill(in)
		return out
	}
	accepted := out.judge(in)
	out.difference(in, accepted)
	return out
}

// judge judges the routes, the older ones first, and returns the keys of those that count, sorted.
func (out *Output) judge(in *Input) (accepted []model.Key) {
	keys := slices.SortedFunc(maps.Keys(in.Routes), func(a, b model.Key) int {
		return cmp.Or(in.Routes[a].Created.Compare(in.Routes[b].Created), a.Compare(b))
	})
	for _, key := range keys {
		c := in.Clusters[key.Namespace]
		out.Verdicts[key] = rules(&c, key, in.Routes[key])
	}
	taken := out.held(in, keys)
	has, owners := make(map[*v1alpha1.Tenant]*use), make(map[ID]model.Key)
	for _, key := range keys {
		if out.Verdicts[key].Reason != tenants.ReasonAccepted {
			continue
		}
		c, id := in.Clusters[key.Namespace], routeID(key.Namespace, in.Routes[key].TenantRoute)
		if has[c.Tenant] == nil {
			has[c.Tenant] = &use{services: map[model.Key]bool{}, ports: map[port]bool{}}
		}
		v := claim(&c, in.Routes[key], taken)
		if owner, is := owners[id]; is { // or two bodies of one object would be written in turn
			v = tenants.Verdict{Reason: tenants.ReasonConflict, Message: fmt.Sprintf("the older TenantRoute %s is of the same %s", owner.Name, id.Kind)}
		}
		ports := portsOf(key.Namespace, in.Routes[key].TenantRoute)
		if over, is := limit(&c, ports, has[c.Tenant]); is && v.Reason == tenants.ReasonAccepted {
			v = over
		}
		if out.Verdicts[key] = v; v.Reason != tenants.ReasonAccepted {
			continue
		}
		has[c.Tenant].add(ports)
		owners[id] = key
		for _, host := range in.Routes[key].Spec.Hosts() {
			taken.add(c.Tenant, host)
		}
		out.Hostnames[key] = sorted(in.Routes[key].Spec.Hosts())
		accepted = append(accepted, key)
	}
	out.certify(in, accepted, taken)
	slices.SortFunc(accepted, model.Key.Compare)
	return accepted
}

// held are the hostnames that tenants have: those that a route had and asks for still, and those that the
// engine serves until their Ingress or route is gone, whoever has a right to them now.
func (out *Output) held(in *Input, keys []model.Key) *claims {
	taken := newClaims(in.wildcards())
	ended := make(map[string]*v1alpha1.Tenant) // that of a namespace without one
	tenant := func(namespace string) *v1alpha1.Tenant {
		if t := in.Clusters[namespace].Tenant; t != nil {
			return t
		}
		if ended[namespace] == nil {
			ended[namespace] = new(v1alpha1.Tenant)
		}
		return ended[namespace]
	}
	for _, key := range keys {
		r, t := in.Routes[key], tenant(key.Namespace)
		if out.Verdicts[key].Reason != tenants.ReasonAccepted {
			continue
		}
		for _, host := range r.Spec.Hosts() {
			if slices.Contains(r.Held, host) && taken.other(t, host) == "" {
				taken.add(t, host)
				out.Hostnames[key] = append(out.Hostnames[key], host)
			}
		}
		out.Hostnames[key] = sorted(out.Hostnames[key])
	}
	for _, id := range slices.SortedFunc(maps.Keys(in.Have), ID.compare) {
		if id.Kind != KindIngress && !slices.Contains(GatewayKinds, id.Kind) {
			continue
		}
		t := tenant(id.Namespace)
		for _, host := range slices.Concat(hostsOf(in.Have[id]), out.show(in, id)) {
			if taken.other(t, host) == "" {
				taken.add(t, host)
			}
		}
	}
	return taken
}

// sorted has each of the texts once.
func sorted(texts []string) []string { return slices.Compact(slices.Sorted(slices.Values(texts))) }

// rules tells which rule of its Tenant a route breaks, whatever others have.
func rules(c *tenants.Cluster, key model.Key, r *Route) tenants.Verdict {
	if c.Tenant == nil {
		return tenants.Verdict{Reason: tenants.ReasonNoTenant, Message: "no Tenant that is accepted has the namespace " + key.Namespace}
	}
	name, s := c.Tenant.Metadata.Name, &c.Tenant.Spec
	switch kind := r.Spec.Origin.Kind; {
	case kind != v1alpha1.OriginIngress && s.Gateway == "":
		return tenants.Verdict{Reason: ReasonNoGateway, Message: fmt.Sprintf("the Tenant %s has no gateway: no %s of it is served", name, kind)}
	case kind == v1alpha1.OriginIngress && s.IngressClass == "":
		return tenants.Verdict{Reason: ReasonNoClass, Message: fmt.Sprintf("the Tenant %s has no ingressClass: no Ingress of it is served", name)}
	}
	for _, host := range r.Spec.Hosts() {
		if !within(host, s.Hostnames) {
			return tenants.Verdict{Reason: ReasonHostname, Message: fmt.Sprintf("the Tenant %s may not have the hostname %s; it may have %q", name, host, s.Hostnames)}
		}
	}
	for b := range r.Spec.Backends() {
		if !c.NodePorts.Contains(b.NodePort) {
			return tenants.Verdict{Reason: tenants.ReasonNodePort, Message: fmt.Sprintf("%d is in no range of NodePorts of the cluster, which has %d-%d",
				b.NodePort, c.NodePorts.First, c.NodePorts.Last)}
		}
	}
	return tenants.Verdict{Reason: tenants.ReasonAccepted, Message: leftOut(r, s.Annotations.Allow)}
}

// claim tells whether another tenant has a hostname of a route, or the route asks for a new one while its Tenant is
// suspended. A route counts as a whole or not at all:
// who looks at it finds one reason, and nothing that half works. It does not say who has it.
func claim(c *tenants.Cluster, r *Route, taken *claims) tenants.Verdict {
	for _, host := range r.Spec.Hosts() {
		if c.Tenant.Spec.Suspended && !slices.Contains(r.Held, host) {
			return tenants.Verdict{Reason: tenants.ReasonSuspended, Message: fmt.Sprintf("the Tenant %s is suspended: what it has stays, and it gets nothing new, such as %s", c.Tenant.Metadata.Name, host)}
		}
		if other := taken.other(c.Tenant, host); other != "" {
			return tenants.Verdict{Reason: ReasonTaken, Message: fmt.Sprintf("%s is taken: another tenant had a rule for %s first", host, other)}
		}
	}
	return tenants.Verdict{Reason: tenants.ReasonAccepted, Message: leftOut(r, c.Tenant.Spec.Annotations.Allow)}
}

// portsOf are the ports behind a route.
func portsOf(namespace string, r *v1alpha1.TenantRoute) map[port]bool {
	all := make(map[port]bool)
	for b := range r.Spec.Backends() {
		all[port{model.Key{Namespace: namespace, Name: serviceName(namespace, r, b)}, b.NodePort}] = true
	}
	return all
}

// limit tells which limit keeps a route from having these ports.
func limit(c *tenants.Cluster, wanted map[port]bool, u *use) (tenants.Verdict, bool) {
	name, limits := c.Tenant.Metadata.Name, &c.Tenant.Spec.Limits
	services, ports := make(map[model.Key]bool), 0
	for x := range wanted {
		if !u.services[x.service] {
			services[x.service] = true
		}
		if !u.ports[x] {
			ports++
		}
	}
	for _, x := range []struct {
		n    int
		what string
		most int32
	}{
		{u.routes + 1, "routes", limits.Routes}, {len(u.services) + len(services), "Services behind routes", limits.Routes},
		{len(u.ports) + ports, "ports behind routes", limits.Ports},
	} {
		if x.n > int(x.most) {
			return tenants.Verdict{Reason: tenants.ReasonLimit, Message: fmt.Sprintf("with it the Tenant %s has %d %s of %d that it may have", name, x.n, x.what, x.most)}, true
		}
	}
	return tenants.Verdict{}, false
}

// add counts a route with its ports.
func (u *use) add(ports map[port]bool) {
	u.routes++
	for x := range ports {
		u.services[x.service], u.ports[x] = true, true
	}
}

// mostNamed bounds how many annotations a message names, and mostOfKey how much of each.
const (
	mostNamed = 5
	mostOfKey = 63
)

// leftOut says which annotations the engine does not see; empty: it sees all.
func leftOut(r *Route, allow []string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(r.Spec.Annotations)) {
		if !allowed(key, allow) {
			all = append(all, key)
		}
	}
	if len(all) == 0 {
		return ""
	}
	more := len(all) - mostNamed
	all = all[:min(len(all), mostNamed)]
	for i, key := range all {
		all[i] = key[:min(len(key), mostOfKey)]
	}
	text := strings.Join(all, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "the Tenant may not have these annotations, which are left out: " + text
}

// allowed tells whether the engine may see an annotation. A snippet is configuration of the engine, and the
// class is that of the Tenant, whatever the list says. What gives hostnames, or names objects of others, has to
// be in the list by its own name.
func allowed(key string, allow []string) bool {
	low := strings.ToLower(key)
	if !v1alpha1.IsAnnotationKey(key) { // with it the Ingress would be refused as a whole
		return false
	}
	if strings.Contains(low, "snippet") || low == "kubernetes.io/ingress.class" || strings.HasPrefix(low, "lbd.dev/") || strings.HasPrefix(low, "kubectl.kubernetes.io/") {
		return false
	}
	if slices.Contains(allow, key) {
		return true
	}
	return !wide(low) && slices.ContainsFunc(allow, func(a string) bool {
		begin, wild := strings.CutSuffix(a, "*")
		return wild && strings.HasPrefix(key, begin)
	})
}

// wide tells whether an annotation, in lower case, can give hostnames, name objects of others, or have the engine connect
// elsewhere.
func wide(key string) bool {
	name := key[strings.LastIndexByte(key, '/')+1:]
	with := func(has func(s, part string) bool, parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return has(name, p) })
	}
	return with(strings.HasPrefix, "config-", "server-alias", "router.tls.domains.", "from-to-www", "redirect-from", "host-aliases") ||
		with(strings.HasSuffix, "-sans", "cluster-issuer", "-configmap", "custom-headers", "set-headers", "plugins", "auth-url", "mirror-target", "route-acl") ||
		with(strings.HasSuffix, "router.entrypoints", "hostname", "common-name", "alt-names", "-secret", "router.middlewares", "router.tls.options", "service.serverstransport")
}
