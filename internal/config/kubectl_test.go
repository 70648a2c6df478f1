package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// printed is what kubectl get -o yaml prints of two objects.
const printed = `apiVersion: v1
items:
- apiVersion: lbd.dev/v1alpha1
  kind: VirtualIP
  metadata:
    annotations:
      kubectl.kubernetes.io/last-applied-configuration: "{}"
    creationTimestamp: "2026-11-22T10:00:00Z"
    generation: 3
    managedFields:
    - {manager: kubectl, operation: Apply}
    name: cp
    resourceVersion: "123"
    uid: 5d4d9f3e-0000-0000-0000-000000000000
  spec:
    addresses:
    - 10.0.0.300
  status:
    owner: m1
- apiVersion: lbd.dev/v1alpha1
  kind: IPAddressPool
  metadata:
    name: p
  spec:
    addresses:
    - 10.0.1.0/24
kind: List
metadata:
  resourceVersion: ""
`

// TestWhatKubectlPrintsValidates: what the API server adds to an object is passed over, and
// an error in one of a list has its line.
func TestWhatKubectlPrintsValidates(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": printed, "b.yaml": strings.Replace(printed, "10.0.0.300", "10.0.0.200", 1)})
	sum, err := Validate(filepath.Join(dir, "a.yaml"))
	want := `a.yaml:17: VirtualIP "cp": spec.addresses[0]: "10.0.0.300" is not an IP address`
	if err == nil || !strings.HasSuffix(err.Error(), want) || sum.Objects != 2 {
		t.Errorf("%d objects: %v\nwant %s", sum.Objects, err, want)
	}
	if sum, err := Validate(filepath.Join(dir, "b.yaml")); err != nil || sum.Objects != 2 {
		t.Errorf("%d objects: %v", sum.Objects, err)
	}
	for name, text := range map[string]string{
		"a list of one kind":  strings.Replace(strings.Replace(printed, "kind: List", "kind: VirtualIPList", 1), "10.0.0.300", "10.0.0.200", 1),
		"one object, printed": "apiVersion: lbd.dev/v1alpha1\nkind: BFDProfile\nmetadata: {name: a, uid: x, creationTimestamp: null}\nstatus: {}\n",
	} {
		dir := write(t, map[string]string{"c.yaml": text})
		if _, err := Validate(filepath.Join(dir, "c.yaml")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A NodeConfiguration is never an object of a cluster.
	dir = write(t, map[string]string{"d.yaml": "apiVersion: lbd.dev/v1alpha1\nkind: NodeConfiguration\nstatus: {}\n"})
	if _, err := Validate(filepath.Join(dir, "d.yaml")); err == nil || !strings.Contains(err.Error(), "status: is not a known field") {
		t.Errorf("status of a NodeConfiguration: %v", err)
	}
}

// TestValidateReadsPipes: standard input, and a pipe as <(command) makes it.
func TestValidateReadsPipes(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stdin
	os.Stdin = in
	defer func() { os.Stdin = old }()
	if _, err := out.WriteString(printed); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if sum, err := Validate(Stdin); sum.Objects != 2 || err == nil || !strings.Contains(err.Error(), `:17: VirtualIP "cp"`) {
		t.Errorf("standard input: %d objects: %v", sum.Objects, err)
	}
	fifo := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		if w, err := os.OpenFile(fifo, os.O_WRONLY, 0); err == nil {
			_, _ = w.WriteString(printed)
			w.Close()
		}
	}()
	if sum, err := Validate(fifo); sum.Objects != 2 || err == nil {
		t.Errorf("a pipe: %d objects: %v", sum.Objects, err)
	}
	if _, err := Load(Stdin); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a daemon reads standard input: %v", err)
	}
}

// TestLinesOfBrokenYAML: the line that an error names is the one to look at, whichever part
// of the library found it.
func TestLinesOfBrokenYAML(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"parser, flow sequence", "a: 1\nb: [1, 2\nc: 3\n", "a.yaml:2: is not valid YAML: did not find expected ',' or ']'"},
		{"parser, flow mapping", "a: 1\nb: 1\nc: {x: 1\nd: 2\n", "a.yaml:3: is not valid YAML: did not find expected ',' or '}'"},
		{"parser, block mapping", "a: 1\nb:\n  c: 1\n d: 2\n", "a.yaml:4: is not valid YAML: did not find expected key"},
		{"scanner", "a: 1\nb:\n\tc: 3\n", "a.yaml:3: is not valid YAML: found character that cannot start any token"},
		{"scanner, mapping value", "a: 1\nb: c: d\n", "a.yaml:2: is not valid YAML: mapping values are not allowed in this context"},
	} {
		dir := write(t, map[string]string{"a.yaml": c.text})
		_, err := Validate(filepath.Join(dir, "a.yaml"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
		t.Log(err)
	}
}

// TestTypoHidesNoOtherError: the field that is meant is there too, and wrong.
func TestTypoHidesNoOtherError(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": "apiVersion: lbd.dev/v1alpha1\nkind: VirtualIP\nmetadata: {name: a}\nspec:\n  adresses: [10.0.0.1]\n  addresses: [10.0.0.300]\n"})
	_, err := Validate(filepath.Join(dir, "a.yaml"))
	for _, want := range []string{`did you mean "addresses"?`, `a.yaml:6: VirtualIP "a": spec.addresses[0]: "10.0.0.300" is not an IP address`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}
