package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/k8s/apitest"
)

func TestControllerFlags(t *testing.T) {
	for _, args := range []string{"--namespace=", "--lease-name=", "--load-balancer-class=", "--quarantine=-1s", "--log-format=xml", "--log-level=loud", "extra"} {
		if code := run([]string{"controller", args}); code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", args, code, exitUsage)
		}
	}
	if code := run([]string{"controller", "--kubeconfig", filepath.Join(t.TempDir(), "none")}); code != exitRefused {
		t.Errorf("no kubeconfig: exit code %d, want %d", code, exitRefused)
	}
}

// TestControllerHTTP: a controller against an API server tells what it does, until
// it is stopped.
func TestControllerHTTP(t *testing.T) {
	api := apitest.New(t, map[string]string{
		"v1/services": "Service", "v1/namespaces": "Namespace", "v1/nodes": "Node", "v1/events": "Event",
		"lbd.dev/v1alpha1/ipaddresspools": "IPAddressPool", "coordination.k8s.io/v1/leases": "Lease",
	})
	api.Put("lbd.dev/v1alpha1/ipaddresspools", map[string]any{"metadata": map[string]any{"name": "p"}, "spec": map[string]any{"addresses": []string{"192.0.2.0/30", "2001:db8::/126"}}})
	api.Put("v1/services", map[string]any{"metadata": map[string]any{"namespace": "default", "name": "web", "uid": "1"}, "spec": map[string]any{
		"type": "LoadBalancer", "loadBalancerClass": "lbd.dev/lbd", "ipFamilies": []string{"IPv4"}, "ports": []any{map[string]any{"protocol": "TCP", "port": 80}}}})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: \"" + api.Config().Host + "\"}}\ncontexts:\n- {name: c, context: {cluster: c, user: u}}\ncurrent-context: c\nusers:\n- {name: u, user: {}}\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- runController(ctx, controllerFlags{kubeconfig: kubeconfig, namespace: "lbd-system", lease: "lbd-controller", class: "lbd.dev/lbd",
			http: addr, level: "info", format: "text", quarantine: time.Minute}, io.Discard)
	}()
	get := func(path string) string {
		r, err := http.Get("http://" + addr + path)
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		return r.Status + "\n" + string(body)
	}
	want := []string{
		"lbd_controller_leader 1", "lbd_allocator_services 1", "lbd_allocator_services_waiting 0", "lbd_allocator_assigned_total 1",
		`lbd_controller_writes_total{result="ok"} 1`, `lbd_allocator_addresses_total{pool="p"} 8`, `lbd_allocator_addresses_in_use_total{pool="p"} 1`,
		`lbd_allocator_ipv4_addresses_total{pool="p"} 4`, `lbd_allocator_ipv4_addresses_in_use_total{pool="p"} 1`,
		`lbd_allocator_ipv6_addresses_total{pool="p"} 4`, `lbd_allocator_ipv6_addresses_in_use_total{pool="p"} 0`,
		`lbd_allocator_addresses_quarantined{pool="p"} 0`, `lbd_kubernetes_requests_total{code="200",method="PATCH"}`,
	}
	missing := want
	for end := time.Now().Add(30 * time.Second); len(missing) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 20 s these are missing: %q in\n%s", missing, get("/metrics"))
		}
		body := get("/metrics")
		missing = nil
		for _, w := range want {
			if !strings.Contains(body, "\n"+w) {
				missing = append(missing, w)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := get(path); got != "200 OK\nok\n" {
			t.Errorf("%s: %q", path, got)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	lease := api.Get("coordination.k8s.io/v1/leases", "lbd-system", "lbd-controller")
	if holder := lease["spec"].(map[string]any)["holderIdentity"]; holder != "" {
		t.Errorf("the Lease is still of %v", holder)
	}
}
