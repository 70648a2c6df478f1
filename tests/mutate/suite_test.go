package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const profiled = `mode: set
lbd.dev/lbd/p/f.go:3.20,5.24 2 1
lbd.dev/lbd/p/f.go:5.24,7.3 1 0
lbd.dev/lbd/p/f.go:9.30,10.2 1 1
mode: set
lbd.dev/lbd/p/f.go:5.24,7.3 1 0
lbd.dev/lbd/p/g.go:1.1,2.2 1 1
`

// TestReaching: a test looks at a line that it comes by, and at the cases of a function that it
// enters.
func TestReaching(t *testing.T) {
	blocks, err := parseProfile(profiled)
	if err != nil {
		t.Fatal(err)
	}
	s := suite{tests: []test{{name: "T", blocks: blocks}}}
	for name, c := range map[string]struct {
		m    mutant
		want bool
	}{
		"run through":           {mutant{file: "p/f.go", line: 4, top: 3, bottom: 8}, true},
		"not run through":       {mutant{file: "p/f.go", line: 6, top: 3, bottom: 8}, false},
		"a case beside it":      {mutant{file: "p/f.go", line: 6, top: 3, bottom: 8, inCase: true}, true},
		"another process":       {mutant{file: "p/g.go", line: 1, top: 1, bottom: 2}, true},
		"a file that is unseen": {mutant{file: "p/h.go", line: 1, top: 1, bottom: 2}, false},
	} {
		if got := len(s.reaching(&c.m)) == 1; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if _, err := parseProfile("lbd.dev/lbd/p/f.go:3.20\n"); err == nil {
		t.Error("a line that says nothing is taken")
	}
}

// TestTry: a real folder, a mutant that its tests notice, one that none comes by, and one that
// does not compile.
func TestTry(t *testing.T) {
	root, folder := t.TempDir(), "internal/nft"
	if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod":              "module lbd.dev/lbd\n\ngo 1.26\n",
		folder + "/f.go":      "package p\n\nfunc f(a int) bool {\n\treturn a > 1\n}\n\nfunc g(a int) bool { return a > 1 }\n",
		folder + "/f_test.go": "package p\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n\tif f(1) {\n\t\tt.Fail()\n\t}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := mutants(root, folder)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d mutants, %v", len(all), err)
	}
	broken := all[0]
	broken.text = "nonsense"
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	b := &bench{root: root, dir: t.TempDir(), suites: map[string]*suite{}}
	for _, c := range []struct {
		m         mutant
		how, what string
	}{{all[0], found, "TestF"}, {all[1], survived, "0 tests come by"}, {broken, invalid, ""}} {
		how, what, err := b.try(ctx, &c.m)
		if err != nil || how != c.how || what != c.what {
			t.Errorf("%s: %s, %s, %v", c.m.name(), how, what, err)
		}
	}
}
