package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// foundry builds programs of one module and keeps them.
type foundry struct {
	module  string // folder of the go.mod
	cache   string // folder that holds one folder for each key
	name    string // what the key begins with
	ldflags string
	parts   []part
}

// part is one program and how it proves that it is the right one. A file whose name ends
// in .test is made of the tests of the package.
type part struct {
	file, pkg string
	ask       []string // arguments
	answer    string   // what it must print, at the beginning of its output
}

// get returns the folder with the programs, and whether it had to build them.
func (f *foundry) get(ctx context.Context) (dir string, built bool, err error) {
	key, err := f.key()
	if err != nil {
		return "", false, err
	}
	dir = filepath.Join(f.cache, key)
	built, err = Keep(ctx, dir, f.check, f.build)
	return dir, built, err
}

// Keep has a folder of a cache be there, and tells whether it had to be made. Of
// several processes that ask at once, one makes it and the others wait. A folder
// under its name is always complete: fill is given an empty one beside it, which is
// renamed once check finds nothing wrong.
func Keep(ctx context.Context, dir string, check, fill func(ctx context.Context, dir string) error) (made bool, err error) {
	if check(ctx, dir) == nil {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return false, fmt.Errorf("cache: %w", err)
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return false, fmt.Errorf("cache: %w", err)
	}
	defer unlock()
	if check(ctx, dir) == nil { // another made it while this one waited
		return false, nil
	}
	stale, _ := filepath.Glob(dir + ".new-*") // the pattern is well formed
	for _, s := range append(stale, dir) {    // of a process that died, and one that fails its check
		if err := os.RemoveAll(s); err != nil {
			return false, fmt.Errorf("cache: %w", err)
		}
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".new-")
	if err != nil {
		return false, fmt.Errorf("cache: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := fill(ctx, tmp); err != nil {
		return true, err
	}
	if err := errors.Join(check(ctx, tmp), os.Chmod(tmp, 0o755)); err != nil {
		return true, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return true, fmt.Errorf("cache: %w", err)
	}
	return true, nil
}

// key names all that the programs depend on.
func (f *foundry) key() (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(f.module, name))
		if err != nil {
			return "", fmt.Errorf("key: %w", err)
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(b), b)
	}
	fmt.Fprintf(h, "%s\n%v\n", f.ldflags, f.parts)
	return fmt.Sprintf("%s-%s-%s-%s-%s", f.name, runtime.Version(), runtime.GOOS, runtime.GOARCH, hex.EncodeToString(h.Sum(nil)[:6])), nil
}

// check asks every program who it is.
func (f *foundry) check(ctx context.Context, dir string) error {
	for _, p := range f.parts {
		out, err := command(ctx, "", filepath.Join(dir, p.file), p.ask...)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(out, p.answer) {
			return fmt.Errorf("%s: says %q, want %q", filepath.Join(dir, p.file), out, p.answer)
		}
	}
	return nil
}

// build builds all programs into a folder.
func (f *foundry) build(ctx context.Context, dir string) error {
	for _, p := range f.parts {
		make := []string{"build"}
		if strings.HasSuffix(p.file, ".test") {
			make = []string{"test", "-c"}
		}
		if _, err := command(ctx, f.module, "go", append(make, "-trimpath", "-ldflags", f.ldflags, "-o", filepath.Join(dir, p.file), p.pkg)...); err != nil {
			return fmt.Errorf("build: %w", err)
		}
	}
	return nil
}

// lock waits until this process alone has the file's lock, which the kernel takes
// back when the process dies.
func lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // closing unlocks
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// command runs a program to its end and returns what it prints, after a failure too;
// the error carries the end of what it said. It dies, with its children, when ctx ends.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(errs.String() + "\n" + out.String())
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, said[max(0, len(said)-2000):])
	}
	return out.String(), nil
}
