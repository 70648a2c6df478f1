package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/testnet"
)

func TestControllerFlags(t *testing.T) {
	for _, args := range []string{"--namespace=", "--lease-name=", "--load-balancer-class=", "--quarantine=-1s", "--log-format=xml", "--log-level=loud", "--metrics-key-file=/a", "extra"} {
		if code := run([]string{"controller", args}); code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", args, code, exitUsage)
		}
	}
	if code := run([]string{"controller", "--kubeconfig", filepath.Join(t.TempDir(), "none")}); code != exitRefused {
		t.Errorf("no kubeconfig: exit code %d, want %d", code, exitRefused)
	}
}

// fullDisk is a log that does not take its first line.
type fullDisk struct{ lines atomic.Int64 }

func (d *fullDisk) Write(line []byte) (int, error) {
	if d.lines.Add(1) == 1 {
		return 0, syscall.ENOSPC
	}
	return len(line), nil
}

func aService(name string) map[string]any {
	return map[string]any{"metadata": map[string]any{"namespace": "default", "name": name, "uid": name}, "spec": map[string]any{
		"type": "LoadBalancer", "loadBalancerClass": "lbd.dev/lbd", "ipFamilies": []string{"IPv4"}, "ports": []any{map[string]any{"protocol": "TCP", "port": 80}}}}
}

// get returns the status and the body of an answer, or why there is none.
func get(addr, path string) string {
	r, err := http.Get("http://" + addr + path)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return r.Status + "\n" + string(body)
}

// shows waits until the metrics have lines that begin like these.
func shows(t *testing.T, addr string, want ...string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		body := get(addr, "/metrics")
		missing := slices.DeleteFunc(slices.Clone(want), func(w string) bool { return strings.Contains(body, "\n"+w) })
		switch {
		case len(missing) == 0:
			return
		case time.Now().After(end):
			t.Fatalf("after 30 s these are missing: %q in\n%s", missing, body)
		}
	}
}

