package cluster_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
)

// packagedWithin is how long a node may take from nothing to the VIP, with the package.
const packagedWithin = time.Minute

// packaged is the configuration of a group of two.
const packaged = `apiVersion: lbd.dev/v1alpha1
kind: NodeConfiguration
gossip: {peers: [%s], keyFile: /etc/lbd/gossip.key}
---
apiVersion: lbd.dev/v1alpha1
kind: VirtualIP
metadata: {name: control-plane}
spec: {addresses: [%s]}
`

// deb makes the package of this tree with another version.
func deb(t *testing.T, version string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "dist")
	root, err := filepath.Abs("../..")
	must(t, err)
	c := exec.CommandContext(t.Context(), "go", "run", ".", "-dirty", "-root", root, "-out", out, "-arch", runtime.GOARCH, "-version", version, "-commit", "test", "-epoch", "1700000000")
	c.Dir = filepath.Join(root, "packaging", "release")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	names, err := filepath.Glob(filepath.Join(out, "*.deb"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%v: %v", names, err)
	}
	data, err := os.ReadFile(names[0])
	must(t, err)
	return data
}

// TestPackage: from nothing to a VIP by the commands of the README on each node; an upgrade keeps the VIP
// where it is; and a package that is removed leaves nothing but the configuration.
func TestPackage(t *testing.T) {
	need(t)
	now, next := deb(t, "v0.1.0-7-gaaaaaaa"), deb(t, "v0.1.0-8-gbbbbbbb")
	c := newCluster(t, 2)
	blocks, err := cluster.Marked(t.Context(), "README.md", "TestPackage")
	must(t, err)
	if len(blocks) != 1 || !strings.Contains(blocks[0], "_amd64.deb") {
		t.Fatalf("the README installs a package of amd64 by %q", blocks)
	}
	install := strings.Replace(blocks[0], "_amd64.deb", "_"+runtime.GOARCH+".deb", 1)
	var peers []string
	for _, m := range c.Machines {
		peers = append(peers, m.Address.String())
	}
	for _, m := range c.Machines {
		config := fmt.Sprintf(packaged, strings.Join(peers, ", "), cluster.VIP())
		must(t, errors.Join(m.WriteFile("/srv/lbd_0.1.0_"+runtime.GOARCH+".deb", now, 0o644), m.WriteFile("/srv/next.deb", next, 0o644),
			m.WriteFile("/srv/lbd.yaml", []byte(config), 0o644)))
		if _, err := m.ReadFile("/usr/bin/lbd"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s: lbd is there already: %v", m.Name, err)
		}
		from := time.Now()
		must(t, c.Follow(t.Context(), m, install, ""))
		eventually(t, packagedWithin, "somebody has the VIP", func() error { return owned(t, m) })
		t.Logf("%s: from nothing to the VIP in %v", m.Name, since(from))
		if took := time.Since(from); took > packagedWithin {
			t.Errorf("%s: from nothing to the VIP in %v, want %v", m.Name, took, packagedWithin)
		}
	}
	owner, err := c.WaitOwner(t.Context(), 30*time.Second, c.Machines...)
	must(t, err)
	notUpgraded(t, owner)
	upgradedInPlace(t, c, owner)
	for _, file := range []string{"/usr/share/man/man1/lbd.1.gz", "/usr/share/bash-completion/completions/lbd"} {
		if _, err := owner.ReadFile(file); err != nil {
			t.Error(err)
		}
	}

	mustRun(t, owner, "dpkg", "-r", "lbd")
	_, err = c.WaitOwner(t.Context(), 30*time.Second, c.Others(owner)...)
	must(t, err)
	left, err := owner.Shell(t.Context(), "set +e; ip -o addr show to "+cluster.VIP().String()+"; nft list tables | grep lbd; pgrep -x lbd; "+
		"ls /usr/lib/systemd/system/lbd* /usr/bin/lbd /etc/systemd/system/*.wants/lbd* 2>/dev/null; true")
	if must(t, err); strings.TrimSpace(left) != "" {
		t.Errorf("the package left %s", left)
	}
	if _, err := owner.ReadFile("/etc/lbd/lbd.yaml"); err != nil {
		t.Errorf("the configuration is gone: %v", err)
	}
}

// owned wants a node that has the VIP.
func owned(t *testing.T, m *cluster.Machine) error {
	s, err := m.Status(t.Context())
	if err != nil {
		return err
	}
	if len(s.VIPs) != 1 || s.VIPs[0].Owner == "" {
		return fmt.Errorf("VIPs %+v", s.VIPs)
	}
	return nil
}

// notUpgraded installs the next package, which refuses the configuration: the daemon goes on with
// the old program. The package is installed nevertheless, and the old one takes its place again.
func notUpgraded(t *testing.T, m *cluster.Machine) {
	t.Helper()
	running := func() string {
		text, err := m.Run(t.Context(), "systemctl", "show", "--property=MainPID", "--property=ActiveEnterTimestampMonotonic", "lbd")
		must(t, err)
		return text
	}
	was := running()
	mustRun(t, m, "sh", "-c", "echo 'kind: Unknown' > /etc/lbd/wrong.yaml")
	mustRun(t, m, "dpkg", "-i", "/srv/next.deb")
	mustRun(t, m, "rm", "/etc/lbd/wrong.yaml")
	mustRun(t, m, "dpkg", "--status", "lbd")
	if is := running(); is != was {
		t.Errorf("the daemon was %s and is %s", was, is)
	}
	if says, err := m.Run(t.Context(), "lbd", "status"); err != nil || !strings.Contains(says, "v0.1.0-7-gaaaaaaa") {
		t.Errorf("the daemon says %s: %v", says, err)
	}
}

// upgradedInPlace installs the next package on the owner, whose kernel has the VIP all the
// time.
func upgradedInPlace(t *testing.T, c *cluster.Cluster, owner *cluster.Machine) {
	t.Helper()
	gone := make(chan string, 1)
	go func() {
		text, _ := owner.Shell(t.Context(), "for i in $(seq 200); do ip -o addr show to "+cluster.VIP().String()+" | grep -q . || echo gone; sleep 0.02; done")
		gone <- text
	}()
	from := time.Now()
	mustRun(t, owner, "dpkg", "-i", "/srv/next.deb")
	t.Logf("upgraded in %v", since(from))
	if text := <-gone; text != "" {
		t.Errorf("the VIP left %s: %d times", owner.Name, strings.Count(text, "gone"))
	}
	for _, m := range c.Machines {
		says, err := m.Run(t.Context(), "lbd", "status")
		must(t, err)
		want := "v0.1.0-7-gaaaaaaa"
		if m == owner {
			want = "v0.1.0-8-gbbbbbbb"
		}
		if first, _, _ := strings.Cut(says, "\n"); !strings.Contains(first, want) {
			t.Errorf("%s says %s, want %s", m.Name, first, want)
		}
	}
	if is, err := c.WaitOwner(t.Context(), 30*time.Second, c.Machines...); err != nil || is != owner {
		t.Errorf("after the upgrade the owner is %v: %v", is, err)
	}
}
