package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// hello is a foundry of one small program, which says hello and its version.
func hello(t *testing.T, cache string) *foundry {
	t.Helper()
	module := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.com/hello\n\ngo 1.26.0\n",
		"go.sum":  "",
		"main.go": "package main\n\nimport \"os\"\n\nvar version = \"none\"\n\nfunc main() { _, _ = os.Stdout.WriteString(\"hello \" + version + \"\\n\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &foundry{
		module: module, cache: cache, name: "hello", ldflags: "-X main.version=v1",
		parts: []part{{file: "hello", pkg: ".", answer: "hello v1\n"}},
	}
}

// only wants the cache to hold nothing but the folder and its lock.
func only(t *testing.T, cache, dir string) {
	t.Helper()
	entries, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if p := filepath.Join(cache, e.Name()); p != dir && p != dir+".lock" {
			t.Errorf("the cache has %s too", e.Name())
		}
	}
}

func TestFoundryBuildsOnce(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "not", "yet")
	f := hello(t, cache)
	var wg sync.WaitGroup
	var mu sync.Mutex
	dirs, builds := map[string]bool{}, 0
	for range 3 {
		wg.Go(func() {
			mine := *f
			dir, built, err := mine.get(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			dirs[dir] = true
			if built {
				builds++
			}
		})
	}
	wg.Wait()
	if builds != 1 || len(dirs) != 1 {
		t.Fatalf("three at once: %d built, into %v; want one", builds, dirs)
	}
	dir, built, err := f.get(t.Context())
	if err != nil || built || !dirs[dir] {
		t.Fatalf("again: %s, built %v, %v", dir, built, err)
	}
	only(t, cache, dir)
}

// TestFoundryMends: a program that is damaged, or one that a dead builder left
// half done, does not come out.
func TestFoundryMends(t *testing.T) {
	cache := t.TempDir()
	f := hello(t, cache)
	dir, _, err := f.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Truncate(filepath.Join(dir, "hello"), 1000), os.Mkdir(dir+".new-123", 0o700)); err != nil {
		t.Fatal(err)
	}
	again, built, err := f.get(t.Context())
	if err != nil || !built || again != dir {
		t.Fatalf("damaged: %s, built %v, %v", again, built, err)
	}
	if err := f.check(t.Context(), dir); err != nil {
		t.Error(err)
	}
	only(t, cache, dir)
}

func TestFoundryRefuses(t *testing.T) {
	f := hello(t, t.TempDir())
	f.ldflags = "-X main.version=v2"
	_, _, err := f.get(t.Context())
	if err == nil || !strings.Contains(err.Error(), `says "hello v2\n", want "hello v1\n"`) {
		t.Errorf("a program that is another: %v", err)
	}
	f.parts[0].pkg = "./nothing"
	if _, _, err = f.get(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a package that is not there: %v", err)
	}
	entries, err := os.ReadDir(f.cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			t.Errorf("%s is left", e.Name())
		}
	}
}

func TestFoundryKey(t *testing.T) {
	f := hello(t, t.TempDir())
	keys := map[string]string{}
	add := func(what string) {
		t.Helper()
		k, err := f.key()
		if err != nil {
			t.Fatal(err)
		}
		if old, ok := keys[k]; ok {
			t.Errorf("%s has the key of %s", what, old)
		}
		keys[k] = what
	}
	add("the first")
	f.ldflags += " -s"
	add("other flags")
	f.parts = append(f.parts, part{file: "more"})
	add("one more program")
	if err := os.WriteFile(filepath.Join(f.module, "go.sum"), []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	add("another go.sum")
}

// TestFoundryWaits: who waits for another builder can be stopped.
func TestFoundryWaits(t *testing.T) {
	f := hello(t, t.TempDir())
	key, err := f.key()
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(t.Context(), filepath.Join(f.cache, key+".lock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := f.get(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another builds: %v", err)
	}
	unlock()
	if _, built, err := f.get(t.Context()); err != nil || !built {
		t.Errorf("after it: built %v, %v", built, err)
	}
}

func TestCacheRoot(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/xdg")
	t.Setenv("LBD_CACHE", "")
	if dir, err := CacheRoot(); err != nil || dir != "/xdg" {
		t.Errorf("without LBD_CACHE: %q, %v", dir, err)
	}
	t.Setenv("LBD_CACHE", "/mine")
	if dir, err := CacheRoot(); err != nil || dir != "/mine" {
		t.Errorf("with LBD_CACHE: %q, %v", dir, err)
	}
	t.Setenv("LBD_CACHE", "mine")
	if dir, err := CacheRoot(); err == nil {
		t.Errorf("a relative LBD_CACHE: %q", dir)
	}
}
