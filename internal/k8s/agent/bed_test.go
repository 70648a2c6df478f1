package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
)

const (
	servicesOf = "v1/services"
	slicesOf   = "discovery.k8s.io/v1/endpointslices"
	nodesOf    = "v1/nodes"
	eventsOf   = "v1/events"
	hubNodes   = "lbd.dev/v1alpha1/tenantnodes"
	hubTSVC    = "lbd.dev/v1alpha1/tenantservices"
	namespace  = "lbd-shop-main"
)

// bed is a tenant cluster and its hub.
type bed struct {
	t           *testing.T
	tenant, hub *apitest.Server
}

func newBed(t *testing.T) *bed {
	hub := apitest.New(t, map[string]string{hubNodes: "TenantNodes", hubTSVC: "TenantService", leasesOf: "Lease"})
	b := &bed{t: t, tenant: newCluster(t, "first"), hub: hub}
	b.lease()
	return b
}

// newCluster is the API server of a tenant cluster.
func newCluster(t *testing.T, uid string) *apitest.Server {
	api := apitest.New(t, map[string]string{servicesOf: "Service", slicesOf: "EndpointSlice", nodesOf: "Node", eventsOf: "Event",
		"v1/secrets": "Secret", leasesOf: "Lease", "v1/namespaces": "Namespace"})
	api.Put("v1/namespaces", map[string]any{"metadata": map[string]any{"name": metav1.NamespaceSystem, "uid": uid}})
	return api
}

func clientOf(t *testing.T, api *apitest.Server) *k8s.Client {
	t.Helper()
	c, err := k8s.NewFor(api.Config(), k8s.Options{UserAgent: Manager, QPS: 5000, Burst: 5000})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start runs an agent, which ends with the test at the latest.
func (b *bed) start(identity string) (*Agent, func()) {
	b.t.Helper()
	a := b.agent(identity, b.hub)
	return a, b.run(a)
}

func (b *bed) agent(identity string, hub *apitest.Server) *Agent {
	b.t.Helper()
	o := Options{
		Logger: slog.New(slog.NewTextHandler(b.t.Output(), nil)).With("process", identity), Tenant: clientOf(b.t, b.tenant), Hub: clientOf(b.t, hub),
		HubNamespace: namespace, Class: "lbd.dev/hub", Namespace: "lbd-agent", LeaseName: Manager, Identity: identity,
	}
	a, err := New(o)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b *bed) run(a *Agent) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.Run(ctx); err != nil {
			b.t.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	b.t.Cleanup(stop)
	return stop
}

func (b *bed) service(name string, change ...func(*corev1.Service)) {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("lbd.dev/hub"), IPFamilies: []corev1.IPFamily{"IPv4"},
			Ports: []corev1.ServicePort{{Protocol: "TCP", Port: 80, NodePort: 30080}}},
	}
	for _, f := range change {
		f(s)
	}
	b.tenant.Put(servicesOf, s)
}

func local(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 31999
}

func (b *bed) node(name, address string, change ...func(*corev1.Node)) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	for _, f := range change {
		f(n)
	}
	b.tenant.Put(nodesOf, n)
}

// endpoints puts one EndpointSlice of a Service with one endpoint on each of the nodes.
func (b *bed) endpoints(service string, nodes ...string) {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i, n := range nodes {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.0.%d", i+1)}, NodeName: new(n)})
	}
	b.tenant.Put(slicesOf, s)
}

// spec is that of an object in the hub, as JSON; empty: there is none.
func (b *bed) spec(resource, name string) string {
	o := b.hub.Get(resource, namespace, name)
	if o == nil {
		return ""
	}
	data, _ := json.Marshal(o["spec"])
	return string(data)
}

// judge writes the status of a TenantService, as the hub's controller does.
func (b *bed) judge(name, status, reason, message string, addresses ...string) {
	b.t.Helper()
	b.eventually("the hub has "+name, func() bool { return b.spec(hubTSVC, name) != "" })
	o := b.hub.Get(hubTSVC, namespace, name)
	list := []any{}
	for _, a := range addresses {
		list = append(list, map[string]any{"address": a, "pool": "public"})
	}
	o["status"] = map[string]any{"addresses": list, "conditions": []any{map[string]any{
		"type": "Accepted", "status": status, "reason": reason, "message": message, "observedGeneration": o["metadata"].(map[string]any)["generation"],
		"lastTransitionTime": "2026-01-02T03:04:05Z"}}}
	b.hub.Put(hubTSVC, o)
}

// shown is what a Service in the tenant says: its addresses, and reason of the condition.
func (b *bed) shown(name string) string {
	data, _ := json.Marshal(b.tenant.Get(servicesOf, "default", name)["status"])
	var s corev1.ServiceStatus
	_ = json.Unmarshal(data, &s)
	var words []string
	for _, i := range s.LoadBalancer.Ingress {
		words = append(words, i.IP)
	}
	for _, c := range s.Conditions {
		words = append(words, fmt.Sprintf("%s=%s", c.Type, c.Reason))
	}
	return strings.Join(words, " ")
}

// told are the events, in short.
func (b *bed) told() (list []string) {
	for _, e := range b.tenant.All(eventsOf) {
		ref := e["involvedObject"].(map[string]any)
		list = append(list, fmt.Sprintf("%v/%v %v %v: %v", ref["namespace"], ref["name"], e["type"], e["reason"], e["message"]))
	}
	return list
}

func (b *bed) eventually(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	b.t.Fatalf("after 30 s still not: %s", what)
}

// writes are the requests to an API server that change something but Leases and events.
func writes(api *apitest.Server) (list []string) {
	for _, r := range api.Requests() {
		if !strings.HasPrefix(r, "GET ") && !strings.Contains(r, "/leases") && !strings.Contains(r, "/events") {
			list = append(list, r)
		}
	}
	return list
}
