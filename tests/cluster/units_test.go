package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab/measure"
)

func TestLongestGap(t *testing.T) {
	s := measure.Time(time.Second)
	for _, x := range []struct {
		name    string
		moments []measure.Time
		want    time.Duration
	}{
		{"nothing", nil, 10 * time.Second},
		{"before and after", []measure.Time{1 * s, 30 * s}, 10 * time.Second},
		{"at the begin", []measure.Time{16 * s, 19 * s}, 6 * time.Second},
		{"in the middle, in no order", []measure.Time{19 * s, 11 * s, 12 * s}, 7 * time.Second},
		{"at the end", []measure.Time{11 * s, 13 * s}, 7 * time.Second},
	} {
		if got := longestGap(x.moments, 10*s, 20*s); got != x.want {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
}

func TestLines(t *testing.T) {
	got := lines("a --b \\\n  c    # once\n# no command\n\nd '#' e\n")
	want := []line{{"a --b    c", "once"}, {"d '#' e", ""}}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestFill(t *testing.T) {
	got, err := fill("join --a ... --b ...", map[string]string{"--a": "1", "--b": "2"})
	if err != nil || got != "join --a 1 --b 2" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := fill("join --a ... --c ...", map[string]string{"--a": "1"}); err == nil {
		t.Errorf("dots are left: %q", got)
	}
	if got, err := fill("join --a ...", map[string]string{"--a": "1", "--b": "2"}); err == nil {
		t.Errorf("a flag that the page does not have: %q", got)
	}
}

func TestBlocks(t *testing.T) {
	for _, x := range []struct{ document, title, language, has string }{
		{readme, "Install", "sh", "make build"},
		{ControlPlanePage, "2. First node", "sh", "kubeadm init"},
	} {
		if _, err := oneBlock(t.Context(), x.document, x.title, x.language, x.has); err != nil {
			t.Error(err)
		}
		if b, err := oneBlock(t.Context(), x.document, x.title, x.language, "nothing of this page"); err == nil {
			t.Errorf("found %q", b)
		}
	}
}

// TestMarked: a block belongs to the test that its page names, and to no other.
func TestMarked(t *testing.T) {
	text := "<!-- run by tests/cluster: TestA -->\n```sh\na\n```\n```sh\nnone\n```\n<!-- run by tests/cluster: TestB -->\n```sh\nb\n```\n" +
		"<!-- run by tests/cluster: TestA -->\n```sh\na2\na3\n```\n"
	if got := markedIn(text, "TestA"); !slices.Equal(got, []string{"a\n", "a2\na3\n"}) {
		t.Errorf("%q", got)
	}
	if got, err := Marked(t.Context(), readme, "TestNobody"); err == nil {
		t.Errorf("%q", got)
	}
	// InstallUnit, by which TestUnitBeforeInit begins, runs what the README marks.
	is, err := Marked(t.Context(), readme, "TestUnitBeforeInit")
	if err != nil {
		t.Fatal(err)
	}
	if want, err := oneBlock(t.Context(), readme, "Install", "sh", "lbd preflight"); err != nil || !slices.Equal(is, []string{want}) {
		t.Errorf("%v: marked %q, and InstallUnit runs %q", err, is, want)
	}
}

// TestUserData: the user data of docs/box.md is complete once its reader has filled it in.
func TestUserData(t *testing.T) {
	c := &Cluster{Parts: &Parts{Programs: &controlplane.Programs{Kubernetes: "v1"}}}
	c.secrets = secrets{key: "a key", password: "a password", token: "a token", certificateKey: "a certificate key"}
	for first, last := range map[bool]string{true: "kubeadm init", false: "until kubeadm join"} {
		data, err := c.userData(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		for _, f := range data.Files {
			files[f.Path] = f.Content
		}
		if config := files[configFile]; !strings.HasPrefix(config, "apiVersion: ") || !strings.Contains(config, "\nkind: BGPPeer\n") {
			t.Errorf("the configuration is %q", config)
		}
		if files["/etc/lbd/gossip.key"] != "a key" || files["/etc/lbd/masters.password"] != "a password" {
			t.Errorf("the files are %q", files)
		}
		command := data.Commands[len(data.Commands)-1]
		if !strings.HasPrefix(command, last) || !strings.Contains(command, " --certificate-key a certificate key ") || !strings.Contains(command, " --token a token") {
			t.Errorf("the last command is %q", command)
		}
	}
}