// TestControllerHTTP: a controller against an API server tells what it does, until
// it is stopped.
func TestControllerHTTP(t *testing.T) {
	api := apitest.New(t, map[string]string{
		"v1/services": "Service", "v1/namespaces": "Namespace", "v1/nodes": "Node", "v1/events": "Event",
		"lbd.dev/v1alpha1/ipaddresspools": "IPAddressPool", "coordination.k8s.io/v1/leases": "Lease",
		"lbd.dev/v1alpha1/tenants": "Tenant", "lbd.dev/v1alpha1/tenantnodes": "TenantNodes", "lbd.dev/v1alpha1/tenantservices": "TenantService",
	})
	api.Put("lbd.dev/v1alpha1/tenants", map[string]any{"metadata": map[string]any{"name": "shop", "uid": "shop"}, "spec": map[string]any{"pools": []any{"p"}, "limits": map[string]any{"addresses": 7},
		"clusters": []any{map[string]any{"name": "main", "namespace": "lbd-shop-main", "nodeCIDRs": []any{"10.1.0.0/24"}}}}})
	api.Put("lbd.dev/v1alpha1/tenantservices", map[string]any{"metadata": map[string]any{"namespace": "lbd-shop-main", "name": "default.ssh", "uid": "ssh"},
		"spec": map[string]any{"ports": []any{map[string]any{"port": 22, "nodePort": 22}}}})
	api.Put("lbd.dev/v1alpha1/ipaddresspools", map[string]any{"metadata": map[string]any{"name": "p"}, "spec": map[string]any{"addresses": []string{"192.0.2.0/30", "2001:db8::/126"}}})
	api.Put("v1/services", aService("web"))
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: \"" + api.Config().Host + "\"}}\ncontexts:\n- {name: c, context: {cluster: c, user: u}}\ncurrent-context: c\nusers:\n- {name: u, user: {}}\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(testnet.Loopback(), 7477).String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- runController(ctx, controllerFlags{kubeconfig: kubeconfig, namespace: "lbd-system", lease: "lbd-controller", class: "lbd.dev/lbd",
			http: addr, logFlags: logFlags{level: "info", format: "text"}, quarantine: time.Minute}, new(fullDisk))
	}()
	shows(t, addr, "lbd_controller_leader 1", "lbd_allocator_services 1", "lbd_allocator_services_waiting 0", "lbd_allocator_assigned_total 1",
		`lbd_controller_writes_total{result="ok"} 1`, `lbd_allocator_addresses_total{pool="p"} 8`, `lbd_allocator_addresses_in_use_total{pool="p"} 1`,
		`lbd_allocator_ipv4_addresses_total{pool="p"} 4`, `lbd_allocator_ipv4_addresses_in_use_total{pool="p"} 1`,
		`lbd_allocator_ipv6_addresses_total{pool="p"} 4`, `lbd_allocator_ipv6_addresses_in_use_total{pool="p"} 0`,
		`lbd_allocator_addresses_quarantined{pool="p"} 0`, `lbd_kubernetes_requests_total{code="200",method="PATCH"}`,
		"lbd_allocator_repairs_total 0\n", "lbd_log_lines_dropped_total 1\n",
		`lbd_tenant_services{tenant="shop"} 0`, `lbd_tenant_services_limit{tenant="shop"} 50`, `lbd_tenant_addresses{tenant="shop"} 0`, `lbd_tenant_addresses_limit{tenant="shop"} 7`,
		`lbd_tenant_nodes{tenant="shop"} 0`, `lbd_tenant_routes{tenant="shop"} 0`, `lbd_tenant_routes_limit{tenant="shop"} 200`, `lbd_tenant_routes_still 0`, `lbd_tenant_problems{tenant="shop"} 1`)
	api.Put("v1/services", aService("late")) // it is seen after what was written before
	shows(t, addr, "lbd_allocator_assigned_total 2")
	changed := api.Get("v1/services", "default", "web")
	changed["status"] = map[string]any{} // by somebody else
	api.Put("v1/services", changed)
	shows(t, addr, "lbd_allocator_repairs_total 1\n")
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := get(addr, path); got != "200 OK\nok\n" {
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

// TestControllerSecureMetrics: with an address of its own /metrics asks the API server, which
// here knows no reviews, so that nobody gets it.
func TestControllerSecureMetrics(t *testing.T) {
	api := apitest.New(t, map[string]string{"coordination.k8s.io/v1/leases": "Lease"})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: \"" + api.Config().Host + "\"}}\ncontexts:\n- {name: c, context: {cluster: c, user: u}}\ncurrent-context: c\nusers:\n- {name: u, user: {}}\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m := secureMetrics(v1alpha1.MetricsSpec{Address: ":1", CertFile: "c", KeyFile: "k"}, kubeconfig, slog.New(slog.DiscardHandler))
	if m.Address != ":1" || m.CertFile != "c" || m.KeyFile != "k" {
		t.Errorf("%+v", m)
	}
	if code, err := m.Authorize(t.Context(), "token"); code != http.StatusServiceUnavailable || err == nil {
		t.Errorf("%d %v", code, err)
	}
	if asked := api.Requests(); len(asked) != 1 || !strings.HasPrefix(asked[0], "POST /apis/authentication.k8s.io/v1/tokenreviews") {
		t.Errorf("asked %q", asked)
	}
	for _, off := range []string{"", "off"} {
		if secureMetrics(v1alpha1.MetricsSpec{Address: off}, kubeconfig, slog.New(slog.DiscardHandler)) != nil {
			t.Errorf("%q listens", off)
		}
	}
	if nodeMetrics(&config.Node{Metrics: v1alpha1.MetricsSpec{Address: ":1"}}, nil) != nil {
		t.Error("a node without a cluster has nobody to ask")
	}
}
