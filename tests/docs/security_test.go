package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestBounds: each line about what a stranger on the segment can do names a test, and each of
// these tests and scripts is there.
func TestBounds(t *testing.T) {
	var tests strings.Builder
	for _, pattern := range []string{"internal/*/*_test.go", "tests/*/*_test.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			tests.Write(b)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| frames |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")[2:]
	if len(rows) < 8 {
		t.Fatalf("%d rows", len(rows))
	}
	name := regexp.MustCompile("`([A-Za-z0-9_]+)(\\.txt)?`")
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		found := name.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(cells) != 3 || len(found) == 0 {
			t.Errorf("no test: %s", row)
		}
		for _, f := range found {
			if f[2] == "" && !strings.Contains(tests.String(), "func "+f[1]+"(") {
				t.Errorf("there is no test %s", f[1])
			}
			if _, err := os.Stat(filepath.Join(root, "internal", "decide", "testdata", f[1]+f[2])); f[2] != "" && err != nil {
				t.Error(err)
			}
		}
	}
}
