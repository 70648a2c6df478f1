package agent

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lbd.dev/lbd/internal/tenants"
)

// lease puts the one by which agents give signs of life.
func (b *bed) lease() {
	b.hub.Put(leasesOf, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": tenants.PulseName}, "spec": map[string]any{"leaseDurationSeconds": 180}})
}

// leaseOf puts that of a cluster.
func (b *bed) leaseOf(uid string) {
	b.hub.Put(leasesOf, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": tenants.PulseName, "annotations": map[string]any{tenants.AnnotationCluster: uid}}})
}

// noted is an annotation of that Lease.
func (b *bed) noted(key string) string {
	all, _ := b.hub.Get(leasesOf, namespace, tenants.PulseName)["metadata"].(map[string]any)["annotations"].(map[string]any)
	text, _ := all[key].(string)
	return text
}

// TestClusterMismatch: a second cluster with the credentials of the first writes nothing to the hub, and says why on its
// Services, which keep what they show. The first one goes on. Once the hub knows the second one in its place, that is served
// and the first one is refused.
func TestClusterMismatch(t *testing.T) {
	t.Parallel()
	b := newIngressBed(t)
	b.node("a", "10.1.0.1")
	b.service("web")
	b.ingress("shop", "lbd", "shop.example.com")
	first, _ := b.startIngress("one")
	b.eventually("the hub has the Ingress", func() bool { return strings.Contains(b.spec(hubRoutes, "ingress.default.shop"), "30080") })
	b.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.7")
	b.eventually("the first is served", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
	b.eventually("the hub knows the first", func() bool { return b.noted(tenants.AnnotationCluster) == "first" && b.spec(hubNodes, "nodes-0") != "" })

	clone := &bed{t: t, tenant: newCluster(t, "second"), hub: b.hub}
	clone.tenant.Serve(ingressesOf, "Ingress")
	clone.ingress("cart", "lbd", "cart.example.com")
	clone.node("a", "10.1.0.9")
	clone.service("web", func(s *corev1.Service) { // as it was copied, and has changed since
		s.Spec.Ports[0].NodePort = 30099
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.6"}}
	})
	clone.service("more", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30098 })
	before, beat := writes(b.hub), b.renewed()
	second, _ := clone.startIngress("two")
	clone.eventually("the second says why", func() bool {
		return clone.shown("web") == "198.51.100.6 lbd.dev/Accepted=ClusterMismatch" && clone.shown("more") == "lbd.dev/Accepted=ClusterMismatch"
	})
	clone.eventually("an event, too", func() bool {
		return strings.Contains(strings.Join(clone.told(), "\n"), "default/web Warning HubRefused: ClusterMismatch: ")
	})
	b.eventually("the hub knows of it", func() bool { return strings.HasPrefix(b.noted(tenants.AnnotationRefused), "second ") })
	b.service("new", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30081 })
	b.eventually("the first goes on", func() bool { return b.spec(hubTSVC, "default.new") != "" })
	time.Sleep(300 * time.Millisecond)
	if after := writes(b.hub)[len(before):]; len(after) != 1 || b.renewed() != beat {
		t.Errorf("written to the hub: %q; sign of life %s, was %s", after, b.renewed(), beat)
	}
	if c := second.Stats().Counts; second.Ready() != nil || second.Healthy() != nil || c.Refused != 2 {
		t.Errorf("ready: %v, healthy: %v, %+v", second.Ready(), second.Healthy(), c)
	}

	b.leaseOf("second")
	(&pulse{a: second}).beat(t.Context(), time.Now())
	(&pulse{a: first}).beat(t.Context(), time.Now())
	b.eventually("the hub has what the second says", func() bool {
		return strings.Contains(b.spec(hubTSVC, "default.web"), "30099") && b.spec(hubTSVC, "default.more") != "" && b.spec(hubTSVC, "default.new") == "" &&
			strings.Contains(b.spec(hubNodes, "nodes-0"), "10.1.0.9") && strings.Contains(b.spec(hubRoutes, "ingress.default.cart"), "30099") && b.spec(hubRoutes, "ingress.default.shop") == ""
	})
	b.eventually("the first is refused", func() bool { return b.shown("web") == "198.51.100.7 lbd.dev/Accepted=ClusterMismatch" })
	clone.judge("default.web", "True", "Accepted", "the hub serves it", "198.51.100.7")
	b.eventually("the second is served", func() bool { return clone.shown("web") == "198.51.100.7 lbd.dev/Accepted=Accepted" })
}

// TestOnceForeign: what the hub or the cluster does not answer makes no owner of an agent that was refused, and none that was
// not refused loses its namespace by it.
func TestOnceForeign(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.node("a", "10.1.0.1")
	b.service("web")
	first, _ := b.start("one")
	b.eventually("the hub has the Service", func() bool { return b.spec(hubTSVC, "default.web") != "" })
	clone := &bed{t: t, tenant: newCluster(t, "second"), hub: b.hub}
	clone.node("a", "10.1.0.9")
	second, _ := clone.start("two")
	clone.eventually("it is refused", func() bool { return whose(second.whose.Load()) == foreign })
	before := len(writes(b.hub))
	refuse := func(path string) func(*http.Request) int {
		return func(r *http.Request) int {
			if strings.HasSuffix(r.URL.Path, path) {
				return http.StatusForbidden
			}
			return 0
		}
	}
	for _, c := range []struct {
		what   string
		change func()
	}{
		{"kube-system cannot be read", func() { clone.tenant.Gate(refuse("/namespaces/kube-system")) }},
		{"there is no kube-system", func() { clone.tenant.Gate(nil); clone.tenant.Delete("v1/namespaces", "", "kube-system") }},
		{"no right to the Lease", func() { b.hub.Gate(refuse("/leases/" + tenants.PulseName)) }},
		{"no Lease", func() { b.hub.Gate(nil); b.hub.Delete(leasesOf, namespace, tenants.PulseName) }},
	} {
		c.change()
		for a, want := range map[*Agent]whose{first: ours, second: foreign} {
			p := &pulse{a: a}
			p.beat(t.Context(), time.Now())
			if got := whose(a.whose.Load()); got != want || p.said == "" && a == second {
				t.Errorf("%s: %d, want %d; it says %q", c.what, got, want, p.said)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.lease()
	clone.tenant.Gate(nil)
	clone.tenant.Put("v1/namespaces", map[string]any{"metadata": map[string]any{"name": "kube-system", "uid": "second"}})
	(&pulse{a: second}).beat(t.Context(), time.Now())
	(&pulse{a: first}).beat(t.Context(), time.Now())
	if got := b.noted(tenants.AnnotationCluster); got != "first" || !strings.HasPrefix(b.noted(tenants.AnnotationRefused), "second ") {
		t.Errorf("the new Lease is of %q", got)
	}
	if after := writes(b.hub)[before:]; len(after) > 0 {
		t.Errorf("written to the hub: %q", after)
	}
}

// TestNothingBeforeTheHubKnows: an agent writes nothing before it knows whose its namespace in the hub is, whatever it knew when it
// led before. One that cannot be told, for want of rights in its own cluster, is not kept from its work.
func TestNothingBeforeTheHubKnows(t *testing.T) {
	for name, code := range map[string]int{"the hub does not answer": http.StatusServiceUnavailable, "no right in the hub": http.StatusForbidden, "no Lease": http.StatusNotFound} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.node("a", "10.1.0.1")
			b.hub.Gate(func(r *http.Request) int {
				if strings.Contains(r.URL.Path, "/leases/") {
					return code
				}
				return 0
			})
			a := b.agent("one", b.hub)
			a.whose.Store(int32(ours))
			b.run(a)
			b.eventually("it has asked", func() bool {
				return slices.ContainsFunc(b.hub.Requests(), func(r string) bool { return strings.Contains(r, "/leases/") })
			})
			time.Sleep(300 * time.Millisecond)
			if all := writes(b.hub); len(all) > 0 || a.Healthy() != nil {
				t.Errorf("written: %q, healthy: %v", all, a.Healthy())
			}
			b.hub.Gate(nil)
			b.eventually("it writes", func() bool { return b.spec(hubNodes, "nodes-0") != "" })
		})
	}
	for name, code := range map[string]int{"no right in the cluster": http.StatusForbidden, "no kube-system": http.StatusNotFound} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.node("a", "10.1.0.1")
			b.tenant.Gate(func(r *http.Request) int {
				if strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") {
					return code
				}
				return 0
			})
			b.start("one")
			b.eventually("it writes", func() bool { return b.spec(hubNodes, "nodes-0") != "" })
			b.eventually("it says that it is there", func() bool { return strings.HasSuffix(b.renewed(), " one") })
			time.Sleep(askEvery + askEvery/2)
			if n := strings.Count(strings.Join(b.hub.Requests(), "\n"), "/leases/"); n != 2 {
				t.Errorf("%d requests about the Lease, want 2: it was answered", n)
			}
		})
	}
}

