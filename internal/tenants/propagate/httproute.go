package propagate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// The reasons why a route is not served as it is written: those that the Gateway API has for it.
const (
	ReasonUnsupported  = "UnsupportedValue"
	ReasonInvalidKind  = "InvalidKind"
	ReasonNotPermitted = "RefNotPermitted"
	ReasonNoParent     = "NoMatchingParent"
	ReasonNotAllowed   = "NotAllowedByListeners"
	ReasonNoHostname   = "NoMatchingListenerHostname"
	reasonNoBackend    = "BackendNotFound"
	reasonPending      = "Pending"
)

// The conditions of routes.
const (
	conditionResolved   = "ResolvedRefs"
	conditionProgrammed = "Programmed"
	// ConditionRouteProgrammed says whether clients are served. The Gateway API has it for Gateways alone.
	ConditionRouteProgrammed = "lbd.dev/Programmed"
)

// RouteKey names a route of a Gateway.
type RouteKey struct {
	Kind v1alpha1.TenantOriginKind
	model.Key
}

// GatewayKinds are the kinds of routes of a Gateway.
var GatewayKinds = []v1alpha1.TenantOriginKind{v1alpha1.OriginHTTPRoute, v1alpha1.OriginGRPCRoute}

// name is that of the TenantRoute.
func (k RouteKey) name() string { return tenants.RouteName(string(k.Kind), k.Namespace, k.Name) }

func (k RouteKey) compare(other RouteKey) int {
	return cmp.Or(-cmp.Compare(k.Kind, other.Kind), k.Key.Compare(other.Key))
}

// HTTPInput is what a decision may look at of routes of Gateways.
type HTTPInput struct {
	// Class is the GatewayClass whose Gateways are those of the hub.
	Class    string
	Gateways map[model.Key]*Gateway
	Routes   map[RouteKey]*HTTPRoute
	// Grants are the ReferenceGrants. GrantsUnread: not all are known. GrantsLacking: there are none since the API server
	// says that it has not the kind, which it may say by mistake.
	Grants                      map[model.Key]*Grant
	GrantsUnread, GrantsLacking bool
	// Refused is why the API server of the hub did not take what a route became.
	Refused map[RouteKey]string
}

// Gateway is what counts of a Gateway. Nothing of it reaches the hub but by the routes that are attached to it.
type Gateway struct {
	UID        string
	Generation int64
	Class      string
	Listeners  []Listener
	// Bad is what of it is not served, in words; empty: nothing.
	Bad    string
	Status GatewayStatus
}

// GatewayStatus is what its status has.
type GatewayStatus struct {
	Addresses  []string
	Conditions []v1alpha1.Condition
	Listeners  []ListenerStatus
}

// ListenerStatus is that of one listener.
type ListenerStatus struct {
	Name       string               `json:"name"`
	Attached   int32                `json:"attachedRoutes"`
	Conditions []v1alpha1.Condition `json:"conditions"`
	Kinds      []map[string]string  `json:"supportedKinds"`
}

// HTTPRoute is what counts of an HTTPRoute or a GRPCRoute.
type HTTPRoute struct {
	UID, Version string
	Generation   int64
	Parents      []ParentRef
	Hostnames    []string
	Rules        []HTTPRule
	// Why is why it cannot be served as it is written; nil: it can.
	Why *v1alpha1.Condition
	// States are what its status says by this controller, and Others the entries of other ones.
	States []ParentState
	Others []json.RawMessage
}

// ParentState is what the status of a route says of one parent.
type ParentState struct {
	Ref        ParentRef
	Conditions []v1alpha1.Condition
}

// HTTPStatus is what the status of a route is to say, by this controller.
type HTTPStatus struct {
	Route        RouteKey
	UID, Version string
	States       []ParentState
	Others       []json.RawMessage
}

// GatewayWrite is what the status of a Gateway is to be.
type GatewayWrite struct {
	Gateway model.Key
	UID     string
	Status  GatewayStatus
}

// attached is how Gateways are used: the routes of each listener that are accepted, and the addresses of routes.
type attached struct {
	routes    map[listenerKey]map[RouteKey]bool
	addresses map[model.Key][]string
}

type listenerKey struct {
	gateway model.Key
	name    string
}

// note notes the route at the listeners of those parents that say that it is accepted, by the ParentRef.
func (a *attached) note(route RouteKey, states []ParentState, through map[ParentRef][]listenerKey) {
	for _, s := range states {
		if !slices.ContainsFunc(s.Conditions, func(c v1alpha1.Condition) bool {
			return c.Type == v1alpha1.ConditionAccepted && c.Status == v1alpha1.ConditionTrue
		}) {
			continue
		}
		for _, l := range through[s.Ref] {
			if a.routes[l] == nil {
				a.routes[l] = map[RouteKey]bool{}
			}
			a.routes[l][route] = true
		}
	}
}

