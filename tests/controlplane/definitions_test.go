package controlplane_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"lbd.dev/lbd/tests/controlplane"
)

// verdict is what Validate of api/v1alpha1 says of an object; its tests write the
// file.
type verdict struct {
	Kind, Case string
	Object     map[string]any
	Errors     []string
}

func verdicts(t *testing.T) []verdict {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "api", "v1alpha1", "testdata", "verdicts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var all []verdict
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v verdict
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if err := lines.Err(); err != nil || len(all) < 300 {
		t.Fatalf("%d verdicts: %v", len(all), err)
	}
	return all
}

// TestDefinitions has the API server take what `lbd manifest crds` prints, and
// judge objects as lbd does. What a schema cannot check is listed, with reasons,
// in tests/crds; here it may be no more than a few objects.
func TestDefinitions(t *testing.T) {
	t.Parallel() // it measures nothing
	l := newLab(t, 0)
	c := start(t, l, controlplane.Options{})
	if err := c.ApplyCRDs(t.Context()); err != nil {
		t.Fatal(err)
	}
	out, err := c.Kubectl(t.Context(), "get", "crd", "-o", `jsonpath={range .items[*]}{.metadata.name}{" "}{.status.conditions[?(@.type=="NonStructuralSchema")].message}{"\n"}{end}`)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if name, bad, _ := strings.Cut(strings.TrimSpace(line), " "); bad != "" {
			t.Errorf("%s: %s", name, bad)
		}
	}
	t.Run("objects", func(t *testing.T) { testVerdicts(t, c) })
	t.Run("converted", func(t *testing.T) { testConverted(t, c) })
}

// namespaced are the kinds whose objects are in namespaces.
var namespaced = []string{"MachineLoadBalancer", "TenantNodes", "TenantService", "TenantRoute"}

func testVerdicts(t *testing.T, c *controlplane.ControlPlane) {
	cfg, err := c.Config(c.Host, c.Host.IP4, controlplane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	taken, refused := 0, 0
	all := verdicts(t)
	for _, v := range all {
		resource := schema.GroupVersionResource{Group: "lbd.dev", Version: "v1alpha1", Resource: plural(v.Kind)}
		objects := dynamic.ResourceInterface(client.Resource(resource))
		if slices.Contains(namespaced, v.Kind) {
			objects = client.Resource(resource).Namespace(metav1.NamespaceDefault)
		}
		_, err := objects.Create(t.Context(), &unstructured.Unstructured{Object: v.Object},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		switch {
		case len(v.Errors) == 0 && err != nil:
			t.Errorf("%s %s: lbd takes it, the API server says %v", v.Kind, v.Case, err)
		case len(v.Errors) > 0 && err == nil:
			t.Logf("%s %s: the API server takes it, lbd says %v", v.Kind, v.Case, v.Errors)
			taken++
		case len(v.Errors) > 0:
			refused++
		}
	}
	t.Logf("of %d objects lbd refuses %d, the API server %d of those", len(all), taken+refused, refused)
	if taken > 10 {
		t.Errorf("the API server takes %d objects that lbd refuses", taken)
	}
}

// testConverted: the cluster takes what becomes of MetalLB's documented examples.
func testConverted(t *testing.T, c *controlplane.ControlPlane) {
	for _, name := range []string{"l2", "bgp", "namespaces", "dualstack", "bfd", "list"} {
		out, err := c.Lab.Exec(t.Context(), c.Host, c.Lab.Bin.LBD, "convert", "metallb", filepath.Join("..", "..", "internal", "convert", "testdata", name+".in.yaml"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := c.Apply(t.Context(), out, "--dry-run=server"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func plural(kind string) string {
	if strings.HasSuffix(kind, "y") {
		return strings.ToLower(strings.TrimSuffix(kind, "y")) + "ies"
	}
	if kind == "TenantNodes" { // a plural itself
		return strings.ToLower(kind)
	}
	if strings.HasSuffix(kind, "s") {
		return strings.ToLower(kind) + "es"
	}
	return strings.ToLower(kind) + "s"
}
