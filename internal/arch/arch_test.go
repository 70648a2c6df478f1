// Package arch holds the law of the house as tests: which package may import which, who may know an
// outside library, and how long functions and files may be.
package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "lbd.dev/lbd/"

// floors are the floors of docs/ARCHITECTURE.md. A package imports lower floors
// only. The longest prefix counts.
var floors = map[string]int{
	"internal/fieldtest":         -1, // below model, whose tests use it
	"api/v1alpha1":               0,
	"internal/model":             0,
	"internal/wake":              0,
	"internal/shortlist":         0,
	"internal/testnet":           0,
	"internal/k8s/apitest":       0,
	"internal/gossip/memnet":     0,
	"internal/agree":             1,
	"internal/announce":          1,
	"internal/convert":           1,
	"internal/source":            1,
	"internal/election":          1,
	"internal/ipam":              1,
	"internal/resolve":           1,
	"internal/machines":          1,
	"internal/tenants":           1,
	"internal/tenants/propagate": 2,
	"internal/tenants/routes":    2,
	"internal/place":             1,
	"internal/audience":          1,
	"internal/learned":           1,
	"internal/wire":              2,
	"internal/balance":           2,
	"internal/nft":               1,
	"internal/rtnetlink":         1,
	"internal/sockdiag":          1,
	"internal/sockfilter":        1,
	"internal/fileaccess":        1,
	"internal/program":           1,
	"internal/gossip/record":     1,
	"internal/services":          2,
	"internal/membership":        2,
	"internal/loopback":          2,
	"internal/ring":              2,
	"internal/steady":            1,
	"internal/unconfigured":      1,
	"internal/gossip/beat":       2,
	"internal/allocator":         2,
	"internal/decide":            3,
	"internal/address":           3,
	"internal/bgp":               3,
	"internal/config":            3,
	"internal/control":           3,
	"internal/gossip":            3,
	"internal/health":            3,
	"internal/k8s":               3,
	"internal/layer2":            3,
	"internal/link":              3,
	"internal/relay":             3,
	"internal/forward":           3,
	"internal/route":             3,
	"internal/notify":            3,
	"internal/lbdtest":           3,
	"internal/bundle":            4,
	"internal/daemon":            4,
	"internal/top":               4,
	"internal/page":              4,
	"internal/preflight":         4,
	"internal/logqueue":          1,
	"packaging":                  3,
	"systemd":                    3,
	"cmd/lbd":                    5,
	"tests":                      anyFloor,
	"internal/arch":              anyFloor,
}

// anyFloor is of what may import everything, and is imported by nobody.
const anyFloor = 9

// pure packages decide with values: no I/O, no clock, no lock, no log, and nothing of the
// house that is not pure. Their tests may do all that.
var pure = []string{
	"api/v1alpha1", "internal/model", "internal/shortlist", "internal/election", "internal/ipam", "internal/convert", "internal/place", "internal/membership", "internal/audience", "internal/loopback", "internal/ring", "internal/steady", "internal/unconfigured", "internal/wire", "internal/balance", "internal/learned", "internal/resolve", "internal/agree",
	"internal/services", "internal/machines", "internal/tenants", "internal/tenants/propagate", "internal/tenants/routes", "internal/allocator", "internal/decide",
}

// impure is what they may not import. Time values are facts; a test forbids
// reading the clock.
var impure = []string{"net", "os", "context", "sync", "log/slog", "math/rand", "math/rand/v2", "syscall", "golang.org/x/sys/unix"}

// testOnly packages serve tests: no program contains them.
var testOnly = []string{"internal/lbdtest", "internal/testnet", "internal/fieldtest", "internal/k8s/apitest", "internal/gossip/memnet"}

// owners are the only folders that may import a library, by import path prefix; one that is
// not here nobody may. What tests/ imports is its own affair.
var owners = map[string][]string{
	"github.com/CycloneDX/cyclonedx-go":      {"packaging/release"},
	"github.com/coreos/go-systemd":           {"cmd/lbd"},
	"github.com/google/go-containerregistry": {"packaging/release"},
	"github.com/google/nftables":             {"internal/nft", "internal/layer2", "internal/relay", "internal/forward", "internal/route"},
	"github.com/goreleaser/nfpm":             {"packaging/release"},
	"github.com/hashicorp/memberlist":        {"internal/gossip"},
	"github.com/mdlayher/netlink":            {"internal/nft"},
	"github.com/mdlayher/packet":             {"internal/layer2"},
	"github.com/osrg/gobgp":                  {"internal/bgp/gobgp"},
	"github.com/prometheus/client_golang":    {"internal/daemon", "internal/control", "cmd/lbd"},
	"github.com/prometheus/client_model":     {"internal/daemon"},
	"github.com/spf13/cobra":                 {"cmd/lbd"},
	"github.com/vishvananda/netlink":         {"internal/link", "internal/address", "internal/rtnetlink", "internal/sockdiag", "internal/bundle", "internal/route"},
	"go.yaml.in/yaml":                        {"internal/config", "internal/convert"},
	"golang.org/x/net/bpf":                   {"internal/sockfilter", "internal/address", "internal/bgp/bfd", "internal/layer2", "internal/link", "internal/nft", "internal/route"},
	"golang.org/x/net/html":                  {},                      // tests only
	"golang.org/x/sys/unix":                  {"internal", "cmd/lbd"}, // but not the pure packages
	"golang.org/x/text":                      {"cmd/lbd"},
	"k8s.io":                                 {"internal/k8s"},
	"pgregory.net/rapid":                     {}, // tests only
	"sigs.k8s.io/yaml":                       {"cmd/lbd", "internal/preflight", "packaging/release"},
}

