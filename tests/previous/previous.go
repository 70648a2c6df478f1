// Package previous gives tests the version of lbd before this one, as a program and as
// files, from the history of the repository.
package previous

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/testnet"
)

//go:embed revision
var revisionFile string

// ErrNoHistory says that this copy of the repository lacks the previous version.
var ErrNoHistory = errors.New("this copy of the repository does not have the previous version")

// Version is one version of lbd in the history of the repository.
type Version struct {
	// Name is what the program says that it is: a tag, or the beginning of the hash.
	Name string
	// Commit is the whole hash.
	Commit string

	root string // of the repository
}

// For finds the previous version. Without the history it skips the test, but never in CI.
func For(t testing.TB) *Version {
	t.Helper()
	v, err := Find(t.Context())
	if errors.Is(err, ErrNoHistory) {
		testnet.Require(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Find is the version that the file revision names; errors.Is(err, ErrNoHistory) if the
// history does not reach it. The working folder must be in a module that requires lbd's.
func Find(ctx context.Context) (*Version, error) {
	root, err := command(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "lbd.dev/lbd")
	if err != nil {
		return nil, fmt.Errorf("previous version: %w", err)
	}
	return find(ctx, strings.TrimSpace(string(root)), revision(revisionFile))
}

// revision is the line that is no comment.
func revision(file string) string {
	for line := range strings.Lines(file) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}

func find(ctx context.Context, root, rev string) (*Version, error) {
	if rev == "" {
		return nil, errors.New("previous version: tests/previous/revision names none")
	}
	commit, err := command(ctx, root, "git", "rev-parse", "--verify", "--quiet", "--end-of-options", rev+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("%w, %s: git fetch --unshallow --tags: %w", ErrNoHistory, rev, err)
	}
	v := &Version{Commit: strings.TrimSpace(string(commit)), root: root}
	name, err := command(ctx, root, "git", "describe", "--tags", "--exact-match", v.Commit)
	if err != nil { // no tag
		name = []byte(v.Commit[:12])
	}
	v.Name = strings.TrimSpace(string(name))
	return v, nil
}

// File is the content of a file, whose name is relative to the root of the repository.
func (v *Version) File(ctx context.Context, name string) ([]byte, error) {
	return command(ctx, v.root, "git", "show", v.Commit+":"+name)
}

// Files are the names of all files below a folder.
func (v *Version) Files(ctx context.Context, dir string) ([]string, error) {
	out, err := command(ctx, v.root, "git", "ls-tree", "-r", "-z", "--name-only", "--full-tree", v.Commit, dir)
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}

// LBD is the path of the program. It is built as its Makefile says, and kept in the folder
// lbd/previous in LBD_CACHE, or else in the user's cache, under its commit and the version
// of Go.
func (v *Version) LBD(ctx context.Context) (string, error) {
	cache, err := cacheRoot()
	if err != nil {
		return "", err
	}
	key := strings.Join([]string{v.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH}, "-")
	dir := filepath.Join(cache, "lbd", "previous", key)
	lbd := filepath.Join(dir, "lbd")
	if v.check(ctx, lbd) == nil {
		return lbd, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("previous version: %w", err)
	}
	// Two processes may build at once: each puts a whole file into its place.
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", fmt.Errorf("previous version: %w", err)
	}
	err = v.build(ctx, tmp)
	built := filepath.Join(tmp, "bin", "lbd")
	if err == nil {
		err = v.check(ctx, built)
	}
	if err == nil {
		err = os.Rename(built, lbd)
	}
	if err = errors.Join(err, os.RemoveAll(tmp)); err != nil {
		return "", fmt.Errorf("previous version: %w", err)
	}
	return lbd, nil
}

// build has the Makefile of the version make bin/lbd in a folder.
func (v *Version) build(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	tar := filepath.Join(dir, "source.tar")
	if _, err := command(ctx, v.root, "git", "archive", "--format=tar", "-o", tar, v.Commit); err != nil {
		return err
	}
	if _, err := command(ctx, dir, "tar", "-xf", tar); err != nil {
		return err
	}
	_, err := command(ctx, dir, "make", "build", "VERSION="+v.Name)
	return err
}

// check asks the program who it is.
func (v *Version) check(ctx context.Context, lbd string) error {
	out, err := command(ctx, "", lbd, "version")
	if err == nil && strings.TrimSpace(string(out)) != v.Name {
		err = fmt.Errorf("%s says that it is %q, not %s", lbd, out, v.Name)
	}
	return err
}

func cacheRoot() (string, error) {
	if dir := os.Getenv("LBD_CACHE"); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", fmt.Errorf("previous version: LBD_CACHE=%q: want an absolute path", dir)
		}
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("previous version: no folder for the cache, set LBD_CACHE: %w", err)
	}
	return dir, nil
}

// command runs a program in a folder and returns what it prints; the error has the end of
// what it complains about.
func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	// What a make above was told is not for the one below.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		key, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(key, "MAKE") || key == "MFLAGS" || key == "GNUMAKEFLAGS" || key == "GOWORK"
	})
	cmd.Env = append(cmd.Env, "GOWORK=off")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(complaint.String())
		return out.Bytes(), fmt.Errorf("%s: %w: %s", strings.Join(append([]string{name}, args...), " "), err, text[max(0, len(text)-2000):])
	}
	return out.Bytes(), nil
}
