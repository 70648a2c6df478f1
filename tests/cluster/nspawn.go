package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// container is one systemd-nspawn: what it runs, on which file system, in which
// network and control groups.
type container struct {
	name, prefix string
	lower        []string // folders of the file system that it may not change, the uppermost first
	upper        string   // folder with what it changes
	work         string   // folder of the kernel's, beside upper
	mount        string   // folder where the file system is, for this container alone
	namespace    string   // of the network, below /run/netns; none has only its own lo
	binds        []string // arguments of nspawn
	command      []string
	console      string // file for what it prints
}

// script becomes nspawn. Everything that it mounts is in a mount namespace that ends
// with it. PROCS are the files that take a process into the groups of the machine.
const script = `set -e
for p in $PROCS; do echo $$ > "$p"; done
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$WORK" "$MOUNT"
exec "$@"
`

// prepare makes the control groups writable before systemd looks, else it gives no
// weights to its units, and passes mounts on to the containers within.
const prepare = `mount -o remount,rw,bind /sys/fs/cgroup
for c in /sys/fs/cgroup/*/; do if [ -e "$c/cgroup.procs" ] && mountpoint -q "$c"; then mount -o remount,rw,bind "$c"; fi; done
mount --make-rshared /
exec "$@"`

// start starts it; the process is nspawn, whose child is the first process within.
func (c *container) start() (*exec.Cmd, error) {
	groups, err := makeGroup(c.prefix, c.name)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{c.upper, c.work, c.mount} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	debian := c.lower[len(c.lower)-1]
	network := "--private-network"
	if c.namespace != "" {
		network = "--network-namespace-path=/run/netns/" + c.namespace
	}
	argv := []string{
		"unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c", script, "sh",
		filepath.Join(debian, "usr/bin/systemd-nspawn"), "--directory=" + c.mount, "--machine=" + c.prefix + "-" + c.name, "--hostname=" + c.name,
		"--register=no", "--keep-unit", network, "--capability=all", "--system-call-filter=@known", "--bind-ro=/dev/null:/dev/kmsg",
		"--console=pipe", "--link-journal=no", "--resolv-conf=off", "--timezone=off",
	}
	argv = append(argv, c.binds...)
	argv = append(argv, "/bin/sh", "-c", prepare, "sh")
	argv = append(argv, c.command...)
	out, err := os.OpenFile(c.console, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%s: console: %w", c.name, err)
	}
	defer out.Close() // the child has its own descriptor
	var procs []string
	for _, g := range groups {
		procs = append(procs, filepath.Join(g, "cgroup.procs"))
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), libraries(debian), "SYSTEMD_NSPAWN_API_VFS_WRITABLE=1", "SYSTEMD_NSPAWN_LOCK=0",
		"PROCS="+strings.Join(procs, " "), "LOWER="+strings.Join(c.lower, ":"), "UPPER="+c.upper, "WORK="+c.work, "MOUNT="+c.mount)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // away from the signals of a terminal
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: start: %w", c.name, err)
	}
	return cmd, nil
}

// libraries has a program of Debian find its own instead of those of the host.
// nspawn comes from there too: to install it on the host could change its systemd.
func libraries(debian string) string {
	dirs, _ := filepath.Glob(filepath.Join(debian, "usr/lib/*-linux-gnu")) // the pattern is well formed
	var all []string
	for _, d := range dirs {
		all = append(all, filepath.Join(d, "systemd"), d)
	}
	return "LD_LIBRARY_PATH=" + strings.Join(all, ":")
}
