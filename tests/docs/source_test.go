package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sources parses the Go files below a folder, without tests.
func sources(t *testing.T, dir string) []*ast.File {
	t.Helper()
	var files []*ast.File
	err := filepath.WalkDir(filepath.Join(root, filepath.FromSlash(dir)), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		files = append(files, f)
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files: %v", dir, len(files), err)
	}
	return files
}

var metricName = regexp.MustCompile(`^lbd_[a-z0-9_]+$`)

// metricNames returns the names of metrics in the code.
func metricNames(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, dir := range []string{"cmd/lbd", "internal"} {
		for _, f := range sources(t, dir) {
			ast.Inspect(f, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return true
				}
				if s, err := strconv.Unquote(lit.Value); err == nil && metricName.MatchString(s) && !slices.Contains(all, s) {
					all = append(all, s)
				}
				return true
			})
		}
	}
	return all
}

// TestMetrics compares the names of metrics in the code with the tables, and
// finds names in any page that do not exist.
func TestMetrics(t *testing.T) {
	want := metricNames(t)
	var got []string
	for _, row := range readPage(t, "docs/metrics.md").rows("") {
		got = append(got, codes(row[0])...)
	}
	same(t, "docs/metrics.md", got, want)

	anywhere := regexp.MustCompile(`\blbd_[a-z0-9_]+`)
	for _, p := range read(t) {
		for _, name := range anywhere.FindAllString(p.text, -1) {
			if !slices.Contains(want, name) {
				t.Errorf("%s names the metric %s, which does not exist", p.path, name)
			}
		}
	}
}

// durations returns the exported constants of a package whose value mentions the
// package time.
func durations(t *testing.T, dir, pkg string) []string {
	t.Helper()
	var out []string
	for _, f := range sources(t, dir) {
		for _, decl := range f.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				for i, name := range v.Names {
					if name.IsExported() && i < len(v.Values) && ofTime(v.Values[i]) {
						out = append(out, pkg+"."+name.Name)
					}
				}
			}
		}
	}
	return out
}

func ofTime(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == "time"
		return true
	})
	return found
}
