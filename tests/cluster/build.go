package cluster

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
)

// release of Debian, and what a node needs of it.
const (
	release  = "bookworm"
	packages = "systemd,systemd-sysv,systemd-container,dbus,iproute2,iptables,nftables,containerd,runc,conntrack,ethtool,socat," +
		"kmod,procps,iputils-ping,curl,ca-certificates,containernetworking-plugins,mount,netcat-openbsd,busybox,network-manager"
)

// masked are units without use in a machine whose network and clock are made for it.
var masked = []string{
	"systemd-firstboot.service", "systemd-networkd.service", "systemd-networkd.socket", "systemd-networkd-wait-online.service",
	"NetworkManager.service", "NetworkManager-wait-online.service", "wpa_supplicant.service",
	"systemd-resolved.service", "systemd-timesyncd.service", "systemd-logind.service", "console-getty.service",
	"apt-daily.timer", "apt-daily-upgrade.timer", "fstrim.timer",
}

// node is what each machine has beside Debian.
//
//go:embed node
var node embed.FS

// Parts are what machines are made of.
type Parts struct {
	Programs *controlplane.Programs
	LBD      string // the program under test

	debian   string // a file system
	template string // folder with what a node has more: root, and containerd with images
	built    bool   // something was not in the cache
}

// Build returns the parts from the cache and, if they are not there, builds them into
// it, which takes minutes. The cache is the folder lbd/cluster, beside that of
// tests/controlplane. LBD_BIN names the lbd to test. More packages of Debian are
// installed if they are named.
func Build(ctx context.Context, more ...string) (*Parts, error) {
	programs, err := controlplane.Build(ctx)
	if err != nil {
		return nil, err
	}
	p := &Parts{Programs: programs, LBD: os.Getenv("LBD_BIN"), built: programs.Built}
	if p.LBD == "" {
		return nil, errors.New("cluster: LBD_BIN names no lbd: make build, then LBD_BIN=$PWD/bin/lbd")
	}
	if err := Usable(); err != nil {
		return nil, err
	}
	root, err := cacheFolder()
	if err != nil {
		return nil, err
	}
	include := strings.Join(append([]string{packages}, more...), ",")
	p.debian = filepath.Join(root, "debian-"+release+"-"+runtime.GOARCH+"-"+key(release, include))
	made, err := controlplane.Keep(ctx, p.debian, exists("usr/bin/systemd-nspawn"), func(ctx context.Context, dir string) error {
		return bootstrap(ctx, dir, include)
	})
	if err != nil {
		return nil, fmt.Errorf("cluster: Debian: %w", err)
	}
	p.built = p.built || made
	files, err := nodeFiles()
	if err != nil {
		return nil, err
	}
	p.template = filepath.Join(root, "node-"+programs.Kubernetes+"-"+key(filepath.Base(programs.Dir), p.debian, files, fmt.Sprint(masked), imagesVersion))
	made, err = controlplane.Keep(ctx, p.template, exists("containerd/io.containerd.metadata.v1.bolt/meta.db"), p.fillTemplate)
	if err != nil {
		return nil, fmt.Errorf("cluster: node: %w", err)
	}
	p.built = p.built || made
	return p, nil
}

// String tells where the parts are.
func (p *Parts) String() string {
	how := "from the cache"
	if p.built {
		how = "built"
	}
	return fmt.Sprintf("Kubernetes %s, %s (%s)", p.Programs.Kubernetes, p.template, how)
}

// Usable tells whether a cluster can run here, and if not, why.
func Usable() error {
	if os.Geteuid() != 0 {
		return errors.New("cluster: needs root: it runs machines")
	}
	for _, tool := range []string{"ip", "mmdebstrap", "unshare", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("cluster: %q is missing: apt-get install iproute2 mmdebstrap util-linux", tool)
		}
	}
	roots, err := hierarchies()
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	probe := filepath.Join(roots[0], "lbd-cluster-probe")
	if err := os.Mkdir(probe, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cluster: control groups cannot be made here: %w", err)
	}
	if err := os.Remove(probe); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// cacheFolder holds Debian, templates and, beside them, machines: these share files
// with their template, so they must be on the same disk.
func cacheFolder() (string, error) {
	root, err := controlplane.CacheRoot()
	return filepath.Join(root, "lbd", "cluster"), err
}

// memory is a file system in memory on every Debian.
const memory = "/dev/shm"

// roomInMemory tells whether machines can write there. etcd waits for the disk at each write, and
// many of them, on one disk with all else that machines write, lose their leaders.
func roomInMemory() bool {
	const enough = 8 << 30 // bytes; a machine writes 0.25 GB, and 1 GB in an upgrade of Kubernetes
	var s unix.Statfs_t
	return unix.Statfs(memory, &s) == nil && s.Type == unix.TMPFS_MAGIC && s.Bavail*uint64(s.Bsize) >= enough
}

