package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"lbd.dev/lbd/api/v1alpha1"
)

// call runs a command and returns what it prints.
func call(t *testing.T, args ...string) (string, *cobra.Command, error) {
	t.Helper()
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(t.Context())
	return out.String(), cmd, err
}

func TestVersion(t *testing.T) {
	plain, _, err := call(t, "version")
	if err != nil || plain != programVersion()+"\n" {
		t.Errorf("%q, %v", plain, err)
	}
	if got, _, err := call(t, "--version"); err != nil || got != plain {
		t.Errorf("--version: %q, %v", got, err)
	}
	commit = "abc"
	defer func() { commit = "" }()
	text, _, err := call(t, "version", "-o", "json")
	var got versions
	if err := errors.Join(err, json.Unmarshal([]byte(text), &got)); err != nil || got != (versions{programVersion(), "abc", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}) {
		t.Errorf("%s, %v", text, err)
	}
	if text, _, err = call(t, "version", "-o", "yaml"); err != nil || !strings.Contains(text, "commit: abc\n") {
		t.Errorf("%s, %v", text, err)
	}
}

// TestFaultsOfUsage are told with the command, and what is meant.
func TestFaultsOfUsage(t *testing.T) {
	for _, c := range []struct {
		args          []string
		command, want string
	}{
		{[]string{"statsu"}, "lbd", `"statsu" is no command or argument of it; did you mean status?`},
		{[]string{"status", "bpg"}, "lbd status", "did you mean bgp?"},
		{[]string{"status", "--wach"}, "lbd status", "unknown flag: --wach"},
		{[]string{"status", "-o", "xml"}, "lbd status", `-o "xml": it is table, json or yaml`},
		{[]string{"explain", "x", "-o", "text"}, "lbd explain", `-o "text": it is table, json or yaml`},
		{[]string{"version", "-o", "table"}, "lbd version", `-o "table": it is text, json or yaml`},
		{[]string{"explain"}, "lbd explain", "it wants the name or the address of one VIP"},
		{[]string{"help", "statsu"}, "lbd help", "did you mean status?"},
		{[]string{"help", "status", "bpg"}, "lbd help", "did you mean bgp?"},
		{[]string{"completion", "powershel"}, "lbd completion", "did you mean powershell?"},
		{[]string{"xyzzy"}, "lbd", `"xyzzy" is no command or argument of it`},
	} {
		_, cmd, err := call(t, c.args...)
		if !errors.As(err, new(usageError)) || !strings.HasSuffix(err.Error(), c.want) || cmd.CommandPath() != c.command {
			t.Errorf("%q: %s: %v, want %s: %s", c.args, cmd.CommandPath(), err, c.command, c.want)
		}
	}
}

// TestCompletion: the shell is told values, and files only where a command reads some.
func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"status", "-o", ""}, []string{"json", "table", "yaml"}},
		{[]string{"version", "--output", ""}, []string{"json", "text", "yaml"}},
		{[]string{"controller", "--log-level", ""}, []string{"debug", "error", "info", "warn"}},
		{[]string{"controller", "--log-format", ""}, []string{"json", "text"}},
		{[]string{"explain", "--client", ""}, nil},
		{[]string{"manifest", "daemonset", "--image", ""}, nil},
		{[]string{"drain", ""}, nil},
		{[]string{"explain", ""}, nil}, // no daemon runs
		{[]string{"validate", ""}, []string{"json", "yaml", "yml"}},
	} {
		args := append([]string{cobra.ShellCompNoDescRequestCmd}, c.args...)
		if c.args[0] == "explain" {
			args = slices.Insert(args, 2, "--socket", t.TempDir()+"/none")
		}
		got, _, err := call(t, args...)
		lines := strings.Split(strings.TrimSpace(got), "\n")
		var values []string
		for _, l := range lines {
			if strings.HasPrefix(l, ":") {
				break
			}
			values = append(values, l)
		}
		slices.Sort(values)
		if err != nil || !slices.Equal(values, c.want) {
			t.Errorf("%q: %q, %v, want %q", c.args, got, err, c.want)
		}
		directive := ":4" // no files
		if c.args[0] == "validate" {
			directive = ":8" // by extension
		}
		if !slices.Contains(lines, directive) {
			t.Errorf("%q: %q, want directive %s", c.args, got, directive)
		}
	}
}

