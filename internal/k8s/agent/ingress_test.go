package agent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/tenants/propagate"
)

const (
	ingressesOf = "networking.k8s.io/v1/ingresses"
	hubRoutes   = "lbd.dev/v1alpha1/tenantroutes"
)

// newIngressBed has the Service web without a NodePort.
func newIngressBed(t *testing.T) *bed {
	b := newBed(t)
	b.tenant.Serve(ingressesOf, "Ingress")
	b.hub.Serve(hubRoutes, "TenantRoute")
	b.service("web", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.LoadBalancerClass, s.Spec.Selector = corev1.ServiceTypeClusterIP, nil, map[string]string{"app": "web"}
		s.Spec.Ports = []corev1.ServicePort{{Protocol: "TCP", Port: 80}}
	})
	return b
}

func (b *bed) startIngress(identity string) (*Agent, func()) {
	b.t.Helper()
	a := b.ingressAgent(identity)
	return a, b.run(a)
}

func (b *bed) ingressAgent(identity string) *Agent {
	b.t.Helper()
	a, err := New(Options{
		Logger: slog.New(slog.NewTextHandler(b.t.Output(), nil)).With("process", identity), Tenant: clientOf(b.t, b.tenant), Hub: clientOf(b.t, b.hub),
		HubNamespace: namespace, Class: "lbd.dev/hub", Ingress: true, Namespace: "lbd-agent", LeaseName: Manager, Identity: identity,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b *bed) ingress(name, class, host string) {
	b.tenant.Put(ingressesOf, map[string]any{"metadata": map[string]any{"namespace": "default", "name": name, "uid": "uid-" + name, "annotations": map[string]any{"a/b": "c"}}, "spec": map[string]any{
		"ingressClassName": class, "rules": []any{map[string]any{"host": host, "http": map[string]any{"paths": []any{map[string]any{"path": "/", "pathType": "Prefix",
			"backend": map[string]any{"service": map[string]any{"name": "web", "port": map[string]any{"number": 80}}}}}}}}}})
}

// copied is the Service of type NodePort for the Service web, or nil.
func (b *bed) copied() map[string]any {
	return b.tenant.Get(servicesOf, "default", tenants.CopyName("default", "web"))
}

// allocate gives it a NodePort, as the API server does.
func (b *bed) allocate(nodePort int) {
	b.t.Helper()
	b.eventually("there is a copy of the Service", func() bool { return b.copied() != nil })
	s := b.copied()
	for _, p := range s["spec"].(map[string]any)["ports"].([]any) {
		p.(map[string]any)["nodePort"] = nodePort
	}
	b.tenant.Put(servicesOf, s)
}

// judgeRoute writes the status of a TenantRoute, as the hub's controller does.
func (b *bed) judgeRoute(name, status, reason string, addresses ...string) {
	b.t.Helper()
	b.eventually("the hub has "+name, func() bool { return b.spec(hubRoutes, name) != "" })
	o := b.hub.Get(hubRoutes, namespace, name)
	o["status"] = map[string]any{"addresses": addresses, "conditions": []any{map[string]any{"type": "Accepted", "status": status, "reason": reason, "message": "words",
		"observedGeneration": o["metadata"].(map[string]any)["generation"], "lastTransitionTime": "2026-01-02T03:04:05Z"}}}
	b.hub.Put(hubRoutes, o)
}

// ingressShows are the addresses in the status of an Ingress.
func (b *bed) ingressShows(name string) string {
	status, _ := b.tenant.Get(ingressesOf, "default", name)["status"].(map[string]any)
	data, _ := json.Marshal(status["loadBalancer"])
	return string(data)
}

// TestPropagatesIngress: from an Ingress to the addresses of the engine of the hub, and back to nothing.
func TestPropagatesIngress(t *testing.T) {
	b := newIngressBed(t)
	b.ingress("shop", "lbd", "shop.example.com")
	b.ingress("other", "nginx", "other.example.com")
	a, _ := b.startIngress("one")
	b.allocate(31234)
	b.eventually("the hub knows the Ingress", func() bool {
		return b.spec(hubRoutes, "ingress.default.shop") == `{"annotations":{"a/b":"c"},"origin":{"generation":1,"kind":"Ingress","name":"shop","namespace":"default"},`+
			`"rules":[{"host":"shop.example.com","paths":[{"family":"ipv4","nodePort":31234,"path":"/","service":"web","type":"Prefix"}]}]}`
	})
	b.judgeRoute("ingress.default.shop", "False", "HostnameTaken")
	b.eventually("people are told", func() bool {
		return strings.Contains(strings.Join(b.told(), "\n"), "default/shop Warning HubRefused: HostnameTaken: words")
	})
	b.judgeRoute("ingress.default.shop", "True", "Accepted", "192.0.2.7", "lb.example.com")
	b.eventually("the Ingress has the addresses", func() bool {
		return b.ingressShows("shop") == `{"ingress":[{"ip":"192.0.2.7"},{"hostname":"lb.example.com"}]}`
	})
	b.eventually("stats", func() bool { return a.Stats().Routes == propagate.Counts{Served: 1} })
	b.ingress("more", "lbd", "more.example.com")
	b.eventually("the other one", func() bool { return strings.Contains(b.spec(hubRoutes, "ingress.default.more"), `"nodePort":31234`) })
	b.tenant.Delete(ingressesOf, "default", "shop")
	b.eventually("the hub forgets it", func() bool { return b.spec(hubRoutes, "ingress.default.shop") == "" })
	if b.copied() == nil {
		t.Error("the copy of the Service is gone although an Ingress needs it")
	}
	b.tenant.Delete(ingressesOf, "default", "more")
	b.eventually("nothing is left", func() bool { return len(b.hub.All(hubRoutes)) == 0 && b.copied() == nil })
	if b.tenant.Get(servicesOf, "default", "web") == nil {
		t.Error("the Service itself is gone")
	}
	for _, r := range writes(b.hub) {
		if strings.Contains(r, "/status") || !strings.Contains(r, "/namespaces/"+namespace+"/") {
			t.Errorf("the agent has no right to %s", r)
		}
	}
	for _, r := range writes(b.tenant) {
		if strings.Contains(r, "/ingresses/other") || strings.Contains(r, "/ingresses/") && !strings.Contains(r, "/status") || strings.Contains(r, "/services/web") {
			t.Errorf("the agent has no right to %s", r)
		}
	}
}

// TestNoIngressUnasked: without the option no Ingress is looked at.
func TestNoIngressUnasked(t *testing.T) {
	b := newIngressBed(t)
	b.ingress("shop", "lbd", "shop.example.com")
	b.node("a", "10.1.0.1")
	b.start("one")
	b.eventually("the hub knows the Nodes", func() bool { return b.spec(hubNodes, "nodes-0") != "" })
	for _, r := range append(b.tenant.Requests(), b.hub.Requests()...) {
		if strings.Contains(r, "ingresses") || strings.Contains(r, "tenantroutes") || strings.Contains(r, "/services?") && !strings.Contains(r, "LoadBalancer") {
			t.Error(r)
		}
	}
}

// TestIngressRefusedByQuota: what the API server of the hub does not take is told of the Ingress, not of a
// Service of the same name, and nothing is taken away.
func TestIngressRefusedByQuota(t *testing.T) {
	b := newIngressBed(t)
	var full atomic.Bool
	full.Store(true)
	b.hub.Gate(func(r *http.Request) int {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/tenantroutes") && full.Load() {
			return http.StatusForbidden
		}
		return 0
	})
	b.service("shop")
	b.ingress("shop", "lbd", "shop.example.com")
	a, _ := b.startIngress("one")
	b.allocate(31234)
	b.eventually("the Ingress says so", func() bool {
		return strings.Contains(strings.Join(b.told(), "\n"), "default/shop Warning HubRefused: HubRefused: ")
	})
	b.judge("default.shop", "True", "Accepted", "the hub serves it", "198.51.100.7")
	b.eventually("the Service is served", func() bool { return b.shown("shop") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
	if n := a.Stats().Writes[Written{SideHub, v1alpha1.KindTenantRoute, "refused"}]; n == 0 {
		t.Error("no refusal is counted")
	}
	full.Store(false)
	b.hub.Put(hubTSVC, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": "default.gone", "uid": "g"}, "spec": map[string]any{"ports": []any{map[string]any{"port": 80, "nodePort": 30080}}}})
	b.eventually("it is offered again once something was deleted", func() bool { return b.spec(hubRoutes, "ingress.default.shop") != "" })
}

// stale puts a TenantRoute of no content.
func (b *bed) stale(name string) {
	b.hub.Put(hubRoutes, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": "ingress.default." + name, "uid": name}, "spec": map[string]any{
		"origin": map[string]any{"kind": "Ingress", "namespace": "default", "name": name}, "rules": []any{}}})
}

// TestIngressesAreNotDeletedBlindly: while Ingresses have not been read, be it for want of the right, the hub
// keeps all, the cluster its copies, and Services are served.
func TestIngressesAreNotDeletedBlindly(t *testing.T) {
	for _, code := range []int{http.StatusServiceUnavailable, http.StatusForbidden} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel() // it waits most of the time
			b := newIngressBed(t)
			b.stale("shop")
			b.stale("gone")
			b.service("lbd-old", func(s *corev1.Service) {
				s.Labels, s.Spec.Type = map[string]string{copyLabel: Manager}, corev1.ServiceTypeNodePort
			})
			b.service("web4")
			b.ingress("shop", "lbd", "shop.example.com")
			b.tenant.Gate(func(r *http.Request) int {
				if strings.Contains(r.URL.Path, "/ingresses") {
					return code
				}
				return 0
			})
			a, _ := b.startIngress("one")
			b.judge("default.web4", "True", "Accepted", "the hub serves it", "198.51.100.7")
			b.eventually("the Service is served", func() bool { return b.shown("web4") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
			b.eventually("the rest is read", func() bool { return a.ingress.hubRoutes.Synced() && a.ingress.backends.Synced() })
			b.service("more", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30081 })
			b.eventually("another one is in the hub", func() bool { return b.spec(hubTSVC, "default.more") != "" })
			if n := len(b.hub.All(hubRoutes)); n != 2 || a.Ready() != nil || b.tenant.Get(servicesOf, "default", "lbd-old") == nil {
				t.Errorf("%d objects, ready %v, writes %q %q", n, a.Ready(), writes(b.hub), writes(b.tenant))
			}
			b.tenant.Gate(nil)
			b.allocate(31234)
			b.eventually("what is gone is gone", func() bool {
				return len(b.hub.All(hubRoutes)) == 1 && strings.Contains(b.spec(hubRoutes, "ingress.default.shop"), "31234") && b.tenant.Get(servicesOf, "default", "lbd-old") == nil
			})
		})
	}
}