// machineFolders are where clusters have folders of their own, named by their prefix, that of the
// disk first.
func machineFolders() ([]string, error) {
	cache, err := cacheFolder()
	return []string{filepath.Join(cache, "machines"), memory}, err
}

func key(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:6])
}

// exists is the check of a folder whose last made file is name.
func exists(name string) func(context.Context, string) error {
	return func(_ context.Context, dir string) error {
		_, err := os.Stat(filepath.Join(dir, name))
		return err
	}
}

// bootstrap installs Debian into a folder, with these packages.
func bootstrap(ctx context.Context, dir, include string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	_, err := command(ctx, nil, os.Environ(), "mmdebstrap", "--mode=root", "--variant=minbase", "--include="+include, release, dir)
	return err
}

// nodeFiles is the text of all files of node, for a key.
func nodeFiles() (string, error) {
	var all strings.Builder
	err := fs.WalkDir(node, "node", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := node.ReadFile(path)
		fmt.Fprintf(&all, "%s %s\n", path, b)
		return err
	})
	return all.String(), err
}

// fillTemplate makes what a node has more than Debian. The images are imported by a
// containerd of Debian, in a container.
func (p *Parts) fillTemplate(ctx context.Context, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	root := filepath.Join(dir, "root")
	if err := p.installNode(root); err != nil {
		return err
	}
	archives, store := filepath.Join(dir, "archives"), filepath.Join(dir, "containerd")
	if err := errors.Join(os.MkdirAll(archives, 0o755), os.MkdirAll(store, 0o711)); err != nil {
		return err
	}
	images, err := p.images(ctx, dir)
	if err != nil {
		return err
	}
	for n, i := range images {
		if err := i.write(filepath.Join(archives, fmt.Sprintf("%02d.tar", n))); err != nil {
			return err
		}
	}
	prefix, err := lab.NewPrefix()
	if err != nil {
		return err
	}
	c := container{
		name: "template", prefix: prefix, lower: []string{root, p.debian},
		upper: filepath.Join(dir, "upper"), work: filepath.Join(dir, "work"), mount: filepath.Join(dir, "mount"),
		binds:   []string{"--bind=" + store + ":/var/lib/containerd", "--bind-ro=" + archives + ":/archives"},
		command: []string{"/bin/sh", "-c", importImages}, console: filepath.Join(dir, "console"),
	}
	stop, err := supervise(prefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	cmd, err := c.start()
	if err != nil {
		return err
	}
	kill := context.AfterFunc(ctx, func() { _ = removeGroup(context.Background(), prefix) })
	defer kill()
	if err := cmd.Wait(); err != nil {
		said, _ := os.ReadFile(c.console)
		return fmt.Errorf("import of images: %w: %s", err, said[max(0, len(said)-2000):])
	}
	var errs []error
	for _, d := range []string{archives, c.upper, c.work, c.mount, c.console, filepath.Join(dir, "pause")} {
		errs = append(errs, os.RemoveAll(d))
	}
	return errors.Join(errs...)
}

// importImages ends containerd in order, so that its database is whole.
const importImages = `set -e
mkdir -p /run/containerd
containerd >/tmp/containerd.log 2>&1 & pid=$!
for i in $(seq 300); do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
for a in /archives/*.tar; do ctr -n k8s.io images import "$a" || { tail -20 /tmp/containerd.log; exit 1; }; done
ctr -n k8s.io images ls -q
kill $pid
wait $pid || true
`

// installNode writes programs, units and settings into the root of a node.
func (p *Parts) installNode(root string) error {
	err := fs.WalkDir(node, "node", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(root, strings.TrimPrefix(path, "node"))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		b, err := node.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, []byte(strings.ReplaceAll(string(b), "VERSION", p.Programs.Kubernetes)), 0o644)
	})
	errs := []error{err}
	units := filepath.Join(root, "etc/systemd/system")
	for _, u := range masked {
		errs = append(errs, os.Symlink("/dev/null", filepath.Join(units, u)))
	}
	wanted := filepath.Join(units, "multi-user.target.wants")
	errs = append(errs, os.MkdirAll(wanted, 0o755), os.Symlink("/etc/systemd/system/kubelet.service", filepath.Join(wanted, "kubelet.service")),
		os.MkdirAll(filepath.Join(root, "var/log/journal"), 0o755), os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755))
	for _, program := range []string{p.Programs.Kubeadm, p.Programs.Kubelet, p.Programs.Kubectl} {
		errs = append(errs, copyFile(program, filepath.Join(root, "usr/bin", filepath.Base(program)), 0o755))
	}
	return errors.Join(errs...)
}
