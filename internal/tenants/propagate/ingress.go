package propagate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// The reasons why an Ingress, or a change of it, does not reach the hub.
const (
	ReasonInvalidIngress = "InvalidIngress"
	ReasonNotSupported   = "NotSupported"
	ReasonNoService      = "ServiceNotFound"
	ReasonNoSelector     = "NoSelector"
)

// IngressInput is all that a decision about Ingresses may look at. Both clusters have been read.
type IngressInput struct {
	// Class is the IngressClass whose Ingresses are propagated.
	Class     string
	Ingresses map[model.Key]*Ingress
	// Backends are all Services of the cluster.
	Backends map[model.Key]*Backend
	// HubRoutes are all TenantRoutes in the namespace of the hub, by name.
	HubRoutes map[string]HubRoute
	// Refused is why the API server of the hub did not take what an Ingress became.
	Refused map[model.Key]string
	// Told is the reason that people were told of last, by the Ingress.
	Told map[model.Key]string
	// HTTP is what there is of routes of Gateways; nil: they are not propagated.
	HTTP *HTTPInput
	// Unread are the kinds of which not all is known: what the hub has of them stays, and so do copies. Lacking are those
	// of them that the cluster has not: no route of them needs a copy but what the hub has.
	Unread, Lacking map[v1alpha1.TenantOriginKind]bool
	// Secrets are those of SecretsOf, Written the copies that this process has written in the hub, and
	// RefusedSecrets why its API server did not take one.
	Secrets        map[model.Key]*Secret
	Written        map[string]bool
	RefusedSecrets map[string]string
}

// Ingress is what counts of an Ingress.
type Ingress struct {
	UID         string
	Generation  int64
	Class       string
	Annotations map[string]string
	// Default: it has a backend for whatever no rule is for.
	Default bool
	Rules   []IngressRule
	TLS     []v1alpha1.TenantTLS
	// Addresses are those of its status: IP addresses, or hostnames.
	Addresses []string
}

// IngressRule is one of its rules.
type IngressRule struct {
	Host  string
	Paths []IngressPath
}

// IngressPath is a path, and the port of a Service by name or number; without a Service: another resource.
type IngressPath struct {
	Path, Type, Service, PortName string
	Port                          int32
}

// Backend is what counts of a Service.
type Backend struct {
	UID, Type string
	// Local is externalTrafficPolicy Local.
	Local    bool
	Selector map[string]string
	Ports    []BackendPort
	// Family is the only one of the Service; empty: it has both.
	Family v1alpha1.AddressFamily
	// First is the first family of a Service that is there, which stays as long as the Service does.
	First v1alpha1.AddressFamily
	// Copy: it was made by the agent.
	Copy bool
}

// BackendPort is one of its ports. TargetPort is a name or a number, as text.
type BackendPort struct {
	Name, Protocol, TargetPort, AppProtocol string
	Port, NodePort                          int32
}

// HubRoute is a TenantRoute as it is in the hub.
type HubRoute struct {
	UID        string
	Generation int64
	// Spec is nil if the object cannot be read.
	Spec       *v1alpha1.TenantRouteSpec
	Addresses  []string
	Conditions []v1alpha1.Condition
}

// IngressOutput is what is to be written. Each list is sorted by name.
type IngressOutput struct {
	Routes   []Write[v1alpha1.TenantRouteSpec]
	Copies   []Copy
	Statuses []IngressStatus
	Events   []IngressEvent
	// Secrets are to be made.
	Secrets []SecretCopy
	// Counts are the Ingresses that are propagated, each once.
	Counts Counts
	// The rest is of routes of Gateways.
	Gateways     []GatewayWrite
	HTTPStatuses []HTTPStatus
	HTTPCounts   map[v1alpha1.TenantOriginKind]Counts
}

// Copy makes, changes or deletes a Service of type NodePort beside one that has no NodePort for all nodes.
type Copy struct {
	model.Key
	// UID is that of the Service that is there.
	UID string
	// Backend is what it is to be; nil: it is to be deleted.
	Backend *Backend
}

// IngressStatus is what the status of an Ingress is to have.
type IngressStatus struct {
	Ingress   model.Key
	UID       string
	Addresses []string
}

// IngressEvent is what people are told of an Ingress.
type IngressEvent struct {
	Ingress model.Key
	UID     string
	// Why is the reason that is in Told from then on.
	Why string
	Event
}

