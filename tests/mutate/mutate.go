package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is one change of one file.
type mutant struct {
	file     string // below the root of the repository
	function string
	line     int
	from, to int // offsets in the file
	text     string
	was      string
	nth      int // of those in the function that change the same text in the same way

	top, bottom int  // lines of the function
	inCase      bool // in the expression of a case
}

// name is the same as long as the function has that text, wherever it stands.
func (m *mutant) name() string {
	name := fmt.Sprintf("%s: %s: %s -> %s", m.file, m.function, oneLine(m.was), oneLine(m.text))
	if m.nth > 1 {
		name += fmt.Sprintf(" [%d]", m.nth)
	}
	return name
}

var spaces = regexp.MustCompile(`\s+`)

func oneLine(s string) string {
	if s = strings.TrimSpace(spaces.ReplaceAllString(s, " ")); s == "" {
		return "(nothing)"
	}
	return s
}

// swaps are the operators that take each other's place.
var swaps = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.LEQ, token.LEQ: token.LSS,
	token.GTR: token.GEQ, token.GEQ: token.GTR, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD,
}

// mutants are all of a folder, in order.
func mutants(root, folder string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var out []mutant
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		of, err := ofFile(filepath.ToSlash(rel), src)
		if err != nil {
			return nil, err
		}
		out = append(out, of...)
	}
	return out, nil
}

func ofFile(name string, src []byte) ([]mutant, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, src, 0)
	if err != nil {
		return nil, err
	}
	var out []mutant
	seen := map[string]int{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || fn.Name.Name == "String" { // what only people read
			continue
		}
		top, bottom := set.Position(fn.Pos()).Line, set.Position(fn.End()).Line
		cases := caseLines(fn, set)
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			from, to, text := change(n, src, set)
			if to > from {
				at := set.Position(token.Pos(set.File(f.Pos()).Base() + from))
				m := mutant{file: name, function: fn.Name.Name, line: at.Line, from: from, to: to, text: text, was: string(src[from:to]), nth: 1,
					top: top, bottom: bottom, inCase: cases[at.Line]}
				seen[m.name()]++
				m.nth = seen[m.name()]
				out = append(out, m)
			}
			return true
		})
	}
	return out, nil
}

// caseLines are the lines of the expressions of cases.
func caseLines(fn *ast.FuncDecl, set *token.FileSet) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CaseClause); ok {
			for l := set.Position(c.Case).Line; l <= set.Position(c.Colon).Line; l++ {
				lines[l] = true
			}
		}
		return true
	})
	return lines
}

// change is what becomes of a node: its text between the offsets is replaced. Without one
// both are 0.
func change(n ast.Node, src []byte, set *token.FileSet) (from, to int, text string) {
	at := func(p token.Pos) int { return set.Position(p).Offset }
	whole := func(n ast.Node) string { return string(src[at(n.Pos()):at(n.End())]) }
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if op, ok := swaps[n.Op]; ok && !isText(n) {
			x, y := whole(n.X), whole(n.Y)
			return at(n.Pos()), at(n.End()), x + " " + op.String() + " " + y
		}
	case *ast.IfStmt:
		return at(n.Cond.Pos()), at(n.Cond.End()), "!(" + whole(n.Cond) + ")"
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && !forPeople(whole(call.Fun)) {
			return at(n.Pos()), at(n.End()), ""
		}
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE && !strings.HasPrefix(whole(n), "_") {
			return at(n.Pos()), at(n.End()), ""
		}
	case *ast.IncDecStmt:
		return at(n.Pos()), at(n.End()), ""
	case *ast.Ident:
		if flip := map[string]string{"true": "false", "false": "true"}[n.Name]; flip != "" {
			return at(n.Pos()), at(n.End()), flip
		}
	}
	return 0, 0, ""
}

// isText tells whether strings are joined: a minus would not compile.
func isText(n *ast.BinaryExpr) bool {
	text := false
	ast.Inspect(n, func(n ast.Node) bool {
		l, ok := n.(*ast.BasicLit)
		text = text || ok && l.Kind == token.STRING
		return true
	})
	return text && n.Op == token.ADD
}

// forPeople tells whether a call only logs, or ends the process.
func forPeople(call string) bool {
	return slices.ContainsFunc([]string{"log.", "Log.", "logger.", "log().", "panic"}, func(s string) bool { return strings.Contains(call, s) })
}