func TestImportLaw(t *testing.T) {
	used := map[string]bool{}
	eachFile(t, func(path, rel string) { checkFile(t, path, rel, used) })
	for lib, folders := range owners {
		for _, f := range folders {
			if !used[lib+" "+f] {
				t.Errorf("%s does not import %s: it need not be allowed to", f, lib)
			}
		}
	}
	for folder := range floors {
		if _, err := os.Stat(filepath.Join("..", "..", folder)); err != nil {
			t.Error(err)
		}
	}
}

// eachFile calls look for each Go file of the repository, of its other modules too.
func eachFile(t *testing.T, look func(path, rel string)) {
	t.Helper()
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
		look(path, filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Errorf("only %d files looked at: the walk is broken", files)
	}
}

func checkFile(t *testing.T, path, rel string, used map[string]bool) {
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
			continue
		}
		checkOwner(t, rel, pkg, imp, test, used)
		if !test && slices.Contains(pure, home) && slices.Contains(impure, imp) {
			t.Errorf("%s imports %s: %s is pure", rel, imp, home)
		}
	}
}

// checkFloor: lower floors only, and no neighbour on the same one, in tests too. Packages for
// tests may import their own floor.
func checkFloor(t *testing.T, rel, home string, floor int, imp string, test bool) {
	t.Helper()
	to, toFloor, known := place(imp)
	switch {
	case !known:
		t.Errorf("%s imports %s, which has no floor", rel, imp)
	case to == home || floor == anyFloor:
	case toFloor == floor && slices.Contains(testOnly, home): // it makes drivers as they are shipped
	case toFloor >= floor:
		t.Errorf("%s (floor %d) imports %s (floor %d)", rel, floor, imp, toFloor)
	case test:
	case slices.Contains(testOnly, to):
		t.Errorf("%s imports %s, which only tests may", rel, to)
	case slices.Contains(pure, home) && !slices.Contains(pure, to):
		t.Errorf("%s imports %s: %s is pure", rel, to, home)
	}
}

// checkOwner notes in used who uses what belongs to him.
func checkOwner(t *testing.T, rel, pkg, imp string, test bool, used map[string]bool) {
	t.Helper()
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") || strings.HasPrefix(pkg, "tests/") {
		return // the standard library
	}
	for lib, folders := range owners {
		if !within(imp, lib) {
			continue
		}
		if i := slices.IndexFunc(folders, func(f string) bool { return within(pkg, f) }); i >= 0 {
			used[lib+" "+folders[i]] = true
		} else if !test || len(folders) > 0 {
			t.Errorf("%s imports %s, which only %v may", rel, imp, folders)
		}
		return
	}
	t.Errorf("%s imports %s, which no folder owns", rel, imp)
}

func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

// TestThePageHasTheLaw: docs/ARCHITECTURE.md has the floors, which packages are pure and for
// tests only, and the libraries. So an exception stands there, or is none.
func TestThePageHasTheLaw(t *testing.T) {
	src, err := os.ReadFile(filepath.Join("..", "..", "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^((?:[a-z0-9/]+/ +)+)(?:floor (-?\d)|any) +(\w*)`)
	pages := map[string]int{}
	for _, m := range row.FindAllStringSubmatch(string(src), -1) {
		for _, folder := range strings.Fields(m[1]) {
			folder = strings.TrimSuffix(folder, "/")
			pages[folder] = anyFloor
			if m[2] != "" {
				pages[folder], _ = strconv.Atoi(m[2])
			}
			if got := slices.Contains(pure, folder); got != (m[3] == "pure") {
				t.Errorf("the page says of %s %q, the law that it is pure: %v", folder, m[3], got)
			}
			if got := slices.Contains(testOnly, folder); got != (m[3] == "tests") && m[2] != "" {
				t.Errorf("the page says of %s %q, the law that it is for tests only: %v", folder, m[3], got)
			}
		}
	}
	if !maps.Equal(pages, floors) {
		t.Errorf("the page has\n%v\nthe law has\n%v", pages, floors)
	}
	libraries := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+\\.[A-Za-z0-9./_-]+)` \\| (.*) \\|$").FindAllStringSubmatch(string(src), -1) {
		libraries[m[1]] = m[2]
	}
	for lib, folders := range owners {
		if want := "`" + strings.Join(folders, "` `") + "`"; len(folders) > 0 && !strings.HasPrefix(libraries[lib], want) || libraries[lib] == "" {
			t.Errorf("the page says of %s %q, the law %q", lib, libraries[lib], folders)
		}
		delete(libraries, lib)
	}
	if len(libraries) > 0 {
		t.Errorf("the page has libraries that the law has not: %v", libraries)
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

// TestNothingIsSkippedInCI: a test that cannot run says so by testnet.Require, which fails
// in CI. One that skips of itself would look green there for ever.
func TestNothingIsSkippedInCI(t *testing.T) {
	skips := regexp.MustCompile(`\b\w+\.Skip(f|Now)?\(`)
	eachFile(t, func(path, rel string) {
		if strings.HasPrefix(rel, "internal/testnet/") {
			return
		}
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range skips.FindAllString(string(src), -1) {
			t.Errorf("%s: %s...) skips a test in CI too", rel, call)
		}
	})
}
