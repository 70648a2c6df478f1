package agent

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/tenants/propagate"
)

// TestPropagates: from a Service to its address, and back to nothing.
func TestPropagates(t *testing.T) {
	b := newBed(t)
	b.node("a", "10.1.0.1")
	b.node("b", "10.1.0.2")
	b.service("web", local)
	b.service("other", func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("lbd.dev/lbd") })
	b.endpoints("web", "a", "a", "b")
	a, _ := b.start("one")
	b.eventually("the hub knows the Service", func() bool {
		return b.spec(hubTSVC, "default.web") == `{"affinity":"connection","families":["ipv4"],"local":{"healthCheckNodePort":31999,"nodes":[{"endpoints":2,"name":"a"},{"endpoints":1,"name":"b"}]},"ports":[{"nodePort":30080,"port":80,"protocol":"TCP"}],"source":"vip"}`
	})
	b.eventually("the hub knows the Nodes", func() bool {
		return b.spec(hubNodes, "nodes-0") == `{"nodes":[{"addresses":["10.1.0.1"],"name":"a","state":"Serving","weight":10},{"addresses":["10.1.0.2"],"name":"b","state":"Serving","weight":10}]}`
	})
	b.judge("default.web", "False", "TenantLimit", "with it the Tenant shop has 4 addresses of 3 that it may have")
	b.eventually("the Service says that it is refused", func() bool { return b.shown("web") == "lbd.dev/Accepted=TenantLimit" })
	b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.7")
	b.eventually("the Service has its address", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
	b.eventually("events", func() bool { return len(b.told()) == 2 })
	told := strings.Join(b.told(), "\n")
	for _, want := range []string{"default/web Warning HubRefused: TenantLimit: with it the Tenant shop has 4 addresses of 3 that it may have",
		"default/web Normal HubAccepted: the hub serves the Service: 198.51.100.7"} {
		if !strings.Contains(told, want) {
			t.Errorf("no event %q in\n%s", want, told)
		}
	}
	b.eventually("stats", func() bool {
		s := a.Stats()
		return s.Leader && s.HubConnected && s.Counts == (propagate.Counts{Served: 1}) && s.Nodes[v1alpha1.TenantNodeServing] == 2
	})
	if err := a.Healthy(); err != nil {
		t.Error(err)
	}

	// A change writes what differs, and leaves alone what the hub has added.
	b.endpoints("web", "b")
	b.node("a", "10.1.0.1", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	b.eventually("the endpoints are those of b", func() bool {
		return strings.Contains(b.spec(hubTSVC, "default.web"), `"nodes":[{"endpoints":1,"name":"b"}]`)
	})
	b.eventually("a is out", func() bool { return strings.Contains(b.spec(hubNodes, "nodes-0"), `"name":"a","state":"Out"`) })
	if got := b.shown("web"); got != "198.51.100.7 lbd.dev/Accepted=Accepted" {
		t.Errorf("the Service has %s", got)
	}

	b.tenant.Delete(servicesOf, "default", "web")
	b.eventually("the hub has nothing of it", func() bool { return len(b.hub.All(hubTSVC)) == 0 })
	for _, r := range writes(b.hub) {
		if strings.Contains(r, "/status") || !strings.Contains(r, "/namespaces/"+namespace+"/") {
			t.Errorf("the agent has no right to %s", r)
		}
	}
}

// TestSecondHasNothingToDo: who takes over, and who compares again, writes nothing.
func TestSecondHasNothingToDo(t *testing.T) {
	b := newBed(t)
	b.node("a", "10.1.0.1")
	b.service("web")
	_, stop := b.start("one")
	b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.7")
	b.eventually("served", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
	b.eventually("the Nodes are there", func() bool { return b.spec(hubNodes, "nodes-0") != "" })
	stop()
	before := fmt.Sprint(writes(b.hub), writes(b.tenant))
	events := len(b.told())
	a, _ := b.start("two")
	b.eventually("the other one leads", func() bool { return a.Stats().Served == 1 })
	for range 3 { // three looks without a cause
		a.wake()
		time.Sleep(5 * coalesce)
	}
	if after := fmt.Sprint(writes(b.hub), writes(b.tenant)); after != before || len(b.told()) != events {
		t.Errorf("written once more:\n%s\nbefore\n%s\nevents %q", after, before, b.told())
	}
}

// TestNothingIsDeletedBlindly: while the tenant has not been read, the hub keeps all; what has no Service
// goes once it has been.
func TestNothingIsDeletedBlindly(t *testing.T) {
	b := newBed(t)
	put := func(name string) {
		b.hub.Put(hubTSVC, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": name, "uid": name},
			"spec": map[string]any{"ports": []any{map[string]any{"port": 80, "nodePort": 30080}}}})
	}
	put("default.web")
	put("default.gone")
	b.leaseOf("first")
	b.service("web")
	b.tenant.Gate(func(r *http.Request) int {
		if strings.HasPrefix(r.URL.Path, "/api/v1/services") {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	a, _ := b.start("one")
	b.eventually("the hub is read", func() bool { return a.hubServices.Synced() && a.hubNodes.Synced() && a.nodes.Synced() })
	time.Sleep(300 * time.Millisecond)
	if n := len(b.hub.All(hubTSVC)); n != 2 || a.Ready() == nil || len(writes(b.hub)) > 0 {
		t.Errorf("%d objects, ready %v, writes %q", n, a.Ready(), writes(b.hub))
	}
	b.tenant.Gate(nil)
	b.eventually("what is gone is gone", func() bool { return len(b.hub.All(hubTSVC)) == 1 && b.spec(hubTSVC, "default.web") != "" })
}

// TestHubAway: the tenant keeps what it has while the hub is away, and catches up once it is back.
func TestHubAway(t *testing.T) {
	b := newBed(t)
	b.node("a", "10.1.0.1")
	b.service("web")
	a, _ := b.start("one")
	b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.7")
	b.eventually("served", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
	stopped := time.Now()
	b.hub.Stop()
	b.service("new", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30081 })
	b.tenant.Delete(servicesOf, "default", "web")
	b.service("web") // made anew, without a status
	b.eventually("the hub counts as away", func() bool { return !a.Stats().HubConnected })
	if err := a.Ready(); err != nil {
		t.Errorf("not ready without the hub: %v", err)
	}
	b.eventually("what the hub gave is told again", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
	// Waits of at least 250 ms, 500 ms, 1 s and 2 s, so 4 tries within 3 s; a test that comes late has 5.
	time.Sleep(time.Until(stopped.Add(3 * time.Second)))
	if n := a.Stats().Writes[Written{SideHub, v1alpha1.KindTenantService, "error"}]; n == 0 || n > 5 {
		t.Errorf("%d writes failed within 3 s: the agent does not back off", n)
	}
	b.hub.Start()
	b.eventually("the new one is in the hub", func() bool { return b.spec(hubTSVC, "default.new") != "" })
	b.eventually("the hub is back", func() bool { return a.Stats().HubConnected })
}

// TestLeavesToWhoSees: a process to which the hub is lost gives the Lease up to one that sees it, and asks
// for it again once the hub is back.
func TestLeavesToWhoSees(t *testing.T) {
	t.Parallel() // it waits most of the time
	b := newBed(t)
	b.service("web")
	far := apitest.New(t, map[string]string{hubNodes: "TenantNodes", hubTSVC: "TenantService", leasesOf: "Lease"}) // the hub, by another way
	(&bed{hub: far}).lease()
	one := b.agent("one", far)
	one.patience = 2 * lostAfter
	b.run(one)
	b.eventually("the first one leads", func() bool { return one.Stats().Leader })
	two, stop := b.start("two")
	b.eventually("the other one is ready", func() bool { return two.Ready() == nil })
	far.Stop()
	b.eventually("the other one leads", func() bool { return two.Stats().Leader && !one.Stats().Leader })
	b.eventually("it writes", func() bool { return b.spec(hubTSVC, "default.web") != "" })
	stop()
	time.Sleep(2 * lease.DefaultRetry)
	if one.elector.Valid() {
		t.Error("one that has lost the hub has taken the Lease")
	}
	far.Start()
	b.eventually("the first one leads again", func() bool { return one.Stats().Leader })
}

// TestRefusedByQuota: what the API server of the hub does not take is told in the tenant, and tried again
// ever more rarely; others are served.
func TestRefusedByQuota(t *testing.T) {
	b := newBed(t)
	var full atomic.Bool
	full.Store(true)
	b.hub.Gate(func(r *http.Request) int {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/tenantservices") && full.Load() {
			return http.StatusForbidden
		}
		return 0
	})
	b.node("a", "10.1.0.1")
	b.service("web")
	a, _ := b.start("one")
	b.eventually("the Service says so", func() bool { return b.shown("web") == "lbd.dev/Accepted=HubRefused" })
	b.eventually("the Nodes are there", func() bool { return b.spec(hubNodes, "nodes-0") != "" })
	if n := a.Stats().Writes[Written{SideHub, v1alpha1.KindTenantService, "refused"}]; n == 0 || n > 10 {
		t.Errorf("%d tries", n)
	}
	full.Store(false)
	b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.7")
	b.eventually("served", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
}

// TestRefusedChange: a change that the hub does not take is told and costs no address. It is forgotten once
// it is taken back.
func TestRefusedChange(t *testing.T) {
	b := newBed(t)
	b.service("web")
	b.start("one")
	b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.7")
	b.eventually("served", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
	var closed atomic.Bool
	closed.Store(true)
	b.hub.Gate(func(r *http.Request) int {
		if r.Method == http.MethodPatch && closed.Load() {
			return http.StatusForbidden
		}
		return 0
	})
	pool := func(name string) {
		o := b.tenant.Get(servicesOf, "default", "web")
		o["metadata"].(map[string]any)["annotations"] = map[string]any{propagate.AnnotationPool: name}
		b.tenant.Put(servicesOf, o)
	}
	pool("other")
	b.eventually("the Service says so", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=HubRefused" })
	pool("")
	b.eventually("the refusal is forgotten", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
	pool("other")
	b.eventually("it is refused again", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=HubRefused" })
	closed.Store(false)
	pool("third")
	b.eventually("what is said instead is taken", func() bool { return strings.Contains(b.spec(hubTSVC, "default.web"), `"pool":"third"`) })
}

// TestLeft: a Service that is no load balancer any more loses the condition.
func TestLeft(t *testing.T) {
	b := newBed(t)
	b.service("web")
	b.start("one")
	b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.7")
	b.eventually("served", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
	o := b.tenant.Get(servicesOf, "default", "web")
	o["spec"].(map[string]any)["type"] = "ClusterIP"
	delete(o["status"].(map[string]any), "loadBalancer") // the API server does so
	b.tenant.Put(servicesOf, o)
	b.eventually("the hub has nothing of it", func() bool { return len(b.hub.All(hubTSVC)) == 0 })
	b.eventually("the condition is gone", func() bool { return b.shown("web") == "" })
}

// token is a JSON Web Token of the account agent in the hub.
func token(issued, ends time.Time, mark string) string {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d,"sub":"system:serviceaccount:%s:agent","jti":%q}`, issued.Unix(), ends.Unix(), namespace, mark)
	return part(`{"alg":"none"}`) + "." + part(claims) + "." + part("x")
}

// TestRenewal: from a third of its life on the token is replaced by one of the same life, in the Secret.
func TestRenewal(t *testing.T) {
	day := 24 * time.Hour
	now := time.Now()
	for name, c := range map[string]struct {
		text string
		code int // of the hub
		want string
	}{
		"young":       {token(now.Add(-29*day), now.Add(61*day), "old"), http.StatusCreated, "old"},
		"a third":     {token(now.Add(-31*day), now.Add(59*day), "old"), http.StatusCreated, "new"},
		"not allowed": {token(now.Add(-31*day), now.Add(59*day), "old"), http.StatusForbidden, "old"},
		"of nobody":   {"abc", http.StatusCreated, "old"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			asked := ""
			hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body := make([]byte, r.ContentLength)
				_, _ = r.Body.Read(body)
				asked = r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")[:10] + " " + string(body)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.code)
				fmt.Fprintf(w, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"new"}}`)
			}))
			defer hub.Close()
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte(c.text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			client, err := k8s.NewFor(&rest.Config{Host: hub.URL, BearerTokenFile: file}, k8s.Options{})
			if err != nil {
				t.Fatal(err)
			}
			b.tenant.Put("v1/secrets", map[string]any{"metadata": map[string]any{"namespace": "lbd-agent", "name": "lbd-hub"},
				"data": map[string]any{tokenKey: base64.StdEncoding.EncodeToString([]byte("old")), "kubeconfig": "eA=="}})
			a, _ := b.start("one")
			b.eventually("it leads", a.elector.Valid)
			r := &renewal{a: a, hub: client, secret: "lbd-hub"}
			for range 2 { // once is enough
				r.look(t.Context(), now)
			}
			data := b.tenant.Get("v1/secrets", "lbd-agent", "lbd-hub")["data"].(map[string]any)
			got, _ := base64.StdEncoding.DecodeString(data[tokenKey].(string))
			if string(got) != c.want || data["kubeconfig"] != "eA==" {
				t.Errorf("the Secret has %s, want %s", got, c.want)
			}
			if c.want == "new" {
				want := `POST /api/v1/namespaces/lbd-shop-main/serviceaccounts/agent/token Bearer eyJ {"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":7776000}}`
				if asked != want || a.Stats().TokenRenewals["ok"] != 1 {
					t.Errorf("asked %s, want %s; %v", asked, want, a.Stats().TokenRenewals)
				}
			}
		})
	}
}
