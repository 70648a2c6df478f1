package main

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

const sample = `package p

func f(a, b int, log logger) bool {
	x := "a" + name()
	if a == b && len(x) > 1 {
		a++
	}
	log.Info("nothing that a test need notice")
	g(a)
	b = a - 1
	_ = b
	return a == b && true
}

func (t T) String() string { return t.a + t.b }
`

// TestMutants: what is changed, and that the rest of the file stays.
func TestMutants(t *testing.T) {
	all, err := ofFile("p/f.go", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		got = append(got, m.name())
		text := sample[:m.from] + m.text + sample[m.to:]
		if _, err := parser.ParseFile(token.NewFileSet(), "f.go", text, 0); err != nil {
			t.Errorf("%s: %v", m.name(), err)
		}
	}
	want := []string{
		"p/f.go: f: a == b && len(x) > 1 -> !(a == b && len(x) > 1)",
		"p/f.go: f: a == b && len(x) > 1 -> a == b || len(x) > 1",
		"p/f.go: f: a == b -> a != b",
		"p/f.go: f: len(x) > 1 -> len(x) >= 1",
		"p/f.go: f: a++ -> (nothing)",
		"p/f.go: f: g(a) -> (nothing)",
		"p/f.go: f: b = a - 1 -> (nothing)",
		"p/f.go: f: a - 1 -> a + 1",
		"p/f.go: f: a == b && true -> a == b || true",
		"p/f.go: f: a == b -> a != b [2]",
		"p/f.go: f: true -> false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if all[2].line != 5 {
		t.Errorf("line %d", all[2].line)
	}
}

// TestChoiceIsTheSame: the same seed chooses the same mutants, another one others; every
// folder is there.
func TestChoiceIsTheSame(t *testing.T) {
	root := filepath.Join("..", "..")
	names := func(seed uint64) (out []string) {
		all, err := choose(root, "", seed)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all[:200] {
			out = append(out, all[i].name())
		}
		return out
	}
	if one := names(1); !slices.Equal(one, names(1)) || slices.Equal(one, names(2)) {
		t.Error("the choice does not follow the seed")
	}
	for folder := range folders {
		if of, err := mutants(root, folder); err != nil || len(of) == 0 {
			t.Errorf("%s: %d mutants, %v", folder, len(of), err)
		}
	}
}

// TestEveryEquivalentHasAReason, and is still in the code.
func TestEveryEquivalentHasAReason(t *testing.T) {
	known, err := equivalents(equivalentFile)
	if err != nil {
		t.Fatal(err)
	}
	all, err := choose(filepath.Join("..", ".."), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		delete(known, all[i].name())
	}
	for name := range known {
		t.Errorf("equivalent.txt: the code has no such line any more: %s", name)
	}
	if _, err := equivalents("a: b -> c\n"); err == nil {
		t.Error("a line without a reason is taken")
	}
}
