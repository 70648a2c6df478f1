// Package arch holds the law of the house as a test: which package may import
// which, and who may know an outside library.
package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "lbd.dev/lbd/"

// floors are the floors of docs/ARCHITECTURE.md. A package imports lower floors
// only; those on floor 3 never import each other. The longest prefix counts.
var floors = map[string]int{
	"api/v1alpha1":      0,
	"internal/model":    0,
	"internal/testnet":  0, // network namespaces, for tests only
	"internal/announce": 1,
	"internal/convert":  1,
	"internal/source":   1,
	"internal/election": 1,
	"internal/ipam":     1,
	"internal/resolve":  1,
	"internal/services": 1,
	"internal/machines": 1,
	"internal/nft":      1, // a socket: not for pure packages
	"internal/sockdiag": 1, // the same
	"internal/decide":   2,
	// Which addresses Services have.
	"internal/allocator": 2,
	"internal/address":   3,
	"internal/bgp":       3,
	"internal/config":    3,
	"internal/control":   3,
	"internal/gossip":    3,
	"internal/health":    3,
	"internal/k8s":       3,
	"internal/layer2":    3,
	"internal/link":      3,
	"internal/relay":     3,
	"internal/lbdtest":   3, // machines in memory, for tests only
	// An API server in memory, for tests only.
	"internal/k8s/apitest": 0,
	"internal/daemon":      4,
	"cmd/lbd":              5,
	"packaging":            4, // embedded files, no code
	"systemd":              4,
	"tests":                9, // may import everything
	"internal/arch":        9,
}

// pure packages decide with values: no I/O, no clock, no lock, no log.
var pure = []string{"internal/model", "internal/election", "internal/ipam", "internal/convert", "internal/resolve", "internal/services", "internal/machines", "internal/allocator", "internal/decide"}

// impure is what they may not import. Time values are facts; a test forbids
// reading the clock.
var impure = []string{"net", "os", "context", "sync", "log/slog", "math/rand", "syscall"}

// testOnly packages serve tests: no program contains them.
var testOnly = []string{"internal/lbdtest", "internal/testnet", "internal/k8s/apitest"}

// owners are the only folders that may import a library, by import path prefix.
var owners = map[string][]string{
	"github.com/hashicorp/memberlist":      {"internal/gossip"},
	"github.com/vishvananda/netlink":       {"internal/link", "internal/address", "internal/sockdiag"},
	"github.com/mdlayher/netlink":          {"internal/nft"},
	"github.com/mdlayher/packet":           {"internal/layer2"},
	"github.com/google/nftables":           {"internal/nft", "internal/layer2", "internal/relay"},
	"github.com/spf13/cobra":               {"cmd/lbd"},
	"github.com/coreos/go-systemd":         {"cmd/lbd"},
	"github.com/prometheus/client_golang/": {"internal/daemon", "internal/control", "internal/announce", "cmd/lbd"},
	"go.yaml.in/yaml":                      {"internal/config", "internal/convert"},
	"sigs.k8s.io/yaml":                     {"cmd/lbd"},
	"github.com/osrg/gobgp":                {"internal/bgp/gobgp"},
	"k8s.io/":                              {"internal/k8s"},
}

func TestImportLaw(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root && d.Name() != ".." || d.Name() == "testdata" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files++
		checkFile(t, path, filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Errorf("only %d files looked at: the walk is broken", files)
	}
}

func checkFile(t *testing.T, path, rel string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	pkg := filepath.ToSlash(filepath.Dir(rel))
	home, floor, known := place(pkg)
	if !known {
		t.Errorf("%s: no floor in the house", rel)
		return
	}
	test := strings.HasSuffix(rel, "_test.go")
	for _, spec := range f.Imports {
		imp, _ := strconv.Unquote(spec.Path.Value)
		if in, ok := strings.CutPrefix(imp, module); ok {
			checkFloor(t, rel, home, floor, in, test)
			to, _, _ := place(in)
			if has(testOnly, to) && to != home && floor != 9 && !test {
				t.Errorf("%s imports %s, which only tests may", rel, in)
			}
			if to == "internal/nft" && has(pure, home) {
				t.Errorf("%s imports %s: %s is pure", rel, in, home)
			}
			continue
		}
		checkOwner(t, rel, pkg, imp)
		if !test && has(pure, home) {
			for _, bad := range impure {
				if imp == bad || imp == bad+"/v2" {
					t.Errorf("%s imports %s: %s is pure", rel, imp, home)
				}
			}
		}
	}
}

// checkFloor: lower floors only, and no neighbour on the same one. Tests may use
// what stands above the package in no case either.
func checkFloor(t *testing.T, rel, home string, floor int, imp string, test bool) {
	t.Helper()
	to, toFloor, known := place(imp)
	switch {
	case !known:
		t.Errorf("%s imports %s, which has no floor", rel, imp)
	case to == home:
	case floor == 9:
	case toFloor > floor, toFloor == floor && floor >= 3:
		t.Errorf("%s (floor %d) imports %s (floor %d)", rel, floor, imp, toFloor)
	case toFloor == floor && !(home == "internal/model" && to == "api/v1alpha1") && !test:
		// Floors 0 to 2 may lean on each other as long as Go allows it.
	}
}

func checkOwner(t *testing.T, rel, pkg, imp string) {
	t.Helper()
	for lib, folders := range owners {
		if !strings.HasPrefix(imp, lib) || strings.HasPrefix(pkg, "tests/") {
			continue
		}
		ok := false
		for _, f := range folders {
			ok = ok || pkg == f || strings.HasPrefix(pkg, f+"/")
		}
		if !ok {
			t.Errorf("%s imports %s, which only %v may", rel, imp, folders)
		}
	}
}

// place finds the package of the house that a folder belongs to.
func place(pkg string) (string, int, bool) {
	for p := pkg; p != "."; p = filepath.ToSlash(filepath.Dir(p)) {
		if f, ok := floors[p]; ok {
			return p, f, true
		}
	}
	return "", 0, false
}

func has(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// TestPureCodeReadsNoClock looks for what turns a decision into something that
// cannot be repeated.
func TestPureCodeReadsNoClock(t *testing.T) {
	for _, p := range pure {
		files, err := filepath.Glob(filepath.Join("..", "..", p, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files: %v", p, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, bad := range []string{"time.Now", "time.Since", "time.Until", "time.After(", "time.Sleep", "time.NewTimer", "go func"} {
				if strings.Contains(string(src), bad) {
					t.Errorf("%s uses %s", f, bad)
				}
			}
		}
	}
}
