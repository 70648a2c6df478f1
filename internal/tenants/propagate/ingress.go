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
	// Copy: it was made by the agent.
	Copy bool
}

// BackendPort is one of its ports. TargetPort is a name or a number, as text.
type BackendPort struct {
	Name, Protocol, TargetPort string
	Port, NodePort             int32
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
	for _, name := range slices.Sorted(maps.Keys(in.HubRoutes)) {
		if h := in.HubRoutes[name]; !keep[name] {
			out.Routes = append(out.Routes, Write[v1alpha1.TenantRouteSpec]{Name: name, UID: h.UID, Before: h.Spec})
		}
	}
	in.keep(copies)
	for key, b := range in.Backends {
		if wanted := copies[key]; b.Copy && wanted == nil {
			out.Copies = append(out.Copies, Copy{Key: key, UID: b.UID})
		}
	}
	for key, wanted := range copies {
		has := in.Backends[key]
		if has == nil {
			out.Copies = append(out.Copies, Copy{Key: key, Backend: wanted})
		} else if has.Copy && !wanted.like(has) {
			out.Copies = append(out.Copies, Copy{Key: key, UID: has.UID, Backend: wanted})
		}
	}
	slices.SortFunc(out.Copies, func(a, b Copy) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(out.Routes, func(a, b Write[v1alpha1.TenantRouteSpec]) int { return cmp.Compare(a.Name, b.Name) })
	return out
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
	verdict, known := told(&HubService{Generation: hub.Generation, Addresses: hub.Addresses, Conditions: hub.Conditions})
	if text, refused := in.Refused[key]; refused {
		verdict, known = no(ReasonHubRefused, text), true
	}
	if why != nil {
		verdict, known = *why, true
		if there {
			verdict.Message += "; until it is put right, the hub keeps what it has"
		}
	}
	heard := known
	if lacks != nil && (!known || verdict.Status == v1alpha1.ConditionTrue) { // it is served all the same
		verdict, known = *lacks, true
	}
	good := verdict.Status == v1alpha1.ConditionTrue
	switch {
	case known && good:
		out.Counts.Served++
	case known && !waits(verdict):
		out.Counts.Refused++
	default:
		out.Counts.Waiting++
	}
	if known && !waits(verdict) && in.Told[key] != verdict.Reason && (!good || in.Told[key] != "") {
		e := Event{Reason: eventRefused, Message: clipped(verdict.Reason + ": " + verdict.Message), Warning: true}
		if good {
			e = Event{Reason: eventAccepted, Message: clipped("the hub serves the Ingress: " + strings.Join(hub.Addresses, ", "))}
		}
		out.Events = append(out.Events, IngressEvent{Ingress: key, UID: i.UID, Why: verdict.Reason, Event: e})
	}
	// What the hub has not said yet changes nothing, nor does an API server that takes nothing.
	if _, refused := in.Refused[key]; (heard || there && len(hub.Conditions) > 0) && !refused && !slices.Equal(i.Addresses, hub.Addresses) {
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
	object := v1alpha1.TenantRoute{TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindTenantRoute},
		Metadata: v1alpha1.ObjectMeta{Name: tenants.IngressName(key.Namespace, key.Name)}, Spec: *spec}
	object.Default()
	if errs := object.Validate(); len(errs) > 0 {
		return nil, new(no(ReasonInvalidIngress, errs[0].Error()))
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
	b := in.Backends[model.Key{Namespace: namespace, Name: p.Service}]
	if b == nil {
		return out, new(no(ReasonNoService, fmt.Sprintf("there is no Service %s", p.Service)))
	}
	at := slices.IndexFunc(b.Ports, func(x BackendPort) bool {
		return x.Protocol == string(v1alpha1.ProtocolTCP) && (p.PortName != "" && x.Name == p.PortName || p.PortName == "" && x.Port == p.Port)
	})
	if at < 0 {
		return out, new(no(ReasonNoService, fmt.Sprintf("the Service %s has no TCP port %s", p.Service, cmp.Or(p.PortName, fmt.Sprint(p.Port)))))
	}
	port := b.Ports[at]
	if out.NodePort = port.NodePort; out.NodePort != 0 && !b.Local {
		return out, nil
	}
	if len(b.Selector) == 0 || b.Type == "ExternalName" {
		return out, new(no(ReasonNoSelector, fmt.Sprintf("the Service %s has no selector, so that no NodePort can lead to its Pods", p.Service)))
	}
	name := model.Key{Namespace: namespace, Name: tenants.CopyName(namespace, p.Service)}
	has := in.Backends[name]
	if has != nil && !has.Copy {
		return out, new(no(ReasonNotSupported, fmt.Sprintf("the Service %s, which is to be made for %s, is there already", name.Name, p.Service)))
	}
	addPort(copies, name, b.Selector, port)
	out.NodePort = 0
	if has != nil {
		if at := slices.IndexFunc(has.Ports, func(x BackendPort) bool { return x.Port == port.Port && x.Protocol == port.Protocol }); at >= 0 {
			out.NodePort = has.Ports[at].NodePort
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
		namespace := h.Spec.Origin.Namespace
		for _, r := range h.Spec.Rules {
			for _, p := range r.Paths {
				name := model.Key{Namespace: namespace, Name: tenants.CopyName(namespace, p.Service)}
				has := in.Backends[name]
				if has == nil || !has.Copy {
					continue
				}
				at := slices.IndexFunc(has.Ports, func(x BackendPort) bool { return x.NodePort == p.NodePort })
				if at < 0 {
					continue
				}
				selector := has.Selector
				if b := in.Backends[model.Key{Namespace: namespace, Name: p.Service}]; b != nil && len(b.Selector) > 0 {
					selector = b.Selector
				}
				addPort(copies, name, selector, has.Ports[at])
			}
		}
	}
}

// addPort adds a port to a copy that does not have it. Its name is of its number: in the Service, a port that
// is kept and the one after it may have one name.
func addPort(copies map[model.Key]*Backend, name model.Key, selector map[string]string, port BackendPort) {
	wanted := copies[name]
	if wanted == nil {
		wanted = &Backend{Type: "NodePort", Selector: selector, Copy: true}
		copies[name] = wanted
	}
	if slices.ContainsFunc(wanted.Ports, func(x BackendPort) bool { return x.Port == port.Port }) {
		return
	}
	port.Name, port.NodePort = fmt.Sprintf("port-%d", port.Port), 0
	wanted.Ports = append(wanted.Ports, port)
	slices.SortFunc(wanted.Ports, func(a, b BackendPort) int { return cmp.Compare(a.Port, b.Port) })
}

// like tells whether a copy is as it is to be.
func (b *Backend) like(has *Backend) bool {
	return has.Type == b.Type && !has.Local && maps.Equal(has.Selector, b.Selector) && slices.EqualFunc(b.Ports, has.Ports, func(x, y BackendPort) bool {
		y.NodePort = 0
		return x == y
	})
}
