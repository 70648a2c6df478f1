package controlplane_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
)

// balancerObject has the servers of the lab behind the VIPs of the lab.
const balancerObject = `apiVersion: lbd.dev/v1alpha1
kind: LoadBalancer
metadata: {name: web}
spec:
  addresses: [%q, %q]
  ports: [{port: %d}]
  backends: [%s]
  healthCheck: {tcp: {port: %[3]d}}
`

// TestLoadBalancerObject: an object that somebody applies leads clients to machines outside of
// the cluster, from nodes with kube-proxy and Services of their own. The controller judges it.
func TestLoadBalancerObject(t *testing.T) {
	f := newFleet(t)
	if err := f.Lab.AddBackends(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	vips := []netip.Addr{lab.VIP4(), lab.VIP6()}
	apply := func(servers ...*lab.Node) {
		t.Helper()
		var list []string
		for _, s := range servers {
			list = append(list, fmt.Sprintf("{address: %s}, {address: %q}", s.IP4, s.IP6))
		}
		if err := f.Apply(t.Context(), fmt.Sprintf(balancerObject, vips[0], vips[1], probePort, strings.Join(list, ", "))); err != nil {
			t.Fatal(err)
		}
	}
	one, two := f.Lab.Backends[0], f.Lab.Backends[1]
	// What a node owns when it looks first is no news. It writes its status then, too.
	if err := controlplane.Eventually(t.Context(), 20*time.Second, "each node writes its status", func() error {
		out, err := f.Kubectl(t.Context(), "get", "nodestatuses", "-o", "name")
		if n := len(strings.Fields(out)); err == nil && n != 3 {
			err = fmt.Errorf("%d do", n)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	apply(one, two)
	f.answeredBy(t, vips, one.Name, two.Name)
	t.Logf("applied to answered by both servers in both families: %v", time.Since(from).Round(time.Millisecond))
	f.settled(t, vips...)
	f.accepted(t, "web", metav1.ConditionTrue, "in use as it is written")

	t.Log("a Service beside it")
	f.serve(t, f.loadBalancer("svc"), f.pods...)

	err := controlplane.Eventually(t.Context(), 20*time.Second, "events say which node announces", func() error {
		out, err := f.Kubectl(t.Context(), "get", "events", "-A", "--field-selector", "reason=nodeAssigned")
		for _, object := range []string{"loadbalancer/web", "service/svc"} {
			if err == nil && !strings.Contains(out, object) {
				err = fmt.Errorf("none is of %s:\n%s", object, out)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}

	t.Log("a server is taken out of the object")
	apply(two)
	f.answeredBy(t, vips, two.Name)

	t.Log("the owner is drained")
	owner := f.owner(t, f.nodes[0], vips[0])
	if err := f.lbd.DrainFor(t.Context(), f.Lab, owner.Node, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	f.answeredBy(t, vips, two.Name)
	if err := f.lbd.Undrain(t.Context(), f.Lab, owner.Node); err != nil {
		t.Fatal(err)
	}

	t.Log("an address of another object")
	err = f.Apply(t.Context(), fmt.Sprintf(`apiVersion: lbd.dev/v1alpha1
kind: LoadBalancer
metadata: {name: zweb}
spec: {addresses: [%s], ports: [{port: 1}], backends: [{address: %s}]}
`, vips[0], one.IP4))
	if err != nil {
		t.Fatal(err)
	}
	f.accepted(t, "zweb", metav1.ConditionFalse, `is also one of LoadBalancer "web", which has it`)
	f.answeredBy(t, vips, two.Name)

	t.Log("the object is deleted")
	if _, err := f.Kubectl(t.Context(), "delete", "loadbalancers.lbd.dev", "--all"); err != nil {
		t.Fatal(err)
	}
	err = controlplane.Eventually(t.Context(), 20*time.Second, "nothing answers", func() error {
		for _, vip := range vips {
			if name, err := f.ask(t.Context(), vip); err == nil {
				return fmt.Errorf("%s is answered by %s", vip, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// accepted waits until the controller has judged a LoadBalancer, with these words in its
// message.
func (f *fleet) accepted(t *testing.T, name string, status metav1.ConditionStatus, words string) {
	t.Helper()
	err := controlplane.Eventually(t.Context(), 20*time.Second, "condition of "+name, func() error {
		out, err := f.Kubectl(t.Context(), "get", "lb", name, "-o", "json")
		if err != nil {
			return err
		}
		var o struct {
			Status struct{ Conditions []metav1.Condition }
		}
		if err := json.Unmarshal([]byte(out), &o); err != nil {
			return err
		}
		if c := condition(o.Status.Conditions, v1alpha1.ConditionAccepted); c == nil || c.Status != status || !strings.Contains(c.Message, words) {
			return fmt.Errorf("conditions %+v", o.Status.Conditions)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
