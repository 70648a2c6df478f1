package packaging

import (
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func text(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestDockerfile: the image has what `make build` makes, where the manifests look for
// it, and nothing else.
func TestDockerfile(t *testing.T) {
	stages := strings.Split(text(t, "Dockerfile"), "\nFROM ")
	if len(stages) != 3 {
		t.Fatalf("%d stages", len(stages)-1)
	}
	if first := stages[1]; !strings.Contains(first, `make build VERSION="$VERSION" COMMIT="$COMMIT"`) || strings.Contains(first, "go build") {
		t.Error("the image is not built by `make build` alone")
	}
	want := "scratch\nCOPY --from=build /src/bin/lbd /usr/bin/lbd\nENV PATH=/usr/bin\nUSER 65532:65532\nENTRYPOINT [\"/usr/bin/lbd\"]\n"
	last := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(stages[2], "")
	said := regexp.MustCompile(`(?m)^ARG .*\n|^LABEL (?:.*\\\n)*.*\n`)
	if got := said.ReplaceAllString(last, ""); got != want {
		t.Errorf("the image is\n%s", got)
	}
	labels := strings.Join(said.FindAllString(last, -1), "")
	for _, label := range []string{"title=\"lbd\"", "licenses=\"Apache-2.0\"", `version="$VERSION"`, `revision="$COMMIT"`} {
		if !strings.Contains(labels, " org.opencontainers.image."+label) {
			t.Errorf("the image has no label %s: %s", label, labels)
		}
	}
	line := regexp.MustCompile(`(?m)^\tCGO_ENABLED=0 .*$`).FindString(text(t, "Makefile"))
	for _, flag := range []string{" -trimpath ", " -buildvcs=false ", " ./cmd/lbd"} {
		if !strings.Contains(line+" ", flag) {
			t.Errorf("make build lacks %q: %s", flag, line)
		}
	}
}

// TestReproducible builds what the Dockerfile sends to the builder, in another folder,
// and wants the bytes of the build here.
func TestReproducible(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "src")
	for line := range strings.Lines(text(t, ".dockerignore")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			copyTree(t, name, dir)
		}
	}
	if err := build(dir, "bin"); err != nil {
		t.Fatal(err)
	}
	here, there := sum(t, lbd), sum(t, filepath.Join(dir, "bin", "lbd"))
	if here != there {
		t.Errorf("two builds differ: %x and %x", here, there)
	}
	if got := run(t, "version"); got != version+"\n" {
		t.Errorf("the version is %q", got)
	}
	if got := run(t, "version", "-o", "json"); !strings.Contains(got, `"commit": "`+commit+`"`) {
		t.Errorf("the commit is not told: %s", got)
	}
}

// copyTree copies a file or a folder of the repository into dir, as .dockerignore lets
// it through: without tests.
func copyTree(t *testing.T, name, dir string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, name), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.Type() == fs.ModeSymlink {
			return nil // the definitions of the chart, which the program does not have
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func sum(t *testing.T, file string) [sha256.Size]byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(data)
}
