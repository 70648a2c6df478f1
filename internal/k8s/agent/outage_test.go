package agent

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lbd.dev/lbd/internal/tenants/propagate"
)

// TestTenantAway: whatever the API server of the tenant answers or does not, the hub keeps all it has.
// What changed meanwhile counts once it is back.
func TestTenantAway(t *testing.T) {
	for name, code := range map[string]int{"silent": 0, "unavailable": 503, "no right": 403, "no such kind": 404, "no such user": 401} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			b := newBed(t)
			b.node("a", "10.1.0.1")
			b.service("web")
			b.service("gone", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30081 })
			a, _ := b.start("one")
			b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.7")
			b.judge("default.gone", "True", "Accepted", "the hub serves it", "198.51.100.8")
			b.eventually("served", func() bool {
				return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=Accepted" && b.shown("gone") == "198.51.100.8 lbd.dev/Accepted=Accepted"
			})
			b.eventually("the Nodes are there", func() bool { return b.spec(hubNodes, "nodes-0") != "" })
			before := writes(b.hub)
			if code == 0 {
				b.tenant.Stop()
			} else {
				b.tenant.Fail(code)
			}
			b.eventually("the tenant counts as away", func() bool { return !a.Stats().TenantConnected })
			if err := a.Ready(); err != nil {
				t.Errorf("not ready without the tenant: %v", err)
			}
			b.tenant.Delete(servicesOf, "default", "gone")
			b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.9") // it has the agent look
			time.Sleep(500 * time.Millisecond)
			if after := writes(b.hub); !slices.Equal(after, before) {
				t.Errorf("written to the hub: %q", after[len(before):])
			}
			if code == 0 {
				b.tenant.Start()
			} else {
				b.tenant.Fail(0)
			}
			b.eventually("what the hub said meanwhile is told", func() bool { return b.shown("web") == "198.51.100.9 lbd.dev/Accepted=Accepted" })
			b.eventually("what went meanwhile is gone", func() bool { return b.spec(hubTSVC, "default.gone") == "" })
			if b.spec(hubTSVC, "default.web") == "" || b.spec(hubNodes, "nodes-0") == "" {
				t.Error("the hub has lost something")
			}
		})
	}
}

// TestStartWithoutHub: an agent that starts while the hub is away says that it lives and is not ready, and
// touches nothing. What a Service shows stays.
func TestStartWithoutHub(t *testing.T) {
	b := newBed(t)
	b.node("a", "10.1.0.1")
	b.service("web", func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.7"}}
	})
	b.hub.Stop()
	a, _ := b.start("one")
	b.eventually("the tenant is read", func() bool { return len(a.missing(SideTenant)) == 0 })
	time.Sleep(500 * time.Millisecond)
	if a.Ready() == nil || a.Healthy() != nil || a.Stats().Leader {
		t.Errorf("ready %v, healthy %v, leads %v", a.Ready(), a.Healthy(), a.Stats().Leader)
	}
	for _, r := range b.tenant.Requests() {
		if !strings.HasPrefix(r, http.MethodGet) || strings.Contains(r, "/leases") {
			t.Errorf("it asks the tenant for %s", r)
		}
	}
	if got := b.shown("web"); got != "198.51.100.7" {
		t.Errorf("the Service has %q", got)
	}
	b.hub.Start()
	b.eventually("the Service is in the hub", func() bool { return b.spec(hubTSVC, "default.web") != "" })
}

