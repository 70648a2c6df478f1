package controlplane_test

import (
	"os"
	"strings"
	"testing"

	"lbd.dev/lbd/tests/controlplane"
)

// controlPlane is a KubeadmControlPlane to which the docs add the hook.
const controlPlane = `apiVersion: v1
kind: Namespace
metadata: {name: clusters}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: prod, namespace: clusters}
spec:
  replicas: 3
  version: v1.35.0
  machineTemplate:
    spec:
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: Metal3MachineTemplate, name: prod}
`

// TestClusterAPIManifests: the API server accepts every object that docs/cluster-api.md
// shows, in the order in which it shows them, and refuses the key of the old proposal.
func TestClusterAPIManifests(t *testing.T) {
	l := newLab(t, 1)
	c := start(t, l, controlplane.Options{Families: []controlplane.Family{controlplane.IPv4}})
	must(t, c.ApplyClusterAPI(t.Context()), c.ApplyCRDs(t.Context()), c.Apply(t.Context(), controlPlane))
	b, err := os.ReadFile("../../docs/cluster-api.md")
	must(t, err)
	kinds := map[string]int{}
	for _, m := range yamlBlock.FindAllStringSubmatch(string(b), -1) {
		if strings.Contains("\n"+m[1], "\nkind: NodeConfiguration") {
			continue // of a file
		}
		if err := c.Apply(t.Context(), m[1], "--field-manager=docs"); err != nil {
			t.Errorf("%v:\n%s", err, m[1])
		}
		for line := range strings.Lines(m[1]) {
			if kind, ok := strings.CutPrefix(line, "kind: "); ok {
				kinds[strings.TrimSpace(kind)]++
			}
		}
	}
	for _, kind := range []string{"MachineLoadBalancer", "Cluster", "KubeadmControlPlane"} {
		if kinds[kind] == 0 {
			t.Errorf("the page shows no %s", kind)
		}
	}
	m, err := c.NewMachineCluster(t.Context(), "other", "other")
	must(t, err, m.Create(t.Context(), controlplane.Machine{Name: "cp-1"}))
	yes := "true"
	const old = "cluster.x-k8s.io/control-plane/selected-for-upgrade"
	if err := m.Label(t.Context(), "cp-1", old, &yes); err == nil {
		t.Errorf("the API server takes the label %s", old)
	}
	if err := m.Annotate(t.Context(), "cp-1", old, &yes); err == nil {
		t.Errorf("the API server takes the annotation %s", old)
	}
}
