package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPageCommands runs the blocks of commands that need no more than lbd, in a folder that stands
// for the root of a host, with an example of the page as the file that they name.
func TestPageCommands(t *testing.T) {
	bin := program(t)
	for name, example := range map[string]struct{ begin, file string }{
		"docs/keepalived.md": {"vrrp_script ", "etc/keepalived/keepalived.conf"},
		"docs/kube-vip.md":   {"apiVersion: v1\nkind: Pod\n", "etc/kubernetes/manifests/kube-vip.yaml"},
		"docs/metallb.md":    {},
		"docs/metrics.md":    {},
	} {
		p, host := readPage(t, name), t.TempDir()
		folders(t, host, "etc/prometheus/rules", "var/lib/grafana/dashboards", "etc/keepalived", "etc/kubernetes/manifests")
		for _, b := range p.blocks() {
			if example.file != "" && strings.HasPrefix(b.text, example.begin) {
				put(t, filepath.Join(host, example.file), b.text)
			}
		}
		put(t, filepath.Join(host, "ipaddresspools.yaml"), "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: a}\nspec: {addresses: [10.0.5.0/24]}\n")
		blocks := strings.Split(p.text, "<!-- run by tests/docs: TestPageCommands -->\n```sh\n")[1:]
		if len(blocks) == 0 {
			t.Errorf("%s has no commands to run", name)
		}
		for _, block := range blocks {
			commands, _, _ := strings.Cut(block, "```\n")
			commands = strings.NewReplacer(" /etc/", " "+host+"/etc/", " /var/", " "+host+"/var/").Replace(commands)
			c := exec.CommandContext(t.Context(), "sh", "-euc", commands)
			c.Dir, c.Env = host, append(os.Environ(), "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"))
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s\n%s", name, err, commands, out)
			}
		}
	}
}

// folders makes folders below another.
func folders(t *testing.T, below string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(below, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
