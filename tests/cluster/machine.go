package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// Machine is one node. Its methods are not safe for concurrent use; different machines
// are independent.
type Machine struct {
	Name    string
	Address netip.Addr

	inner   netip.Addr // of a box, in the LAN behind it
	number  int        // 1 for m1
	cluster *Cluster
	dir     string
	written string        // folder of what it writes: dir, or one in memory
	nspawn  *exec.Cmd     // nil: no power
	ended   chan struct{} // closed when nspawn has ended
	init    int           // process id of its systemd
}

// furnish makes the disk of a machine that was never on: the template, and what
// differs between machines.
func (m *Machine) furnish() error {
	if err := shareStore(filepath.Join(m.cluster.Parts.template, "containerd"), filepath.Join(m.dir, "containerd")); err != nil {
		return fmt.Errorf("%s: containerd: %w", m.Name, err)
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	network := fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "pods", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.%d.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, m.number)
	return errors.Join(
		m.WriteFile("/etc/hostname", []byte(m.Name+"\n"), 0o644),
		m.WriteFile("/etc/hosts", []byte(m.cluster.names()), 0o644),
		m.WriteFile("/etc/machine-id", []byte(hex.EncodeToString(id[:])+"\n"), 0o444), // none would be a first boot
		m.WriteFile("/etc/cni/net.d/10-pods.conflist", []byte(network), 0o644),
	)
}

// shareStore copies the store of containerd. Contents and the files of images are
// linked, not copied: containerd replaces or deletes such files, and never writes them.
func shareStore(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case d.IsDir():
			if err := os.MkdirAll(target, 0o755); err != nil {
				return err
			}
			return os.Chmod(target, info.Mode())
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case strings.Contains(path, "/blobs/") || strings.Contains(path, "/snapshots/"):
			return os.Link(path, target)
		case d.Type().IsRegular():
			return copyFile(path, target, info.Mode().Perm())
		}
		return nil // a socket
	})
}

// On tells whether the machine has power.
func (m *Machine) On() bool { return m.nspawn != nil }

// Start powers the machine on and waits until its systemd has started everything.
func (m *Machine) Start(ctx context.Context) error {
	if m.On() {
		return fmt.Errorf("%s: start: it is on", m.Name)
	}
	if err := errors.Join(removeGroup(ctx, m.group()), m.cluster.connect(ctx, m.Name, m.Address, m.inner)); err != nil {
		return err
	}
	p := m.cluster.Parts
	c := container{
		name: m.Name, prefix: m.cluster.prefix, lower: []string{filepath.Join(p.template, "root"), p.debian},
		upper: filepath.Join(m.written, "upper"), work: filepath.Join(m.written, "work"), mount: filepath.Join(m.dir, "mount"),
		namespace: m.cluster.namespace(m.Name), console: filepath.Join(m.dir, "console"),
		binds:   []string{"--bind=" + filepath.Join(m.dir, "containerd") + ":/var/lib/containerd"},
		command: []string{"/lib/systemd/systemd"},
	}
	var err error
	if m.nspawn, err = c.start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	m.ended, m.init = ended, 0
	go func(cmd *exec.Cmd) { // ends with the machine
		_ = cmd.Wait() // killed, or 133 for a reboot
		close(ended)
	}(m.nspawn)
	return lab.Wait(ctx, time.Minute, 100*time.Millisecond, m.Name+": start", func() error {
		if err := m.findInit(); err != nil {
			return err
		}
		state, err := m.Run(ctx, "systemctl", "is-system-running")
		if s := strings.TrimSpace(state); s == "running" || s == "degraded" {
			return nil // what has failed is the test's business
		}
		return fmt.Errorf("systemd: %s %w", state, errors.Join(errors.New("is not up"), err))
	})
}

// findInit finds the first process in the machine, which is nspawn's only child.
func (m *Machine) findInit() error {
	select {
	case <-m.ended:
		said, _ := os.ReadFile(filepath.Join(m.dir, "console"))
		return fmt.Errorf("it has ended: %s", said[max(0, len(said)-1500):])
	default:
	}
	if m.init != 0 {
		return nil
	}
	pid := m.nspawn.Process.Pid
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	for f := range strings.FieldsSeq(string(b)) {
		child, err := strconv.Atoi(f)
		if err != nil {
			continue
		}
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child)); err == nil && strings.TrimSpace(string(name)) == "systemd" {
			m.init = child
			return nil
		}
	}
	return errors.New("systemd has not started yet")
}

// workFolder is the folder of a machine in which commands run, those of the pages too.
const workFolder = "/srv"

// Command prepares a program in the machine, as at its console: as root, in that folder,
// with the kubeconfig of an administrator.
func (m *Machine) Command(ctx context.Context, argv ...string) *exec.Cmd {
	enter := []string{
		"nsenter", "--target=" + strconv.Itoa(m.init), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--",
		"/usr/bin/env", "-i", "-C", workFolder, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=dumb", "HOME=" + workFolder, "LANG=C.UTF-8",
		"KUBECONFIG=/etc/kubernetes/admin.conf",
	}
	argv = append(enter, argv...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

// Run runs a program in the machine to its end and returns what it prints, after a
// failure too; the error carries the end of what it said.
func (m *Machine) Run(ctx context.Context, argv ...string) (string, error) {
	return m.run(ctx, nil, argv...)
}

// Shell runs lines of a shell in the machine, up to the first that fails.
func (m *Machine) Shell(ctx context.Context, lines string) (string, error) {
	return m.run(ctx, nil, "/bin/sh", "-ec", lines)
}

func (m *Machine) run(ctx context.Context, stdin io.Reader, argv ...string) (string, error) {
	if m.init == 0 {
		return "", fmt.Errorf("%s: it is off", m.Name)
	}
	cmd := m.Command(ctx, argv...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		said := strings.TrimSpace(out.String() + "\n" + errs.String())
		return out.String(), fmt.Errorf("%s# %s: %w: %s", m.Name, strings.Join(argv, " "), err, said[max(0, len(said)-3000):])
	}
	return out.String(), nil
}

// path is where a file of the machine is for this process. With power off the file is
// there only if it was written after the machine was made.
func (m *Machine) path(name string) string {
	if m.init != 0 {
		return filepath.Join(fmt.Sprintf("/proc/%d/root", m.init), name)
	}
	return filepath.Join(m.written, "upper", name)
}

// WriteFile writes a file of the machine, and the folders above it.
func (m *Machine) WriteFile(name string, data []byte, mode os.FileMode) error {
	to := m.path(name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	if err := errors.Join(os.WriteFile(to, data, mode), os.Chmod(to, mode)); err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	return nil
}

// ReadFile reads a file of the machine; errors.Is(err, fs.ErrNotExist) if it has none.
func (m *Machine) ReadFile(name string) ([]byte, error) {
	b, err := os.ReadFile(m.path(name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	return b, nil
}

func (m *Machine) group() string { return m.cluster.prefix + "/" + m.Name }
