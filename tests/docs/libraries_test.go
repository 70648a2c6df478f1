package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestLibraries: CONTRIBUTING names libraries in the versions that lbd has.
func TestLibraries(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)$`).FindAllStringSubmatch(string(data), -1) {
		has[m[1]] = m[2]
	}
	rows := readPage(t, "CONTRIBUTING.md").rows("Libraries")
	for _, row := range rows {
		for _, name := range codes(row[0]) {
			if has[name] != row[1] {
				t.Errorf("CONTRIBUTING.md: %s is %s and not %s", name, has[name], row[1])
			}
		}
	}
	if len(rows) == 0 {
		t.Error("CONTRIBUTING.md has no table of libraries")
	}
}
