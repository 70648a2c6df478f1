package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/tenants/propagate"
)

// IngressClass is the class of the Ingresses that a hub serves.
const IngressClass = "lbd"

// kindIngress is that of events and writes.
const kindIngress = "Ingress"

// What marks a Service of type NodePort that was made here.
const (
	copyLabel  = "app.kubernetes.io/managed-by"
	copyPrefix = "lbd-"
)

var (
	ingresses   = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
	serviceKind = schema.GroupVersionResource{Version: "v1", Resource: "services"}
)

// ingressPart is what an Agent has that propagates Ingresses or routes of Gateways.
type ingressPart struct {
	ingresses *k8s.Watch[*propagate.Ingress] // nil without
	gateway   *gatewayPart                   // nil without
	backends  *k8s.Watch[*propagate.Backend]
	hubRoutes *k8s.Watch[propagate.HubRoute]
}

func newIngressPart(a *Agent) *ingressPart {
	changed := func([]model.Key) { a.wake() }
	p := &ingressPart{
		backends: k8s.NewWatch(k8s.WatchOptions[*propagate.Backend]{
			Name: "all services", ListWatch: ofTenant(a.o.Tenant.Core, "services", ""), Object: &corev1.Service{},
			Convert: convertBackend, Same: same[*propagate.Backend], Changed: changed,
		}),
		hubRoutes: watchHub(a, v1alpha1.KindTenantRoute, convertHubRoute),
	}
	if a.o.Ingress {
		p.ingresses = k8s.NewWatch(k8s.WatchOptions[*propagate.Ingress]{
			Name: "ingresses", ListWatch: k8s.ListWatch(a.o.Tenant.Dynamic, a.o.Tenant.Dynamic.Resource(ingresses)), Object: &unstructured.Unstructured{},
			Convert: convertIngress, Same: same[*propagate.Ingress], Changed: changed,
		})
	}
	if a.o.Gateway {
		p.gateway = newGatewayPart(a)
	}
	return p
}

// kinds are the watches of each kind that is propagated, but for those that all need.
func (p *ingressPart) kinds() map[v1alpha1.TenantOriginKind][]kindWatch {
	all := map[v1alpha1.TenantOriginKind][]kindWatch{}
	if p != nil && p.ingresses != nil {
		all[v1alpha1.OriginIngress] = []kindWatch{p.ingresses}
	}
	if p != nil && p.gateway != nil {
		for kind, w := range p.gateway.routes {
			all[kind] = []kindWatch{p.gateway.classes, p.gateway.gateways, w}
		}
	}
	return all
}

func (p *ingressPart) watches() (list []kindWatch) {
	if p == nil {
		return nil
	}
	for _, of := range p.kinds() {
		for _, w := range of {
			if !slices.Contains(list, w) {
				list = append(list, w)
			}
		}
	}
	if p.gateway != nil {
		list = append(list, p.gateway.grants)
	}
	return append(list, p.backends, p.hubRoutes)
}

// unread are the kinds about which nothing may be decided, and why: something has not been watched for as long.
// There may be routes, or Ingresses, that are not known, or Gateways that are of another controller. ReferenceGrants, of
// which routes to other namespaces are all that needs them, are a kind among them.
func (p *ingressPart) unread(after time.Duration) map[v1alpha1.TenantOriginKind]error {
	all := map[v1alpha1.TenantOriginKind]error{}
	check := func(kind v1alpha1.TenantOriginKind, list ...kindWatch) {
		for _, w := range list {
			s, since := w.State(), time.Duration(0)
			if !s.Since.IsZero() {
				since = time.Since(s.Since)
			}
			if (!w.Synced() || !s.Connected) && since >= after {
				all[kind] = cmp.Or(s.Err, errors.New(w.Name()+": not read yet"))
				break
			}
		}
	}
	for kind, list := range p.kinds() {
		check(kind, append(list, p.backends, p.hubRoutes)...)
	}
	if p != nil && p.gateway != nil {
		check(kindGrant, p.gateway.grants)
	}
	if p != nil && p.gateway.classLacks() {
		for kind := range p.gateway.routes {
			if all[kind] == nil {
				all[kind] = errClass
			}
		}
	}
	return all
}

