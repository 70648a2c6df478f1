package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// cgroupRoot is where every Linux has its control groups.
const cgroupRoot = "/sys/fs/cgroup"

// hierarchies are the folders in which a group has a folder: the one of cgroup v2,
// or one for each controller of v1.
func hierarchies() ([]string, error) {
	if unified() {
		return []string{cgroupRoot}, nil
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil, fmt.Errorf("control groups: %w", err)
	}
	var all []string
	for _, e := range entries { // links, as cpuacct, are other names of a folder
		dir := filepath.Join(cgroupRoot, e.Name())
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil && e.IsDir() {
			all = append(all, dir)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("control groups: there are none below " + cgroupRoot)
	}
	return all, nil
}

// unified tells whether the host has cgroup v2 alone.
func unified() bool {
	_, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers"))
	return err == nil
}

// makeGroup makes the group of a machine, below that of its cluster, with every
// controller that the host has. A machine begins with an empty one: kubelet stalls for
// seconds on each container that it finds in a group but not in containerd.
func makeGroup(prefix, machine string) (dirs []string, err error) {
	roots, err := hierarchies()
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		above, dir := filepath.Join(root, prefix), filepath.Join(root, prefix, machine)
		if err := os.Mkdir(above, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("control groups: %w", err)
		}
		if unified() {
			if err := errors.Join(enable(root), enable(above)); err != nil {
				return nil, err
			}
		} else if err := inheritCpuset(root, above); err != nil {
			return nil, err
		}
		if err := weigh(above); err != nil {
			return nil, err
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("control groups: %w", err)
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// weigh has a cluster count for as much as three processes, when it competes for
// processors: what it stands for are several computers.
func weigh(dir string) error {
	for name, value := range map[string]string{"cpu.shares": "3072", "cpu.weight": "300"} {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err != nil {
			continue // of the other version, or another controller
		}
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return fmt.Errorf("control groups: %w", err)
		}
	}
	return nil
}

// enable passes the controllers of a group of cgroup v2 on to the groups below it.
func enable(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("control groups: %w", err)
	}
	for _, c := range strings.Fields(string(b)) {
		if !slices.Contains([]string{"cpu", "cpuset", "io", "memory", "pids"}, c) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("control groups: %w", err)
		}
	}
	return nil
}

// inheritCpuset has the group of cgroup v1, and those below it, run on the processors
// of the group above: in a new one no process may run.
func inheritCpuset(from, to string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another controller
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), b, 0)
		}
		if err != nil {
			return fmt.Errorf("control groups: %w", err)
		}
	}
	return os.WriteFile(filepath.Join(to, "cgroup.clone_children"), []byte("1"), 0)
}

// freeze stops or thaws all processes of a group, which the kernel does at once.
func freeze(group string, stop bool) error {
	file, value := filepath.Join(cgroupRoot, group, "cgroup.freeze"), map[bool]string{true: "1", false: "0"}[stop]
	if !unified() {
		file, value = filepath.Join(cgroupRoot, "freezer", group, "freezer.state"), map[bool]string{true: "FROZEN", false: "THAWED"}[stop]
	}
	if err := os.WriteFile(file, []byte(value), 0); err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	return nil
}

// processes are those in a group and the groups below it.
func processes(group string) ([]int, error) {
	roots, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var all []int
	for _, root := range roots {
		for _, dir := range below(filepath.Join(root, group)) {
			b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			if err != nil {
				continue // it has gone meanwhile
			}
			for f := range strings.FieldsSeq(string(b)) {
				if pid, err := strconv.Atoi(f); err == nil && pid != os.Getpid() && !slices.Contains(all, pid) {
					all = append(all, pid)
				}
			}
		}
	}
	return all, nil
}

// below lists a folder and all that are in it, the deepest last.
func below(dir string) []string {
	var all []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone meanwhile
		}
		if d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	return all
}

// removeGroup kills every process of a group and removes it.
func removeGroup(ctx context.Context, group string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	return lab.Wait(ctx, 20*time.Second, 50*time.Millisecond, "remove the control group "+group, func() error {
		pids, err := processes(group)
		if err != nil {
			return err
		}
		_ = freeze(group, false) // a frozen process does not die; there may be no such group
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
		}
		var errs []error
		for _, root := range roots {
			dirs := below(filepath.Join(root, group))
			slices.Reverse(dirs)
			for _, d := range dirs {
				if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
			}
		}
		return errors.Join(errs...)
	})
}
