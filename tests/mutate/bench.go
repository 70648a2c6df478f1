package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"lbd.dev/lbd/internal/testnet"
)

// What becomes of a mutant.
const (
	found    = "noticed"
	survived = "SURVIVED"
	invalid  = "invalid" // does not compile
)

// A test may take so many times as long as without a mutant, and slack. One that hangs has
// noticed.
const (
	patience = 5
	slack    = 20 * time.Second
)

// limit is how long a test may take without a mutant.
const limit = 10 * time.Minute

type bench struct {
	root, dir string
	sim       bool
	suites    map[string]*suite // by folder
}

// try tells what becomes of a mutant, and by which test, or how many have looked. The
// quickest test comes first.
func (b *bench) try(ctx context.Context, m *mutant) (how, by string, err error) {
	overlay, err := b.write(m)
	if err != nil {
		return "", "", err
	}
	folder := filepath.ToSlash(filepath.Dir(m.file))
	looked := 0
	for _, t := range b.lookers(folder) {
		s, err := b.suite(ctx, t)
		if err != nil {
			return "", "", err
		}
		reach := s.reaching(m)
		if len(reach) == 0 {
			continue
		}
		program := filepath.Join(b.dir, "mutant.test")
		if b.goTool(ctx, "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", program, "./"+t) != nil {
			return invalid, "", ctx.Err()
		}
		for _, one := range reach {
			// A test that fails once in a while has not noticed anything.
			may := patience*one.took + slack
			failed := b.runTest(ctx, program, t, one.name, may) != nil
			if failed && b.runTest(ctx, program, t, one.name, may) != nil {
				return found, one.name, ctx.Err()
			}
		}
		looked += len(reach)
	}
	if looked == 0 && b.goTool(ctx, "build", "-overlay", overlay, "./"+folder) != nil {
		return invalid, "", ctx.Err()
	}
	return survived, fmt.Sprintf("%d tests come by", looked), ctx.Err()
}

// lookers are the folders whose tests look at another one.
func (b *bench) lookers(folder string) []string {
	all := append([]string{folder}, folders[folder]...)
	if b.sim && (folder == "internal/decide" || folder == "internal/election") {
		all = append(all, "tests/sim")
	}
	return all
}

// suite runs the tests of a folder one by one, without a mutant, the first time it is asked for.
func (b *bench) suite(ctx context.Context, folder string) (*suite, error) {
	if s := b.suites[folder]; s != nil {
		return s, nil
	}
	var cover []string
	for f := range folders {
		if slices.Contains(b.lookers(f), folder) {
			cover = append(cover, "./"+f)
		}
	}
	program, profile := filepath.Join(b.dir, "sound.test"), filepath.Join(b.dir, "profile")
	if err := os.RemoveAll(program); err != nil {
		return nil, err
	}
	if err := b.goTool(ctx, "test", "-c", "-vet=off", "-coverpkg", strings.Join(cover, ","), "-o", program, "./"+folder); err != nil {
		return nil, err
	}
	s := &suite{}
	b.suites[folder] = s
	if _, err := os.Stat(program); errors.Is(err, os.ErrNotExist) {
		return s, nil // no tests
	}
	names, err := b.command(ctx, folder, program, "-test.list", "^(Test|Fuzz|Example)").Output()
	if err != nil {
		return nil, fmt.Errorf("the tests of %s: %w", folder, err)
	}
	for _, name := range strings.Fields(string(names)) {
		if err := s.add(name, func(profile string) error {
			return b.runTest(ctx, program, folder, name, limit, "-test.coverprofile", profile)
		}, profile); err != nil {
			return nil, fmt.Errorf("without a mutant, %s in %s: %w", name, folder, err)
		}
	}
	slices.SortStableFunc(s.tests, func(x, y test) int { return cmp.Compare(x.took, y.took) })
	return s, nil
}

// write makes the file that stands in for the original, for `go -overlay`.
func (b *bench) write(m *mutant) (overlay string, err error) {
	path := filepath.Join(b.root, filepath.FromSlash(m.file))
	src, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	mutated := string(src[:m.from]) + m.text + string(src[m.to:])
	instead := filepath.Join(b.dir, "mutant.go")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: instead}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(b.dir, "overlay.json")
	return overlay, errors.Join(os.WriteFile(instead, []byte(mutated), 0o644), os.WriteFile(overlay, replace, 0o644))
}

func (b *bench) runTest(ctx context.Context, program, folder, name string, may time.Duration, more ...string) error {
	args := append([]string{"-test.run", "^" + name + "$", "-test.count=1", "-test.failfast", "-test.timeout", may.String()}, more...)
	return said(b.command(ctx, folder, program, args...))
}

// goTool runs the go command.
func (b *bench) goTool(ctx context.Context, args ...string) error {
	return said(b.command(ctx, ".", "go", args...))
}

// command is a process that dies with all that it has started when ctx ends. Tests with random
// input always have the same, and leave no files.
func (b *bench) command(ctx context.Context, folder, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Join(b.root, filepath.FromSlash(folder))
	cmd.Env = append(os.Environ(), "RAPID_SEED=1", "RAPID_NOFAILFILE=true", "RAPID_SHRINKTIME=0s",
		testnet.Profile+"="+filepath.Join(b.dir, "profile"+alone))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

func said(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out[max(0, len(out)-1000):])
	}
	return nil
}