// StepIngresses decides. What cannot be propagated as it is written leaves what the hub has.
func StepIngresses(in *IngressInput) IngressOutput {
	var out IngressOutput
	keep, copies, secrets := map[string]bool{}, map[model.Key]*Backend{}, in.copies()
	for _, key := range slices.SortedFunc(maps.Keys(in.Ingresses), model.Key.Compare) {
		i := in.Ingresses[key]
		name := tenants.IngressName(key.Namespace, key.Name)
		hub, there := in.HubRoutes[name]
		if i.Class == in.Class {
			keep[name] = true
			out.ingress(in, key, i, copies, secrets)
		} else if shows := len(hub.Addresses) > 0 && slices.Equal(hub.Addresses, i.Addresses); there && shows {
			keep[name] = true // without it nobody could tell whose the address is
			out.Statuses = append(out.Statuses, IngressStatus{Ingress: key, UID: i.UID})
		}
	}
	if in.HTTP != nil {
		out.httpRoutes(in, keep, copies)
	}
	for _, name := range slices.Sorted(maps.Keys(in.HubRoutes)) {
		if h := in.HubRoutes[name]; !keep[name] && !in.Unread[KindOf(name)] {
			out.Routes = append(out.Routes, Write[v1alpha1.TenantRouteSpec]{Name: name, UID: h.UID, Before: h.Spec})
		}
	}
	in.keep(copies)
	hidden := slices.ContainsFunc(slices.Collect(maps.Keys(in.Unread)), in.hidden)
	for key, b := range in.Backends {
		if wanted := copies[key]; b.Copy && wanted == nil && !hidden {
			out.Copies = append(out.Copies, Copy{Key: key, UID: b.UID})
		}
	}
	for key, wanted := range copies {
		has := in.Backends[key]
		if has == nil {
			out.Copies = append(out.Copies, Copy{Key: key, Backend: wanted})
		} else if has.Copy && !wanted.like(has) {
			if wanted.Family != "" && has.First != "" && has.First != wanted.Family {
				wanted = nil // it is made anew
			}
			out.Copies = append(out.Copies, Copy{Key: key, UID: has.UID, Backend: wanted})
		}
	}
	slices.SortFunc(out.Copies, func(a, b Copy) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(out.Routes, func(a, b Write[v1alpha1.TenantRouteSpec]) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// hidden tells whether there may be routes of a kind that are not known.
func (in *IngressInput) hidden(kind v1alpha1.TenantOriginKind) bool {
	return in.Unread[kind] && !in.Lacking[kind]
}

// KindOf is what a TenantRoute of the name is of.
func KindOf(name string) v1alpha1.TenantOriginKind {
	for _, kind := range GatewayKinds {
		if strings.HasPrefix(name, strings.ToLower(string(kind))+".") {
			return kind
		}
	}
	return v1alpha1.OriginIngress
}

// verdict is what is to be said of a route; false: the hub has not judged yet what it has. text is why its API
// server does not take the route, if it is refused, and why what keeps the route from being offered to it.
func (h *HubRoute) verdict(there bool, text string, refused bool, why *v1alpha1.Condition) (v1alpha1.Condition, bool) {
	verdict, known := told(&HubService{Generation: h.Generation, Addresses: h.Addresses, Conditions: h.Conditions})
	if refused {
		verdict, known = no(ReasonHubRefused, text), true
	}
	if why != nil {
		verdict, known = *why, true
		if there {
			verdict.Message += "; until it is put right, the hub keeps what it has"
		}
	}
	return verdict, known
}

// add counts one of which that is said.
func (c *Counts) add(verdict v1alpha1.Condition, known bool) {
	switch {
	case known && verdict.Status == v1alpha1.ConditionTrue:
		c.Served++
	case known && !waits(verdict):
		c.Refused++
	default:
		c.Waiting++
	}
}

// ingress decides about one that is ours.
func (out *IngressOutput) ingress(in *IngressInput, key model.Key, i *Ingress, copies map[model.Key]*Backend, secrets map[string]bool) {
	name := tenants.IngressName(key.Namespace, key.Name)
	hub, there := in.HubRoutes[name]
	wanted, why := i.wanted(in, key, copies)
	var lacks *v1alpha1.Condition
	if wanted != nil {
		lacks = out.secrets(in, key, wanted, hub.Spec, secrets)
	}
	if wanted != nil && (!there || hub.Spec == nil || !same(hub.Spec, wanted)) {
		out.Routes = append(out.Routes, Write[v1alpha1.TenantRouteSpec]{Name: name, UID: hub.UID, Before: hub.Spec, Spec: wanted})
	}
	text, refused := in.Refused[key]
	verdict, known := hub.verdict(there, text, refused, why)
	heard := known
	if lacks != nil && (!known || verdict.Status == v1alpha1.ConditionTrue) { // it is served all the same
		verdict, known = *lacks, true
	}
	out.Counts.add(verdict, known)
	good := verdict.Status == v1alpha1.ConditionTrue
	if known && !waits(verdict) && in.Told[key] != verdict.Reason && (!good || in.Told[key] != "") {
		e := Event{Reason: eventRefused, Message: clipped(verdict.Reason + ": " + verdict.Message), Warning: true}
		if good {
			e = Event{Reason: eventAccepted, Message: clipped("the hub serves the Ingress: " + strings.Join(hub.Addresses, ", "))}
		}
		out.Events = append(out.Events, IngressEvent{Ingress: key, UID: i.UID, Why: verdict.Reason, Event: e})
	}
	// What the hub has not said yet changes nothing, nor does an API server that takes nothing.
	if (heard || there && len(hub.Conditions) > 0) && !refused && !slices.Equal(i.Addresses, hub.Addresses) {
		out.Statuses = append(out.Statuses, IngressStatus{Ingress: key, UID: i.UID, Addresses: hub.Addresses})
	}
}

// wanted is what the TenantRoute is to say; nil: that is not known yet, or cannot be said, and why. The
// copies that it needs are added.
func (i *Ingress) wanted(in *IngressInput, key model.Key, copies map[model.Key]*Backend) (*v1alpha1.TenantRouteSpec, *v1alpha1.Condition) {
	spec := &v1alpha1.TenantRouteSpec{
		Origin: v1alpha1.TenantOrigin{Kind: v1alpha1.OriginIngress, Namespace: key.Namespace, Name: key.Name, Generation: i.Generation}, TLS: i.TLS,
	}
	for k, v := range i.Annotations {
		if !RelevantOfIngress(k) {
			continue
		}
		if spec.Annotations == nil {
			spec.Annotations = map[string]string{}
		}
		spec.Annotations[k] = v
	}
	if i.Default {
		return nil, new(no(ReasonNotSupported, "spec.defaultBackend would answer for the hostnames of all tenants: use rules with a host"))
	}
	pending, bad := false, (*v1alpha1.Condition)(nil)
	for _, r := range i.Rules {
		rule := v1alpha1.TenantRule{Host: r.Host}
		for _, p := range r.Paths {
			path, why := p.wanted(in, key.Namespace, copies)
			switch {
			case why != nil:
				bad = cmp.Or(bad, why)
			case path.NodePort == 0:
				pending = true
			default:
				rule.Paths = append(rule.Paths, path)
			}
		}
		if len(r.Paths) > 0 { // a rule for nothing leads nowhere
			spec.Rules = append(spec.Rules, rule)
		}
	}
	if bad != nil || pending {
		return nil, bad
	}
	return valid(spec, tenants.IngressName(key.Namespace, key.Name), ReasonInvalidIngress)
}

// valid is a spec with its defaults; nil: it breaks a rule, and which.
func valid(spec *v1alpha1.TenantRouteSpec, name, reason string) (*v1alpha1.TenantRouteSpec, *v1alpha1.Condition) {
	object := v1alpha1.TenantRoute{TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindTenantRoute}, Metadata: v1alpha1.ObjectMeta{Name: name}, Spec: *spec}
	object.Default()
	if errs := object.Validate(); len(errs) > 0 {
		return nil, new(no(reason, errs[0].Error()))
	}
	return &object.Spec, nil
}

// RelevantOfIngress tells whether the hub is told of an annotation of an Ingress; which of them count is
// said there.
func RelevantOfIngress(key string) bool {
	return !strings.HasPrefix(key, "kubectl.kubernetes.io/") && !strings.HasPrefix(key, "lbd.dev/") && key != "kubernetes.io/ingress.class"
}

// wanted is what the hub is told of a path. NodePort 0: that of the copy is not known yet.
func (p *IngressPath) wanted(in *IngressInput, namespace string, copies map[model.Key]*Backend) (v1alpha1.TenantPath, *v1alpha1.Condition) {
	out := v1alpha1.TenantPath{Path: cmp.Or(p.Path, "/"), Type: v1alpha1.PathPrefix, Service: p.Service}
	if p.Type == string(v1alpha1.PathExact) {
		out.Type = v1alpha1.PathExact
	}
	if p.Service == "" {
		return out, new(no(ReasonNotSupported, fmt.Sprintf("the path %s has a backend that is no Service", out.Path)))
	}
	b, why := in.backend(model.Key{Namespace: namespace, Name: p.Service}, p.PortName, p.Port, copies)
	out.NodePort, out.Family = b.NodePort, b.Family
	return out, why
}

// backend is a port of a Service, by name or number: its NodePort, if need be of a copy of it, its only family, and what is spoken
// there. Without a NodePort that is not known yet, or there can be none, and why.
func (in *IngressInput) backend(service model.Key, portName string, number int32, copies map[model.Key]*Backend) (out v1alpha1.TenantHTTPBackend, why *v1alpha1.Condition) {
	out.Service = service.Name
	b := in.Backends[service]
	if b == nil {
		return out, new(no(ReasonNoService, fmt.Sprintf("there is no Service %s", service.Name)))
	}
	at := slices.IndexFunc(b.Ports, func(x BackendPort) bool {
		return x.Protocol == string(v1alpha1.ProtocolTCP) && (portName != "" && x.Name == portName || portName == "" && x.Port == number)
	})
	if at < 0 {
		return out, new(no(ReasonNoService, fmt.Sprintf("the Service %s has no TCP port %s", service.Name, cmp.Or(portName, fmt.Sprint(number)))))
	}
	port := b.Ports[at]
	if slices.Contains([]string{v1alpha1.AppProtocolH2C, v1alpha1.AppProtocolWS}, port.AppProtocol) {
		out.AppProtocol = port.AppProtocol
	}
	if port.NodePort != 0 && !b.Local {
		out.NodePort, out.Family = port.NodePort, b.Family
		return out, nil
	}
	if len(b.Selector) == 0 || b.Type == "ExternalName" {
		return out, new(no(ReasonNoSelector, fmt.Sprintf("the Service %s has no selector, so that no NodePort can lead to its Pods", service.Name)))
	}
	name := model.Key{Namespace: service.Namespace, Name: tenants.CopyName(service.Namespace, service.Name)}
	has := in.Backends[name]
	if has != nil && !has.Copy {
		return out, new(no(ReasonNotSupported, fmt.Sprintf("the Service %s, which is to be made for %s, is there already", name.Name, service.Name)))
	}
	addPort(copies, name, b, port)
	if has != nil {
		if at := slices.IndexFunc(has.Ports, func(x BackendPort) bool { return x.Port == port.Port && x.Protocol == port.Protocol }); at >= 0 {
			out.NodePort, out.Family = has.Ports[at].NodePort, has.Family
		}
	}
	return out, nil
}

// keep adds to the copies what the hub leads to: another Service may get a NodePort that is freed, and with
// it the requests of the hostname.
func (in *IngressInput) keep(copies map[model.Key]*Backend) {
	for _, h := range in.HubRoutes {
		if h.Spec == nil {
			continue
		}
		for backend := range h.Spec.Backends() {
			namespace := cmp.Or(backend.Namespace, h.Spec.Origin.Namespace)
			name := model.Key{Namespace: namespace, Name: tenants.CopyName(namespace, backend.Service)}
			has := in.Backends[name]
			if has == nil || !has.Copy {
				continue
			}
			at := slices.IndexFunc(has.Ports, func(x BackendPort) bool { return x.NodePort == backend.NodePort })
			if at < 0 {
				continue
			}
			of := has
			if b := in.Backends[model.Key{Namespace: namespace, Name: backend.Service}]; b != nil && len(b.Selector) > 0 && b.Type != "ExternalName" {
				of = b
			}
			addPort(copies, name, of, has.Ports[at])
		}
	}
}

// addPort adds a port to a copy of a Service that does not have it. Its name is of its number: in the Service, a port that
// is kept and the one after it may have one name.
func addPort(copies map[model.Key]*Backend, name model.Key, of *Backend, port BackendPort) {
	wanted := copies[name]
	if wanted == nil {
		wanted = &Backend{Type: "NodePort", Selector: of.Selector, Family: of.Family, Copy: true}
		copies[name] = wanted
	}
	if slices.ContainsFunc(wanted.Ports, func(x BackendPort) bool { return x.Port == port.Port }) {
		return
	}
	port.Name, port.NodePort, port.AppProtocol = fmt.Sprintf("port-%d", port.Port), 0, ""
	wanted.Ports = append(wanted.Ports, port)
	slices.SortFunc(wanted.Ports, func(a, b BackendPort) int { return cmp.Compare(a.Port, b.Port) })
}

// like tells whether a copy is as it is to be.
func (b *Backend) like(has *Backend) bool {
	return has.Type == b.Type && has.Family == b.Family && !has.Local && maps.Equal(has.Selector, b.Selector) && slices.EqualFunc(b.Ports, has.Ports, func(x, y BackendPort) bool {
		y.NodePort = 0
		return x == y
	})
}