// maskOf are kinds as bits, each with another one for a kind that the cluster has not.
func maskOf(kinds map[v1alpha1.TenantOriginKind]error) (mask int32) {
	for i, kind := range unreadKinds {
		if kinds[kind] != nil {
			mask |= 1 << i
		}
		if apierrors.IsNotFound(kinds[kind]) {
			mask |= 1 << (i + len(unreadKinds))
		}
	}
	return mask
}

var unreadKinds = append([]v1alpha1.TenantOriginKind{v1alpha1.OriginIngress, kindGrant}, propagate.GatewayKinds...)

// port is one of a backend of an Ingress.
type port struct {
	Name   string `json:"name"`
	Number int32  `json:"number"`
}

// ingress is what is read of one. Its own types would bring a whole group of Kubernetes.
type ingress struct {
	Spec struct {
		IngressClassName string           `json:"ingressClassName"`
		DefaultBackend   *json.RawMessage `json:"defaultBackend"`
		TLS              []struct {
			Hosts      []string `json:"hosts"`
			SecretName string   `json:"secretName"`
		} `json:"tls"`
		Rules []struct {
			Host string `json:"host"`
			HTTP struct {
				Paths []struct {
					Path     string `json:"path"`
					PathType string `json:"pathType"`
					Backend  struct {
						Service struct {
							Name string `json:"name"`
							Port port   `json:"port"`
						} `json:"service"`
					} `json:"backend"`
				} `json:"paths"`
			} `json:"http"`
		} `json:"rules"`
	} `json:"spec"`
	Status struct {
		LoadBalancer struct {
			Ingress []struct {
				IP       string `json:"ip"`
				Hostname string `json:"hostname"`
			} `json:"ingress"`
		} `json:"loadBalancer"`
	} `json:"status"`
}

// convertIngress keeps of an Ingress what counts.
func convertIngress(obj runtime.Object) (*propagate.Ingress, bool) {
	var o ingress
	u, readable := readHub(obj, &o)
	if u == nil || !readable {
		return nil, false
	}
	i := &propagate.Ingress{UID: string(u.GetUID()), Generation: u.GetGeneration(), Class: o.Spec.IngressClassName, Default: o.Spec.DefaultBackend != nil}
	for k, v := range u.GetAnnotations() {
		if propagate.RelevantOfIngress(k) && i.Class == IngressClass {
			if i.Annotations == nil {
				i.Annotations = map[string]string{}
			}
			i.Annotations[k] = v
		}
	}
	for _, t := range o.Spec.TLS {
		i.TLS = append(i.TLS, v1alpha1.TenantTLS{Hosts: t.Hosts, Secret: t.SecretName})
	}
	for _, r := range o.Spec.Rules {
		rule := propagate.IngressRule{Host: r.Host}
		for _, p := range r.HTTP.Paths {
			s := p.Backend.Service
			rule.Paths = append(rule.Paths, propagate.IngressPath{Path: p.Path, Type: p.PathType, Service: s.Name, PortName: s.Port.Name, Port: s.Port.Number})
		}
		i.Rules = append(i.Rules, rule)
	}
	for _, x := range o.Status.LoadBalancer.Ingress {
		i.Addresses = append(i.Addresses, cmp.Or(x.IP, x.Hostname))
	}
	return i, true
}

// convertBackend keeps of a Service what an Ingress needs of it.
func convertBackend(obj runtime.Object) (*propagate.Backend, bool) {
	o, ok := obj.(*corev1.Service)
	if !ok {
		return nil, false
	}
	b := &propagate.Backend{
		UID: string(o.UID), Type: string(o.Spec.Type), Local: o.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal, Selector: o.Spec.Selector,
		Copy: o.Labels[copyLabel] == Manager && strings.HasPrefix(o.Name, copyPrefix),
	}
	if n := len(o.Spec.IPFamilies); n > 0 {
		b.First = familyOf(o.Spec.IPFamilies[0])
		if n == 1 {
			b.Family = b.First
		}
	}
	for _, p := range o.Spec.Ports {
		port := propagate.BackendPort{Name: p.Name, Protocol: string(p.Protocol), TargetPort: p.TargetPort.String(), Port: p.Port, NodePort: p.NodePort}
		if p.AppProtocol != nil {
			port.AppProtocol = *p.AppProtocol
		}
		b.Ports = append(b.Ports, port)
	}
	slices.SortFunc(b.Ports, func(x, y propagate.BackendPort) int { return cmp.Compare(x.Port, y.Port) })
	return b, true
}

