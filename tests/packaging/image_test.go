package packaging

import (
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

// TestBuild: the program is built without anything of the folder that it is built in, and tells
// its version and commit. packaging/release compares the bytes of two builds.
func TestBuild(t *testing.T) {
	line := regexp.MustCompile(`(?m)^\tCGO_ENABLED=0 .*$`).FindString(text(t, "Makefile"))
	for _, flag := range []string{" -trimpath ", " -buildvcs=false ", " ./cmd/lbd"} {
		if !strings.Contains(line+" ", flag) {
			t.Errorf("make build lacks %q: %s", flag, line)
		}
	}
	if got := run(t, "version"); got != version+"\n" {
		t.Errorf("the version is %q", got)
	}
	if got := run(t, "version", "-o", "json"); !strings.Contains(got, `"commit": "`+commit+`"`) {
		t.Errorf("the commit is not told: %s", got)
	}
}