// TestNameIsReadOnce: the UID of a cluster, which does not change, is not asked for at each sign of life.
func TestNameIsReadOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	a, _ := b.start("one")
	b.eventually("the hub knows it", func() bool { return b.noted(tenants.AnnotationCluster) == "first" })
	p := &pulse{a: a}
	p.beat(t.Context(), time.Now())
	b.tenant.Delete("v1/namespaces", "", "kube-system")
	if p.beat(t.Context(), time.Now()); p.said != "" {
		t.Errorf("it says %q", p.said)
	}
}

// TestRaceForTheNamespace: of two clusters that ask at once the hub takes one.
func TestRaceForTheNamespace(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	clone := &bed{t: t, tenant: newCluster(t, "second"), hub: b.hub}
	b.node("a", "10.1.0.1")
	clone.node("a", "10.1.0.9")
	var reads atomic.Int32
	b.hub.Gate(func(r *http.Request) int {
		switch {
		case !strings.Contains(r.URL.Path, "/leases/"):
		case r.ContentLength == int64(len("{}")):
			reads.Add(1)
		default: // neither writes before both have seen that the namespace is nobody's
			for end := time.Now().Add(20 * time.Second); reads.Load() < 2 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			}
			time.Sleep(50 * time.Millisecond) // until both are answered
		}
		return 0
	})
	one, _ := b.start("one")
	two, _ := clone.start("two")
	b.eventually("one is refused", func() bool {
		return whose(one.whose.Load())+whose(two.whose.Load()) == ours+foreign
	})
	b.eventually("the other writes", func() bool { return b.spec(hubNodes, "nodes-0") != "" })
	if want := map[bool]string{true: "10.1.0.1", false: "10.1.0.9"}[whose(one.whose.Load()) == ours]; !strings.Contains(b.spec(hubNodes, "nodes-0"), want) {
		t.Errorf("the hub has %s, want %s", b.spec(hubNodes, "nodes-0"), want)
	}
}

