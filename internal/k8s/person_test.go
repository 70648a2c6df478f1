package k8s

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNewForPerson: the kubeconfig files are those of kubectl.
func TestNewForPerson(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name)
		text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: %[1]s, cluster: {server: \"https://%[1]s:6443\"}}\ncontexts:\n- {name: %[1]s, context: {cluster: %[1]s, user: %[1]s}}\ncurrent-context: %[1]s\nusers:\n- {name: %[1]s, user: {}}\n", name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two, three := file("one"), file("two"), file("three")
	t.Setenv("KUBECONFIG", one+string(filepath.ListSeparator)+two)
	for _, c := range []struct{ file, context, want string }{
		{"", "", "https://one:6443"}, {"", "two", "https://two:6443"}, {three, "", "https://three:6443"},
		{three, "two", `context "two" does not exist`}, {filepath.Join(dir, "none"), "", "none"},
	} {
		client, err := NewForPerson(c.file, c.context, Options{})
		got := fmt.Sprint(err)
		if err == nil {
			got = client.Config.Host
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%q, %q: %s, want %s", c.file, c.context, got, c.want)
		}
	}
}