// httpRoutes decides about Gateways and their routes, and tells which TenantRoutes are to stay.
func (out *IngressOutput) httpRoutes(in *IngressInput, keep map[string]bool, copies map[model.Key]*Backend) {
	used := attached{map[listenerKey]map[RouteKey]bool{}, map[model.Key][]string{}}
	for _, key := range slices.SortedFunc(maps.Keys(in.HTTP.Routes), RouteKey.compare) {
		out.httpRoute(in, key, keep, copies, &used)
	}
	out.gateways(in, &used)
}

func (out *IngressOutput) httpRoute(in *IngressInput, key RouteKey, keep map[string]bool, copies map[model.Key]*Backend, used *attached) {
	r := in.HTTP.Routes[key]
	name := key.name()
	hub, there := in.HubRoutes[name]
	states, through, hosts, unknown := r.attach(in.HTTP, key, hub.Addresses, used)
	switch served := slices.ContainsFunc(states, func(s ParentState) bool { return s.Conditions == nil }); {
	case served:
		keep[name] = true
		wanted, why := (*v1alpha1.TenantRouteSpec)(nil), unknown
		if unknown == nil {
			wanted, why = r.wanted(in, key, once(hosts), copies)
		}
		if wanted == nil && in.HTTP.revoked(key, hub.Spec) {
			keep[name], there = false, false
		}
		write := wanted != nil && (!there || hub.Spec == nil || !same(hub.Spec, wanted))
		if write {
			out.Routes = append(out.Routes, Write[v1alpha1.TenantRouteSpec]{Name: name, UID: hub.UID, Before: hub.Spec, Spec: wanted})
		}
		text, refused := in.HTTP.Refused[key]
		verdict, known := hub.verdict(there, text, refused, why)
		out.count(key.Kind, func(n *Counts) { n.add(verdict, known) })
		if known && (why != nil || refused || wanted != nil && !write) { // and of what the route says now
			said := judged(verdict, hub.Addresses, r.Generation)
			fill(states, func(ParentRef) []v1alpha1.Condition { return said })
		} else {
			waits := in.HTTP.waits(key, r)
			fill(states, func(ref ParentRef) []v1alpha1.Condition { return r.before(ref, waits) })
		}
	case len(states) > 0:
		out.count(key.Kind, func(n *Counts) { n.Refused++ })
	}
	used.note(key, states, through)
	if !sameStates(states, r.States) {
		out.HTTPStatuses = append(out.HTTPStatuses, HTTPStatus{Route: key, UID: r.UID, Version: r.Version, States: states, Others: r.Others})
	}
}

// count counts a route.
func (out *IngressOutput) count(kind v1alpha1.TenantOriginKind, add func(*Counts)) {
	if out.HTTPCounts == nil {
		out.HTTPCounts = map[v1alpha1.TenantOriginKind]Counts{}
	}
	n := out.HTTPCounts[kind]
	add(&n)
	out.HTTPCounts[kind] = n
}

// attach finds the parents that are ours, with the conditions of those that the route is not attached to, and by the
// others the listeners that it goes through and its hostnames. A Gateway that cannot be read may be attached to: unknown says why, and
// that the hub is to keep what it has.
func (r *HTTPRoute) attach(in *HTTPInput, key RouteKey, addresses []string, used *attached) (states []ParentState, through map[ParentRef][]listenerKey, hosts []string, unknown *v1alpha1.Condition) {
	through = map[ParentRef][]listenerKey{}
	for _, p := range r.Parents {
		gateway := model.Key{Namespace: cmp.Or(p.Namespace, key.Namespace), Name: p.Name}
		g := in.Gateways[gateway]
		if p.Group != GatewayGroup || p.Kind != "Gateway" || g == nil || g.Class != in.Class {
			continue // of another controller
		}
		if g.Bad != "" {
			unknown = cmp.Or(unknown, unsupported("the Gateway %s: %s", gateway, g.Bad))
			used.addresses[gateway] = append(used.addresses[gateway], addresses...)
			states = append(states, ParentState{Ref: p})
			continue
		}
		names, listeners, why := g.attach(key, gateway.Namespace, &p, r.Hostnames)
		for _, l := range listeners {
			through[p] = append(through[p], listenerKey{gateway, l})
		}
		if hosts = append(hosts, names...); len(listeners) > 0 {
			used.addresses[gateway] = append(used.addresses[gateway], addresses...)
		}
		states = append(states, ParentState{Ref: p, Conditions: refusal(why, r.Generation)})
	}
	return states, through, hosts, unknown
}

