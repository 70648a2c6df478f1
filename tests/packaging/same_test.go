package packaging

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// byHelm are the labels that only the chart gives.
var byHelm = []string{"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"}

// plain takes from an object what says only who made it, and opens the
// configuration in a ConfigMap.
func plain(t *testing.T, o Object) Object {
	t.Helper()
	if labels, ok := o.At("metadata", "labels").(map[string]any); ok {
		for _, l := range byHelm {
			delete(labels, l)
		}
	}
	if data, ok := o.At("data").(map[string]any); ok {
		for key, text := range data {
			var content any
			if err := yaml.UnmarshalStrict([]byte(text.(string)), &content); err != nil {
				t.Fatalf("%s: %s: %v", o.Key(), key, err)
			}
			data[key] = content
		}
	}
	return o
}

// TestSame: the chart with its own values is the base, object by object. It has no
// Namespace: Helm keeps its release in the one that it installs into.
func TestSame(t *testing.T) {
	want, got := index(t, kustomized(t)), index(t, charted(t, nil))
	delete(want, "Namespace/"+Namespace)
	if a, b := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)); !slices.Equal(a, b) {
		t.Fatalf("kustomize has\n%s\nHelm has\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	if len(want) < 20 {
		t.Errorf("only %d objects", len(want))
	}
	for key := range want {
		if diff := cmp.Diff(plain(t, want[key]), plain(t, got[key])); diff != "" {
			t.Errorf("%s: kustomize (-) and Helm (+):\n%s", key, diff)
		}
	}
}

// overlaid is the base with components.
func overlaid(t *testing.T, components ...string) []Object {
	t.Helper()
	dir, err := os.MkdirTemp(root+"/packaging", "overlay-") // outside of the base, or it would be a cycle
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	overlay := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../kustomize]\ncomponents:\n"
	for _, c := range components {
		overlay += "  - ../kustomize/" + c + "\n"
	}
	if err := os.WriteFile(dir+"/kustomization.yaml", []byte(overlay), 0o644); err != nil {
		t.Fatal(err)
	}
	objects, err := Kustomize(dir)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// TestSameMachines: what a management cluster needs is the same, too.
func TestSameMachines(t *testing.T) {
	want, got := index(t, overlaid(t, "machines")), index(t, charted(t, map[string]any{"machines": true}))
	delete(want, "Namespace/"+Namespace)
	if len(want) != len(index(t, kustomized(t)))+3 || len(got) != len(want) {
		t.Errorf("%d objects by kustomize, %d by Helm", len(want), len(got))
	}
	for key := range want {
		if diff := cmp.Diff(plain(t, want[key]), plain(t, got[key])); diff != "" {
			t.Errorf("%s: kustomize (-) and Helm (+):\n%s", key, diff)
		}
	}
	writes := map[string]string{
		"ClusterRole/lbd-machines": "patch machineloadbalancers/status.lbd.dev",
		"ClusterRole/lbd-clusters": "patch machines.cluster.x-k8s.io, patch clusters.cluster.x-k8s.io, patch machineloadbalancers/status.lbd.dev",
	}
	for key, may := range writes {
		var list []string
		for _, r := range rights(want[key]) {
			if verb, _, _ := strings.Cut(r, " "); verb != "get" && verb != "list" && verb != "watch" {
				list = append(list, r)
			}
		}
		if got := strings.Join(list, ", "); got != may {
			t.Errorf("%s may %s", key, got)
		}
	}
	bound := index(t, charted(t, map[string]any{"machines": true, "machinesNamespaces": []any{"clusters", "more"}}))
	for _, ns := range []string{"clusters", "more"} {
		b := bound["RoleBinding/"+ns+"/lbd-machines"]
		if len(bound) != len(got)+2 || b.Text("roleRef", "kind") != "ClusterRole" || b.Text("roleRef", "name") != "lbd-machines" {
			t.Errorf("%d objects, and in %s %v", len(bound)-len(got), ns, b)
		}
	}
}

// TestManifest: the program prints the base, with the image that it is given.
func TestManifest(t *testing.T) {
	const image = "registry.example.net/lbd:v9"
	printed, err := Split([]byte(run(t, "manifest", "daemonset", "--image", image)))
	if err != nil {
		t.Fatal(err)
	}
	got, want := index(t, printed), index(t, kustomized(t))
	if a, b := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)); !slices.Equal(a, b) {
		t.Fatalf("kustomize has\n%s\nlbd prints\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	for key := range want {
		for _, c := range containers(want[key]) {
			c["image"] = image
		}
		if diff := cmp.Diff(want[key], got[key]); diff != "" {
			t.Errorf("%s: kustomize (-) and lbd (+):\n%s", key, diff)
		}
	}
}

// TestOneImage: one version in the base and in the chart, and no other image.
func TestOneImage(t *testing.T) {
	data, err := os.ReadFile(chart + "/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^appVersion: (v[0-9.]+)$`).FindSubmatch(data)
	if m == nil {
		t.Fatal("Chart.yaml has no appVersion")
	}
	n := 0
	for _, o := range slices.Concat(kustomized(t), charted(t, nil)) {
		for _, c := range containers(o) {
			n++
			if c["image"] != "lbd.dev/lbd:"+string(m[1]) {
				t.Errorf("%s: image %v", o.Key(), c["image"])
			}
		}
	}
	if n != 6 {
		t.Errorf("%d containers", n)
	}
}

// containers returns those of a workload, the ones that run first included.
func containers(o Object) []Object {
	var all []Object
	for _, field := range []string{"initContainers", "containers"} {
		list, _ := o.At("spec", "template", "spec", field).([]any)
		for _, c := range list {
			all = append(all, Object(c.(map[string]any)))
		}
	}
	return all
}
