package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

// What is longer is hard to read as a whole. Tests may have long tables, so that their functions
// have no bound.
const (
	longestFunction = 60  // lines
	longestFile     = 500 // lines
	mostFiles       = 15  // of one package of the product, without tests; api/v1alpha1 has one a kind
)

func TestSizes(t *testing.T) {
	files := make(map[string]int)
	eachFile(t, func(name, rel string) {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if lines := set.File(f.FileStart).LineCount(); lines > longestFile {
			t.Errorf("%s has %d lines, %d may be", rel, lines, longestFile)
		}
		if strings.HasSuffix(rel, "_test.go") {
			return
		}
		if !strings.HasPrefix(rel, "tests/") {
			files[path.Dir(rel)]++
		}
		for _, d := range f.Decls {
			if fn, is := d.(*ast.FuncDecl); is {
				if lines := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1; lines > longestFunction {
					t.Errorf("%s: %s has %d lines, %d may be", rel, fn.Name.Name, lines, longestFunction)
				}
			}
		}
	})
	delete(files, "api/v1alpha1")
	for folder, n := range files {
		if n > mostFiles {
			t.Errorf("%s has %d files, %d may be", folder, n, mostFiles)
		}
	}
}