func convertHubRoute(obj runtime.Object) (propagate.HubRoute, bool) {
	var r v1alpha1.TenantRoute
	u, readable := readHub(obj, &r)
	if u == nil {
		return propagate.HubRoute{}, false
	}
	h := propagate.HubRoute{UID: string(u.GetUID()), Generation: u.GetGeneration()}
	if readable {
		r.Default()
		h.Spec = &r.Spec
		if r.Status != nil {
			h.Conditions, h.Addresses = r.Status.Conditions, r.Status.Addresses
		}
	}
	return h, true
}

// ofRoute tells whether the id of a job is that of a TenantRoute.
func ofRoute(id string) bool { return strings.HasPrefix(id, v1alpha1.KindTenantRoute+"/") }

// ingressJobs are the writes of a decision about Ingresses.
func (l *loop) ingressJobs(ctx context.Context) []*job {
	p := l.a.ingress
	if p == nil {
		return nil
	}
	unread := p.unread(0)
	l.a.waiting.Store(maskOf(unread))
	grants := unread[kindGrant]
	if delete(unread, kindGrant); len(unread) == len(p.kinds()) {
		return nil
	}
	in := &propagate.IngressInput{
		Class: IngressClass, Backends: p.backends.All(), HubRoutes: map[string]propagate.HubRoute{},
		Refused: map[model.Key]string{}, Told: l.told, Unread: map[v1alpha1.TenantOriginKind]bool{}, Lacking: map[v1alpha1.TenantOriginKind]bool{},
		Written: l.secrets.written, RefusedSecrets: l.refusedSecrets(),
	}
	for kind, err := range unread {
		in.Unread[kind], in.Lacking[kind] = true, apierrors.IsNotFound(err)
	}
	if p.ingresses != nil && unread[v1alpha1.OriginIngress] == nil {
		in.Ingresses = p.ingresses.All()
		l.secrets.follow(ctx, in.Ingresses)
		in.Secrets = l.secrets.read()
	}
	p.gateway.input(in, grants)
	for k, r := range p.hubRoutes.All() {
		in.HubRoutes[k.Name] = r
	}
	for id, x := range l.past {
		name, is := strings.CutPrefix(id, v1alpha1.KindTenantRoute+"/")
		if !is || x.refuses == (model.Key{}) {
			continue
		}
		if kind := propagate.KindOf(name); kind == v1alpha1.OriginIngress {
			in.Refused[x.refuses] = x.err.Error()
		} else if in.HTTP != nil {
			in.HTTP.Refused[propagate.RouteKey{Kind: kind, Key: x.refuses}] = x.err.Error()
		}
	}
	out := propagate.StepIngresses(in)
	l.a.noteRoutes(out.Counts, out.HTTPCounts)
	l.tellIngresses(in, out.Events)
	byName, jobs := namesOf(in), []*job(nil)
	if in.HTTP != nil {
		jobs = p.gateway.jobs(l, &out)
	}
	for _, c := range out.Copies {
		jobs = append(jobs, l.copyJob(c))
	}
	for _, c := range out.Secrets {
		jobs = append(jobs, l.secretJob(c, in.Secrets[c.Secret]))
	}
	for _, w := range out.Routes {
		jobs = append(jobs, hubJob(l, v1alpha1.KindTenantRoute, w, servicePause, byName[w.Name]))
	}
	for i := range out.Statuses {
		jobs = append(jobs, l.ingressStatusJob(&out.Statuses[i]))
	}
	return jobs
}

// namesOf are the Ingresses and other routes by the names of their TenantRoutes.
func namesOf(in *propagate.IngressInput) map[string]model.Key {
	byName := make(map[string]model.Key, len(in.Ingresses))
	for k := range in.Ingresses {
		byName[tenants.IngressName(k.Namespace, k.Name)] = k
	}
	if in.HTTP != nil {
		for k := range in.HTTP.Routes {
			byName[tenants.RouteName(string(k.Kind), k.Namespace, k.Name)] = k.Key
		}
	}
	return byName
}