// TestHubDenies: an agent whose token or namespace has ended leaves the Services what they have, and says
// so by an event. It goes on once it may.
func TestHubDenies(t *testing.T) {
	for name, c := range map[string]struct {
		code int  // of the API server of the hub
		gone bool // so are the objects
		want string
	}{
		"the token has ended":         {http.StatusUnauthorized, false, "198.51.100.7 lbd.dev/Accepted=Accepted"},
		"the rights are gone":         {http.StatusForbidden, false, "198.51.100.7 lbd.dev/Accepted=Accepted"},
		"so is the namespace":         {http.StatusForbidden, true, "198.51.100.7 lbd.dev/Accepted=HubRefused"},
		"the namespace was not found": {http.StatusNotFound, true, "198.51.100.7 lbd.dev/Accepted=HubRefused"},
		"so is the account":           {http.StatusUnauthorized, true, "198.51.100.7 lbd.dev/Accepted=Accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			b := newBed(t)
			b.node("a", "10.1.0.1")
			b.service("web")
			a := b.agent("one", b.hub)
			a.o.Secret = "lbd-hub"
			b.run(a)
			b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.7")
			b.eventually("served", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
			if c.gone { // watches see it before the account is gone, too
				b.hub.Gate(func(r *http.Request) int { return c.code })
				b.hub.Delete(hubTSVC, namespace, "default.web")
				b.eventually("the agent knows", func() bool { return len(a.hubServices.All()) == 0 })
				b.eventually("it was told what it may not", func() bool { return b.shown("web") == c.want })
				b.hub.Gate(nil)
			}
			b.hub.Fail(c.code)
			b.eventually("the hub counts as away", func() bool { return !a.Stats().HubConnected })
			if c.code != http.StatusNotFound {
				b.eventually("an event says so", func() bool {
					return strings.Contains(strings.Join(b.told(), "\n"), "lbd-agent/lbd-hub Warning HubDenied: ")
				})
			}
			time.Sleep(500 * time.Millisecond)
			if got := b.shown("web"); got != c.want {
				t.Errorf("the Service has %q, want %q", got, c.want)
			}
			b.hub.Fail(0)
			b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.9")
			b.eventually("served again", func() bool { return b.shown("web") == "198.51.100.9 lbd.dev/Accepted=Accepted" })
		})
	}
}

// TestAgentAway: an agent that ends takes nothing along, and the next one takes over what has changed.
func TestAgentAway(t *testing.T) {
	b := newBed(t)
	b.node("a", "10.1.0.1")
	b.service("web")
	b.service("gone", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30081 })
	_, stop := b.start("one")
	b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.7")
	b.judge("default.gone", "True", "Accepted", "the hub serves it", "198.51.100.8")
	b.eventually("served", func() bool { return b.shown("gone") == "198.51.100.8 lbd.dev/Accepted=Accepted" })
	b.eventually("the Nodes are there", func() bool { return b.spec(hubNodes, "nodes-0") != "" })
	stop()
	if len(b.hub.All(hubTSVC)) != 2 || b.spec(hubNodes, "nodes-0") == "" || b.shown("web") != "198.51.100.7 lbd.dev/Accepted=Accepted" {
		t.Errorf("after its end the hub has %v, the Service %q", b.hub.All(hubTSVC), b.shown("web"))
	}
	b.tenant.Delete(servicesOf, "default", "gone")
	b.service("new", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30082 })
	b.node("b", "10.1.0.2")
	b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.9")
	b.start("two")
	b.eventually("all is as it is now", func() bool {
		return b.spec(hubTSVC, "default.gone") == "" && b.spec(hubTSVC, "default.new") != "" && strings.Contains(b.spec(hubNodes, "nodes-0"), "10.1.0.2") &&
			b.shown("web") == "198.51.100.9 lbd.dev/Accepted=Accepted"
	})
}

// TestNobodyJudges: while the controller of the hub is away the agent goes on to write, and a Service keeps
// what it has, also one that has changed.
func TestNobodyJudges(t *testing.T) {
	b := newBed(t)
	b.node("a", "10.1.0.1")
	b.service("web")
	a, _ := b.start("one")
	b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.7")
	b.eventually("served", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
	o := b.tenant.Get(servicesOf, "default", "web")
	o["metadata"].(map[string]any)["annotations"] = map[string]any{propagate.AnnotationPool: "other"}
	b.tenant.Put(servicesOf, o)
	b.service("new", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30081 })
	b.node("b", "10.1.0.2")
	b.eventually("the hub has all that is new", func() bool {
		return strings.Contains(b.spec(hubTSVC, "default.web"), `"pool":"other"`) && b.spec(hubTSVC, "default.new") != "" && strings.Contains(b.spec(hubNodes, "nodes-0"), "10.1.0.2")
	})
	b.eventually("it is counted", func() bool { c := a.Stats().Counts; return c.Served == 1 && c.Waiting == 1 })
	if web, other := b.shown("web"), b.shown("new"); web != "198.51.100.7 lbd.dev/Accepted=Accepted" || other != "" {
		t.Errorf("web has %q, the new one %q", web, other)
	}
}
