package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// supervisorEnv holds the prefix of the cluster that a supervisor cares for.
const supervisorEnv = "LBD_CLUSTER_SUPERVISOR"

// Main is the first that a program which runs clusters calls. In a supervisor, which
// is the same program started again, it does the supervisor's work and does not return.
func Main() {
	prefix := os.Getenv(supervisorEnv)
	if prefix == "" {
		return
	}
	// The pipe ends with the process that has the other end, however it dies.
	_, _ = io.Copy(io.Discard, os.Stdin)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := Remove(ctx, prefix); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// supervise starts a process that removes all of a prefix when stop is called, or when
// this process is gone.
func supervise(prefix string) (stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("supervisor: %w", err)
	}
	r, w, err := os.Pipe() // close-on-exec: nobody else gets the writing end
	if err != nil {
		return nil, fmt.Errorf("supervisor: %w", err)
	}
	defer r.Close()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), supervisorEnv+"="+prefix)
	cmd.Stdin, cmd.Stderr = r, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("supervisor: %w", err), w.Close())
	}
	return func() error {
		err := w.Close()
		if e := cmd.Wait(); e != nil {
			err = errors.Join(err, fmt.Errorf("supervisor: %w", e))
		}
		return err
	}, nil
}

// Sweep removes what clusters of dead processes left behind. Others are not touched.
func Sweep(ctx context.Context) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	folders, err := machineFolders()
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, dir := range append(dirs, folders...) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("sweep: %w", err)
		}
		for _, e := range entries {
			if p := lab.PrefixOf(e.Name()); p != "" && lab.Orphaned(p) {
				found[p] = true
			}
		}
	}
	errs := []error{lab.Sweep(ctx)}
	for p := range found {
		errs = append(errs, Remove(ctx, p))
	}
	return errors.Join(errs...)
}

// Remove kills the machines of a cluster and deletes them, their control groups and
// their networks. Nothing to remove is no error.
func Remove(ctx context.Context, prefix string) error {
	if p := lab.PrefixOf(prefix); p == "" || p != prefix {
		return fmt.Errorf("remove: %q is not the prefix of a cluster", prefix)
	}
	folders, err := machineFolders()
	if err != nil {
		return err
	}
	errs := []error{removeGroup(ctx, prefix), lab.Remove(ctx, prefix)}
	for _, d := range folders {
		errs = append(errs, os.RemoveAll(filepath.Join(d, prefix)))
	}
	for _, place := range []string{"/run/systemd/nspawn/propagate", "/run/systemd/nspawn/unix-export"} {
		entries, _ := os.ReadDir(place) // not there: nothing was left
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), prefix+"-") {
				errs = append(errs, os.RemoveAll(filepath.Join(place, e.Name())))
			}
		}
	}
	return errors.Join(errs...)
}

// Left lists what exists of a cluster: control groups, network namespaces, processes
// and its folder.
func Left(prefix string) ([]string, error) {
	dirs, err := hierarchies()
	if err != nil {
		return nil, err
	}
	folders, err := machineFolders()
	if err != nil {
		return nil, err
	}
	var left []string
	for _, d := range append(dirs, folders...) {
		if _, err := os.Stat(filepath.Join(d, prefix)); err == nil {
			left = append(left, filepath.Join(d, prefix))
		}
	}
	for _, pattern := range []string{"/run/netns/", "/run/systemd/nspawn/propagate/"} {
		found, _ := filepath.Glob(pattern + prefix + "-*") // the pattern is well formed
		left = append(left, found...)
	}
	pids, err := processes(prefix)
	for _, pid := range pids {
		left = append(left, fmt.Sprintf("process %d", pid))
	}
	return left, err
}
