package previous

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	kindLine = regexp.MustCompile(`(?m)^kind: (\S+)`)
	nameLine = regexp.MustCompile(`(?m)^metadata:\n(?:  .*\n)*?  name: (\S+)`)
)

// TestLeftObjects wants CHANGELOG.md to say how to delete what an upgrade with kustomize
// leaves in the cluster: kubectl apply removes no object that the manifests have no more.
func TestLeftObjects(t *testing.T) {
	v := For(t)
	const dir = "packaging/kustomize"
	names, err := v.Files(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	before, after := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		old, err := v.File(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		objects(before, string(old))
	}
	err = filepath.WalkDir(filepath.Join(v.root, dir), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		now, err := os.ReadFile(path)
		objects(after, string(now))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(before) < 10 || len(after) < 10 {
		t.Fatalf("only %d objects before, %d now", len(before), len(after))
	}
	changes, err := os.ReadFile(filepath.Join(v.root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	for o := range before {
		if words := "`kubectl delete " + o + "`"; !after[o] && !strings.Contains(string(changes), words) {
			t.Errorf("%s is left by an upgrade from %s: CHANGELOG.md lacks %s", o, v.Name, words)
		}
	}
}

// objects adds the objects of a file of manifests, as kubectl names them.
func objects(to map[string]bool, file string) {
	for doc := range strings.SplitSeq(file, "\n---\n") {
		kind, name := kindLine.FindStringSubmatch(doc), nameLine.FindStringSubmatch(doc)
		if kind != nil && name != nil {
			to[strings.ToLower(kind[1])+" "+name[1]] = true
		}
	}
}
