package controlplane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

const (
	// movedFor is how long clients are watched after a move, and movedLines how many stay connected meanwhile.
	movedFor   = time.Second
	movedLines = 10
)

// twoClusters has the cluster of bank join as the second one of shop. By a global name its Service web gets the
// address of that of shop, and the weights move the workload while clients connect all the time. Then the older
// Service is deleted, and the other one goes on with the address.
func twoClusters(t *testing.T, l *controlplane.TenantLab) {
	ctx := t.Context()
	shop, second := l.Tenants[0], l.Tenants[1]
	began := time.Now()
	if err := l.JoinSecond(ctx, shop, second); err != nil {
		t.Fatal(err)
	}
	weigh := func(x *controlplane.Tenant, weight int) {
		t.Helper()
		if _, err := l.Shell(ctx, fmt.Sprintf("kubectl --context %s annotate --overwrite service web lbd.dev/global-name=web lbd.dev/weight=%d", x.Name, weight)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := shop.Kubectl(ctx, "label", "node", shop.Nodes[0].Name, "node.kubernetes.io/exclude-from-external-load-balancers-"); err != nil { // it was drained
		t.Fatal(err)
	}
	for i, nodePort := range []int{30090, 30091} { // others than in shop
		patch := fmt.Sprintf(`[{"op": "replace", "path": "/spec/ports/%d/nodePort", "value": %d}]`, i, nodePort)
		if _, err := second.Kubectl(ctx, "patch", "service", "web", "--type=json", "-p", patch); err != nil {
			t.Fatal(err)
		}
	}
	weigh(shop, 100)
	said(t, l.Hub, "web", "-n", "lbd-shop-main", "get", "tenantservice", "default.web", "-o", "jsonpath={.status.globalName}")
	weigh(second, 0)
	has := fmt.Sprintf("%s %s", shop.VIPs[0], shop.VIPs[1])
	for _, x := range l.Tenants {
		said(t, x.ControlPlane, has, "get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}")
	}
	serve(t, l, shop)

	eyes, err := l.Open(shop.VIPs)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = eyes.Close() }()
	c := lab.Cluster{Lab: l.Lab, Eyes: eyes}
	eventually(t, "clients are served", func() error { return c.Quiet(400 * time.Millisecond) })
	answersOf := func(x *controlplane.Tenant) {
		t.Helper()
		if err := l.Serve(ctx, shop, x.PodNames()...); err != nil { // the address is that of shop
			t.Fatal(err)
		}
	}
	// during has something happen while clients connect, and others stay connected.
	during := func(what string, happens func()) {
		t.Helper()
		if err := eyes.OpenConns(ctx, shop.VIPs[0], movedLines); err != nil {
			t.Fatal(err)
		}
		from := measure.Now()
		happens()
		lab.Pause(ctx, movedFor)
		conns, to := eyes.Conns(from, measure.Now()), measure.Now().Add(-300*time.Millisecond) // what is under way would look like success
		eyes.CloseConns()
		for _, vip := range shop.VIPs {
			r := eyes.Reach(vip, from, to)
			t.Logf("%s: %s: %d of %d new connections failed; of %d that were open %d live on", what, vip, r.Failed, r.Attempts, conns.Open, conns.Survived())
			if r.Failed > 0 || r.Attempts == 0 || conns.Open != movedLines || conns.Survived() != movedLines {
				t.Errorf("%s: %v", what, r.Errors)
			}
		}
	}
	during("the workload is moved", func() {
		weigh(second, 100)
		weigh(shop, 0)
		answersOf(second)
	})
	out, err := l.Shell(ctx, "lbd tenant show shop --context hub")
	if err != nil || !strings.Contains(out, "as web, weight 0") || !strings.Contains(out, "as web, weight 100") {
		t.Errorf("%v\n%s", err, out)
	}
	during("the older Service is deleted", func() {
		if _, err := l.Shell(ctx, "kubectl --context shop delete service web"); err != nil {
			t.Fatal(err)
		}
		said(t, l.Hub, "", "-n", "lbd-shop-main", "get", "tenantservice", "default.web", "--ignore-not-found", "-o", "name")
		answersOf(second)
	})
	said(t, second.ControlPlane, has, "get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}")
	t.Logf("both clusters: %v", time.Since(began).Round(time.Second))
}
