package controlplane_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/controlplane"
)

// TestTwoTenants follows the commands of the first chapter of docs/tenants.md for two clusters with the same
// networks of Pods and Services, and the same NodePorts. A client outside reaches the Pods of each, by TCP and
// by UDP, both families, and those of nobody else: whatever addresses a Node of the other says it has.
// Then the same for their Ingresses, by an engine of the hub, for the certificates of these, and for their
// HTTPRoutes, by a Gateway of the hub. In the end both clusters are of one tenant.
func TestTwoTenants(t *testing.T) {
	l, _ := twoTenants(t, func(l *controlplane.TenantLab) (*controlplane.Engine, error) {
		return l.Hub.StartEngine(t.Context(), l.HubNodes[0], "reader")
	})
	twoClusters(t, l)
}

// twoTenants is the story, with an engine of the hub, and returns what there is at its end: shop has no route any more.
func twoTenants(t *testing.T, start func(*controlplane.TenantLab) (*controlplane.Engine, error)) (*controlplane.TenantLab, *controlplane.Engine) {
	need(t)
	l, err := controlplane.NewTenantLab(t.Context(), bin, programs, "shop", "bank")
	if err != nil {
		t.Fatal(err)
	}
	closing(t, l.Lab)
	var commands []string
	for _, x := range l.Tenants {
		if err := l.Join(t.Context(), x, func(c string) { commands = append(commands, c) }); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v is answered %v after `kubectl apply`", x.Name, x.VIPs, x.Answered.Round(10*time.Millisecond))
	}
	if n := len(commands); n != 8+5 {
		t.Errorf("%d commands were run:\n%s", n, strings.Join(commands, "\n"))
	}
	shop, bank := l.Tenants[0], l.Tenants[1]
	for _, x := range l.Tenants {
		serve(t, l, x)
	}
	if shop.Pods[0].IP4 != bank.Pods[0].IP4 || shop.Pods[0].IP6 != bank.Pods[0].IP6 {
		t.Errorf("the Pods have different addresses: %v, %v", shop.Pods[0].IP4, bank.Pods[0].IP4)
	}

	t.Log("bank asks for what is of shop")
	words, err := l.Steal(t.Context(), bank, shop)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(words)
	words, err = l.Claim(t.Context(), bank, shop.Nodes[0])
	if err != nil || !strings.Contains(words, "is in none of the nodeCIDRs of the cluster") {
		t.Errorf("%q: %v", words, err)
	}
	out, err := l.AsAgent(t.Context(), bank, "-n", "lbd-shop-main", "get", "tenantservices")
	if err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("bank reads what shop has: %q: %v", out, err)
	}
	for _, x := range slices.Backward(l.Tenants) {
		serve(t, l, x)
	}
	for _, x := range l.Tenants {
		out, err := l.Shell(t.Context(), "lbd tenant show "+x.Name+" --context hub")
		if err != nil || !strings.Contains(out, "  The agent was last heard ") || !strings.Contains(out, "default.web") {
			t.Errorf("%v\n%s", err, out)
		}
		uid, err := x.Kubectl(t.Context(), "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
		of, errOf := l.Hub.Kubectl(t.Context(), "-n", "lbd-"+x.Name+"-main", "get", "lease", "agent", "-o", `jsonpath={.metadata.annotations.lbd\.dev/cluster-uid}`)
		if err := errors.Join(err, errOf); err != nil || uid == "" || of != uid {
			t.Errorf("the hub takes %s for the cluster with the UID %q, which has %q: %v", x.Name, of, uid, err)
		}
	}
	engine, err := start(l)
	if err != nil {
		t.Fatal(err)
	}
	ingresses(t, l, engine)
	certificates(t, l, engine)
	httpRoutes(t, l, engine)
	return l, engine
}

func serve(t *testing.T, l *controlplane.TenantLab, x *controlplane.Tenant) {
	t.Helper()
	if err := l.Serve(t.Context(), x, x.PodNames()...); err != nil {
		t.Fatal(err)
	}
}
