package routes

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// The kinds of objects that the hub has for routes.
const (
	KindService   = "Service"
	KindSlice     = "EndpointSlice"
	KindIngress   = "Ingress"
	KindHTTPRoute = "HTTPRoute"
	KindGRPCRoute = "GRPCRoute"
)

// What marks the objects.
const (
	// Label is on all of them, with the value LabelValue, and nobody else may set it.
	Label      = "app.kubernetes.io/managed-by"
	LabelValue = "lbd-tenant-routes"
	// hashKey is the annotation with a hash of what was written: what is to go from an object is known by it.
	hashKey = "lbd.dev/written"

	labelOfSlice = "kubernetes.io/service-name"
	sliceManager = "endpointslice.kubernetes.io/managed-by"
	// maxEndpoints is how many endpoints an API server lets an EndpointSlice have.
	maxEndpoints = 1000
)

// ID names an object of the hub.
type ID struct {
	Kind string
	model.Key
}

// Object is what the hub is to have.
type Object struct {
	ID
	Body map[string]any
}

// Have is an object as the hub has it.
type Have struct {
	UID  string
	Body map[string]any
}

// Delete is an object that is not to be there. A newer one of its name is another.
type Delete struct {
	ID
	UID string
}

// serviceName is the name in the hub of the Service behind a backend of a route.
func serviceName(namespace string, r *v1alpha1.TenantRoute, b v1alpha1.TenantHTTPBackend) string {
	return tenants.HubName(namespace, KindService, cmp.Or(b.Namespace, r.Spec.Origin.Namespace), b.Service)
}

// routeID is the Ingress or other route in the hub for a route.
func routeID(namespace string, r *v1alpha1.TenantRoute) ID {
	o := &r.Spec.Origin
	return ID{string(o.Kind), model.Key{Namespace: namespace, Name: tenants.HubName(namespace, string(o.Kind), o.Namespace, o.Name)}}
}

// IDs are the objects that the hub has for a route in a namespace, but for EndpointSlices.
func IDs(namespace string, r *v1alpha1.TenantRoute) []ID {
	all := []ID{routeID(namespace, r)}
	for b := range r.Spec.Backends() {
		all = append(all, ID{KindService, model.Key{Namespace: namespace, Name: serviceName(namespace, r, b)}})
	}
	return all
}

// difference says what makes the objects of the hub those that are to be there.
func (out *Output) difference(in *Input, accepted []model.Key) {
	wanted := make(map[ID]bool)
	services := in.ports(accepted)
	other := in.unanswered(accepted)
	for _, id := range slices.SortedFunc(maps.Keys(services.ports), ID.compare) {
		c := in.Clusters[id.Namespace]
		if c.Tenant == nil { // it is as it was until its route is gone
			wanted[id] = true
			continue
		}
		list := services.of(id)
		out.want(in, wanted, id, in.service(id, list, services.kinds[id]))
		for _, family := range families(in.Have[id]) {
			answered := slices.DeleteFunc(slices.Clone(list), func(p servicePort) bool { return other[familyPort{id, p.number, family}] })
			if len(answered) > 0 {
				out.slices(in, wanted, id, family, answered, endpoints(&c, family))
			}
		}
	}
	for id, have := range in.Have {
		if id.Kind == KindSlice && in.Clusters[id.Namespace].Tenant == nil && wanted[serviceOf(id, have)] {
			wanted[id] = true
		}
	}
	for _, key := range accepted {
		r, c := in.Routes[key], in.Clusters[key.Namespace]
		switch id := routeID(key.Namespace, r.TenantRoute); {
		case id.Kind == KindIngress:
			out.want(in, wanted, id, copiesFirst(keep(in, &c, id, r, ingress(&c, key.Namespace, r, out.certificates))))
			out.Addresses[key] = addresses(in.Have[id])
		case in.Lacking[id.Kind]:
			out.Pending[key] = fmt.Sprintf("the hub has no %ss that its controller can read: it needs them in v1 of the Gateway API, and the roles of this version", id.Kind)
		case in.unmarked(id, key.Namespace, r.TenantRoute):
			out.fromGateway(in, key, in.Have[id])
		default:
			out.want(in, wanted, id, gatewayRoute(&c, key.Namespace, r))
			out.fromGateway(in, key, in.Have[id])
		}
	}
	for id, have := range in.Have {
		if !wanted[id] {
			out.Deletes = append(out.Deletes, Delete{id, have.UID})
		}
	}
	slices.SortFunc(out.Deletes, func(a, b Delete) int { return a.ID.compare(b.ID) })
}

// want has an object written that is not as it is to be.
func (out *Output) want(in *Input, wanted map[ID]bool, id ID, body map[string]any) {
	wanted[id] = true
	body = finished(id, body)
	if have, is := in.Have[id]; !is || !covers(have.Body, body) {
		out.Writes = append(out.Writes, Object{id, body})
	}
}