// TestIngressRightEnds: an agent that may not read a kind any more that it has Ingresses for goes on to
// lead, and to serve Services. Of Ingresses it takes nothing away before it can see all of them.
func TestIngressRightEnds(t *testing.T) {
	for _, kind := range []string{"/tenantroutes", "/ingresses"} {
		t.Run(kind[1:], func(t *testing.T) {
			t.Parallel() // it waits most of the time
			b := newIngressBed(t)
			b.ingress("shop", "lbd", "shop.example.com")
			a := b.ingressAgent("one")
			a.patience = 2 * time.Second
			b.run(a)
			b.allocate(31234)
			b.judgeRoute("ingress.default.shop", "True", "Accepted", "192.0.2.7")
			b.eventually("the Ingress is served", func() bool { return b.ingressShows("shop") == `{"ingress":[{"ip":"192.0.2.7"}]}` })
			api, w := b.hub, kindWatch(a.ingress.hubRoutes)
			if kind == "/ingresses" {
				api, w = b.tenant, a.ingress.ingresses
			}
			api.Gate(func(r *http.Request) int {
				if strings.HasSuffix(r.URL.Path, kind) && r.Method == http.MethodGet {
					return http.StatusForbidden
				}
				return 0
			})
			api.Fail(http.StatusServiceUnavailable) // ends open watches
			api.Fail(0)
			b.eventually("the right is gone", func() bool { s := w.State(); return !s.Connected && time.Since(s.Since) > 2*a.patience })
			b.tenant.Delete(ingressesOf, "default", "shop")
			b.service("new")
			b.eventually("the Service is in the hub", func() bool { return b.spec(hubTSVC, "default.new") != "" })
			if b.spec(hubRoutes, "ingress.default.shop") == "" || b.copied() == nil || a.Ready() != nil || !a.Stats().HubConnected || !a.Stats().TenantConnected {
				t.Errorf("ready %v, %+v, writes %q %q", a.Ready(), a.Stats(), writes(b.hub), writes(b.tenant))
			}
			api.Gate(nil)
			b.eventually("what is gone is gone", func() bool { return len(b.hub.All(hubRoutes)) == 0 && b.copied() == nil })
		})
	}
}