// fill gives conditions to those parents that have none.
func fill(states []ParentState, of func(ParentRef) []v1alpha1.Condition) {
	for i := range states {
		if s := &states[i]; s.Conditions == nil {
			s.Conditions = of(s.Ref)
		}
	}
}

// before is what a parent says already; without a verdict: what the route waits for.
func (r *HTTPRoute) before(ref ParentRef, waits string) []v1alpha1.Condition {
	for _, s := range r.States {
		if s.Ref == ref && (len(s.Conditions) != 1 || s.Conditions[0].Reason != reasonPending) {
			return s.Conditions
		}
	}
	return []v1alpha1.Condition{stated(v1alpha1.ConditionAccepted, v1alpha1.ConditionUnknown, reasonPending, waits, r.Generation)}
}

// attach finds the listeners that a route is attached to by a parentRef, and the hostnames that it has by them.
func (g *Gateway) attach(key RouteKey, namespace string, p *ParentRef, hosts []string) (names, through []string, why *v1alpha1.Condition) {
	why = new(no(ReasonNoParent, "the Gateway has no such listener that is accepted"))
	for i := range g.Listeners {
		l := &g.Listeners[i]
		if p.SectionName != "" && p.SectionName != l.Name || p.Port != 0 && p.Port != l.Port || l.refuses() != nil {
			continue
		}
		refusal := ""
		if l.AllowedRoutes.Namespaces.From != "All" && key.Namespace != namespace {
			refusal = "no listener allows routes of the namespace " + key.Namespace
		} else if !slices.Contains(l.kinds(), key.Kind) {
			refusal = fmt.Sprintf("no listener allows %ss", key.Kind)
		}
		if refusal != "" {
			if why.Reason == ReasonNoParent {
				why = new(no(ReasonNotAllowed, refusal))
			}
			continue
		}
		found := len(hosts) == 0 // which is refused for the whole route
		for _, h := range hosts {
			if name := intersection(h, l.Hostname); name != "" {
				names, found = append(names, name), true
			}
		}
		if found {
			through = append(through, l.Name)
		} else {
			why = new(no(ReasonNoHostname, "no listener has a hostname of the route"))
		}
	}
	if len(through) > 0 {
		why = nil
	}
	return names, through, why
}

// intersection is what a hostname of a route and that of a listener have in common; empty: nothing.
func intersection(host, listener string) string {
	within := func(host, wild string) bool {
		suffix, is := strings.CutPrefix(wild, "*")
		return is && strings.HasSuffix(host, suffix)
	}
	switch {
	case listener == "" || host == listener || within(host, listener):
		return host
	case within(listener, host):
		return listener
	}
	return ""
}