// TestRemadeLease: a Lease that is made anew goes to the cluster that was served, and not to another one with its credentials that
// starts meanwhile and asks more often. Where none was served, as after an upgrade, a cluster gets it after a while.
func TestRemadeLease(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.node("a", "10.1.0.1")
	b.service("web")
	first, stop := b.start("one")
	b.eventually("the hub has all", func() bool { return b.spec(hubTSVC, "default.web") != "" && b.spec(hubNodes, "nodes-0") != "" })
	b.hub.Delete(leasesOf, namespace, tenants.PulseName)
	clone := &bed{t: t, tenant: newCluster(t, "second"), hub: b.hub}
	clone.node("a", "10.1.0.9")
	before := len(writes(b.hub))
	second, _ := clone.start("two")
	clone.eventually("it leads", func() bool { return second.elector.Valid() })
	b.lease()
	asked := len(b.hub.Requests())
	clone.eventually("it has been answered", func() bool {
		n := 0
		for _, r := range b.hub.Requests()[asked:] {
			n += strings.Count(r, "/leases/")
		}
		return n > 2 || whose(second.whose.Load()) != unknown
	})
	if got := b.noted(tenants.AnnotationCluster); got != "" || whose(second.whose.Load()) != unknown {
		t.Fatalf("the new Lease is of %q", got)
	}
	(&pulse{a: first}).beat(t.Context(), time.Now())
	clone.eventually("the other is refused", func() bool { return whose(second.whose.Load()) == foreign })
	if after := writes(b.hub)[before:]; len(after) > 0 || b.noted(tenants.AnnotationCluster) != "first" {
		t.Errorf("written to the hub: %q; the Lease is of %q", after, b.noted(tenants.AnnotationCluster))
	}

	stop()
	b.lease()
	second.whose.Store(int32(unknown))
	p, now := &pulse{a: second}, time.Now()
	is := func(what string, after time.Duration, want whose) {
		t.Helper()
		if p.beat(t.Context(), now.Add(after)); whose(second.whose.Load()) != want || (p.said == "") != (want == ours) {
			t.Fatalf("%s: it is %d, and says %q", what, second.whose.Load(), p.said)
		}
	}
	is("at once", 0, unknown)
	is("soon", claimAfter-time.Second, unknown)
	b.hub.Delete(leasesOf, namespace, tenants.PulseName)
	is("without a Lease", claimAfter, unknown)
	b.lease()
	is("with another one", claimAfter+time.Second, unknown)
	is("for long", 2*claimAfter+time.Second, ours)
	if got := b.noted(tenants.AnnotationCluster); got != "second" {
		t.Errorf("the Lease is of %q", got)
	}
}

// TestLeaseComesBack: who leads gets a Lease that is made anew soon, however rarely it gives signs of life.
func TestLeaseComesBack(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.node("a", "10.1.0.1")
	a, _ := b.start("one")
	b.eventually("it leads", func() bool { return whose(a.whose.Load()) == ours })
	b.hub.Delete(leasesOf, namespace, tenants.PulseName)
	asked := len(b.hub.Requests())
	go (&pulse{a: a, every: time.Hour}).run(t.Context())
	b.eventually("it has asked", func() bool {
		return slices.ContainsFunc(b.hub.Requests()[asked:], func(r string) bool { return strings.Contains(r, "/leases/") })
	})
	b.lease()
	b.eventually("it has the Lease", func() bool { return b.noted(tenants.AnnotationCluster) == "first" })
}
