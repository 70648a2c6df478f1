package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"lbd.dev/lbd/internal/config"
)

// execute runs a command and returns all that it says.
func execute(t *testing.T, cmd *cobra.Command, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	cmd.SilenceUsage = true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func put(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestValidateRefusesNothing(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.yaml"), "")
	put(t, filepath.Join(dir, "b.yaml"), "---\n# later\n---\n")
	for _, path := range []string{filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml"), dir} {
		out, err := execute(t, newValidate(), path)
		if err == nil || strings.Contains(out, "valid\n") || !strings.Contains(out, path+": has no document") || !strings.Contains(out, "`lbd manifest config`") {
			t.Errorf("%s: %v, %s", path, err, out)
		}
	}
	// A file without a document beside one with some is no mistake.
	put(t, filepath.Join(dir, "c.yaml"), "apiVersion: lbd.dev/v1alpha1\nkind: VirtualIP\nmetadata: {name: a}\nspec: {addresses: [10.0.0.200]}\n")
	if out, err := execute(t, newValidate(), dir); err != nil || !strings.Contains(out, dir+": valid\n") {
		t.Errorf("%v, %s", err, out)
	}
}

// TestValidateReadsStandardInput: what a pipe gets to see of `kubectl get ... | lbd validate -`.
func TestValidateReadsStandardInput(t *testing.T) {
	file := func(name, text string) *os.File {
		f, err := os.OpenFile(put(t, filepath.Join(t.TempDir(), name), text), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	const vip = "apiVersion: lbd.dev/v1alpha1\nkind: VirtualIP\nmetadata: {name: a}\nspec:\n  healthCheck: {tcp: {port: 6443}}\n  addresses: [10.0.0."
	in := os.Stdin
	defer func() { os.Stdin = in }()
	for _, tt := range []struct {
		text, out, errs string
		code            int
	}{
		{vip + "200]\n", "-: valid\n", "", exitDone},
		{vip + "300]\n", "", `error: -:6: VirtualIP "a": spec.addresses[0]: "10.0.0.300" is not an IP address` + "\n" +
			"    6 |   addresses: [10.0.0.300]\n      |               ^\n", exitRefused},
		{"", "", "error: -: has no document, so there is nothing to check; `lbd manifest config` prints a configuration to start from\n", exitRefused},
	} {
		os.Stdin = file("in", tt.text)
		code, said, complained := program(t, "validate", "-")
		if code != tt.code || said != tt.out || complained != tt.errs {
			t.Errorf("exit code %d, %q, %q; want %d, %q, %q", code, said, complained, tt.code, tt.out, tt.errs)
		}
	}
}

// TestValidateFindings: as a list for programs, warnings refused on request, and objects of
// others passed over on request.
func TestValidateFindings(t *testing.T) {
	dir := t.TempDir()
	const vip = "apiVersion: lbd.dev/v1alpha1\nkind: VirtualIP\nmetadata: {name: a}\nspec:\n  addresses: [10.0.0.1]\n"
	good := put(t, filepath.Join(dir, "good.yaml"), vip+"  healthCheck: {tcp: {port: 6443}}\n")
	warned := put(t, filepath.Join(dir, "warned.yaml"), vip)
	bad := put(t, filepath.Join(dir, "bad.yaml"), vip+"  partition: half\n")
	mixed := put(t, filepath.Join(dir, "mixed.yaml"), "apiVersion: v1\nkind: Pod\n---\n"+vip+"  healthCheck: {tcp: {port: 6443}}\n")
	alien := put(t, filepath.Join(dir, "alien.yaml"), "apiVersion: v1\nkind: Pod\n")
	missing := filepath.Join(dir, "missing")
	for _, c := range []struct {
		args   []string
		list   []finding // with -o json; Message: the part of it that counts
		refuse bool
		valid  string // with -o text
	}{
		{[]string{good}, []finding{}, false, good + ": valid\n"},
		{[]string{good, "--strict"}, []finding{}, false, good + ": valid\n"},
		{[]string{warned}, []finding{{warned, 4, 1, "spec.healthCheck", "warning", `VirtualIP "a": spec.healthCheck: there is none`}}, false, warned + ": valid\n"},
		{[]string{warned, "--strict"}, []finding{{warned, 4, 1, "spec.healthCheck", "warning", "there is none"}}, true, ""},
		{[]string{bad, missing}, []finding{{bad, 6, 14, "spec.partition", "error", `VirtualIP "a": spec.partition: "half"`}, {missing, 0, 0, "", "error", "no such file"}}, true, ""},
		{[]string{mixed}, []finding{{mixed, 1, 13, "apiVersion", "error", "document 1: apiVersion:"}}, true, ""},
		{[]string{mixed, "--skip-foreign"}, []finding{}, false, mixed + ": valid; skipped: 1\n"},
		{[]string{alien, "--skip-foreign"}, []finding{}, false, alien + ": nothing to check; skipped: 1\n"},
	} {
		text, _, err := call(t, append([]string{"validate", "-o", "json"}, c.args...)...)
		var got []finding
		if bad := json.Unmarshal([]byte(text), &got); bad != nil || got == nil || (err != nil) != c.refuse {
			t.Fatalf("%q: %v, %v, %s", c.args, bad, err, text)
		}
		if !slices.EqualFunc(got, c.list, func(a, b finding) bool {
			part := strings.Contains(a.Message, b.Message)
			a.Message, b.Message = "", ""
			return part && a == b
		}) {
			t.Errorf("%q: %+v, want %+v", c.args, got, c.list)
		}
		text, _, err = call(t, append([]string{"validate"}, c.args...)...)
		if (err != nil) != c.refuse || strings.Contains(text, ": valid\n") != strings.HasSuffix(c.valid, ": valid\n") || !strings.Contains(text, c.valid) {
			t.Errorf("%q: %v, %s", c.args, err, text)
		}
	}
	if _, err := execute(t, newValidate(), "--strict", warned); err == nil || err.Error() != "--strict refuses what is warned about" {
		t.Errorf("%v", err)
	}
}

// TestExcerptsFitATerminal: the caret is below the fault whatever is before it, and a long line
// is cut around it.
func TestExcerptsFitATerminal(t *testing.T) {
	for _, c := range []struct {
		text   string
		column int
		want   string
	}{
		{"a: x", 4, "    7 | a: x\n      |    ^\n"},
		{"a: x", 0, "    7 | a: x\n"},
		{"a: x", 5, "    7 | a: x\n      |     ^\n"},
		{"a: x", 99, "    7 | a: x\n"},
		{"\ta: \x1b[1m", 5, "    7 |  a: ?[1m\n      |     ^\n"},
		{"控制, e\u0301: x", 9, "    7 | 控制, e\u0301: x\n      |          ^\n"},
		{strings.Repeat("a", 200), 150, "    7 | …" + strings.Repeat("a", 99) + "…\n      | " + strings.Repeat(" ", 61) + "^\n"},
		{strings.Repeat("a", 200), 1, "    7 | " + strings.Repeat("a", 100) + "…\n      | ^\n"},
		{"", 0, ""},
	} {
		if got := excerpt(&config.Error{Line: 7, Column: c.column, Excerpt: c.text}); got != c.want {
			t.Errorf("%q at %d:\n%s\nwant\n%s", c.text, c.column, got, c.want)
		}
	}
}

// TestGuessedSocketIsNamed: with a configuration that cannot be read the commands
// ask at the default socket, where nobody may be.
func TestGuessedSocketIsNamed(t *testing.T) {
	bad := put(t, filepath.Join(t.TempDir(), "lbd.yaml"), "kind: x\n---\nkind: y\n")
	_, err := execute(t, newStatus(), "--config", bad)
	if err == nil || !strings.Contains(err.Error(), "that socket is a guess, since no configuration names the socket: "+bad+":1:") ||
		!strings.Contains(err.Error(), "`lbd validate "+bad+"` shows more") {
		t.Errorf("broken configuration: %v", err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := execute(t, newStatus(), "--config", missing); err == nil || !strings.Contains(err.Error(), "is a guess, since no configuration names the socket: "+missing) {
		t.Errorf("no configuration: %v", err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	if _, err := execute(t, newStatus(), "--config", bad, "--socket", socket); err == nil || strings.Contains(err.Error(), "guess") {
		t.Errorf("a socket that was given: %v", err)
	}
}

func TestPreflightSaysWhatConfigIs(t *testing.T) {
	out, err := execute(t, newPreflight(), "--help")
	if err != nil || !strings.Contains(out, "configuration to check, a file or a directory") {
		t.Errorf("%v, %s", err, out)
	}
	if out, _ := execute(t, newStatus(), "--help"); strings.Contains(out, "to check") {
		t.Errorf("status checks nothing: %s", out)
	}
}

// TestManifestCRDs: one definition for each file, each a document of its own.
func TestManifestCRDs(t *testing.T) {
	out, err := execute(t, newManifest(), "crds")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../packaging/crds/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	documents := strings.Split(out, "---\n")[1:]
	if len(documents) != len(files) {
		t.Errorf("%d documents of %d files", len(documents), len(files))
	}
	for _, d := range documents {
		if !strings.Contains(d, "\nkind: CustomResourceDefinition\n") || strings.Count(d, "\nkind: ") != 1 || !strings.HasSuffix(d, "\n") {
			t.Errorf("not one definition:\n%.300s", d)
		}
	}
}

// TestManifestDaemonset: every file of the base in order, and no image but the one
// that was asked for.
func TestManifestDaemonset(t *testing.T) {
	out, err := execute(t, newManifest(), "daemonset", "--image", "registry.example.net:5000/a/lbd@sha256:00")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out, "image: registry.example.net:5000/a/lbd@sha256:00\n"); n != 3 || strings.Count(out, "image: ") != n {
		t.Errorf("%d lines name the image, of %d", n, strings.Count(out, "image: "))
	}
	last := -1
	for _, kind := range []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "ConfigMap", "Deployment", "DaemonSet"} {
		at := strings.Index(out, "\nkind: "+kind+"\n")
		if at <= last {
			t.Errorf("%s at %d, after %d", kind, at, last)
		}
		last = at
	}
	for _, bad := range []string{"", "a b", "a\"b"} {
		if _, err := execute(t, newManifest(), "daemonset", "--image", bad); err == nil {
			t.Errorf("image %q is taken", bad)
		}
	}
}

// TestKeygenSecret: what is refused before anything is sent.
func TestKeygenSecret(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	missing := filepath.Join(t.TempDir(), "kubeconfig")
	for _, tt := range []struct{ args, want string }{
		{"--secret a --rotate b", "exclude each other"},
		{"--namespace a", "are for --secret"},
		{"--secret a --namespace b --kubeconfig " + missing, "kubeconfig " + missing},
		{"--secret a --namespace b", "no service account of a pod"},
	} {
		out, err := execute(t, newKeygen(), strings.Fields(tt.args)...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %s", tt.args, err, out)
		}
	}
}