// TestCopyIsNotForced: a Service is made only where there is none, and changed only if it is still the same.
func TestCopyIsNotForced(t *testing.T) {
	b := newIngressBed(t)
	l := newLoop(b.ingressAgent("one"))
	for uid, want := range map[string]string{"": "force=false", "u": "force=true"} {
		j := l.copyJob(propagate.Copy{Key: model.Key{Namespace: "default", Name: "lbd-1"}, UID: uid, Backend: &propagate.Backend{Type: "NodePort"}})
		if err := j.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := b.tenant.Requests(); !strings.Contains(r[len(r)-1], want) || strings.Contains(j.body, `"uid":"u"`) != (uid != "") {
			t.Errorf("UID %q: %s %s", uid, r[len(r)-1], j.body)
		}
	}
}

// TestIngressNotTaken: a hub that takes no Ingresses of the cluster, by its version or its rights, still
// serves its Services, and takes Ingresses once it may.
func TestIngressNotTaken(t *testing.T) {
	for _, lacks := range []bool{true, false} {
		t.Run(fmt.Sprintf("lacks the kind: %v", lacks), func(t *testing.T) {
			t.Parallel() // it waits most of the time
			b := newIngressBed(t)
			var denied atomic.Bool
			denied.Store(!lacks)
			if lacks {
				b.hub.Withdraw(hubRoutes)
			}
			b.hub.Gate(func(r *http.Request) int {
				if strings.Contains(r.URL.Path, "/tenantroutes") && denied.Load() {
					return http.StatusForbidden
				}
				return 0
			})
			b.service("shop")
			b.ingress("shop", "lbd", "shop.example.com")
			b.startIngress("one")
			b.judge("default.shop", "True", "Accepted", "the hub serves it", "198.51.100.7")
			b.eventually("the Service is served", func() bool { return b.shown("shop") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
			if b.copied() != nil {
				t.Error("a Service was copied for an Ingress that the hub does not take")
			}
			denied.Store(false)
			b.hub.Serve(hubRoutes, "TenantRoute")
			b.allocate(31234)
			b.eventually("the hub knows the Ingress", func() bool { return b.spec(hubRoutes, "ingress.default.shop") != "" })
		})
	}
}

// TestFamiliesOfBackends: what is kept of the families of a Service is which it has alone, and which it has first.
func TestFamiliesOfBackends(t *testing.T) {
	for _, c := range []struct {
		has         []corev1.IPFamily
		only, first v1alpha1.AddressFamily
	}{
		{nil, "", ""},
		{[]corev1.IPFamily{"IPv6"}, v1alpha1.FamilyIPv6, v1alpha1.FamilyIPv6},
		{[]corev1.IPFamily{"IPv6", "IPv4"}, "", v1alpha1.FamilyIPv6},
		{[]corev1.IPFamily{"IPv4", "IPv6"}, "", v1alpha1.FamilyIPv4},
	} {
		b, _ := convertBackend(&corev1.Service{Spec: corev1.ServiceSpec{IPFamilies: c.has}})
		if b.Family != c.only || b.First != c.first {
			t.Errorf("%v: %q alone, %q first", c.has, b.Family, b.First)
		}
	}
}

// TestUnreadLevels: what a cluster may well do without is no warning. What was asked for is one, and that the hub has no
// TenantRoutes is one of each kind.
func TestUnreadLevels(t *testing.T) {
	for _, hub := range []bool{true, false} {
		t.Run(fmt.Sprintf("the hub has the kind: %v", hub), func(t *testing.T) {
			t.Parallel() // it waits most of the time
			b := newBed(t)
			b.serveGateways()
			want := map[string]string{"Ingress": "WARN", "GRPCRoute": "INFO"} // of which the cluster has neither
			if hub {
				b.hub.Serve(hubRoutes, "TenantRoute")
			} else {
				want = map[string]string{"Ingress": "WARN", "GRPCRoute": "WARN", "HTTPRoute": "WARN"}
				b.tenant.Serve(ingressesOf, "Ingress")
				b.tenant.Serve(grpcRoutesOf, "GRPCRoute")
			}
			a, log := b.gatewayAgent("one", true, true), &syncBuffer{}
			a.o.Logger = slog.New(slog.NewTextHandler(log, nil))
			b.run(a)
			for kind := range want {
				b.eventually("the log tells of "+kind, func() bool { return says(log.String(), "kind="+kind) })
			}
			for line := range strings.Lines(log.String()) {
				if _, kind, is := strings.Cut(line, "routes are not propagated; what is there stays\" kind="); is {
					kind, _, _ = strings.Cut(kind, " ")
					if level := want[kind]; !strings.Contains(line, "level="+level+" ") {
						t.Errorf("want %q: %s", level, line)
					}
				}
			}
		})
	}
}
