package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// namePrefix begins the name of everything that a lab makes.
const namePrefix = "lbdlab-"

// labs counts the labs of this process.
var labs atomic.Uint32

// NewPrefix names a lab: lbdlab-<pid>-<start of that process>-<count>. With pid
// and start a later run can tell whether the maker is still alive.
func NewPrefix() (string, error) {
	start, err := startTime(os.Getpid())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%d-%s-%03x", namePrefix, os.Getpid(), start, labs.Add(1)), nil
}

// startTime is field 22 of /proc/PID/stat: the start of a process after boot.
func startTime(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", fmt.Errorf("process: start time: %w", err)
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("process: start time: unexpected stat %q", b)
	}
	return fields[19], nil
}

// PrefixOf returns the prefix of a lab in a name, or "" if it is none.
func PrefixOf(name string) string {
	if !strings.HasPrefix(name, namePrefix) {
		return ""
	}
	parts := strings.SplitN(name, "-", 5)
	if len(parts) < 4 {
		return ""
	}
	return strings.Join(parts[:4], "-")
}

// Orphaned tells whether the process that made the lab is gone.
func Orphaned(prefix string) bool {
	parts := strings.Split(prefix, "-")
	pid, err := strconv.Atoi(parts[1])
	if err != nil {
		return false
	}
	start, err := startTime(pid)
	return err != nil || start != parts[2]
}

// Sweep removes what labs of dead processes left behind. Labs that are alive are
// not touched.
func Sweep(ctx context.Context) error {
	found := map[string]bool{}
	for _, dir := range []string{netnsDir, os.TempDir()} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("sweep: %w", err)
		}
		for _, e := range entries {
			if p := PrefixOf(e.Name()); p != "" {
				found[p] = true
			}
		}
	}
	var errs []error
	for p := range found {
		if Orphaned(p) {
			errs = append(errs, Remove(ctx, p))
		}
	}
	return errors.Join(errs...)
}

// Remove kills every process in the namespaces of one lab, then deletes these
// namespaces and the lab's directory. Nothing to remove is no error.
func Remove(ctx context.Context, prefix string) error {
	if p := PrefixOf(prefix); p == "" || p != prefix {
		return fmt.Errorf("remove: %q is not the prefix of a lab", prefix)
	}
	names, err := namespaces(prefix)
	if err != nil {
		return err
	}
	errs := []error{killIn(ctx, names)}
	for _, n := range names {
		if _, err := run(ctx, "", "ip", "netns", "del", n); err != nil && exists(n) {
			errs = append(errs, fmt.Errorf("remove: %w", err))
		}
	}
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"-*")) // the pattern is well formed
	for _, d := range dirs {
		errs = append(errs, os.RemoveAll(d))
	}
	return errors.Join(errs...)
}

func namespaces(prefix string) ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		if PrefixOf(e.Name()) == prefix {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(netnsDir, name))
	return err == nil
}

// killIn kills the processes in the namespaces and waits until they are gone.
func killIn(ctx context.Context, names []string) error {
	return Wait(ctx, 5*time.Second, 20*time.Millisecond, "kill", func() error {
		alive := 0
		for _, n := range names {
			out, err := run(ctx, "", "ip", "netns", "pids", n)
			if err != nil && exists(n) {
				return err
			}
			for f := range strings.FieldsSeq(out) {
				pid, err := strconv.Atoi(f)
				if err != nil || pid == os.Getpid() {
					continue
				}
				alive++
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
			}
		}
		if alive > 0 {
			return fmt.Errorf("%d processes left", alive)
		}
		return nil
	})
}