// tellIngresses sends the events of Ingresses.
func (l *loop) tellIngresses(in *propagate.IngressInput, events []propagate.IngressEvent) {
	maps.DeleteFunc(l.told, func(k model.Key, _ string) bool { return in.Ingresses[k] == nil && !in.Unread[v1alpha1.OriginIngress] })
	for _, e := range events {
		l.told[e.Ingress] = e.Why
		of := corev1.ObjectReference{APIVersion: "networking.k8s.io/v1", Kind: kindIngress, Namespace: e.Ingress.Namespace, Name: e.Ingress.Name, UID: types.UID(e.UID)}
		l.a.events.Send(objects.Event{Of: of, Reason: e.Reason, Message: e.Message, Warning: e.Warning})
	}
}

// copyJob writes or deletes a Service of type NodePort.
func (l *loop) copyJob(c propagate.Copy) *job {
	r := l.a.o.Tenant.Dynamic.Resource(serviceKind).Namespace(c.Namespace)
	j := &job{id: "Copy/" + c.Key.String(), side: SideTenant, what: services.KindService, pause: servicePause}
	if c.Backend == nil {
		j.body = "delete " + c.UID
		j.run = func(ctx context.Context) error {
			return gone(r.Delete(ctx, c.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID(c.UID))}}))
		}
		return j
	}
	var ports []any
	for _, p := range c.Backend.Ports {
		var target any = p.TargetPort
		if n, err := strconv.ParseInt(p.TargetPort, 10, 32); err == nil {
			target = n
		}
		x := map[string]any{"protocol": p.Protocol, "port": p.Port, "targetPort": target}
		if p.Name != "" {
			x["name"] = p.Name
		}
		ports = append(ports, x)
	}
	spec := map[string]any{"type": c.Backend.Type, "ipFamilyPolicy": corev1.IPFamilyPolicyPreferDualStack, "externalTrafficPolicy": "Cluster", "selector": c.Backend.Selector, "ports": ports}
	for _, f := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if c.Backend.Family == familyOf(f) {
			spec["ipFamilyPolicy"], spec["ipFamilies"] = corev1.IPFamilyPolicySingleStack, []any{f}
		}
	}
	metadata := map[string]any{"namespace": c.Namespace, "name": c.Name, "labels": map[string]any{copyLabel: Manager}}
	if c.UID != "" {
		metadata["uid"] = c.UID
	}
	j.body = text(map[string]any{
		"apiVersion": "v1", "kind": services.KindService, "metadata": metadata, "spec": spec,
	})
	j.run = func(ctx context.Context) error {
		// What is to be made is not forced onto a Service of somebody else that the watch is about to tell.
		_, err := r.Patch(ctx, c.Name, types.ApplyPatchType, []byte(j.body), metav1.PatchOptions{FieldManager: Manager, Force: new(c.UID != "")})
		if c.UID != "" {
			return gone(err)
		}
		return err
	}
	return j
}

// ingressStatusJob writes the addresses of one Ingress. A UID that is not that of the Ingress makes it fail.
func (l *loop) ingressStatusJob(s *propagate.IngressStatus) *job {
	var list []any // null, if there are none
	for _, a := range s.Addresses {
		key := "hostname"
		if _, err := netip.ParseAddr(a); err == nil {
			key = "ip"
		}
		list = append(list, map[string]any{key: a})
	}
	body := text(map[string]any{"metadata": map[string]any{"uid": s.UID}, "status": map[string]any{"loadBalancer": map[string]any{"ingress": list}}})
	j := &job{id: kindIngress + "/" + s.Ingress.String(), side: SideTenant, what: kindIngress, body: body, pause: servicePause}
	j.run = func(ctx context.Context) error {
		_, err := l.a.o.Tenant.Dynamic.Resource(ingresses).Namespace(s.Ingress.Namespace).
			Patch(ctx, s.Ingress.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: Manager}, "status")
		return gone(err)
	}
	return j
}
