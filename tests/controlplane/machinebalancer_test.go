package controlplane_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/tests/controlplane"
)

// balancerManifest is a MachineLoadBalancer for the lab's Cluster.
const balancerManifest = `apiVersion: lbd.dev/v1alpha1
kind: MachineLoadBalancer
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  clusterRef: {name: %[3]s}
  address: %[4]s
  healthCheck:
    https: {port: 6443, path: /livez, insecureSkipVerify: true}
`

// statusIs waits until a field of a balancer is as wanted.
func statusIs(t *testing.T, m *controlplane.MachineLab, namespace, name, path, want string) time.Duration {
	t.Helper()
	from := time.Now()
	must(t, controlplane.Eventually(t.Context(), time.Minute, name+" has "+want, func() error {
		got, err := m.CP.Kubectl(t.Context(), "-n", namespace, "get", "mlb", name, "-o", "jsonpath={"+path+"}")
		if err == nil && got != want {
			err = fmt.Errorf("%s is %q", path, got)
		}
		return err
	}))
	return time.Since(from)
}

// TestMachineLoadBalancer: the address of a MachineLoadBalancer is on a host of its
// members, its status counts them, and an endpoint is there before any member is.
func TestMachineLoadBalancer(t *testing.T) {
	m := newMachines(t, controlplane.MachineOptions{Nodes: 3, Managers: 3})
	must(t, m.StartSteward(t.Context()))
	vip := netip.MustParseAddr("10.77.0.210")
	apply := func(name, namespace, address string) {
		must(t, m.CP.Apply(t.Context(), fmt.Sprintf(balancerManifest, name, namespace, m.Machines.Name, address)))
	}
	// Of a cluster without Machines, and whose Cluster comes after it.
	must(t, m.CP.Apply(t.Context(), "apiVersion: v1\nkind: Namespace\nmetadata: {name: empty}\n"))
	apply("empty", "empty", "10.77.0.211")
	_, err := m.CP.NewMachineCluster(t.Context(), "empty", m.Machines.Name)
	must(t, err)
	statusIs(t, m, "empty", "empty", ".status.endpoint.host", "10.77.0.211")
	statusIs(t, m, "empty", "empty", ".status.status", "0 of 0 members healthy")
	must(t, controlplane.Eventually(t.Context(), time.Minute, "the Cluster has the endpoint", func() error {
		got, err := m.CP.Kubectl(t.Context(), "-n", "empty", "get", "clusters.cluster.x-k8s.io", m.Machines.Name, "-o", "jsonpath={.spec.controlPlaneEndpoint.host}")
		if err == nil && got != "10.77.0.211" {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	}))
	apply("prod", "default", vip.String())
	statusIs(t, m, "default", "prod", ".status.status", "3 of 3 members healthy")
	must(t, controlplane.Eventually(t.Context(), time.Minute, "a client is served at the address", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		c, err := m.Dial(ctx, m.Client, "tcp", netip.AddrPortFrom(vip, controlplane.APIPort).String())
		if err != nil {
			return err
		}
		return c.Close()
	}))
	must(t, m.Nodes[1].Service.Kill())
	took := statusIs(t, m, "default", "prod", ".status.status", "2 of 3 members healthy")
	t.Logf("an API server that dies is in the status after %v", took.Round(10*time.Millisecond))
	must(t, m.StartService(t.Context(), m.Nodes[1]))
	statusIs(t, m, "default", "prod", ".status.status", "3 of 3 members healthy")
	key, on := "lbd.dev/drain", "true"
	must(t, m.Machines.Label(t.Context(), controlplane.MachineOf(m.Nodes[2]), key, &on))
	statusIs(t, m, "default", "prod", `.status.members[?(@.node=="`+m.Nodes[2].Name+`")].state`, "Drained")
}