// program runs lbd as a process would, and returns how it ends and what it says.
func program(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	stdout, stderr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	dir := t.TempDir()
	var err error
	if os.Stdout, err = os.Create(filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if os.Stderr, err = os.Create(filepath.Join(dir, "err")); err != nil {
		t.Fatal(err)
	}
	code = run(args)
	said, err1 := os.ReadFile(os.Stdout.Name())
	complained, err2 := os.ReadFile(os.Stderr.Name())
	if err := errors.Join(err1, err2, os.Stdout.Close(), os.Stderr.Close()); err != nil {
		t.Fatal(err)
	}
	return code, string(said), string(complained)
}

// TestExitCodes: those of docs/commands.md; every line of an error has the prefix and names the
// command.
func TestExitCodes(t *testing.T) {
	two := put(t, filepath.Join(t.TempDir(), "two.yaml"), "kind: x\n---\nkind: y\n")
	const help = "Run 'lbd "
	for _, c := range []struct {
		args  []string
		code  int
		lines []string // on stderr, the beginnings
	}{
		{[]string{"run", "--config", two}, exitRefused, []string{"error: lbd run: " + two + ":1: ", "error: lbd run: " + two + ":3: "}},
		{[]string{"manifest", "config"}, exitDone, nil},
		{[]string{"manifest", "static-pod", "--image="}, exitUsage, []string{`error: lbd manifest static-pod: --image ""`, help}},
		{[]string{"manifest", "statefulset"}, exitUsage, []string{`error: lbd manifest: "statefulset"`, help}},
		{[]string{"preflight", "--config", two}, exitRefused, []string{"error: lbd preflight: " + two + ":1: ", "error: lbd preflight: " + two + ":3: "}},
		{[]string{"preflight", "now"}, exitUsage, []string{"error: lbd preflight: ", help}},
		{[]string{"drain", "--socket", "none"}, exitRefused, []string{"error: lbd drain: daemon is not running"}},
		{[]string{"drain", "--timeout", "0"}, exitUsage, []string{"error: lbd drain: --timeout must be above 0", help}},
		{[]string{"explain", "cp", "--socket", "none"}, exitRefused, []string{"error: lbd explain: daemon is not running"}},
		{[]string{"explain", "cp", "--socket", "none", "--client", "fd00::7"}, exitRefused, []string{"error: lbd explain: daemon is not running"}},
		{[]string{"explain", "cp", "--socket", "none", "--client", "10.0.0.7:99999"}, exitUsage, []string{`error: lbd explain: --client "10.0.0.7:99999"`, help}},
		{[]string{"status", "bgp", "--socket", "none"}, exitRefused, []string{"error: lbd status bgp: daemon is not running"}},
	} {
		code, out, errs := program(t, c.args...)
		lines := strings.Split(strings.TrimSuffix(errs, "\n"), "\n")
		if errs == "" {
			lines = nil
		}
		if code != c.code || !slices.EqualFunc(lines, c.lines, strings.HasPrefix) || (out != "") != (code == exitDone) {
			t.Errorf("%q: exit code %d, %q, %q; want %d, %q", c.args, code, out, lines, c.code, c.lines)
		}
	}
}

// writer is a function that takes output.
type writer func(string)

func (w writer) Write(b []byte) (int, error) {
	w(string(b))
	return len(b), nil
}

// TestStatusOfBGP: as a table and as documents, which are lists also without a session.
func TestStatusOfBGP(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	status := v1alpha1.NodeStatus{Node: "m1"}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(status) })}
	go func() { _ = server.Serve(ln) }()
	defer server.Close()
	ask := func(args ...string) string {
		t.Helper()
		got, _, err := call(t, append([]string{"status", "bgp", "--socket", socket}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := ask(); got != "Node m1 has no BGP peer.\n" {
		t.Errorf("%q", got)
	}
	if got := ask("-o", "json"); got != "[]\n" {
		t.Errorf("%q", got)
	}
	status.BGP = []v1alpha1.BGPStatus{{Peer: "tor1", State: "Established"}}
	if got := ask("-o", "yaml"); !strings.Contains(got, "peer: tor1\n") || !strings.HasPrefix(got, "- ") {
		t.Errorf("%q", got)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	watched := ""
	root := newRoot()
	root.SetArgs([]string{"status", "bgp", "-w", "-o", "yaml", "--socket", socket})
	root.SetOut(writer(func(s string) {
		if watched += s; strings.Contains(s, "tor1") {
			interrupt()
		}
	}))
	if err := root.ExecuteContext(ctx); err != nil || !strings.HasPrefix(watched, "---\n- ") {
		t.Errorf("%q, %v", watched, err)
	}
	if got, _, err := call(t, append([]string{cobra.ShellCompRequestCmd}, "explain", "--socket", socket, "")...); err != nil || !strings.Contains(got, ":4") {
		t.Errorf("%q, %v", got, err)
	}
	status.VIPs = []v1alpha1.VIPStatus{{Name: "cp", Kind: "VirtualIP", Address: "10.0.0.200"}}
	if got, _, err := call(t, append([]string{cobra.ShellCompRequestCmd}, "explain", "--socket", socket, "")...); err != nil || !strings.Contains(got, "10.0.0.200\tcp\ncp\tVirtualIP\n") {
		t.Errorf("%q, %v", got, err)
	}
}
