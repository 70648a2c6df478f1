package agent

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s/controller"
)

// TestWithAHub: the controller of a hub and the agent of a tenant together bring a Service its address,
// and say what is over a limit.
func TestWithAHub(t *testing.T) {
	t.Parallel() // it waits most of the time
	b := newBed(t)
	for res, kind := range map[string]string{servicesOf: "Service", "v1/namespaces": "Namespace", nodesOf: "Node", eventsOf: "Event",
		"lbd.dev/v1alpha1/ipaddresspools": "IPAddressPool", "lbd.dev/v1alpha1/tenants": "Tenant", "coordination.k8s.io/v1/leases": "Lease"} {
		b.hub.Serve(res, kind)
	}
	b.hub.Put("lbd.dev/v1alpha1/ipaddresspools", map[string]any{"metadata": map[string]any{"name": "public", "uid": "p"}, "spec": map[string]any{"addresses": []any{"198.51.100.0/30"}}})
	b.hub.Put("lbd.dev/v1alpha1/tenants", map[string]any{"metadata": map[string]any{"name": "shop", "uid": "t"}, "spec": map[string]any{
		"clusters": []any{map[string]any{"name": "main", "namespace": namespace, "nodeCIDRs": []any{"10.1.0.0/24"}}}, "pools": []any{"public"},
		"limits": map[string]any{"addresses": 1}}})
	c, err := controller.New(controller.Options{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)).With("process", "hub"), Client: clientOf(t, b.hub), Namespace: "lbd-system", LeaseName: "lbd-controller",
		Identity: "hub", Allocator: allocator.Options{Class: "lbd.dev/lbd", Quarantine: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	defer func() { cancel(); <-done }()
	b.node("a", "10.1.0.1")
	b.node("b", "10.2.0.1") // in no prefix of the cluster
	b.service("web")
	b.start("one")
	b.eventually("served", func() bool {
		return strings.HasPrefix(b.shown("web"), "198.51.100.") && strings.HasSuffix(b.shown("web"), "lbd.dev/Accepted=Accepted")
	})
	t.Log(b.shown("web"), b.told())
	b.service("zoo", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30081 })
	b.eventually("over the limit", func() bool { return b.shown("zoo") == "lbd.dev/Accepted=TenantLimit" })
	b.tenant.Delete(servicesOf, "default", "web")
	b.eventually("what is free goes to the other", func() bool { return strings.HasPrefix(b.shown("zoo"), "198.51.100.") })
	t.Log(b.shown("zoo"), b.told())
	b.eventually("nothing more is written", func() bool {
		n := len(writes(b.hub)) + len(writes(b.tenant))
		time.Sleep(3 * time.Second)
		return n == len(writes(b.hub))+len(writes(b.tenant))
	})
}
