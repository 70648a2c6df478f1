package controlplane_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
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
	m := newMachines(t, controlplane.MachineOptions{Nodes: 4, Started: 3, Managers: 4})
	must(t, m.StartSteward(t.Context()))
	vip := netip.MustParseAddr("10.77.0.210")
	apply := func(name, namespace, address string) {
		must(t, m.CP.Apply(t.Context(), fmt.Sprintf(balancerManifest, name, namespace, m.Machines.Name, address)))
	}
	// Of a cluster without Machines, and whose Cluster comes after it.
	must(t, m.CP.Apply(t.Context(), "apiVersion: v1\nkind: Namespace\nmetadata: {name: empty}\n"))
	apply("empty", "empty", "10.77.0.211")
	empty, err := m.CP.NewMachineCluster(t.Context(), "empty", m.Machines.Name)
	must(t, err)
	statusIs(t, m, "empty", "empty", ".status.endpoint.host", "10.77.0.211")
	statusIs(t, m, "empty", "empty", ".status.status", "0 of 0 members healthy")
	told(t, empty, "10.77.0.211")
	apply("prod", "default", vip.String())
	statusIs(t, m, "default", "prod", ".status.status", "3 of 3 members healthy")
	servedAt(t, m, vip)
	t.Run("disabled", func(t *testing.T) { disabled(t, m, vip) })
	must(t, m.Nodes[1].Service.Kill())
	took := statusIs(t, m, "default", "prod", ".status.status", "2 of 3 members healthy")
	t.Logf("an API server that dies is in the status after %v", took.Round(10*time.Millisecond))
	must(t, m.StartService(t.Context(), m.Nodes[1]))
	statusIs(t, m, "default", "prod", ".status.status", "3 of 3 members healthy")
	key, on := "lbd.dev/drain", "true"
	must(t, m.Machines.Label(t.Context(), controlplane.MachineOf(m.Nodes[2]), key, &on))
	statusIs(t, m, "default", "prod", `.status.members[?(@.node=="`+m.Nodes[2].Name+`")].state`, "Drained")
	t.Run("in every order", func(t *testing.T) { inEveryOrder(t, m, m.Nodes[3]) })
}

// disabled takes the Machine of the owner of a balancer's address out of that balancer:
// the address moves, and the host keeps the one that its files give it.
func disabled(t *testing.T, m *controlplane.MachineLab, vip netip.Addr) {
	ctx, on := t.Context(), ""
	owner := ownerOf(t, m, vip, nil)
	// All but one are disabled for that balancer, so that it is known who gets it; the
	// key of another one changes nothing.
	var rest *lab.Node
	for _, n := range m.Nodes[:3] {
		if n != owner && rest == nil {
			rest = n
			other := v1alpha1.DisabledPrefix + "other"
			must(t, m.Machines.Annotate(ctx, controlplane.MachineOf(n), other, &on))
			continue
		}
		must(t, m.Machines.Annotate(ctx, controlplane.MachineOf(n), v1alpha1.DisabledPrefix+"prod", &on))
	}
	ownerOf(t, m, vip, rest)
	servedAt(t, m, vip)
	statusIs(t, m, "default", "prod", ".status.status", "1 of 1 members healthy")
	st, err := m.System.Status(ctx, m.Lab, owner)
	must(t, err)
	for _, v := range st.VIPs {
		if lost := strings.Contains(v.Reason+v.Detail, "MachineDisabled"); lost != (v.Address == vip) {
			t.Errorf("%s: %s %s %s", owner.Name, v.Address, v.Reason, v.Detail)
		}
	}
	if st.Draining || len(st.VIPs) < 2 {
		t.Errorf("%s drains: %v, and knows %d addresses", owner.Name, st.Draining, len(st.VIPs))
	}
	for _, n := range m.Nodes[:3] {
		must(t, m.Machines.Annotate(ctx, controlplane.MachineOf(n), v1alpha1.DisabledPrefix+"prod", nil))
	}
	statusIs(t, m, "default", "prod", ".status.status", "3 of 3 members healthy")
}

// ownerOf waits until one node, that one if it is given, says that it owns an address,
// and returns it.
func ownerOf(t *testing.T, m *controlplane.MachineLab, vip netip.Addr, want *lab.Node) (owner *lab.Node) {
	t.Helper()
	must(t, controlplane.Eventually(t.Context(), time.Minute, "one host has "+vip.String(), func() error {
		var names []string
		for _, n := range m.Nodes[:3] {
			st, err := m.System.Status(t.Context(), m.Lab, n)
			if err != nil {
				return err
			}
			for _, v := range st.VIPs {
				if v.Address == vip && v.Reason == "Owner" {
					names, owner = append(names, n.Name), n
				}
			}
		}
		if len(names) != 1 || want != nil && owner != want {
			return fmt.Errorf("it is on %v", names)
		}
		return nil
	}))
	return owner
}

// told waits until a Cluster has this host as its endpoint.
func told(t *testing.T, c *controlplane.MachineCluster, host string) {
	t.Helper()
	must(t, controlplane.Eventually(t.Context(), time.Minute, "the Cluster has the endpoint", func() error {
		got, err := c.Endpoint(t.Context())
		if err == nil && got != host {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	}))
}

// servedAt waits until a client can connect to an address.
func servedAt(t *testing.T, m *controlplane.MachineLab, vip netip.Addr) {
	t.Helper()
	must(t, controlplane.Eventually(t.Context(), time.Minute, "a client is served at the address", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		c, err := m.Dial(ctx, m.Client, "tcp", netip.AddrPortFrom(vip, controlplane.APIPort).String())
		if err != nil {
			return err
		}
		return c.Close()
	}))
}

// inEveryOrder makes a Cluster, a Machine and a MachineLoadBalancer in each order, each
// time with another address. The host is a Machine of no other Cluster.
func inEveryOrder(t *testing.T, m *controlplane.MachineLab, host *lab.Node) {
	const name = "orders"
	ctx := t.Context()
	c, err := m.CP.NoMachineCluster(ctx, name, name)
	must(t, err, m.Boot(ctx, host))
	for i, order := range []string{"CMB", "CBM", "MCB", "MBC", "BCM", "BMC"} {
		vip := netip.AddrFrom4([4]byte{10, 77, 0, byte(220 + i)})
		for _, what := range order {
			switch what {
			case 'C':
				must(t, c.CreateCluster(ctx))
			case 'M':
				must(t, c.Create(ctx, controlplane.OfNode(host, false)))
			case 'B':
				must(t, m.CP.Apply(ctx, fmt.Sprintf(balancerManifest, name, name, name, vip)))
			}
			time.Sleep(200 * time.Millisecond) // so that it is noticed before the next
		}
		took := statusIs(t, m, name, name, ".status.status", "1 of 1 members healthy")
		told(t, c, vip.String())
		servedAt(t, m, vip)
		t.Logf("%s: %v", order, took.Round(10*time.Millisecond))
		_, err := m.CP.Kubectl(ctx, "-n", name, "delete", "mlb", name)
		must(t, err, c.Delete(ctx, controlplane.MachineOf(host)), c.Finish(ctx, controlplane.MachineOf(host)), c.DeleteCluster(ctx))
	}
}
