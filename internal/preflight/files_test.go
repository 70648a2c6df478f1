package preflight

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/fileaccess"
	"lbd.dev/lbd/internal/testnet"
	"lbd.dev/lbd/packaging"
	"lbd.dev/lbd/systemd"
)

// putBelow writes a file below root.
func putBelow(t *testing.T, root, path, text string) {
	t.Helper()
	file := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestReaders: preflight sees which way the daemon is installed.
func TestReaders(t *testing.T) {
	root := t.TempDir()
	putBelow(t, root, "etc/kubernetes/manifests/etcd.yaml", "kind: Pod\nmetadata: {labels: {component: etcd}}\n")
	if readers(root)[0].here || unitIn(root) {
		t.Error("something is installed in an empty directory")
	}
	putBelow(t, root, "etc/kubernetes/manifests/balancer.yaml", packaging.StaticPod)
	putBelow(t, root, "etc/systemd/system/lbd.service", systemd.Unit)
	if !readers(root)[0].here || !unitIn(root) {
		t.Error("static pod and unit are not seen")
	}
}

// TestPreflightFiles: the key of user lbd is fine for the unit, and not for the pod,
// where root has no capability that overrides its owner.
func TestPreflightFiles(t *testing.T) {
	testnet.NeedRoot(t)                       // files of other users
	dir, err := os.MkdirTemp("", "preflight") // that of the test is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	key, kubeconfig := filepath.Join(dir, "gossip.key"), filepath.Join(dir, "kubeconfig")
	putBelow(t, dir, "gossip.key", config.NewKey()+"\n")
	putBelow(t, dir, "lbd.yaml", "apiVersion: lbd.dev/v1alpha1\nkind: NodeConfiguration\nnodeName: m1\ngossip: {keyFile: "+key+
		"}\nkubernetes: {kubeconfig: "+kubeconfig+"}\n")
	const lbd = 4242
	if err := os.Chown(key, lbd, lbd); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(filepath.Join(dir, "lbd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	look := func(pod, unit bool) (string, int) {
		var out bytes.Buffer
		p := &preflight{out: &out, cfg: cfg}
		p.files([]reader{
			{what: "the static pod", user: fileaccess.Root, here: pod},
			{what: "the unit", user: fileaccess.User{UID: lbd, Groups: []uint32{lbd}}, here: unit},
		})
		return strings.ReplaceAll(strings.Join(strings.Fields(out.String()), " "), dir, "DIR"), p.failed
	}
	const later = "warning file stat DIR/kubeconfig: no such file or directory"
	cure := "it belongs to 4242 (mode 0600); `chown root: DIR/gossip.key` "
	for _, c := range []struct {
		pod, unit bool
		want      string
		failed    int
	}{
		{pod: true, want: "FAILED file the static pod cannot read DIR/gossip.key: " + cure + later, failed: 1},
		{unit: true, want: "ok file the unit can read DIR/gossip.key " + later},
		{want: "warning file the static pod could not read DIR/gossip.key: " + cure + later},
	} {
		if got, failed := look(c.pod, c.unit); got != c.want || failed != c.failed {
			t.Errorf("pod %v, unit %v: %d failed, want %d\ngot  %s\nwant %s", c.pod, c.unit, failed, c.failed, got, c.want)
		}
	}
	putBelow(t, dir, "kubeconfig", "")
	if got, failed := look(false, true); failed != 1 || !strings.Contains(got, "FAILED file the unit cannot read DIR/kubeconfig: it belongs to root") {
		t.Errorf("a kubeconfig of root: %d failed: %s", failed, got)
	}
}
