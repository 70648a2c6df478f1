package machines

import (
	"errors"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/k8s/apitest"
)

// appear is one step of TestOrder.
func appear(b *bed, step string) {
	switch step {
	case "kubeconfig":
		b.mu.Lock()
		defer b.mu.Unlock()
		b.unconnected = nil
	case "clusterapi":
		b.api.Serve(resMachines, "Machine")
		b.api.Serve(resClusters, "Cluster")
		b.api.Put(resMachines, aMachine("a/m1", "", "10.0.0.11", ``))
		b.api.Put(resClusters, object("a/prod", `"spec":{}`))
	case "lbd":
		b.api.Serve(resBalancers, "MachineLoadBalancer")
		b.api.Put(resBalancers, object("a/api", `"spec":{"clusterRef":{"name":"prod"},"address":"10.0.0.200"}`))
	}
}

// TestOrder: a daemon and a controller are there first, and the kubeconfig, the
// definitions of Cluster API and those of lbd come in each order, the objects of each
// with them. Those of one definition in each order are for a real API server. All wait
// at the same time.
func TestOrder(t *testing.T) {
	t.Parallel()
	all := map[string]*bed{}
	for _, order := range []string{
		"kubeconfig clusterapi lbd", "kubeconfig lbd clusterapi", "clusterapi kubeconfig lbd",
		"clusterapi lbd kubeconfig", "lbd kubeconfig clusterapi", "lbd clusterapi kubeconfig",
	} {
		b := &bed{t: t, api: apitest.New(t, map[string]string{resEvents: "Event"}), unconnected: errors.New("no kubeconfig yet")}
		b.run(nil)
		b.decide(false)
		steward(t, b.api)
		all[order] = b
	}
	for i := range 3 {
		for order, b := range all {
			appear(b, strings.Fields(order)[i])
		}
		time.Sleep(200 * time.Millisecond) // so that it may be noticed before the next
	}
	for order, b := range all {
		eventually(t, order+": the host has the address", func() bool { return b.told() == "a/api@10.0.0.200 manager" })
		eventually(t, order+": the Cluster has the endpoint", func() bool {
			spec, _ := b.api.Get(resClusters, "a", "prod")["spec"].(map[string]any)
			e, _ := spec["controlPlaneEndpoint"].(map[string]any)
			return e["host"] == "10.0.0.200" && e["port"] == 6443.0
		})
		eventually(t, order+": the status has it", func() bool { return statusOf(b.api, "a/api").Endpoint != nil })
	}
}