// kinds are those of the routes that a listener takes.
func (l *Listener) kinds() (kinds []v1alpha1.TenantOriginKind) {
	if len(l.AllowedRoutes.Kinds) == 0 {
		return GatewayKinds
	}
	for _, k := range l.AllowedRoutes.Kinds {
		kind := v1alpha1.TenantOriginKind(k.Kind)
		if slices.Contains(GatewayKinds, kind) && !slices.Contains(kinds, kind) && (k.Group == nil || *k.Group == GatewayGroup) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// refuses is why a listener serves no route; nil: it does.
func (l *Listener) refuses() *v1alpha1.Condition {
	switch from := l.AllowedRoutes.Namespaces.From; {
	case l.Protocol != "HTTP":
		return new(no("UnsupportedProtocol", fmt.Sprintf("the hub serves no listener of the protocol %s: it has listeners and certificates of its own, and serves routes of an HTTP listener by all of them", l.Protocol)))
	case len(l.kinds()) == 0:
		return new(no("InvalidRouteKinds", "the hub serves HTTPRoutes and GRPCRoutes alone"))
	case from != "" && from != "Same" && from != "All":
		return new(no("Invalid", fmt.Sprintf("the hub allows routes of namespaces by Same and All, and not by %s", from)))
	}
	return nil
}

// wanted is what the TenantRoute is to say; nil: that is not known yet, or cannot be said, and why.
func (r *HTTPRoute) wanted(in *IngressInput, key RouteKey, hosts []string, copies map[model.Key]*Backend) (*v1alpha1.TenantRouteSpec, *v1alpha1.Condition) {
	if r.Why != nil {
		return nil, r.Why
	}
	if len(r.Hostnames) == 0 {
		return nil, unsupported("without hostnames the route would answer for those of all tenants: name them")
	}
	http, pending := &v1alpha1.TenantHTTP{Hostnames: hosts}, false
	var bad *v1alpha1.Condition
	for i := range r.Rules {
		rule := r.Rules[i].TenantHTTPRule
		rule.Matches, rule.Backends = slices.Clone(rule.Matches), nil
		if x := rule.Redirect; x != nil {
			rule.Redirect = new(*x)
		}
		for _, ref := range r.Rules[i].Refs {
			if why := in.HTTP.refuses(key, ref.Service); why != nil { // before anything is said of what is there
				bad = cmp.Or(bad, why)
				continue
			}
			backend, why := in.backend(ref.Service, "", ref.Port, copies)
			bad = cmp.Or(bad, why)
			pending = pending || backend.NodePort == 0 || in.HTTP.hides(key, ref.Service)
			if ref.Service.Namespace != key.Namespace {
				backend.Namespace = ref.Service.Namespace
			}
			if backend.Weight = ref.Weight; key.Kind == v1alpha1.OriginGRPCRoute { // whatever its Service says
				backend.AppProtocol = v1alpha1.AppProtocolH2C
			}
			rule.Backends = append(rule.Backends, backend)
		}
		http.Rules = append(http.Rules, rule)
	}
	if bad != nil || pending {
		return nil, bad
	}
	return valid(&v1alpha1.TenantRouteSpec{
		Origin: v1alpha1.TenantOrigin{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Generation: r.Generation}, HTTP: http,
	}, key.name(), ReasonUnsupported)
}

// stated is a condition about a generation.
func stated(kind string, status v1alpha1.ConditionStatus, reason, message string, generation int64) v1alpha1.Condition {
	return v1alpha1.Condition{Type: kind, Status: status, Reason: reason, Message: clipped(message), ObservedGeneration: generation}
}

// refusal are the conditions of a parent that a route is not attached to; nil: it is.
func refusal(why *v1alpha1.Condition, generation int64) []v1alpha1.Condition {
	if why == nil {
		return nil
	}
	return []v1alpha1.Condition{stated(v1alpha1.ConditionAccepted, v1alpha1.ConditionFalse, why.Reason, why.Message, generation)}
}

// judged are the conditions that tell of a verdict. A route counts as a whole or not at all, so one that leads
// to what is not there is not accepted either.
func judged(verdict v1alpha1.Condition, addresses []string, generation int64) []v1alpha1.Condition {
	const yes, not = v1alpha1.ConditionTrue, v1alpha1.ConditionFalse
	accepted := stated(v1alpha1.ConditionAccepted, yes, v1alpha1.ConditionAccepted, "the hub accepts the route", generation)
	resolved := stated(conditionResolved, yes, conditionResolved, "", generation)
	programmed := stated(ConditionRouteProgrammed, yes, conditionProgrammed, "clients connect to "+strings.Join(addresses, ", "), generation)
	reason := verdict.Reason
	if reason == ReasonNoService {
		reason = reasonNoBackend
	}
	switch {
	case waits(verdict), verdict.Reason == string(tenants.ReasonNotRead) && len(addresses) > 0: // what it was is served still
		programmed = stated(ConditionRouteProgrammed, not, reason, verdict.Message, generation)
	case verdict.Status != yes:
		accepted = stated(v1alpha1.ConditionAccepted, not, reason, verdict.Message, generation)
		programmed = stated(ConditionRouteProgrammed, not, v1alpha1.ReasonNotAccepted, "see the condition Accepted", generation)
		if slices.Contains([]string{reasonNoBackend, ReasonNoSelector, ReasonInvalidKind, ReasonNotPermitted}, reason) {
			resolved = stated(conditionResolved, not, reason, verdict.Message, generation)
		}
	}
	return []v1alpha1.Condition{accepted, resolved, programmed}
}

// sameConditions tells whether conditions say the same, whenever they began to.
func sameConditions(a, b []v1alpha1.Condition) bool {
	return slices.EqualFunc(a, b, func(a, b v1alpha1.Condition) bool { return alike(a, b) && a.ObservedGeneration == b.ObservedGeneration })
}

func (s ParentState) like(has ParentState) bool {
	return s.Ref == has.Ref && sameConditions(s.Conditions, has.Conditions)
}

// sameStates tells whether two lists, each with a parent once, say the same in whatever order: that of the list in
// the status is of all its writers.
func sameStates(a, b []ParentState) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(s ParentState) bool { return !slices.ContainsFunc(b, s.like) })
}
