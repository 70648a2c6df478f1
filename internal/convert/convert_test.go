package convert

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"go.yaml.in/yaml/v3"

	"lbd.dev/lbd/api/v1alpha1"
)

var update = flag.Bool("update", false, "write what comes out as what is wanted")

// lines renders notes, one a line.
func lines(notes []Note) string {
	var b strings.Builder
	for _, n := range notes {
		if n.Kept {
			b.WriteString("kept: ")
		}
		b.WriteString(n.String() + "\n")
	}
	return b.String()
}

// TestGolden converts testdata/NAME.in.yaml and compares objects with
// NAME.out.yaml and what is said, errors last, with NAME.notes.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob(filepath.Join("testdata", "*.in.yaml"))
	if err != nil || len(inputs) < 9 {
		t.Fatal(inputs, err)
	}
	for _, in := range inputs {
		name := strings.TrimSuffix(filepath.Base(in), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(in)
			if err != nil {
				t.Fatal(err)
			}
			r := MetalLB([]File{{filepath.Base(in), data}})
			out, err := r.YAML()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".out.yaml", out)
			golden(t, name+".notes", []byte(lines(r.Notes)+lines(r.Errors)))
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v\ngot\n%s\nwant\n%s", name, err, got, want)
	}
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestOrder: objects come out the same however they are spread over files.
func TestOrder(t *testing.T) {
	data := read(t, "bgp.in.yaml")
	docs := strings.Split(string(data), "\n---\n")
	want, err := MetalLB([]File{{"a", data}}).YAML()
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(docs)
	var files []File
	for _, d := range docs {
		files = append(files, File{"a", []byte(d)})
	}
	got, err := MetalLB(files).YAML()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestNotesInOrder: notes come in the order of the files, then of the lines.
func TestNotesInOrder(t *testing.T) {
	r := MetalLB([]File{{"z", read(t, "bfd.in.yaml")}, {"a", read(t, "list.in.yaml")}, {"empty", []byte("# nothing\n---\n")}})
	var at []string
	last := Note{}
	for _, n := range r.Notes {
		if len(at) == 0 || at[len(at)-1] != n.File {
			at = append(at, n.File)
		} else if n.Line < last.Line {
			t.Errorf("%v after %v", n, last)
		}
		last = n
	}
	if strings.Join(at, " ") != "z a empty" || last.String() != "empty: has no object" {
		t.Error(at, last)
	}
}

// TestNoSecretIsShown: passwords, even where they are misspelled, are in no note.
func TestNoSecretIsShown(t *testing.T) {
	const head = "apiVersion: metallb.io/v1beta2\nkind: BGPPeer\nmetadata: {name: a}\nspec:\n"
	for _, spec := range []string{
		"  password: hunter2\n  passwrod: hunter2\n  pass: [hunter2]\n", "  password: [hunter2]\n", "  password: {hunter2: 1}\n", "  password: *hunter2\n",
		"  password: \"hunter2\\n\"\n", "  passwordSecret: {hunter: hunter2}\n", "  password: !!int hunter2\n",
	} {
		r := MetalLB([]File{{"a", []byte(head + spec)}})
		text := lines(r.Notes) + lines(r.Errors)
		if strings.Contains(strings.ReplaceAll(text, "spec.password.hunter2", ""), "hunter2") || text == "" {
			t.Errorf("%q: %s", spec, text)
		}
	}
}

// TestQuotes: strings that some YAML reads as something else stay strings.
func TestQuotes(t *testing.T) {
	values := []string{"yes", "No", "on", "y", "~", "null", "1", "1.5", "0x1", "1e3", "10.0.0.1", "10.0.0.0/8", "10.0.0.1-10.0.0.9", "9s", "12:30", "2026-11-21",
		"a: b", "a #b", "- a", "*a", "&a", "", " a", "é", "\x7f", "\u2028", "\ufeff", "😀", "a\nb", "<a>", "a/b.c-d_e", ".inf", "=", "!a", "%a", "@a", "`a", "{a", "x,y", "true"}
	p := &v1alpha1.IPAddressPool{Spec: v1alpha1.IPAddressPoolSpec{Addresses: values}}
	out, err := Result{Objects: []any{p}}.YAML()
	if err != nil {
		t.Fatal(err)
	}
	var back struct{ Spec struct{ Addresses []string } }
	if err := yaml.Unmarshal(out, &back); err != nil || !slices.Equal(back.Spec.Addresses, values) {
		t.Errorf("%v\n%q\n%s", err, back.Spec.Addresses, out)
	}
	for _, line := range []string{"- \"yes\"", "- \"No\"", "- \"on\"", "- \"y\"", "- \"null\"", "- \"12:30\"", "- 10.0.0.1\n", "- 10.0.0.1-10.0.0.9\n", "- 9s\n"} {
		if !strings.Contains(string(out), line) {
			t.Errorf("no %q in\n%s", line, out)
		}
	}
}

// TestDeepLists: lists in lists end.
func TestDeepLists(t *testing.T) {
	text := "{kind: List, items: ["
	r := MetalLB([]File{{"a", []byte(strings.Repeat(text, 50) + strings.Repeat("]}", 50))}})
	if got := lines(r.Errors); !strings.Contains(got, "has lists in lists") {
		t.Error(got)
	}
}

func FuzzMetalLB(f *testing.F) {
	inputs, _ := filepath.Glob(filepath.Join("testdata", "*.in.yaml"))
	for _, in := range inputs {
		for doc := range strings.SplitSeq(string(read(f, filepath.Base(in))), "\n---\n") {
			f.Add([]byte(doc))
		}
	}
	f.Add([]byte("apiVersion: metallb.io/v1beta1\nkind: \"IPAddressPool\\n\"\nmetadata: {name: \"a\\0\", labels: {\"\\x7f\": \"\\e\"}}\nspec: {addresses: [\"\\n\"]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := MetalLB([]File{{"in.yaml", data}})
		for _, n := range slices.Concat(r.Notes, r.Errors) {
			if s := n.String(); strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsGraphic(c) }) || len(s) > 2000 {
				t.Fatalf("%q", s)
			}
		}
		out, err := r.YAML()
		if err != nil {
			t.Fatal(err)
		}
		// What comes out is of lbd and is left alone, object by object.
		again := MetalLB([]File{{"out.yaml", out}})
		if len(again.Errors) > 0 || len(again.Objects) > 0 || len(r.Objects) > 0 && len(again.Notes) != len(r.Objects) {
			t.Fatalf("%d objects, again %v %v\n%s", len(r.Objects), again.Notes, again.Errors, out)
		}
	})
}