// slices wants the EndpointSlices of a Service by a family, one for each part of the endpoints.
func (out *Output) slices(in *Input, wanted map[ID]bool, service ID, family string, ports []servicePort, parts [][]any) {
	for i, part := range parts {
		out.want(in, wanted, sliceID(service, family, i), slice(service.Name, family, ports, part))
	}
}

func sliceID(service ID, family string, part int) ID {
	return ID{KindSlice, model.Key{Namespace: service.Namespace, Name: fmt.Sprintf("%s-%s-%d", service.Name, sliceSuffix[family], part)}}
}

// order of the kinds: what leads to another comes later.
var order = map[string]int{KindService: 0, KindSlice: 1, KindIngress: 2, KindHTTPRoute: 2, KindGRPCRoute: 2, KindSecret: 3}

func (a ID) compare(b ID) int {
	return cmp.Or(order[a.Kind]-order[b.Kind], a.Key.Compare(b.Key), cmp.Compare(a.Kind, b.Kind))
}

// service is one without a selector: its EndpointSlices are written here.
func (in *Input) service(id ID, list []servicePort, kinds map[string]bool) map[string]any {
	var ports []any
	for _, p := range list {
		o := p.object()
		o["targetPort"] = o["port"]
		ports = append(ports, o)
	}
	annotations := map[string]any{}
	for kind, mark := range marks {
		if kinds[kind] && (!in.Lacking[kind] || LedTo(id, in.Have[id], kind)) { // or it would say that there are some
			annotations[mark] = "true"
		}
	}
	body := map[string]any{"spec": map[string]any{"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack", "ports": ports}}
	if len(annotations) > 0 {
		body["metadata"] = map[string]any{"annotations": annotations}
	}
	return body
}

// families are those of a Service that is there: its engine may follow every EndpointSlice.
func families(have Have) (list []string) {
	spec, _ := have.Body["spec"].(map[string]any)
	all, _ := spec["ipFamilies"].([]any)
	for _, f := range all {
		if text, ok := f.(string); ok && sliceSuffix[text] != "" {
			list = append(list, text)
		}
	}
	return list
}

// familyPort is a port of a Service by a family of addresses.
type familyPort struct {
	service  ID
	nodePort int32
	family   string
}

// unanswered are the ports at which nodes do not answer by a family, since the Service of the tenant is of the other alone. What
// routes say against each other says nothing.
func (in *Input) unanswered(accepted []model.Key) map[familyPort]bool {
	all := make(map[familyPort]bool)
	for _, key := range accepted {
		r := in.Routes[key]
		for b := range r.Spec.Backends() {
			if b.Family == "" {
				continue
			}
			id := ID{KindService, model.Key{Namespace: key.Namespace, Name: serviceName(key.Namespace, r.TenantRoute, b)}}
			other := "IPv6"
			if b.Family == v1alpha1.FamilyIPv6 {
				other = "IPv4"
			}
			all[familyPort{id, b.NodePort, other}] = true
		}
	}
	for x := range all {
		if y := (familyPort{x.service, x.nodePort, "IPv4"}); x.family == "IPv6" && all[y] {
			delete(all, x)
			delete(all, y)
		}
	}
	return all
}

var sliceSuffix = map[string]string{"IPv4": "ipv4", "IPv6": "ipv6"}

// endpoints are the nodes of a cluster that have an address of a family, by name, in parts for an EndpointSlice each. New connections go to
// those that serve, and to the others only while none does.
func endpoints(c *tenants.Cluster, family string) [][]any {
	var list []any
	address := func(n *tenants.Node) (netip.Addr, bool) {
		i := slices.IndexFunc(n.Addrs, func(a netip.Addr) bool { return a.Is6() == (family == "IPv6") })
		if i < 0 {
			return netip.Addr{}, false
		}
		return n.Addrs[i], true
	}
	serve := slices.ContainsFunc(c.Nodes, func(n tenants.Node) bool {
		_, has := address(&n)
		return has && n.State == v1alpha1.TenantNodeServing
	})
	for i := range c.Nodes {
		n := &c.Nodes[i]
		a, has := address(n)
		if !has || serve && n.State == v1alpha1.TenantNodeOut {
			continue
		}
		ready := !serve || n.State == v1alpha1.TenantNodeServing
		list = append(list, map[string]any{"addresses": []any{a.String()}, "conditions": map[string]any{"ready": ready, "serving": true, "terminating": !ready}})
	}
	return slices.Collect(slices.Chunk(list, maxEndpoints))
}

func slice(service, family string, list []servicePort, endpoints []any) map[string]any {
	var ports []any
	for _, p := range list {
		ports = append(ports, p.object())
	}
	return map[string]any{
		"metadata":    map[string]any{"labels": map[string]any{labelOfSlice: service, sliceManager: LabelValue}},
		"addressType": family, "ports": ports, "endpoints": endpoints,
	}
}

