package previous

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestRevision(t *testing.T) {
	for file, want := range map[string]string{"# v0\n\n v0.1.0 \n": "v0.1.0", "# none\n": "", "a\nb\n": "a"} {
		if got := revision(file); got != want {
			t.Errorf("revision(%q) = %q, want %q", file, got, want)
		}
	}
}

// TestNoHistory: a folder that is no repository, and one whose history is too short.
func TestNoHistory(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
	if _, err := find(ctx, dir, "v0.1.0"); !errors.Is(err, ErrNoHistory) {
		t.Errorf("no repository: %v", err)
	}
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.name=a", "-c", "user.email=a@example.net", "commit", "-q", "--allow-empty", "-m", "a"}} {
		if _, err := command(ctx, dir, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := find(ctx, dir, "33126573744e4195afb979752af84026aa753b24"); !errors.Is(err, ErrNoHistory) {
		t.Errorf("another repository: %v", err)
	}
	v, err := find(ctx, dir, "HEAD")
	if err != nil || v.Name != v.Commit[:12] {
		t.Fatalf("%+v, %v", v, err)
	}
	if _, err := command(ctx, dir, "git", "tag", "v9.9.9"); err != nil {
		t.Fatal(err)
	}
	if v, err = find(ctx, dir, "v9.9.9"); err != nil || v.Name != "v9.9.9" {
		t.Errorf("%+v, %v", v, err)
	}
	t.Setenv("LBD_CACHE", t.TempDir())
	if path, err := v.LBD(ctx); err == nil {
		t.Errorf("a version without Makefile was built: %s", path)
	}
}

// TestLBD builds the program, or takes it from the cache; the second call does the latter.
func TestLBD(t *testing.T) {
	v := For(t)
	path, err := v.LBD(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := v.LBD(t.Context())
	if err != nil || again != path {
		t.Fatalf("%s, %v, want %s", again, err, path)
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(now, info) {
		t.Errorf("the second call built it again: %v", err)
	}
	if err := v.check(t.Context(), "/bin/true"); err == nil {
		t.Error("a program that does not say its name was taken")
	}
}
