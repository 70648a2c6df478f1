package main

import (
	"bytes"
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

// TestEveryLineOfAnErrorNamesTheCommand, and has the prefix of errors.
func TestEveryLineOfAnErrorNamesTheCommand(t *testing.T) {
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	two := put(t, filepath.Join(t.TempDir(), "two.yaml"), "kind: x\n---\nkind: y\n")
	for _, c := range []struct {
		args  []string
		code  int
		lines []string
	}{
		{[]string{"run", "--config", two}, exitRefused, []string{"error: lbd run: " + two + ":1: ", "error: lbd run: " + two + ":3: "}},
		{[]string{"status", "bgp", "--socket", "none"}, exitRefused, []string{"error: lbd status bgp: daemon is not running"}},
		{[]string{"drain", "--timeout", "0"}, exitUsage, []string{"error: lbd drain: --timeout must be above 0", "Run 'lbd drain --help'"}},
	} {
		file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		os.Stderr = file
		code := run(c.args)
		os.Stderr = stderr
		said, err := os.ReadFile(file.Name())
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(said), "\n"), "\n")
		if code != c.code || !slices.EqualFunc(lines, c.lines, strings.HasPrefix) {
			t.Errorf("%q: exit code %d, %q; want %d, %q", c.args, code, lines, c.code, c.lines)
		}
	}
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
	if got, _, err := call(t, append([]string{cobra.ShellCompRequestCmd}, "explain", "--socket", socket, "")...); err != nil || !strings.Contains(got, ":4") {
		t.Errorf("%q, %v", got, err)
	}
	status.VIPs = []v1alpha1.VIPStatus{{Name: "cp", Kind: "VirtualIP", Address: "10.0.0.200"}}
	if got, _, err := call(t, append([]string{cobra.ShellCompRequestCmd}, "explain", "--socket", socket, "")...); err != nil || !strings.Contains(got, "10.0.0.200\tcp\ncp\tVirtualIP\n") {
		t.Errorf("%q, %v", got, err)
	}
}