// ingress is made of known fields. Whatever the tenant calls a Service or a Secret, here it has a name that
// nobody chose, in the namespace of the cluster.
func ingress(c *tenants.Cluster, namespace string, r *Route, certificates map[ID]bool) map[string]any {
	var rules, tls []any
	var hosts []string
	for _, rule := range r.Spec.Rules {
		var paths []any
		for _, p := range rule.Paths {
			paths = append(paths, map[string]any{"path": p.Path, "pathType": string(p.Type), "backend": map[string]any{
				"service": map[string]any{"name": serviceName(namespace, r.TenantRoute, v1alpha1.TenantHTTPBackend{Service: p.Service}), "port": map[string]any{"number": int64(p.NodePort)}}}})
		}
		rules = append(rules, map[string]any{"host": rule.Host, "http": map[string]any{"paths": paths}})
		hosts = append(hosts, rule.Host)
	}
	for _, t := range r.Spec.TLS {
		x := map[string]any{"hosts": list(t.Hosts)}
		if len(t.Hosts) == 0 {
			x["hosts"] = list(hosts)
		}
		if certificates[secretID(namespace, t.HubSecret)] {
			x["secretName"] = t.HubSecret
		} else if t.Secret != "" {
			x["secretName"] = SecretName(namespace, r.Spec.Origin.Namespace, t.Secret)
		}
		tls = append(tls, x)
	}
	spec := map[string]any{"ingressClassName": c.Tenant.Spec.IngressClass, "rules": rules}
	if len(tls) > 0 {
		spec["tls"] = tls
	}
	annotations := map[string]any{}
	for key, value := range r.Spec.Annotations {
		if allowed(key, c.Tenant.Spec.Annotations.Allow) {
			annotations[key] = value
		}
	}
	return map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": spec}
}

// copiesFirst puts the certificates that agents have written before all others of an Ingress, which need not be
// there: Traefik reads none after one that it does not find.
func copiesFirst(ingress map[string]any) map[string]any {
	spec, _ := ingress["spec"].(map[string]any)
	entries, _ := spec["tls"].([]any)
	rank := func(x any) int {
		entry, _ := x.(map[string]any)
		if name, _ := entry["secretName"].(string); strings.HasPrefix(name, v1alpha1.HubSecretPrefix) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(entries, func(a, b any) int { return rank(a) - rank(b) })
	return ingress
}

// SecretName is the name in the hub of a Secret of the tenant.
func SecretName(cluster, namespace, name string) string {
	return "s-" + tenants.HubName(cluster, "Secret", namespace, name)
}

func list(texts []string) (out []any) {
	for _, t := range sorted(texts) {
		out = append(out, t)
	}
	return out
}

// hostsOf are the hostnames of an Ingress or another route.
func hostsOf(have Have) (hosts []string) {
	spec, _ := have.Body["spec"].(map[string]any)
	add := func(list any) {
		all, _ := list.([]any)
		for _, h := range all {
			if host, _ := h.(string); host != "" {
				hosts = append(hosts, host)
			}
		}
	}
	add(spec["hostnames"])
	for _, rule := range objectsIn(spec, "rules") {
		add([]any{rule["host"]})
	}
	for _, entry := range objectsIn(spec, "tls") {
		add(entry["hosts"])
	}
	return hosts
}

// addresses are those that the engine has written.
func addresses(have Have) (out []string) {
	status, _ := have.Body["status"].(map[string]any)
	balancer, _ := status["loadBalancer"].(map[string]any)
	for _, in := range objectsIn(balancer, "ingress") {
		text, _ := in["ip"].(string)
		if text == "" {
			text, _ = in["hostname"].(string)
		}
		if text != "" && len(out) < maxAddresses {
			out = append(out, text)
		}
	}
	return out
}

// maxAddresses is how many a TenantRoute shows.
const maxAddresses = 16

// apis are the versions of the kinds.
var apis = map[string]string{KindService: "v1", KindSlice: "discovery.k8s.io/v1", KindIngress: "networking.k8s.io/v1", KindHTTPRoute: gatewayGroup + "/v1", KindGRPCRoute: gatewayGroup + "/v1"}

// finished adds what all objects have.
func finished(id ID, body map[string]any) map[string]any {
	body["apiVersion"], body["kind"] = apis[id.Kind], id.Kind
	meta, _ := body["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		body["metadata"] = meta
	}
	meta["name"], meta["namespace"] = id.Name, id.Namespace
	labels, _ := meta["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
		meta["labels"] = labels
	}
	labels[Label] = LabelValue
	data, _ := json.Marshal(body) // it has maps, lists, texts and numbers
	sum := sha256.Sum256(data)
	annotations, _ := meta["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		meta["annotations"] = annotations
	}
	annotations[hashKey] = hex.EncodeToString(sum[:8])
	return body
}

// covers tells whether an object has all of what it is to have. What the API server has added is no
// difference; what is to go shows by the hash.
func covers(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range want {
			if !covers(h[k], v) {
				return false
			}
		}
		return true
	case []any:
		h, ok := have.([]any)
		return (ok || have == nil) && len(h) == len(want) && slices.EqualFunc(h, want, covers)
	}
	return reflect.DeepEqual(have, want)
}
